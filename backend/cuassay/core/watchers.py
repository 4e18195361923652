"""Watchers: functions that are notified of what a program does with streams, events, memory, graphs and waits.

The events are those of torch's GPU trace, extended by graphs, copies and, for kinds that know them, launches. A kind
checks `state.watchers`, which is empty if nobody watches, before it builds an occurrence. A function that is too fast
even for this check is replaced while somebody watches: see `replace_while_watched`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from cuassay.core.handle import Handle
from cuassay.errors import ArgumentError

__all__ = [
    "EVENTS",
    "MemoryWatcher",
    "Occurrence",
    "State",
    "WatchHandle",
    "Watcher",
    "hidden",
    "on_change",
    "replace_while_watched",
    "state",
    "tell",
    "tell_memory",
    "wants_accesses",
    "watch",
]

#: From each event to its meaning, and after the colon what the occurrence's `subject` is.
EVENTS = MappingProxyType(
    {
        "event_made": "an event got a handle: the event",
        "event_dropped": "an event released its handle: the event",
        "event_recorded": "an event was recorded on `stream`: the event",
        "event_waited": "later work of `stream` waits for an event: the event",
        "memory_taken": "a block was allocated, in the order of `stream`: its address",
        "memory_returned": "a block was freed: its address",
        "memory_recorded": "another stream, `stream`, uses a block: its address",
        "stream_made": "a stream was made: the stream",
        "device_synchronized": "the host waited for the device: 0",
        "stream_synchronized": "the host waited for a stream: the stream",
        "event_synchronized": "the host waited for an event: the event",
        "graph_captured": "a capture ended: the graph",
        "graph_replay_begun": "a replay of a graph begins: the graph",
        "graph_replayed": "a replay of a graph was given to the current stream: the graph",
        "copied": "bytes were copied between host and device on `stream`: 0",
        "range_begun": "a named range of the program begins: the range",
        "range_ended": "a named range ends: the range",
        "range_started": "a named range that may end in another thread begins: the range",
        "range_finished": "such a range ends: the range",
        "marked": "the program marks a moment: 0",
        "launched": "work was given to `stream` by a kind that knows how long it takes: 0",
        "accessed": "work that reads or writes `accesses` was given to `stream`, or recorded there by a capture: 0",
        "event_found_done": "the host queried an event that was reached: the event",
        "stream_found_done": "the host queried a stream that was done: the stream",
        "graph_capture_begun": "a capture began on `stream`: the graph",
        "graph_body_begun": "later work of `stream` is the body of a conditional node that reads `accesses`: the graph",
        "graph_body_ended": "the body of a conditional node ends: the graph",
        "graph_updated": "a graph took over the work of another one, `other`: the graph",
        "devices_replaced": "new devices of this kind now use the same names: 0",
        "graph_dropped": "a graph was reset, or its capture was abandoned: the graph",
    }
)


class Occurrence(NamedTuple):
    """One event that happened.

    Attributes
    ----------
    event : str
        One of `EVENTS`.
    device : str
        The device, such as ``"sim:0"``.
    subject : int
        The event, stream, graph or block: a handle, number or address that is unique while the object lives.
    stream : int
        The stream whose order the event concerns: a handle on cuda, the number of a queue on sim.
    nbytes : int
        The size of the block, or the bytes moved by the work.
    name : str
        The name of the launched work, or of the stream in messages.
    begin, end : float, optional
        Times of the work or of the host's wait in seconds: the kind's virtual time, or else `time.perf_counter`.
    site : str
        ``file.py:12``, if the kind knows the line. For a replay it is the line of the capture.
    lane : str
        The name of the stream in messages, if it differs from its number: ``"stream3.branch1"``.
    accesses : tuple
        Pairs of a `cuassay.order.extents.Extent` and whether the array is written.
    other : int
        A second subject, for events that concern two.
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

#: Takes a memory event's device, address, stream and size in bytes.
MemoryWatcher = Callable[[str, int, int, int], object]


@dataclass(slots=True)
class State:
    """The registered watchers.

    Attributes
    ----------
    watchers : tuple
        In the order of registration.
    wanted : frozenset of str
        The events that any watcher asked for. Describing accesses is expensive, so a kind checks whether
        ``"accessed"`` is in this set first.
    told : dict
        From an event to the functions to call.
    told_memory : dict
        The same for `tell_memory`.
    listeners : list
        Functions to call when an event (empty: any event) becomes watched or unwatched.
    """

    watchers: tuple[_Registration, ...] = ()
    wanted: frozenset[str] = frozenset()
    told: dict[str, tuple[Watcher, ...]] = field(default_factory=dict)
    told_memory: dict[str, tuple[MemoryWatcher, ...]] = field(default_factory=dict)
    listeners: list[tuple[str, Callable[[bool], object]]] = field(default_factory=list)


