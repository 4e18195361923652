"""Records a timeline: calls of ops, and what watchers are told, put on one clock.

Ops are seen by taking the place of their call, so that a recorded call takes the way it takes otherwise, shortcuts
included. The way of the first call with new shapes is asked for once, by `explain`. Device times are told by kinds that
know them (sim); of others a pair of events is recorded around each outermost call, and read at the end, unless their
kind's tracer is asked for.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count
from time import perf_counter
from types import CodeType
from typing import Any

from cuassay.core.callers import is_ours
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.watchers import EVENTS, Occurrence, WatchHandle, watch
from cuassay.errors import StateError
from cuassay.observe.assembly import Moment, assemble
from cuassay.observe.pairs import Pair, Pairs, needs_pairs
from cuassay.observe.spans import Timeline
from cuassay.observe.traced import Traces
from cuassay.ops import Op, registry
from cuassay.ops.explain import explain
from cuassay.ops.interposers import interposers
from cuassay.ops.wrapping import Wrapping, unwrap, wrap

__all__ = ["Recorder"]

#: What a timeline shows.
_WATCHED = EVENTS.keys() - {
    *("accessed", "event_found_done", "stream_found_done", "graph_capture_begun"),
    *("graph_body_begun", "graph_body_ended", "graph_updated", "graph_dropped"),
    "devices_replaced",
}

#: Frames: code and line; formatted at the end.
_Place = tuple[CodeType, int]


class _Thread(threading.local):
    """Of each thread: the spans that are open, by number, and its own number."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.number = 0
        self.is_quiet = False


