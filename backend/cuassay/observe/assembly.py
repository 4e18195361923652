"""Assemble recorded moments into a timeline: tracks, parents, waits between streams, and memory by call site."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from math import inf
from time import perf_counter
from types import CodeType
from typing import Any

from cuassay.core.watchers import Occurrence
from cuassay.observe.spans import Change, Flow, Span, Timeline
from cuassay.ops import registry

__all__ = [
    "CODE",
    "EARLIER",
    "END",
    "INSTRUCTION",
    "OPEN",
    "PAIR",
    "UNMET",
    "Moment",
    "Way",
    "assemble",
    "calls",
    "memory_events",
    "move_calls",
    "on_clock",
]

#: The call site shown for blocks that were allocated before the recording.
EARLIER = "before the recording"

#: What the host waited for, by watcher event.
_WAITS = {
    "device_synchronized": "wait for the device",
    "stream_synchronized": "wait for a stream",
    "event_synchronized": "wait for an event",
}

#: The end of a call or range that has not ended yet; no clock reads it.
OPEN = -1.0

_OF_THE_HOST = frozenset(("replay", "range", "graph_captured", "marked"))


#: The `watch` of a `Way` before it is known.
UNMET: Any = object()


class Way:
    """The calls of an op with one signature.

    Attributes
    ----------
    name : str
        The op.
    text : str, optional
        Their dispatch path; None before it is known.
    is_alone : bool
        Whether only this package allocates, copies and so on in such a call, so that all of it is booked on its line.
    before_end : float
        The most seconds by which work on an idle device begins before the end of such a call; infinite if not known.
    early : int
        How many of the first two calls have not been made.
    nbytes : int
        The bytes of the arrays of the first such call; 0 before it is known.
    watch
        The `pairs.Watch` that times such calls, None if events do not time them, or `UNMET`: it has to be asked for.
    """

    __slots__ = ("before_end", "early", "is_alone", "name", "nbytes", "text", "watch")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text: str | None = None
        self.is_alone = False
        self.before_end = inf
        self.early = 2
        self.nbytes = 0
        self.watch: Any = UNMET


class Moment:
    """A recorded call or watcher event. Many are made, so the class only holds attributes."""

    __slots__ = ("begin", "end", "kind", "name", "number", "occurrence", "parent", "place", "thread", "way")

    def __init__(
        self,
        kind: str,
        name: str,
        number: int,
        parent: int,
        thread: int,
        begin: float,
        end: float = OPEN,
        place: tuple[CodeType, int] | None = None,  # and the offset of an instruction in it
    ) -> None:
        self.kind = kind
        self.name = name
        self.number = number
        self.parent = parent
        self.thread = thread
        self.begin = begin
        self.end = end
        self.place = place
        self.way: Way | None = None
        self.occurrence: Occurrence | None = None


#: The fields of a call in the log of its thread: number, number of the parent, begin, end, way, code, instruction, what
#: times it or None, and the number of its pair of events or -1. The end is set last.
_BEGIN, END, CODE, INSTRUCTION, PAIR = 2, 3, 5, 6, 8
_CALL = 9

#: The fields of a memory event: number, time, event, device, address, stream, bytes, and code and instruction of the
#: line that it is booked on, or None.
_MEMORY_EVENT = 9


def _rows(log: list[Any], length: int) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a log, of `length` fields each. A row that is appended meanwhile may be left out."""
    fields = iter(log[: len(log) // length * length])
    return zip(*[fields] * length, strict=False)


def calls(log: list[Any], thread: int) -> Iterator[Moment]:
    """Return the moments of a thread's calls. Their pairs of events are noted where they are timed."""
    for number, parent, begin, end, way, code, instruction, watch, pair in _rows(log, _CALL):
        if watch is not None and pair >= 0:
            watch.called[pair] = way, number, end
        made = Moment("op", way.name, number, parent, thread, begin, end, (code, instruction))
        made.way = way
        yield made


def move_calls(log: list[Any], time: float) -> None:
    """Move a thread's calls to `time`, the beginning of another clock; those that have not ended stay open."""
    for at in range(0, len(log), _CALL):
        log[at + _BEGIN], log[at + END] = time, min(log[at + END], time)


def on_clock(occurrence: Occurrence, clock: str | None, now: float) -> Occurrence:
    """Shift the times of an occurrence from its own kind's clock to that of kind `clock`, which shows `now`."""
    kind = occurrence.device.partition(":")[0]
    if kind == clock or occurrence.begin is None or occurrence.end is None:
        return occurrence
    shift = now - getattr(registry.backend(kind), "now_s", perf_counter)()
    return occurrence._replace(begin=occurrence.begin + shift, end=occurrence.end + shift)


def memory_events(log: list[Any]) -> Iterator[Moment]:
    """Return the moments of memory events."""
    for number, time, event, device, address, stream, nbytes, code, instruction in _rows(log, _MEMORY_EVENT):
        made = Moment(event, "", number, -1, 0, time, time, None if code is None else (code, instruction))
        made.occurrence = Occurrence(event, device, address, stream, nbytes)
        yield made


def assemble(moments: Iterable[Moment], began: float, ended: float) -> Timeline:
    """Make the timeline of `moments`, from `began` to `ended`, the clock's readings; its times start at `began`."""
    made = _Assembly(began, ended)
    for moment in moments:
        made.take(moment)
    made.end()
    return made.timeline


class _Assembly:
    def __init__(self, began: float, ended: float) -> None:
        self.timeline = Timeline()
        self._began, self._ended = began, ended
        self._places: dict[int, int] = {}
        self._lanes: dict[tuple[str, int], str] = {}
        self._graphs: dict[int, str] = {}
        self._threads: dict[int, str] = {}
        self._blocks: dict[tuple[str, int], tuple[int, str]] = {}
        self._last_end: dict[str, float] = {}
        self._recorded: dict[tuple[str, int], tuple[str, float]] = {}
        self._waiting: dict[str, list[tuple[str, float, float]]] = {}
        self._ranges: dict[int, tuple[Span, int]] = {}

    def take(self, moment: Moment) -> None:
        """Add one moment. The moment of an op must be added before the moments of the work that the op launched."""
        occurrence = moment.occurrence
        if occurrence is None:
            self._take_host(moment, moment.kind, moment.name)
        elif moment.kind in ("launched", "copied"):
            self._take_work(moment, occurrence)
        elif moment.kind in _WAITS:
            self._take_wait(moment, occurrence)
        elif moment.kind.startswith("memory"):
            self._take_memory(moment, occurrence)
        elif moment.kind in ("event_recorded", "event_waited", "stream_made"):
            self._take_order(moment, occurrence)
        elif moment.kind in ("range_started", "range_finished"):
            self._take_free_range(moment, occurrence)
        elif moment.kind in _OF_THE_HOST:
            self._take_host(moment, *self._named(moment, occurrence))

    def _named(self, moment: Moment, occurrence: Occurrence) -> tuple[str, str]:
        """Return the kind and the name of a host span."""
        if moment.kind == "replay":
            return "replay", f"replay of {self._graph(occurrence.subject)}"
        if moment.kind == "graph_captured":
            return "mark", f"{self._graph(occurrence.subject)} captured"
        return "mark" if moment.kind == "marked" else moment.kind, occurrence.name

    def _take_order(self, moment: Moment, occurrence: Occurrence) -> None:
        """Note stream names and the events that order streams."""
        if moment.kind == "event_waited":
            self._take_stream_wait(moment, occurrence)
        elif moment.kind == "event_recorded":
            track = self._lane(occurrence)
            at = max(self._last_end.get(track, 0.0), 0.0) or moment.begin - self._began
            self._recorded[occurrence.device.partition(":")[0], occurrence.subject] = track, at
        elif occurrence.name:
            self._lanes[occurrence.device, occurrence.stream] = occurrence.name

    def _add(self, moment: Moment, span: Span) -> None:
        self._places[moment.number] = len(self.timeline.spans)
        self.timeline.spans.append(span)

    def _take_host(self, moment: Moment, kind: str, name: str) -> None:
        if moment.way is not None and moment.way.text:
            self.timeline.ways[len(self.timeline.spans)] = moment.way.text
        begin = moment.begin - self._began
        end = (self._ended if moment.end == OPEN else max(moment.end, moment.begin)) - self._began
        parent = self._places.get(moment.parent, -1)
        self._add(moment, Span(kind, name, self._thread(moment.thread), begin, end, parent, 0, _site(moment)))

    def _take_free_range(self, moment: Moment, occurrence: Occurrence) -> None:
        """Add or end a range that may end in another thread. Ranges that overlap get different tracks."""
        time = moment.begin - self._began
        if moment.kind == "range_finished":
            if occurrence.subject in self._ranges:  # it may have begun before the recording
                self._ranges.pop(occurrence.subject)[0].end = time
            return
        taken = {lane for _, lane in self._ranges.values()}
        lane = next(number for number in count(1) if number not in taken)
        track = "host ranges" if lane == 1 else f"host ranges {lane}"
        span = Span("range", occurrence.name, track, time, self._ended - self._began, site=_site(moment))
        self._ranges[occurrence.subject] = span, lane
        self._add(moment, span)

    def _take_wait(self, moment: Moment, occurrence: Occurrence) -> None:
        begin, end = self._times(moment, occurrence)
        what = _WAITS[moment.kind]
        if moment.kind == "device_synchronized":
            what = f"wait for {occurrence.device}"
        elif moment.kind == "stream_synchronized":
            lane = self._lanes.get((occurrence.device, occurrence.subject))
            what = f"wait for {occurrence.device} {lane}" if lane else what
        parent = self._places.get(moment.parent, -1)
        self._add(moment, Span("wait", what, self._thread(moment.thread), begin, end, parent, 0, _site(moment)))

    def _take_work(self, moment: Moment, occurrence: Occurrence) -> None:
        track = self._lane(occurrence)
        begin, end = self._times(moment, occurrence)
        self._last_end[track] = max(self._last_end.get(track, 0.0), end)
        for recorded_on, at, _ in self._waiting.pop(track, ()):
            self.timeline.flows.append(Flow(recorded_on, min(at, begin), track, begin, "wait"))
        kind = "kernel" if moment.kind == "launched" else "copy"
        name = f"copy: {occurrence.name}" if kind == "copy" and occurrence.name != "copy" else occurrence.name
        parent = self._places.get(moment.parent, -1)
        site = occurrence.site or _site(moment)
        is_timed = occurrence.begin is not None
        self._add(moment, Span(kind, name, track, begin, end, parent, occurrence.nbytes, site, is_timed))

    def _take_memory(self, moment: Moment, occurrence: Occurrence) -> None:
        key = occurrence.device, occurrence.subject
        time = moment.begin - self._began
        if moment.kind == "memory_taken":
            site = _site(moment)
            self._blocks[key] = occurrence.nbytes, site
            self.timeline.changes.append(Change(time, occurrence.device, occurrence.nbytes, site))
        elif moment.kind == "memory_returned":
            nbytes, site = self._blocks.pop(key, (occurrence.nbytes, EARLIER))
            self.timeline.changes.append(Change(time, occurrence.device, -nbytes, site))

    def _take_stream_wait(self, moment: Moment, occurrence: Occurrence) -> None:
        recorded = self._recorded.get((occurrence.device.partition(":")[0], occurrence.subject))
        track = self._lane(occurrence)
        if recorded is not None and recorded[0] != track:
            self._waiting.setdefault(track, []).append((*recorded, moment.begin - self._began))

    def end(self) -> None:
        """Add the waits that were not followed by any work on their stream."""
        for track, waits in self._waiting.items():
            for recorded_on, at, time in waits:
                self.timeline.flows.append(Flow(recorded_on, at, track, max(at, time), "wait"))

    def _times(self, moment: Moment, occurrence: Occurrence) -> tuple[float, float]:
        begin = moment.begin if occurrence.begin is None else occurrence.begin
        end = begin if occurrence.end is None else occurrence.end
        return begin - self._began, end - self._began

    def _lane(self, occurrence: Occurrence) -> str:
        known = occurrence.lane or self._lanes.get((occurrence.device, occurrence.stream))
        if known is None:
            handle = occurrence.stream
            known = "default stream" if handle == 0 else f"stream {handle if handle < 2**16 else hex(handle)}"
        self._lanes[occurrence.device, occurrence.stream] = known
        return f"{occurrence.device} {known}"

    def _graph(self, subject: int) -> str:
        return self._graphs.setdefault(subject, f"graph {len(self._graphs) + 1}")

    def _thread(self, number: int) -> str:
        known = self._threads.get(number)
        if known is None:
            name = f"host thread {len(self._threads) + 1}" if self._threads else "host"
            known = self._threads[number] = name
        return known


def _site(moment: Moment) -> str:
    if moment.place is None:
        return ""
    code, instruction = moment.place
    return f"{code.co_filename.rpartition(os.sep)[2]}:{_lines(code).get(instruction, code.co_firstlineno)}"


@cache
def _lines(code: CodeType) -> dict[int, int]:
    """Return the line of each instruction."""
    return {at: line for first, end, line in code.co_lines() if line is not None for at in range(first, end, 2)}
