"""What generators give to captured graphs: a place that every replay finds renewed.

While a capture runs, a generator hands out a `ReplayState`: before each replay the graph takes as many words from the
generator as its calls draw together, so a replay gives what the same calls would have given at that moment without a
graph. `Recordings` is what takes part in the captures of a kind (see `cuassay.core.participants`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cuassay.core.device import Device
from cuassay.core.generator import GeneratorState

__all__ = ["DrawState", "Place", "Position", "Recordings", "ReplayState", "captured_devices", "recording_of"]


class Position:
    """The position of a generator; shared by those that `Generator.graphsafe_set_state` made one."""

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


def recording_of(device: Device) -> _Recording | None:
    """The latest capture that this thread has begun on `device` and not ended."""
    if not _OPEN:
        return None
    thread = threading.get_ident()
    return next((one for one in reversed(_OPEN) if one.thread == thread and one.device == device), None)


def captured_devices(kind: str) -> list[Device]:
    """The devices of `kind` that this thread is capturing."""
    thread = threading.get_ident()
    return [one.device for one in tuple(_OPEN) if one.thread == thread and one.device.kind == kind]


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
