"""The generator states of captured graphs, which every replay updates.

During a capture a generator hands out a `ReplayState`. Before each replay the graph takes from the generator as many
words as its calls draw in total, so a replay draws the numbers that the same calls would have drawn at that moment
without a graph. `Recordings` is the participant in the captures of a kind (see `cuassay.core.participants`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cuassay.core.device import Device
from cuassay.core.generator import GeneratorState

__all__ = ["DrawState", "Place", "Position", "Recordings", "ReplayState", "captured_devices", "recording_of"]


class Position:
    """The position of a generator. `Generator.graphsafe_set_state` lets several generators share one."""

    __slots__ = ("state",)

    #: One lock for all positions, so that a fork can acquire it. It is held only for a few additions.
    lock = threading.Lock()

    def __init__(self, state: GeneratorState) -> None:
        self.state = state

    def take(self, words: int) -> GeneratorState:
        """Return the current state, and advance by `words`."""
        with self.lock:
            taken = self.state
            self.state = taken.advance(1, words)
        return taken


class Place:
    """The state from which one captured graph draws numbers of one generator.

    Attributes
    ----------
    state : GeneratorState
        The position at the start of the latest replay, or at capture if the graph was not replayed yet.
    words : int
        The number of words that one replay takes.
    cell : object
        Data of the device kind: on cuda, device memory that holds `state`.
    """

    __slots__ = ("_position", "cell", "state", "words")

    def __init__(self, position: Position, cell: object) -> None:
        self._position = position
        self.state = position.state
        self.words = 0
        self.cell = cell

    def record(self, words: int) -> ReplayState:
        """Add a call that takes `words` words to the graph, and return its state."""
        recorded = ReplayState(self, self.words)
        self.words += words
        return recorded

    def renew(self) -> None:
        """Take the words of one replay from the generator. Called when the replay begins."""
        self.state = self._position.take(self.words)


class ReplayState:
    """The state of a call inside a captured graph: `start` words after the beginning of its replay.

    `seed` and `offset` are those of the latest replay. Before the first replay they are those at capture.
    """

    __slots__ = ("place", "start")

    def __init__(self, place: Place, start: int) -> None:
        self.place = place
        self.start = start

    def __repr__(self) -> str:
        return f"ReplayState({self.start} words after {self.place.state})"

    @property
    def seed(self) -> int:
        """The seed of the latest replay."""
        return self.place.state.seed

    @property
    def offset(self) -> int:
        """The number of words that were taken from each subsequence before this call."""
        return self.place.state.offset + self.start


#: The states that an operation can draw from.
DrawState = GeneratorState | ReplayState


class _Recording:
    """An open capture: its thread, its device, and a place for each generator that was used."""

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


#: The open captures, the latest last.
_OPEN: list[_Recording] = []


def recording_of(device: Device) -> _Recording | None:
    """Return the latest open capture of this thread on `device`, or None."""
    if not _OPEN:
        return None
    thread = threading.get_ident()
    return next((one for one in reversed(_OPEN) if one.thread == thread and one.device == device), None)


def captured_devices(kind: str) -> list[Device]:
    """Return the devices of `kind` on which this thread is capturing."""
    thread = threading.get_ident()
    return [one.device for one in tuple(_OPEN) if one.thread == thread and one.device.kind == kind]


class Recordings:
    """The participant in a kind's captures for all of its generators; see `cuassay.core.participants.Participant`.

    Parameters
    ----------
    new_cell : callable
        Takes the device and returns the `cell` of a new `Place`. Called during the capture.
    publish : callable
        Takes a `Place` that was renewed, and writes its state where the recorded work reads it, ordered before the
        replay.
    drop : callable
        Takes the cell of a graph that was destroyed.
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
        """Let generators of `device` record what this thread draws."""
        recording = _Recording(device, self._new_cell)
        self._known[id(capture)] = capture, recording  # holding the capture keeps its id from being reused
        _OPEN.append(recording)

    def capture_end(self, capture: object, device: Device) -> Callable[[], None] | None:
        """Return the function that renews the places before each replay, or None if nothing was drawn."""
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
        """Drop the places of the capture."""
        _, recording = self._known.pop(id(capture))
        if recording in _OPEN:
            _OPEN.remove(recording)
        for place in recording.places.values():
            self._drop(place.cell)