class Recorder:
    """Records from `start` to `stop`.

    Parameters
    ----------
    device : Device, optional
        Whose clock is the timeline's; None takes that of the first device that something happens on.
    limit : int
        Moments and timed calls kept; what comes after is counted and left out.
    memory : bool
        Whether blocks are recorded with their call sites, which is most of what recording costs.
    gives_way : bool
        Whether it stops when another one starts, instead of refusing that.
    kernels : bool
        Whether each kernel and copy is recorded, of `device`'s kind and of those that were used before, if they have a
        tracer.
    """

    _active: Recorder | None = None

    def __init__(
        self,
        device: Device | None = None,
        *,
        limit: int = 2_000_000,
        memory: bool = True,
        gives_way: bool = False,
        kernels: bool = False,
    ) -> None:
        self.gives_way = gives_way
        self._made: Timeline | None = None
        self._room = limit
        self._memory = memory
        self._moments: list[Moment] = []
        self._ways: dict[Any, str] = {}
        self._local = _Thread()
        self._numbers, self._threads = count(), count(1)
        self._missed = 0
        self._now: Callable[[], float] = perf_counter
        self._clock: str | None = None
        self._traces: Traces | None = None
        self._pairs = Pairs(self._quietly, self._needs_pairs)
        self._thread_numbers: dict[int, int] = {}
        self._handle: WatchHandle | None = None
        self._wrapping = Wrapping(self._recording)
        self._began = 0.0
        if device is not None:
            self._choose_clock(device.kind)
        if kernels:  # after the device's kind is loaded: only loaded kinds are asked for a tracer
            self._traces = Traces(self._quietly)

    def _choose_clock(self, kind: str) -> None:
        self._clock = kind
        self._now = getattr(registry.backend(kind), "now_s", perf_counter)
        self._began = self._now()
        for moment in self._moments:  # ranges, of the clock before
            moment.begin = moment.end = self._began

    # -------------------------------------------------------------------------------------------- from start to stop

    def start(self) -> None:
        """Record from here. Raises `StateError` where a recorder records already."""
        if Recorder._active is not None and Recorder._active.gives_way:
            Recorder._active.stop()
        if Recorder._active is not None:
            raise StateError("a profile is being recorded already; end it first, because two would count each other")
        Recorder._active = self
        if self._traces is not None:
            try:
                self._traces.start()
            except BaseException:
                Recorder._active = None
                raise
        self._began = self._now()
        self._handle = watch(self._watch, _WATCHED)
        wrap(self._wrapping)

    def stop(self) -> Timeline:
        """Stop, wait for devices whose events were recorded, and give what was recorded; the same a second time."""
        if self._made is not None:
            return self._made
        ended = self._now()
        unwrap(self._wrapping)
        if self._handle is not None:
            self._handle.remove()
        Recorder._active = None
        moments = [*self._moments, *self._pairs.read()]
        if self._traces is not None:
            moments = self._traces.read(moments, self._thread_numbers)
            self._missed += self._traces.missed
        unit = getattr(registry.backend(self._clock), "time_unit", "s") if self._clock else "s"
        made = assemble(moments, self._began, self._ways)
        made.seconds, made.unit, made.missed = ended - self._began, unit, self._missed
        self._made = made
        return made

    # -------------------------------------------------------------------------------------------- ops

    def _recording(self, call: Callable[..., Any]) -> Callable[..., Any]:
        local, enter, leave = self._local, self._enter, self._leave

        def recorded(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            if self._clock is None:
                self._meet(args)
            key = _signature(op, args)
            moment = enter("op", op.name)
            moment.way = key
            pair = None if local.open[1:] else self._outermost(args)
            try:
                if key not in self._ways and not interposers.is_explaining:
                    self._ways[key] = ""
                    found = explain(lambda: call(op, *args, out=out, **scalars))
                    self._ways[key] = str(found)
                    return found.result
                return call(op, *args, out=out, **scalars)
            finally:
                if pair is not None:
                    pair.end(op.name, moment.number)
                leave(moment)

        return recorded

    def _outermost(self, operands: tuple[Any, ...]) -> Pair | None:
        """What times a call that is inside no other, as it begins."""
        if self._traces is not None:
            self._traces.meet(operands)
        pair = self._pairs.begin(operands) if self._room > 0 else None
        self._room -= pair is not None
        return pair

    def _needs_pairs(self, backend: Backend) -> bool:
        return needs_pairs(backend) and not (self._traces is not None and self._traces.covers(backend))

    def _meet(self, operands: tuple[Any, ...]) -> None:
        """Take the clock of the kind of the first array."""
        found = next(filter(None, (registry.backend_of(type(operand)) for operand in operands)), None)
        if found is not None:
            self._choose_clock(found.kind)

    def _enter(self, kind: str, name: str, place: _Place | None = None) -> Moment:
        local = self._local
        if not local.number:
            self._number_thread()
        parent = local.open[-1] if local.open else -1
        moment = Moment(kind, name, next(self._numbers), parent, local.number, self._now(), place=place or _caller())
        self._add(moment)
        local.open.append(moment.number)
        return moment

    def _number_thread(self) -> None:
        self._local.number = next(self._threads)
        self._thread_numbers[threading.get_ident() & 0xFFFFFFFF] = self._local.number

    def _leave(self, moment: Moment) -> None:
        moment.end = self._now()
        opened = self._local.open
        while opened and opened.pop() != moment.number:
            pass

    def _add(self, moment: Moment) -> None:
        if self._room > 0:
            self._room -= 1
            self._moments.append(moment)
        else:
            self._missed += 1

    # -------------------------------------------------------------------------------------------- watchers

    def _quietly(self, run: Callable[[], Any]) -> Any:
        """Run what would otherwise be recorded itself."""
        local = self._local
        local.is_quiet = True
        try:
            return run()
        finally:
            local.is_quiet = False

    def _watch(self, occurrence: Occurrence) -> None:
        if self._local.is_quiet:
            return
        event = occurrence.event
        if event == "stream_made":  # a machine that is being made can not be asked for its time
            moment = Moment(event, occurrence.name, next(self._numbers), -1, 0, self._began, self._began)
            moment.occurrence = occurrence
            self._add(moment)
            return
        if self._clock is None:
            kind = occurrence.device.partition(":")[0]
            if any(one.kind == kind for one in registry.backends()):  # memory may be that of the host
                self._choose_clock(kind)
        if event.startswith("memory") and not self._memory:
            return
        if event in ("graph_replay_begun", "range_begun"):
            name = occurrence.name or f"graph {occurrence.subject:#x}"
            moment = self._enter("replay" if event == "graph_replay_begun" else "range", name)
            moment.occurrence = occurrence
        elif event in ("graph_replayed", "range_ended"):
            self._end_innermost("replay" if event == "graph_replayed" else "range", occurrence.subject)
        else:
            self._note(occurrence)

    def _note(self, occurrence: Occurrence) -> None:
        local = self._local
        if not local.number:
            self._number_thread()
        if self._traces is not None:
            self._traces.note(occurrence)
        parent = local.open[-1] if local.open else -1
        place = None if occurrence.site or not _has_site(occurrence.event) else _caller()
        now = self._now()
        moment = Moment(occurrence.event, occurrence.name, next(self._numbers), parent, local.number, now, now, place)
        moment.occurrence = occurrence if occurrence.begin is None else self._on_our_clock(occurrence, now)
        self._add(moment)

    def _on_our_clock(self, occurrence: Occurrence, now: float) -> Occurrence:
        """Of a kind with another clock, times are given as so far from now."""
        kind = occurrence.device.partition(":")[0]
        if kind == self._clock or occurrence.begin is None or occurrence.end is None:
            return occurrence
        shift = now - getattr(registry.backend(kind), "now_s", perf_counter)()
        return occurrence._replace(begin=occurrence.begin + shift, end=occurrence.end + shift)

    def _end_innermost(self, kind: str, subject: int) -> None:
        opened = set(self._local.open)
        for moment in reversed(self._moments):
            is_it = moment.kind == kind and moment.number in opened
            if is_it and moment.occurrence is not None and moment.occurrence.subject == subject:
                self._leave(moment)
                return


_known_as_ours: dict[CodeType, bool] = {}


def _caller() -> _Place:
    """Code and line of the nearest caller that is not this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        code = frame.f_code
        ours = _known_as_ours.get(code)
        if ours is None:
            ours = _known_as_ours[code] = is_ours(code.co_filename)
        if not ours:
            break
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


def _has_site(event: str) -> bool:
    return event not in ("event_made", "event_dropped", "memory_returned")


def _signature(op: Op, args: tuple[Any, ...]) -> Any:
    """What is enough to tell ways apart: the op, and each array's type, dtype and shape."""
    return (op, *[(one.__class__, getattr(one, "dtype", None), getattr(one, "shape", None)) for one in args])
