"""Random-number generators, which hand out states to the operations that draw.

Names follow ``torch.Generator``. A generator hands out *states*, (seed, offset) pairs whose numbers were not drawn
before. The operations that turn a state into numbers are pure. During a capture a generator hands out a `ReplayState`
instead, whose offset changes with every replay: see `cuassay.core.recordings`.

Differences from torch: a state is `bytes`; equal seeds give equal numbers on every kind and model of device; one
generator may serve several graphs that are replayed at the same time, because each graph stores its own offset.
"""

from __future__ import annotations

import os
import secrets
import threading

from cuassay.core import draws
from cuassay.core.device import Device
from cuassay.core.generator import DEFAULT_SEED, WORDS_PER_CALL, GeneratorState
from cuassay.core.handle import Handle
from cuassay.core.numbers import as_whole
from cuassay.core.recordings import DrawState, Position, captured_devices, recording_of
from cuassay.errors import ArgumentError, CaptureError

__all__ = [
    "Generator",
    "default_generator",
    "default_generators",
    "may_seed_default_generators",
    "seed_default_generators",
]


class Generator(Handle):
    """A source of states for the operations that draw random numbers on one device.

    Parameters
    ----------
    device : str or Device
        The device on which numbers are drawn. The device is not accessed.
    seed : int
        The seed, as in `manual_seed`.
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
        """The device on which numbers are drawn."""
        return self._device

    def take(self, words: int = WORDS_PER_CALL) -> DrawState:
        """Return a state, and advance past its next `words` words in every subsequence.

        While this thread captures on the device, the state is a `ReplayState`, which each replay updates.
        """
        if draws.is_watched():
            return draws.taken(self._device, lambda: self._take(words))
        return self._take(words)

    def _take(self, words: int) -> DrawState:
        recording = recording_of(self._device)
        if recording is None:
            return self._position.take(words)
        return recording.place(self._position).record(-(-words // WORDS_PER_CALL) * WORDS_PER_CALL)

    def manual_seed(self, seed: int) -> Generator:
        """Restart from `seed` at offset 0, and return the generator.

        Parameters
        ----------
        seed : int
            From -2**63 to 2**64 - 1. A negative seed means itself plus 2**64.

        Raises
        ------
        CaptureError
            If this thread captures on the device and `seed` differs from the current seed. The current seed is allowed
            and has no effect then.
        ArgumentError
            If the seed is out of range.
        """
        if self.may_seed(seed):
            self._set(GeneratorState(_key(seed)), "seeding it")
        return self

    def may_seed(self, seed: int) -> bool:
        """Return whether `manual_seed` would have an effect. Raises as `manual_seed` does."""
        key = _key(seed)
        if recording_of(self._device) is None:
            return True
        if key != self._position.state.seed:
            raise self._refused(f"seeding it with {seed}")
        return False

    def seed(self) -> int:
        """Restart from a random seed of the operating system, and return it. Raises as `manual_seed` does."""
        drawn = secrets.randbits(64)
        self.manual_seed(drawn)
        return drawn

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._position.state.seed

    def get_offset(self) -> int:
        """Return the number of words taken from each subsequence: a multiple of 4. Raises as `get_state` does."""
        return self._get("its offset").offset

    def set_offset(self, offset: int) -> None:
        """Continue from `offset`, a multiple of 4, with the same seed. Raises as `set_state` does."""
        self._set(GeneratorState(self.initial_seed(), offset), f"setting its offset to {offset}")

    def get_state(self) -> bytes:
        """Return the seed and offset as 16 bytes in torch's layout.

        Raises
        ------
        CaptureError
            If this thread captures on the device, because each replay then decides the generator's position.
        """
        return self._get("its state").to_bytes()

    def set_state(self, state: bytes | bytearray | memoryview) -> None:
        """Continue from a state that `get_state` returned: 16 bytes, or 8 bytes of a seed alone.

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
        """Return a new generator at the same position. Raises as `get_state` does."""
        cloned = Generator(self._device)
        cloned._position = Position(self._get("its state"))
        return cloned

    def graphsafe_get_state(self) -> Generator:
        """Return a generator that shares this one's position from now on. Allowed during a capture."""
        shared = Generator(self._device)
        shared._position = self._position
        return shared

    def graphsafe_set_state(self, state: Generator) -> None:
        """Share the position of `state`, a generator of the same device, from now on. Allowed during a capture.

        Graphs that were captured before continue to use the former position.

        Raises
        ------
        ArgumentError
            If `state` is a generator of another device.
        """
        if state.device != self._device:
            raise ArgumentError(f"{state!r} is not a generator of {self._device}; share one of the same device")
        self._position = state._position

    def _get(self, what: str) -> GeneratorState:
        if recording_of(self._device) is not None:
            raise self._refused(f"reading {what}")
        return self._position.state

    def _set(self, state: GeneratorState, doing: str) -> None:
        if recording_of(self._device) is not None:
            raise self._refused(doing)
        with self._position.lock:
            self._position.state = state

    def _refused(self, doing: str) -> CaptureError:
        return CaptureError(
            f"{self!r}: {doing} is illegal while {self._device} is being captured: each replay draws from the "
            f"generator's position at that time; do it before the capture, or before a replay"
        )


def _key(seed: int) -> int:
    """Return the seed as an unsigned number. Any integer type is accepted, such as NumPy's."""
    whole = as_whole(seed)  # callers without a type checker pass anything
    if whole is None or not -(2**63) <= whole < 2**64:
        raise ArgumentError(f"seed {seed!r} does not fit; give an integer from -2**63 to 2**64 - 1")
    return whole % 2**64


# ------------------------------------------------------------------------------------------------ defaults

_DEFAULTS: dict[Device, Generator] = {}
_SEEDS: dict[str, int] = {}
_LOCK = threading.Lock()

# Both locks are held during a fork, so that no other thread holds one: a child that draws would otherwise deadlock.
for _lock in (_LOCK, Position.lock):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def default_generator(device: str | Device) -> Generator:
    """Return the generator that is used on `device` if none is passed. The device is not accessed."""
    named = Device(device)
    with _LOCK:
        found = _DEFAULTS.get(named)
        if found is None:
            found = _DEFAULTS[named] = Generator(named, seed=_SEEDS.get(named.kind, DEFAULT_SEED))
    return found


def default_generators(kind: str) -> tuple[Generator, ...]:
    """Return the default generators of a kind that exist so far, by device index."""
    with _LOCK:
        return tuple(_DEFAULTS[device] for device in sorted(_DEFAULTS) if device.kind == kind)


def may_seed_default_generators(kind: str, seed: int) -> None:
    """Raise an error if `seed_default_generators` would."""
    for device in captured_devices(kind):
        default_generator(device)  # make it, so that the loop below checks it
    for generator in default_generators(kind):
        generator.may_seed(seed)


def seed_default_generators(kind: str, seed: int) -> None:
    """Seed the default generators of all devices of `kind`, including those that do not exist yet.

    Raises
    ------
    CaptureError
        If this thread captures on one of the devices and the seed differs. No generator is seeded then.
    """
    may_seed_default_generators(kind, seed)
    with _LOCK:
        _SEEDS[kind] = _key(seed)
    for generator in default_generators(kind):
        generator.manual_seed(seed)
