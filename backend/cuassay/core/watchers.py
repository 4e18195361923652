"""Watchers: functions that are told what a program does to devices besides computing: streams, events, memory, waits.

The events are those of torch's GPU trace, and with them graphs, copies and, where a kind knows them, launches. A kind
looks at `state.watchers` before it tells anything: an empty tuple where nobody watches. A path that is too fast for
even that look-up is replaced while somebody watches: see `replace_while_watched`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from cuassay.core.handle import Handle
from cuassay.errors import ArgumentError

__all__ = [
    "EVENTS",
    "Occurrence",
    "State",
    "WatchHandle",
    "Watcher",
    "hidden",
    "on_change",
    "replace_while_watched",
    "state",
    "tell",
    "wants_accesses",
    "watch",
]

#: What is told, and what the occurrence's `subject` is.
EVENTS = MappingProxyType(
    {
        "event_made": "an event has a handle from here: the event",
        "event_dropped": "an event gave its handle back: the event",
        "event_recorded": "an event was recorded on `stream`: the event",
        "event_waited": "later work of `stream` waits for an event: the event",
        "memory_taken": "a block was given out, in the order of `stream`: its address",
        "memory_returned": "a block was freed: its address",
        "memory_recorded": "another stream uses a block, `stream`: its address",
        "stream_made": "a stream was made: the stream",
        "device_synchronized": "the host waited for the device: 0",
        "stream_synchronized": "the host waited for a stream: the stream",
        "event_synchronized": "the host waited for an event: the event",
        "graph_captured": "a capture ended: the graph",
        "graph_replay_begun": "a replay of a graph begins: the graph",
        "graph_replayed": "a replay of a graph was given to the current stream: the graph",
        "copied": "bytes were copied between host and device on `stream`: 0",
        "range_begun": "a range that the program names begins: the range",
        "range_ended": "it ends: the range",
        "marked": "the program marks a moment: 0",
        "launched": "work was given to `stream` by a kind that knows how long it takes: 0",
        "accessed": "work that reads or writes `accesses` was given to `stream`, or recorded there by a capture: 0",
        "event_found_done": "the host asked for an event, and it was reached: the event",
        "stream_found_done": "the host asked for a stream, and it was done: the stream",
        "graph_capture_begun": "a capture began on `stream`: the graph",
        "graph_body_begun": "later work of `stream` is the body of a conditional node that reads `accesses`: the graph",
        "graph_body_ended": "it ends: the graph",
        "graph_updated": "a graph took over the work of another one, `other`: the graph",
        "devices_replaced": "other devices of this kind have the same names from here: 0",
        "graph_dropped": "a graph holds no work any more, or its capture was given up: the graph",
    }
)


class Occurrence(NamedTuple):
    """One thing that happened.

    Attributes
    ----------
    event : str
        One of `EVENTS`.
    device : str
        Where: ``"sim:0"``.
    subject : int
        Which event, stream, graph or block: a handle, a number or an address, unique in its kind while it lives.
    stream : int
        Whose order it concerns: a handle on cuda, the number of a queue on sim.
    nbytes : int
        Bytes of the block, or moved by the work.
    name : str
        The launched work's name, or the stream's as messages have it.
    begin, end : float, optional
        Seconds, of the work or of the host's wait: by the kind's virtual time, or else by `time.perf_counter`.
    site : str
        ``file.py:12``, where the kind knows the line; of a replay it is the line of the capture.
    lane : str
        How messages name the stream, where that is not its number: ``"stream3.branch1"``.
    accesses : tuple
        Of arrays, and whether each is written: `cuassay.order.extents.Extent` and bool.
    other : int
        What the event is about in addition to `subject`.
    """

    event: str
    device: str
    subject: int = 0
    stream: int = 0
    nbytes: int = 0
    name: str = ""
    begin: float | None = None
    end: float | None = None
    site: str = ""
    lane: str = ""
    accesses: tuple[tuple[Any, bool], ...] = ()
    other: int = 0


Watcher = Callable[[Occurrence], object]


@dataclass(slots=True)
class State:
    """`watchers` are told what they asked for, in the order they came; `wanted` is what any of them asked for.

    `told` holds their functions by event.

    To describe accesses costs more than to tell them: whoever tells ``"accessed"`` looks whether it is in `wanted`.
    """

    watchers: tuple[_Told, ...] = ()
    wanted: frozenset[str] = frozenset()
    told: dict[str, tuple[Watcher, ...]] = field(default_factory=dict)
    listeners: list[tuple[str, Callable[[bool], object]]] = field(default_factory=list)


class _Told:
    """A watcher, and the events it asked for."""

    def __init__(self, watcher: Watcher, wanted: frozenset[str]) -> None:
        self.watcher, self.wanted = watcher, wanted


class _Hidden(threading.local):
    """How many functions this thread is inside of whose accesses are known to whoever asks for them."""

    depth = 0


state = State()
hidden = _Hidden()
_lock = threading.RLock()


class WatchHandle(Handle):
    """A watcher that is told: `remove` it, or use it as a context."""

    def __init__(self, watcher: Watcher, told: _Told) -> None:
        self.watcher = watcher
        self._told = told

    def remove(self) -> None:
        """From here the watcher is told nothing; twice is allowed."""
        _change(tuple(one for one in state.watchers if one is not self._told))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        is_told = any(one is self._told for one in state.watchers)
        return f"WatchHandle({self.watcher!r}, {'watching' if is_told else 'removed'})"


def watch(watcher: Watcher, events: Collection[str] | None = None) -> WatchHandle:
    """``watcher(occurrence)`` is called at each of `events` (None: all), in the thread in which it happens.

    It may be called while a lock of the device is held and inside finalisers: it takes note and returns. What it raises
    goes to whoever caused the occurrence.

    Raises
    ------
    ArgumentError
        If there is no such event, or `watcher` cannot be called.
    """
    if not callable(watcher):
        raise ArgumentError(
            f"a watcher is called with the occurrence; got {watcher!r}; give a function of one argument"
        )
    wanted = frozenset(EVENTS if events is None else events)
    if not wanted <= EVENTS.keys():
        unknown = ", ".join(sorted(wanted - EVENTS.keys()))
        raise ArgumentError(f"there is no event {unknown} to watch; choose of {', '.join(EVENTS)}")
    told = _Told(watcher, wanted)
    handle = WatchHandle(watcher, told)
    with _lock:
        _change((*state.watchers, told))
    return handle


def tell(occurrence: Occurrence) -> None:
    """Call every watcher; ask `state.watchers` first, so that nothing is built for nobody."""
    for watcher in state.told.get(occurrence.event, ()):
        watcher(occurrence)


def wants_accesses() -> bool:
    """Whether somebody asks for the accesses of what this thread does now."""
    return "accessed" in state.wanted and not hidden.depth


def on_change(listener: Callable[[bool], object], event: str = "") -> None:
    """Call ``listener(is_watched)`` now, and when the first watcher (of `event`, if given) comes or the last goes."""
    state.listeners.append((event, listener))
    listener(_is_watched(event))


def replace_while_watched(owner: Any, name: str, make: Callable[[Any], Any], event: str = "") -> None:
    """While somebody watches (`event`), `name` of `owner`, a class or module, is ``make(plain)``; else as it is."""
    plain = vars(owner)[name]
    watched = make(plain)
    on_change(lambda is_watched: setattr(owner, name, watched if is_watched else plain), event)


def _is_watched(event: str) -> bool:
    return event in state.wanted if event else bool(state.watchers)


def _change(watchers: tuple[_Told, ...]) -> None:
    with _lock:
        before = [_is_watched(event) for event, _ in state.listeners]
        state.watchers = watchers
        state.wanted = frozenset().union(*(one.wanted for one in watchers))
        state.told = {event: tuple(one.watcher for one in watchers if event in one.wanted) for event in state.wanted}
        for was_watched, (event, listener) in zip(before, tuple(state.listeners), strict=False):
            if was_watched != _is_watched(event):
                listener(not was_watched)
