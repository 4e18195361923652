"""Record a timeline: calls of ops and watcher events, on one clock.

The recorder wraps the call of an op, so that a recorded call is dispatched as it would be otherwise, including its
shortcuts. `explain` reports the dispatch path once for each signature. Kinds that know their device times (sim) report
them. For other kinds a pair of events is recorded around each outermost call and read at the end, unless the kind's
tracer is used.
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

#: The watcher events that a timeline shows.
_WATCHED = EVENTS.keys() - {
    *("accessed", "event_found_done", "stream_found_done", "graph_capture_begun"),
    *("graph_body_begun", "graph_body_ended", "graph_updated", "graph_dropped"),
    "devices_replaced",
}

#: The code and line of a frame. They are formatted when the recording ends.
_Place = tuple[CodeType, int]


class _Thread(threading.local):
    """Per thread: the numbers of the open spans, and the number of the thread."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.number = 0
        self.is_quiet = False


class Recorder:
    """Records from `start` to `stop`.

    Parameters
    ----------
    device : Device, optional
        The device whose clock the timeline uses. None uses that of the first device on which something is recorded.
    limit : int
        The largest number of moments and timed calls kept. Later ones are only counted.
    memory : bool
        Whether to record blocks with their call sites. This is most of the cost of recording.
    gives_way : bool
        Whether this recorder stops when another one starts. Otherwise starting another one raises `StateError`.
    kernels : bool
        Whether to trace each kernel and copy, for `device`'s kind and every kind used before that has a tracer.
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
        for moment in self._moments:  # ranges that were opened on the former clock
            moment.begin = moment.end = self._began

    # -------------------------------------------------------------------------------------------- from start to stop

    def start(self) -> None:
        """Start recording. Raises `StateError` if another recorder is active and does not give way."""
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
        """Stop, wait for the devices whose events were recorded, and return the timeline.

        A second call returns the same timeline.
        """
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
                self._use_clock_of(args)
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
        """Start timing a call that is not inside another one. Returns None if it is not timed by events."""
        if self._traces is not None:
            self._traces.meet(operands)
        pair = self._pairs.begin(operands) if self._room > 0 else None
        self._room -= pair is not None
        return pair

    def _needs_pairs(self, backend: Backend) -> bool:
        return needs_pairs(backend) and not (self._traces is not None and self._traces.covers(backend))

    def _use_clock_of(self, operands: tuple[Any, ...]) -> None:
        """Use the clock of the first array's device kind."""
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
        """Call `run` without recording what it does."""
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
        if event == "stream_made":  # a simulated machine has no clock yet while it is being constructed
            moment = Moment(event, occurrence.name, next(self._numbers), -1, 0, self._began, self._began)
            moment.occurrence = occurrence
            self._add(moment)
            return
        if self._clock is None:
            kind = occurrence.device.partition(":")[0]
            if any(one.kind == kind for one in registry.backends()):  # pinned host memory does not name a device kind
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
        """Shift the times of an occurrence from its kind's clock to the timeline's clock."""
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
    """Return the code and line of the nearest caller outside this package."""
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
    """Return what decides the dispatch path of a call: the op, and the type, dtype and shape of each argument."""
    return (op, *[(one.__class__, getattr(one, "dtype", None), getattr(one, "shape", None)) for one in args])
