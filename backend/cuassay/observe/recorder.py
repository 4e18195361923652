"""Record a timeline: calls of ops and watcher events, on one clock.

The recorder wraps the call of an op, so that a recorded call is dispatched as it would be otherwise, including its
shortcuts. A recorded call or memory event only appends what is at hand to a log; moments and lines of source are made
of it when the recording ends. A log is one flat list, because one for each call would cost more, most of all when the
garbage collector follows it. `explain` reports the dispatch path once for each signature. Kinds that know their device
times (sim) report them. For other kinds a pair of events is recorded around each outermost call, unless the kind's
tracer is used; see `pairs`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from operator import attrgetter
from time import perf_counter
from types import CodeType
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.watchers import EVENTS, MemoryWatcher, Occurrence, WatchHandle, watch
from cuassay.errors import StateError
from cuassay.observe.assembly import (
    CODE,
    END,
    INSTRUCTION,
    OPEN,
    PAIR,
    UNMET,
    Moment,
    Way,
    assemble,
    calls,
    memory_events,
    move_calls,
    on_clock,
)
from cuassay.observe.pairs import NEVER, Pair, Pairs, counted, needs_pairs
from cuassay.observe.places import caller, known_as_ours, outside
from cuassay.observe.roofline import bytes_of
from cuassay.observe.signatures import finding
from cuassay.observe.spans import Timeline
from cuassay.observe.threads import State, Threads, close, place
from cuassay.observe.traced import Traces
from cuassay.ops import Op, registry
from cuassay.ops.explain import explain
from cuassay.ops.interposers import interposers
from cuassay.ops.wrapping import Wrapping, packed, unwrap, wrap

__all__ = ["Recorder"]

#: The watcher events that a timeline shows.
_WATCHED = EVENTS.keys() - {
    *("accessed", "event_found_done", "stream_found_done", "graph_capture_begun"),
    *("graph_body_begun", "graph_body_ended", "graph_updated", "graph_dropped"),
    "devices_replaced",
}

#: The watcher events that are not booked on a line.
_WITHOUT_SITE = ("event_made", "event_dropped", "memory_returned")

#: The most seconds of the host between two calls of which the second may begin at the end of the first on the device.
#: Every launch takes longer, so that nothing else can have been launched between them.
_AT_ONCE = 1e-6


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
        self._limit = limit
        self._memory = memory
        self._moments: list[Moment] = []
        self._memory_log: list[Any] = []
        self._ways: dict[Any, Way] = {}
        self._states: list[State] = []
        self._local = Threads(self._states, count(1))
        self._numbers = count()
        self._missed = 0
        self._now: Callable[[], float] = perf_counter
        self._at_once = _AT_ONCE
        self._clock: str | None = None
        self._traces: Traces | None = None
        self._pairs = Pairs(self._quietly, self._needs_pairs)
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
        self._at_once = _AT_ONCE if self._now is perf_counter else 0.0  # virtual time stays while the host works
        self._began = self._now()
        for moment in self._moments:  # on the former clock
            moment.begin, moment.end = self._began, min(moment.end, self._began)  # it may be open
        for state in self._states:
            move_calls(state.log, self._began)

    # -------------------------------------------------------------------------------------------- from start to stop

    def start(self) -> None:
        """Start recording. Raises `StateError` if it has ended, or if another one is active and does not give way."""
        if Recorder._active is not None and Recorder._active.gives_way:
            Recorder._active.stop()
        if self._made is not None:
            raise StateError("this profile has ended; a profile records once, so make another one")
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
        wanted = {event for event in _WATCHED if self._memory or not event.startswith("memory")}
        of_memory = {event: self._watch_memory(event) for event in ("memory_taken", "memory_returned")}
        self._handle = watch(self._watch, wanted, of_memory=of_memory)
        wrap(self._wrapping)

    def stop(self) -> Timeline:
        """Stop, wait for the devices whose events were recorded, and return the timeline.

        A second call returns the same timeline. Raises `StateError` if it was not started.
        """
        if self._made is not None:
            return self._made
        if self._handle is None or Recorder._active is not self:
            raise StateError("this profile is not recording; call start() first, or use it as a context manager")
        ended = self._now()
        unwrap(self._wrapping)
        self._handle.remove()
        Recorder._active = None
        moments = [*self._logged(), *self._pairs.read(is_host_clock=self._now is perf_counter)]
        if self._traces is not None:
            moments = self._traces.read(moments, {state.ident: state.number for state in self._states})
            self._missed += self._traces.missed
        unit = getattr(registry.backend(self._clock), "time_unit", "s") if self._clock else "s"
        made = self._made = assemble(moments, self._began, ended)
        made.seconds, made.unit, made.missed = ended - self._began, unit, self._missed
        return made

    def _logged(self) -> list[Moment]:
        """Return all moments in the order in which they began."""
        found = [*self._moments, *memory_events(self._memory_log)]
        for state in self._states:
            found += calls(state.log, state.number)
        found.sort(key=attrgetter("number"))
        return found

    # -------------------------------------------------------------------------------------------- ops

    def _recording(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        local, numbers, pairs, find_frame = self._local, self._numbers, self._pairs, sys._getframe
        call, find_way, timed = packed(wrapped), finding(self._ways), self._timing()
        known: CodeType | None = None  # of the last caller; it is outside this package

        def recorded(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            nonlocal known
            if self._clock is None:
                self._use_clock_of(args)
            begin, number = self._now(), next(numbers)
            if number >= self._limit:
                self._missed += 1
                return call(op, args, out, scalars)
            try:
                frame = find_frame(1)
            except ValueError:  # a thread begins with this call
                frame = find_frame(0)
            code = frame.f_code
            if code is not known:
                frame = outside(frame)
                code = frame.f_code
                known = None if known_as_ours[code.co_filename] else code
            way, state = find_way(op, args), local.state
            opened, log = state.open, state.log
            is_untimed = opened or way.watch is None or number + 1 >= self._limit  # its time would be one too many
            watch, mark = (None, None) if is_untimed else timed(way, args, begin)
            at = len(log)
            log.extend((number, opened[-1] if opened else -1, begin, OPEN, way, code, frame.f_lasti, watch, -1))
            opened.append(number)
            booked, state.booked = state.booked, at if way.is_alone else None
            try:
                if way.early and not interposers.is_explaining:
                    return self._early(at, way, partial(call, op, args, out, scalars), op, args, (watch, mark))
                return call(op, args, out, scalars)
            finally:
                state.booked = booked
                while opened and opened.pop() != number:
                    pass
                if log[at + END] == OPEN:  # otherwise `_early` has ended it
                    if watch is not None:
                        log[at + PAIR], pairs.last = watch.stop(mark), watch
                        pairs.ended = self._now()
                    log[at + END] = self._now() if watch is None else pairs.ended

        return recorded

    def _timing(self) -> Callable[[Way, tuple[Any, ...], float], Pair | tuple[None, None]]:
        """Return what starts to time a call that is not inside another one."""
        pairs = self._pairs

        def timed(way: Way, operands: tuple[Any, ...], begin: float) -> Pair | tuple[None, None]:
            watch, is_next = way.watch, begin - pairs.ended < self._at_once
            if watch is UNMET:
                return self._meet(way, operands, is_next=is_next)
            may_follow = is_next and watch is pairs.last
            mark = watch.follow() if may_follow else watch.start()
            if mark is None:
                return None, None
            self._limit -= 1
            return watch, mark

        return timed

    def _meet(self, way: Way, operands: tuple[Any, ...], *, is_next: bool) -> Pair | tuple[None, None]:
        """Start to time a call, and find out what times all calls with its signature.

        It also lets the tracer learn of the call; then this is not found out, but asked at each call.
        """
        traces = self._traces
        if traces is not None:
            traces.meet(operands)
        pair = self._pairs.meet(way, operands, is_next=is_next, keeps=traces is None)
        self._limit -= pair is not None
        return pair or (None, None)

    def _early(self, at: int, way: Way, run: Callable[[], Any], op: Op, args: tuple[Any, ...], pair: Any) -> Any:
        """Run one of the first two calls with a signature: time it, note its launches, and explain the first."""
        state, pairs, (watch, mark) = self._local.state, self._pairs, pair

        def timed() -> Any:
            with counted(op, args) as launches:
                result = run()
            if watch is not None:
                state.log[at + PAIR], pairs.last = watch.stop(mark), watch
            state.log[at + END] = pairs.ended = self._now()
            pairs.note_launches(way, state.log[at], launches, pairs.ended)
            way.early = max(way.early - 1, 0)  # calls may be inside one another, or in several threads
            return result

        if way.text is not None:
            return timed()
        way.text, way.is_alone = "", True
        state.tried = state.log[at + CODE], state.log[at + INSTRUCTION], way
        try:
            found = explain(timed)
        except BaseException:
            way.text, way.is_alone = None, False
            raise
        finally:
            state.tried = None
        way.text, way.nbytes = str(found), bytes_of(op, args, found.result)
        return found.result

    def _needs_pairs(self, backend: Backend) -> bool:
        return needs_pairs(backend) and not (self._traces is not None and self._traces.covers(backend))

    def _use_clock_of(self, operands: tuple[Any, ...]) -> None:
        """Use the clock of the first array's device kind; that of a list is the kind of its first array."""
        firsts = (one[0] if one.__class__ in (list, tuple) and one else one for one in operands)
        found = next(filter(None, (registry.backend_of(type(one)) for one in firsts)), None)
        if found is not None:
            self._choose_clock(found.kind)

    def _enter(self, kind: str, name: str) -> Moment:
        state = self._local.state
        parent = state.open[-1] if state.open else -1
        moment = Moment(kind, name, next(self._numbers), parent, state.number, self._now(), place=caller())
        self._add(moment)
        state.open.append(moment.number)
        return moment

    def _leave(self, moment: Moment) -> None:
        moment.end = self._now()
        close(self._local.state.open, moment.number)

    def _add(self, moment: Moment) -> None:
        if moment.number < self._limit:
            self._moments.append(moment)
        else:
            self._missed += 1

    # -------------------------------------------------------------------------------------------- watchers

    def _quietly(self, run: Callable[[], Any]) -> Any:
        """Call `run` without recording what it does."""
        state = self._local.state
        state.is_quiet = True
        try:
            return run()
        finally:
            state.is_quiet = False

    def _watch(self, occurrence: Occurrence) -> None:
        if self._local.state.is_quiet:
            return
        event = occurrence.event
        if not event.startswith("memory"):
            self._pairs.ended = NEVER
        if event == "stream_made":  # a simulated machine has no clock yet while it is being constructed
            moment = Moment(event, occurrence.name, next(self._numbers), -1, 0, self._began, self._began)
            moment.occurrence = occurrence
            self._add(moment)
            return
        if self._clock is None:
            kind = occurrence.device.partition(":")[0]
            if any(one.kind == kind for one in registry.backends()):  # pinned host memory does not name a device kind
                self._choose_clock(kind)
        if event in ("graph_replay_begun", "range_begun"):
            name = occurrence.name or f"graph {occurrence.subject:#x}"
            moment = self._enter("replay" if event == "graph_replay_begun" else "range", name)
            moment.occurrence = occurrence
        elif event in ("graph_replayed", "range_ended"):
            self._end_innermost("replay" if event == "graph_replayed" else "range", occurrence.subject)
        else:
            self._note(occurrence)

    def _watch_memory(self, event: str) -> MemoryWatcher:
        """Return what records a memory event as `_watch` does, but without an occurrence and a moment."""
        local, numbers, extend = self._local, self._numbers, self._memory_log.extend
        has_site = event not in _WITHOUT_SITE

        def watched(device: str, address: int, stream: int, nbytes: int) -> None:
            state = local.state
            if state.is_quiet:
                return
            if self._clock is None:
                self._watch(Occurrence(event, device, address, stream, nbytes))
                return
            number = next(numbers)
            if number >= self._limit:
                self._missed += 1
                return
            code, instruction = None, 0
            if has_site:
                booked = state.booked
                if booked is None:
                    code, instruction = place(state)
                else:
                    code, instruction = state.log[booked + CODE], state.log[booked + INSTRUCTION]
            extend((number, self._now(), event, device, address, stream, nbytes, code, instruction))

        return watched

    def _note(self, occurrence: Occurrence) -> None:
        state = self._local.state
        if self._traces is not None:
            self._traces.note(occurrence)
        parent = state.open[-1] if state.open else -1
        where = None if occurrence.site or occurrence.event in _WITHOUT_SITE else place(state)
        now = self._now()
        moment = Moment(occurrence.event, occurrence.name, next(self._numbers), parent, state.number, now, now, where)
        moment.occurrence = occurrence if occurrence.begin is None else on_clock(occurrence, self._clock, now)
        self._add(moment)

    def _end_innermost(self, kind: str, subject: int) -> None:
        opened = set(self._local.state.open)
        for moment in reversed(self._moments):
            told = moment.occurrence
            if told is not None and told.subject == subject and moment.kind == kind and moment.number in opened:
                self._leave(moment)
                return