class _Registration:
    """A watcher, and the events it asked for."""

    def __init__(self, watcher: Watcher, wanted: frozenset[str], of_memory: Mapping[str, MemoryWatcher]) -> None:
        self.watcher, self.wanted, self._of_memory = watcher, wanted, of_memory

    def of_memory(self, event: str) -> MemoryWatcher:
        """Return the function for a memory event."""
        watcher = self.watcher
        return self._of_memory.get(event) or (
            lambda device, address, stream, nbytes: watcher(Occurrence(event, device, address, stream, nbytes))
        )


class _Hidden(threading.local):
    """The number of active functions of this thread whose accesses are already known, so that they are not reported."""

    depth = 0


state = State()
hidden = _Hidden()
_lock = threading.RLock()


class WatchHandle(Handle):
    """A registered watcher: call `remove`, or use it as a context manager that removes it."""

    def __init__(self, watcher: Watcher, registration: _Registration) -> None:
        self.watcher = watcher
        self._registration = registration

    def remove(self) -> None:
        """Stop notifying the watcher. Calling this twice is allowed."""
        with _lock:
            _change(tuple(one for one in state.watchers if one is not self._registration))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        is_watching = any(one is self._registration for one in state.watchers)
        return f"WatchHandle({self.watcher!r}, {'watching' if is_watching else 'removed'})"


def watch(
    watcher: Watcher, events: Collection[str] | None = None, *, of_memory: Mapping[str, MemoryWatcher] | None = None
) -> WatchHandle:
    """Call ``watcher(occurrence)`` at each of `events` (None: all), in the thread in which it happens.

    Allocators that report each block call ``of_memory[event](device, address, stream, nbytes)`` instead, if it is
    given, which saves the occurrence. It must do the same as `watcher`, which other code calls at memory events.

    The watcher may be called while a device lock is held and inside finalizers, so it should only record the occurrence
    and return. An exception that it raises propagates to the code that caused the occurrence.

    Returns
    -------
    WatchHandle
        Removes the watcher.

    Raises
    ------
    ArgumentError
        If there is no such event, or `watcher` is not callable.
    """
    if not callable(watcher):
        raise ArgumentError(
            f"a watcher is called with the occurrence; got {watcher!r}; give a function of one argument"
        )
    wanted = frozenset(EVENTS if events is None else events)
    if not wanted <= EVENTS.keys():
        unknown = ", ".join(sorted(wanted - EVENTS.keys()))
        raise ArgumentError(f"there is no event {unknown} to watch; choose of {', '.join(EVENTS)}")
    registration = _Registration(watcher, wanted, of_memory or {})
    handle = WatchHandle(watcher, registration)
    with _lock:
        _change((*state.watchers, registration))
    return handle


def tell(occurrence: Occurrence) -> None:
    """Call the watchers of the event. Check `state.watchers` before building an occurrence."""
    for watcher in state.told.get(occurrence.event, ()):
        watcher(occurrence)


def tell_memory(event: str, device: str, address: int, stream: int, nbytes: int) -> None:
    """`tell` for ``"memory_taken"`` and ``"memory_returned"``; builds an occurrence only for watchers that need it."""
    for watcher in state.told_memory.get(event, ()):
        watcher(device, address, stream, nbytes)


def wants_accesses() -> bool:
    """Return whether any watcher wants the accesses of this thread's current work."""
    return "accessed" in state.wanted and not hidden.depth


def on_change(listener: Callable[[bool], object], event: str = "") -> None:
    """Call ``listener(is_watched)`` now, and when the first watcher (of `event`) is added or the last is removed."""
    state.listeners.append((event, listener))
    listener(_is_watched(event))


def replace_while_watched(owner: Any, name: str, make: Callable[[Any], Any], event: str = "") -> None:
    """Replace attribute `name` of `owner`, a class or module, by ``make(plain)`` while somebody watches (`event`)."""
    plain = vars(owner)[name]
    watched = make(plain)
    on_change(lambda is_watched: setattr(owner, name, watched if is_watched else plain), event)


def _is_watched(event: str) -> bool:
    return event in state.wanted if event else bool(state.watchers)


def _change(watchers: tuple[_Registration, ...]) -> None:
    """Make these the watchers; the caller holds the lock, in which it has read the former ones."""
    before = [_is_watched(event) for event, _ in state.listeners]
    state.watchers = watchers
    state.wanted = frozenset().union(*(one.wanted for one in watchers))
    state.told = {event: tuple(one.watcher for one in watchers if event in one.wanted) for event in state.wanted}
    state.told_memory = {
        event: tuple(one.of_memory(event) for one in watchers if event in one.wanted)
        for event in state.wanted & {"memory_taken", "memory_returned"}
    }
    for was_watched, (event, listener) in zip(before, tuple(state.listeners), strict=False):
        if was_watched != _is_watched(event):
            listener(not was_watched)
