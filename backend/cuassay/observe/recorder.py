"""Record a timeline: calls of ops and watcher events, on one clock.

The recorder wraps the call of an op, so that a recorded call is dispatched as it would be otherwise, including its
shortcuts. A recorded call or memory event appends one list of what is at hand; moments and lines of source are made of
them when the recording ends. Objects that the garbage collector follows cost most then, so that a list holds only
numbers, names, code and one object for all calls with the same signature. `explain` reports the dispatch path once for
each signature. Kinds that know their device times (sim) report them. For other kinds a pair of events is recorded
around each outermost call, unless the kind's tracer is used; see `pairs`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from itertools import count
from operator import attrgetter
from time import perf_counter
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.watchers import EVENTS, MemoryWatcher, Occurrence, WatchHandle, watch
from cuassay.errors import StateError
from cuassay.observe.assembly import CODE, END, INSTRUCTION, OPEN, WAY, Moment, Recorded, Way, as_moment, assemble
from cuassay.observe.pairs import NEVER, Pair, Pairs, needs_pairs
from cuassay.observe.places import caller, known_as_ours, outside
from cuassay.observe.roofline import bytes_of
from cuassay.observe.spans import Timeline
from cuassay.observe.threads import Threads, close, place
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
        self._moments: list[Recorded] = []
        self._ways: dict[Any, Way] = {}
        self._local = Threads()
        self._numbers, self._threads = count(), count(1)
        self._missed = 0
        self._now: Callable[[], float] = perf_counter
        self._at_once = _AT_ONCE
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
        self._at_once = _AT_ONCE if self._now is perf_counter else 0.0  # virtual time stays while the host works
        self._began = self._now()
        for moment in self._moments:  # ranges that were opened on the former clock
            if isinstance(moment, Moment):
                moment.begin, moment.end = self._began, min(moment.end, self._began)  # it may be open

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
        moments = [*map(as_moment, self._moments), *self._pairs.read()]
        if self._traces is not None:
            moments = self._traces.read(moments, self._thread_numbers)
            self._missed += self._traces.missed
        unit = getattr(registry.backend(self._clock), "time_unit", "s") if self._clock else "s"
        made = assemble(moments, self._began, ended)
        made.seconds, made.unit, made.missed = ended - self._began, unit, self._missed
        self._made = made
        return made

    # -------------------------------------------------------------------------------------------- ops

    def _recording(self, call: Callable[..., Any]) -> Callable[..., Any]:
        local, ways, numbers, moments = self._local, self._ways, self._numbers, self._moments
        known, find_frame, pairs, timed = known_as_ours, sys._getframe, self._pairs, self._timing()

        def recorded(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            if self._clock is None:
                self._use_clock_of(args)
            begin = self._now()
            state = local.state
            opened = state.open
            frame = find_frame(1)
            if known.get(frame.f_code.co_filename, True):
                frame = outside(frame)
            try:
                way = ways[op, *map(_traits, args)]
            except (AttributeError, KeyError):
                way = self._way(op, args)
            number = next(numbers)
            parent = opened[-1] if opened else -1
            thread = state.number or self._number_thread()
            moment = [number, parent, thread, begin, OPEN, way, frame.f_code, frame.f_lasti]
            if len(moments) < self._limit:
                moments.append(moment)
            else:
                self._missed += 1
            pair = None if opened else timed(args, begin)
            opened.append(number)
            booked, state.booked = state.booked, moment if way.is_alone else None
            try:
                if way.text is None and not interposers.is_explaining:
                    return self._first(moment, call, op, args, out, scalars)
                return call(op, *args, out=out, **scalars)
            finally:
                state.booked = booked
                while opened and opened.pop() != number:
                    pass
                if pair is None:
                    moment[END] = self._now()
                else:
                    watch, mark = pair
                    watch.called[watch.stop(mark)] = way, number
                    pairs.last = watch
                    pairs.ended = moment[END] = self._now()

        return recorded

    def _timing(self) -> Callable[[tuple[Any, ...], float], Pair | None]:
        """Return what starts to time a call that is not inside another one; it returns None if events do not time it.

        It also lets the tracer learn of the call.
        """
        pairs, moments, traces = self._pairs, self._moments, self._traces
        watches, are_untimed = pairs.of_type, pairs.unwanted.issuperset

        def timed(operands: tuple[Any, ...], begin: float) -> Pair | None:
            watch = watches.get(operands[0].__class__) if operands else None
            if len(moments) >= self._limit or (watch is None and are_untimed(map(type, operands))):
                return None
            is_next = begin - pairs.ended < self._at_once
            if watch is None:
                pair = pairs.begin(operands, is_next=is_next)
            else:
                mark = watch.follow() if is_next and watch is pairs.last else watch.start()
                pair = None if mark is None else (watch, mark)
            self._limit -= pair is not None
            return pair

        if traces is None:
            return timed
        meet = traces.meet

        def traced(operands: tuple[Any, ...], begin: float) -> Pair | None:
            meet(operands)
            return timed(operands, begin)

        return traced

    def _first(
        self,
        moment: list[Any],
        call: Callable[..., Any],
        op: Op,
        args: tuple[Any, ...],
        out: Any,
        scalars: Mapping[str, Any],
    ) -> Any:
        """Run the first call with its signature; find out its dispatch path, and where it allocates memory."""
        state, way = self._local.state, moment[WAY]
        way.text, way.is_alone = "", True
        state.tried = moment
        try:
            found = explain(lambda: call(op, *args, out=out, **scalars))
        except BaseException:
            way.is_alone = False
            raise
        finally:
            state.tried = None
        way.text, way.nbytes = str(found), bytes_of(op, args, found.result)
        return found.result

    def _way(self, op: Op, args: tuple[Any, ...]) -> Way:
        """Return what is known of the calls with this signature."""
        try:
            key: Any = op, *map(_traits, args)
        except AttributeError:
            key = _signature(op, args)
        return self._ways.setdefault(key, Way(op.name))

    def _needs_pairs(self, backend: Backend) -> bool:
        return needs_pairs(backend) and not (self._traces is not None and self._traces.covers(backend))

    def _use_clock_of(self, operands: tuple[Any, ...]) -> None:
        """Use the clock of the first array's device kind."""
        found = next(filter(None, (registry.backend_of(type(operand)) for operand in operands)), None)
        if found is not None:
            self._choose_clock(found.kind)

    def _enter(self, kind: str, name: str) -> Moment:
        state = self._local.state
        thread = state.number or self._number_thread()
        parent = state.open[-1] if state.open else -1
        moment = Moment(kind, name, next(self._numbers), parent, thread, self._now(), place=caller())
        self._add(moment)
        state.open.append(moment.number)
        return moment

    def _number_thread(self) -> int:
        number = self._local.state.number = next(self._threads)
        self._thread_numbers[threading.get_ident() & 0xFFFFFFFF] = number
        return number

    def _leave(self, moment: Moment) -> None:
        moment.end = self._now()
        close(self._local.state.open, moment.number)

    def _add(self, moment: Recorded) -> None:
        if len(self._moments) < self._limit:
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
        local, moments, has_site = self._local, self._moments, _has_site(event)

        def watched(device: str, address: int, stream: int, nbytes: int) -> None:
            state = local.state
            if state.is_quiet:
                return
            if self._clock is None:
                self._watch(Occurrence(event, device, address, stream, nbytes))
                return
            code, instruction = None, 0
            if has_site:
                booked = state.booked
                if booked is not None:
                    code, instruction = booked[CODE], booked[INSTRUCTION]
                else:
                    code, instruction = place(state)
            if len(moments) < self._limit:
                moments.append((self._now(), event, device, address, stream, nbytes, code, instruction))
            else:
                self._missed += 1

        return watched

    def _note(self, occurrence: Occurrence) -> None:
        state = self._local.state
        thread = state.number or self._number_thread()
        if self._traces is not None:
            self._traces.note(occurrence)
        parent = state.open[-1] if state.open else -1
        where = None if occurrence.site or not _has_site(occurrence.event) else place(state)
        now = self._now()
        moment = Moment(occurrence.event, occurrence.name, next(self._numbers), parent, thread, now, now, where)
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
        opened = set(self._local.state.open)
        for moment in reversed(self._moments):
            if not isinstance(moment, Moment) or moment.kind != kind or moment.number not in opened:
                continue
            if moment.occurrence is not None and moment.occurrence.subject == subject:
                self._leave(moment)
                return


def _has_site(event: str) -> bool:
    return event not in ("event_made", "event_dropped", "memory_returned")


#: What of an array is part of a signature, in one C call.
_traits = attrgetter("__class__", "dtype", "shape")


def _signature(op: Op, args: tuple[Any, ...]) -> Any:
    """Return what decides the dispatch path of a call: the op, and the type, dtype and shape of each argument."""
    return (op, *[(one.__class__, getattr(one, "dtype", None), getattr(one, "shape", None)) for one in args])
