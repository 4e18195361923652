"""Generators: who draws next, and from where; inside a captured graph, from a place that every replay finds renewed.

Names follow ``torch.Generator``. A generator hands out *states*, (seed, offset) pairs that stand for numbers never
drawn before; the operations that turn one into numbers are pure. While a capture runs it hands out a `ReplayState`
instead: before each replay the graph takes as many words from the generator as its calls draw together, so a replay
gives what the same calls would have given at that moment without a graph. `Recordings` is what takes part in the
captures of a kind (see `cuassay.core.participants`).

Where we differ from torch: a state is `bytes`; equal seeds give equal numbers on every kind and model of device; one
generator may serve several graphs whose replays run at the same time, as each graph has a place of its own.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable

from cuassay.core.device import Device
from cuassay.core.generator import DEFAULT_SEED, WORDS_PER_CALL, GeneratorState
from cuassay.core.handle import Handle
from cuassay.core.numbers import as_whole
from cuassay.errors import ArgumentError, CaptureError

__all__ = [
    "DrawState",
    "Generator",
    "Place",
    "Recordings",
    "ReplayState",
    "default_generator",
    "default_generators",
    "may_seed_default_generators",
    "seed_default_generators",
]


class Position:
    """Where a generator stands; shared by those that `Generator.graphsafe_set_state` made one."""

    __slots__ = ("state",)

    #: One for all, so that a fork can wait for it; it is held for a few additions.
    lock = threading.Lock()

    def __init__(self, state: GeneratorState) -> None:
        self.state = state

    def take(self, words: int) -> GeneratorState:
        """The state of now; the next one begins `words` later."""
        with self.lock:
            taken = self.state
            self.state = taken.advance(1, words)
        return taken


# ------------------------------------------------------------------------------------------------ captured graphs


class Place:
    """What the calls of one captured graph draw from, of one generator.

    Attributes
    ----------
    state : GeneratorState
        Where the latest replay began to draw; before the first, where the generator stood at capture.
    words : int
        What the calls of one replay take together.
    cell : object
        What the kind keeps for it: on cuda, device memory that holds `state`.
    """

    __slots__ = ("_position", "cell", "state", "words")

    def __init__(self, position: Position, cell: object) -> None:
        self._position = position
        self.state = position.state
        self.words = 0
        self.cell = cell

    def record(self, words: int) -> ReplayState:
        """One more call of the graph, which takes `words`."""
        recorded = ReplayState(self, self.words)
        self.words += words
        return recorded

    def renew(self) -> None:
        """A replay begins: its words are taken from the generator."""
        self.state = self._position.take(self.words)


class ReplayState:
    """The state of a call inside a captured graph: `start` words after where its replay begins.

    `seed` and `offset` are those of the latest replay; before the first, those the call would have had without a graph.
    """

    __slots__ = ("place", "start")

    def __init__(self, place: Place, start: int) -> None:
        self.place = place
        self.start = start

    def __repr__(self) -> str:
        return f"ReplayState({self.start} words after {self.place.state})"

    @property
    def seed(self) -> int:
        """The key."""
        return self.place.state.seed

    @property
    def offset(self) -> int:
        """Words that each subsequence has given before."""
        return self.place.state.offset + self.start


#: What an operation draws from.
DrawState = GeneratorState | ReplayState


class _Recording:
    """One capture while it runs: its thread, its device, a place for each generator that has drawn."""

    def __init__(self, device: Device, new_cell: Callable[[Device], object]) -> None:
        self.device = device
        self.thread = threading.get_ident()
        self.places: dict[int, Place] = {}
        self._new_cell = new_cell

    def place(self, position: Position) -> Place:
        found = self.places.get(id(position))
        if found is None:
            found = self.places[id(position)] = Place(position, self._new_cell(self.device))
        return found


#: The captures that run now, the latest last.
_OPEN: list[_Recording] = []


def _recording_of(device: Device) -> _Recording | None:
    """The latest capture that this thread has begun on `device` and not ended."""
    if not _OPEN:
        return None
    thread = threading.get_ident()
    return next((one for one in reversed(_OPEN) if one.thread == thread and one.device == device), None)


class Recordings:
    """Takes part in the captures of a kind for every generator of it; see `cuassay.core.participants.Participant`.

    Parameters
    ----------
    new_cell : callable
        From the device to what a `Place` of a capture on it keeps; called while the capture runs.
    publish : callable
        Of a `Place` just renewed: write its state where the recorded work reads it, ordered before the replay.
    drop : callable
        Of a cell whose graph is gone.
    """

    def __init__(
        self,
        new_cell: Callable[[Device], object] = lambda device: None,
        publish: Callable[[Place], None] = lambda place: None,
        drop: Callable[[object], None] = lambda cell: None,
    ) -> None:
        self._new_cell, self._publish, self._drop = new_cell, publish, drop
        self._known: dict[int, tuple[object, _Recording]] = {}

    def __repr__(self) -> str:
        return f"Recordings({len(self._known)} captures)"

    def capture_begin(self, capture: object, device: Device) -> None:
        """Generators of `device` record what this thread draws."""
        recording = _Recording(device, self._new_cell)
        self._known[id(capture)] = capture, recording  # the capture too: its id is its own while it lives
        _OPEN.append(recording)

    def capture_end(self, capture: object, device: Device) -> Callable[[], None] | None:
        """What renews the places before each replay; None where nothing was drawn."""
        _, recording = self._known[id(capture)]
        _OPEN.remove(recording)
        places = [place for place in recording.places.values() if place.words]
        publish = self._publish
        if not places:
            return None

        def renew() -> None:
            for place in places:
                place.renew()
                publish(place)

        return renew

    def capture_forget(self, capture: object, device: Device) -> None:
        """Its places are dropped."""
        _, recording = self._known.pop(id(capture))
        if recording in _OPEN:
            _OPEN.remove(recording)
        for place in recording.places.values():
            self._drop(place.cell)


# ------------------------------------------------------------------------------------------------ generators


class Generator(Handle):
    """A source of states for the operations that draw random numbers on one device.

    Parameters
    ----------
    device : str or Device
        Where its numbers are drawn; nothing is asked of the device.
    seed : int
        As for `manual_seed`.
    """

    __slots__ = ("_device", "_position")

    def __init__(self, device: str | Device = "cpu", *, seed: int = DEFAULT_SEED) -> None:
        self._device = Device(device)
        self._position = Position(GeneratorState(_key(seed)))

    def __repr__(self) -> str:
        state = self._position.state
        return f"Generator({self._device}, seed {state.seed}, offset {state.offset})"

    @property
    def device(self) -> Device:
        """Where its numbers are drawn."""
        return self._device

    def take(self, words: int = WORDS_PER_CALL) -> DrawState:
        """A state to draw from, whose next `words` words in every subsequence nobody else is given.

        While this thread captures on the device it is one that every replay finds renewed.
        """
        recording = _recording_of(self._device)
        if recording is None:
            return self._position.take(words)
        return recording.place(self._position).record(-(-words // WORDS_PER_CALL) * WORDS_PER_CALL)

    def manual_seed(self, seed: int) -> Generator:
        """Restart from `seed`, at offset 0; return the generator.

        Parameters
        ----------
        seed : int
            From -2**63 to 2**64 - 1; a negative one stands for itself plus 2**64.

        Raises
        ------
        CaptureError
            If this thread captures on the device and `seed` is not the present seed. The present seed changes nothing.
        ArgumentError
            If the seed is out of range.
        """
        if self.may_seed(seed):
            self._set(GeneratorState(_key(seed)), "seeding it")
        return self

    def may_seed(self, seed: int) -> bool:
        """Whether `manual_seed` would change anything. Raises as it does."""
        key = _key(seed)
        if _recording_of(self._device) is None:
            return True
        if key != self._position.state.seed:
            raise self._refused(f"seeding it with {seed}")
        return False

    def seed(self) -> int:
        """Restart from a seed that the operating system draws; return the seed. Raises as `manual_seed`."""
        drawn = secrets.randbits(64)
        self.manual_seed(drawn)
        return drawn

    def initial_seed(self) -> int:
        """The seed."""
        return self._position.state.seed

    def get_offset(self) -> int:
        """Words that each subsequence has given: a multiple of 4. Raises `CaptureError` as `get_state`."""
        return self._get("its offset").offset

    def set_offset(self, offset: int) -> None:
        """Go on from `offset`, a multiple of 4, with the same seed. Raises as `set_state`."""
        self._set(GeneratorState(self.initial_seed(), offset), f"setting its offset to {offset}")

    def get_state(self) -> bytes:
        """16 bytes: seed and offset, as torch lays them out.

        Raises
        ------
        CaptureError
            If this thread captures on the device: where the generator stands is decided by each replay.
        """
        return self._get("its state").to_bytes()

    def set_state(self, state: bytes | bytearray | memoryview) -> None:
        """Continue from a state that `get_state` returned: 16 bytes, or 8 bytes for a seed alone.

        Raises
        ------
        CaptureError
            If this thread captures on the device.
        ArgumentError
            If these bytes are not a state.
        """
        try:
            data = bytes(memoryview(state))
        except TypeError:
            raise ArgumentError(f"a generator's state is bytes; got {state!r}; give what get_state returned") from None
        self._set(GeneratorState.from_bytes(data), "setting its state")

    def clone_state(self) -> Generator:
        """A new generator at the same position as this one. Raises `CaptureError` as `get_state`."""
        cloned = Generator(self._device)
        cloned._position = Position(self._get("its state"))
        return cloned

    def graphsafe_get_state(self) -> Generator:
        """A generator that shares this one's position now and from now on; allowed while capturing."""
        shared = Generator(self._device)
        shared._position = self._position
        return shared

    def graphsafe_set_state(self, state: Generator) -> None:
        """Share the position of `state`, a generator of the same device, from now on; allowed while capturing.

        Graphs that were captured before keep the position that they drew from. Raises `ArgumentError` if `state` is
        for another device.
        """
        if state.device != self._device:
            raise ArgumentError(f"{state!r} is not a generator of {self._device}; share one of the same device")
        self._position = state._position

    def _get(self, what: str) -> GeneratorState:
        if _recording_of(self._device) is not None:
            raise self._refused(f"reading {what}")
        return self._position.state

    def _set(self, state: GeneratorState, doing: str) -> None:
        if _recording_of(self._device) is not None:
            raise self._refused(doing)
        with self._position.lock:
            self._position.state = state

    def _refused(self, doing: str) -> CaptureError:
        return CaptureError(
            f"{self!r}: {doing} is illegal while {self._device} is being captured: each replay draws from the "
            f"generator's position at that time; do it before the capture, or before a replay"
        )


def _key(seed: int) -> int:
    """The seed as an unsigned number; of any integer type, as NumPy's."""
    given = as_whole(seed)  # callers without a type checker pass anything
    if given is None or not -(2**63) <= given < 2**64:
        raise ArgumentError(f"seed {seed!r} does not fit; give an integer from -2**63 to 2**64 - 1")
    return given % 2**64


# ------------------------------------------------------------------------------------------------ defaults

_DEFAULTS: dict[Device, Generator] = {}
_SEEDS: dict[str, int] = {}
_LOCK = threading.Lock()

# No thread is within either while the process is forked: a child that draws would wait for ever.
for _lock in (_LOCK, Position.lock):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def default_generator(device: str | Device) -> Generator:
    """The generator that draws on `device` where none is given; asks nothing of the device."""
    named = Device(device)
    with _LOCK:
        found = _DEFAULTS.get(named)
        if found is None:
            found = _DEFAULTS[named] = Generator(named, seed=_SEEDS.get(named.kind, DEFAULT_SEED))
    return found


def default_generators(kind: str) -> tuple[Generator, ...]:
    """The default generators of a kind that have been asked for, by index."""
    with _LOCK:
        return tuple(_DEFAULTS[device] for device in sorted(_DEFAULTS) if device.kind == kind)


def may_seed_default_generators(kind: str, seed: int) -> None:
    """Raise where `seed_default_generators` would."""
    thread = threading.get_ident()
    for recording in tuple(_OPEN):
        if recording.thread == thread and recording.device.kind == kind:
            default_generator(recording.device)  # nobody may have asked for it yet
    for generator in default_generators(kind):
        generator.may_seed(seed)


def seed_default_generators(kind: str, seed: int) -> None:
    """Seed the default generators of all devices of `kind`, those that nobody has asked for yet too.

    Raises
    ------
    CaptureError
        If this thread captures on one of them; then none is seeded.
    """
    may_seed_default_generators(kind, seed)
    with _LOCK:
        _SEEDS[kind] = _key(seed)
    for generator in default_generators(kind):
        generator.manual_seed(seed)
