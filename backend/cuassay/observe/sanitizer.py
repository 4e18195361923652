"""The race sanitizer: every call of an op, and what watchers are told, judged by happens-before.

What an op reads and writes its schema says; what else touches arrays (copies, kernels of the user's, functions of the
array library) is told by the kind as ``"accessed"``. Work that the kind does inside an op is the op's, and is not
looked at again. A call is judged before it runs, but for the arrays that it makes.

Threads of the host share one clock, as `cuassay.order.clock` has it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cuassay.core.device import Device
from cuassay.core.watchers import Occurrence, WatchHandle, hidden, watch
from cuassay.errors import StateError
from cuassay.observe import touched
from cuassay.ops import Op, registry
from cuassay.ops.plan import Plan
from cuassay.ops.wrapping import Wrapping, unwrap, wrap
from cuassay.order.clock import Queue
from cuassay.order.engine import Engine
from cuassay.order.sites import Site, call_site

__all__ = ["Sanitizer", "sanitized", "summary"]

#: What is not seen of graphs that other libraries capture.
_FOREIGN = "graphs that other libraries captured: their replays are not told"

#: Memory whose allocator waits for every user of a block before it is given out again.
_PINNED = "pinned host memory"


class Sanitizer:
    """Judges the work of all devices whose kind tells of accesses, from `start` to `stop`.

    Attributes
    ----------
    engine : Engine
        What it has found, and what it could not see.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self._lock = threading.RLock()
        self._is_busy = False
        self._deferred: deque[Occurrence] = deque()
        self._queues: dict[tuple[str, int, int], Queue] = {}
        self._lasting: dict[tuple[str, int], Queue] = {}
        self._asks: dict[str, tuple[Callable[[int], int], Callable[[int], bool] | None]] = {}
        self._foreign: set[int] = set()
        self._devices: dict[str, tuple[Device, Any]] = {}
        self._handle: WatchHandle | None = None
        self._wrapping = Wrapping(self._judging, self._judging_plan)
        self._told: dict[str, Callable[[Occurrence, Queue], object]] = self._table()
        self._of_memory = {"memory_taken": self.engine.take, "memory_returned": self.engine.give_back}

    def __repr__(self) -> str:
        return f"Sanitizer({'off' if self._handle is None else 'on'}, {len(self.engine.found)} found)"

    def start(self) -> None:
        """Judge from here. Raises `StateError` where it is on already."""
        if self._handle is not None:
            raise StateError(f"{self!r} is on already; stop it first, or make another one")
        self._handle = watch(self._watch, (*self._told, *_WITHOUT_STREAM, "devices_replaced"))
        wrap(self._wrapping)

    def stop(self) -> None:
        """Judge no more; twice is allowed."""
        if self._handle is not None:
            unwrap(self._wrapping)
            self._handle.remove()
            self._handle = None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What is found inside the block is neither raised nor kept."""
        self.engine.is_quiet, former = True, self.engine.is_quiet
        try:
            yield
        finally:
            self.engine.is_quiet = former

    def finish(self) -> None:
        """Raise an early free that was found since the last launch or wait."""
        with self._working():
            self.engine.raise_late()

    def unseen(self) -> Mapping[str, int]:
        """How often something could not be looked at, by the reason."""
        return dict(self.engine.unseen)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Nothing else changes the engine inside. What every call does spells it out, which saves a microsecond."""
        with self._lock:
            self._is_busy = True
            try:
                yield
            finally:
                self._catch_up()

    def _catch_up(self) -> None:
        """Enter what finalisers gave back while the engine was changed, which they must not do themselves."""
        try:
            while self._deferred:
                self._take(self._deferred.popleft())
        finally:
            self._is_busy = False

    # -------------------------------------------------------------------------------------------- streams

    def _queue(self, device: Device, number: int, lane: str = "") -> Queue:
        """The engine's queue for a stream that watchers know by `number`."""
        stream = device.kind, device.index, number  # to hash a Device takes as long as the rest
        found = self._queues.get(stream)
        if found is None:
            backend: Any = registry.backend(device.kind)
            facts = backend.stream_facts(device.index, number)
            home = device if facts.device_index == device.index else Device(device.kind, facts.device_index)
            found = self.engine.queue(home, facts.number, lane or facts.label, blocking=facts.is_blocking)
            if not facts.is_of_thread:
                self._queues[stream] = found
        return found

    def _may_be_gone(self, device: Device, number: int) -> bool:
        """Whether the stream need not exist any more: a driver that is asked for one that is gone crashes.

        Memory that was taken before the sanitizer was on goes back in the order of such a stream.
        """
        return number != 0 and (device.kind, device.index, number) not in self._queues

    def _current(self, device: Device) -> Queue:
        number = self._asked(device.kind)[0](device.index)
        queue = self._queue(device, number)
        self._follow(queue, number, device.kind)
        return queue

    def _asked(self, kind: str) -> tuple[Callable[[int], int], Callable[[int], bool] | None]:
        """What the kind says of streams: the number of a device's current one; whether one is captured."""
        found = self._asks.get(kind)
        if found is None:
            backend: Any = registry.backend(kind)
            found = self._asks[kind] = backend.current_number, getattr(backend, "is_capturing", None)
        return found

    def _follow(self, queue: Queue, number: int, kind: str) -> None:
        """Captures by other libraries are not told: whether the stream is captured is asked before what it orders."""
        is_known = number in self._foreign
        if queue.capture is not None and not is_known:
            return
        asked = self._asked(kind)[1]
        is_captured = asked is not None and asked(number)
        if is_captured and not is_known:
            self._foreign.add(number)
            self.engine.begin_capture(-number, queue)
            self.engine.unseen[_FOREIGN] += 1
        elif is_known and not is_captured:
            self._foreign.discard(number)
            self.engine.drop_graph(-number)

    # -------------------------------------------------------------------------------------------- ops

    def _judging(self, call: Callable[..., Any]) -> Callable[..., Any]:
        begin, end, of_call, locate, of_thread = self._begin, self._end, touched.by_call, touched.located, hidden

        def judged(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            work = None if of_thread.depth else locate(of_call(op, args, out, scalars))
            if work is None:
                return call(op, *args, out=out, **scalars)
            site = call_site()
            order = begin(op.name, work, site)
            of_thread.depth += 1
            try:
                result = call(op, *args, out=out, **scalars)
            finally:
                of_thread.depth -= 1
            if out is None or len(order) > 1:
                end(op.name, order, result if out is None else None, site)
            return result

        return judged

    def _judging_plan(self, plain: Callable[[Plan], Any]) -> Callable[[Plan], Any]:
        def run(plan: Plan) -> Any:
            work = None if hidden.depth else touched.located(touched.by_schema(plan.op, plan.bound, plan.out))
            if work is None:
                return plain(plan)
            site = call_site()
            order = self._begin(plan.op.name, work, site)
            hidden.depth += 1
            try:
                result = plain(plan)
            finally:
                hidden.depth -= 1
            if len(order) > 1:
                self._end(plan.op.name, order, None, site)
            return result

        return run

    def _begin(self, name: str, work: touched.Work, site: Site) -> list[Queue]:
        """Judge what a call touches, but for what it makes; gives the queue that it is given to, then the others."""
        device, others, accesses = work
        with self._lock:
            self._is_busy = True
            try:
                order = [self._current(device)]
                if others:
                    order += map(self._current, others)
                    self.engine.joins(order[0], order[1:])
                self.engine.launch(order[0], name, accesses, site)
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False
        return order

    def _end(self, name: str, order: list[Queue], made: Any, site: Site) -> None:
        """The array that a call made is written by it; the other devices' queues go on after it."""
        results = made if isinstance(made, (tuple, list)) else (made,)
        work = touched.located([(one, True) for one in results])
        if work is None and len(order) == 1:
            return
        with self._lock:
            self._is_busy = True
            try:
                queue = order[0]
                if work is not None:
                    if work[0] is not queue.device and work[0] != queue.device:
                        order.append(self._current(work[0]))
                    self.engine.launch(queue, name, work[2], site)
                if len(order) > 1:
                    for other in order[1:]:
                        self.engine.joins(other, [queue])
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False

    # -------------------------------------------------------------------------------------------- watchers

    def _watch(self, occurrence: Occurrence) -> None:
        with self._lock:
            if self._is_busy:  # a finaliser that ran meanwhile, in this thread
                self._deferred.append(occurrence)
                return
            self._is_busy = True
            try:  # blocks come and go more often than all else happens
                act = self._of_memory.get(occurrence.event)
                queue = None if act is None else self._lasting.get((occurrence.device, occurrence.stream))
                if act is None or queue is None:
                    self._take(occurrence)
                else:
                    act(occurrence.device, occurrence.subject, occurrence.nbytes, queue)
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False

    def _take(self, occurrence: Occurrence) -> None:
        event, device = occurrence.event, self._device_of(occurrence.device)
        if device is None:
            if event == "devices_replaced":
                self._forget(occurrence.device)
            elif event == "memory_returned" and occurrence.device.startswith(_PINNED):
                self.engine.forget(_PINNED, occurrence.subject, occurrence.nbytes)
            return
        act = self._told.get(event)
        if act is None:
            _WITHOUT_STREAM[event](self.engine, occurrence)
        elif event == "graph_replay_begun":
            act(occurrence, self._current(device))
        elif event == "memory_returned" and self._may_be_gone(device, occurrence.stream):
            self.engine.forget(occurrence.device, occurrence.subject, occurrence.nbytes)
        else:
            number = occurrence.subject if event in _OF_SUBJECT else occurrence.stream
            queue = self._queue(device, number, occurrence.lane)
            if event == "accessed" or number in self._foreign:
                self._follow(queue, number, device.kind)
            act(occurrence, queue)
            if event in self._of_memory and touched.is_always_observable(device.kind):
                self._remember(device, occurrence)

    def _forget(self, kind: str) -> None:
        """The names of `kind`'s devices, and the numbers of their streams, are those of others from here."""
        self.engine.forget_devices(kind)
        self._queues = {stream: queue for stream, queue in self._queues.items() if stream[0] != kind}
        self._lasting = {of: queue for of, queue in self._lasting.items() if queue.device.kind != kind}

    def _remember(self, device: Device, occurrence: Occurrence) -> None:
        """The queue of this stream need not be looked for again."""
        lasting = self._queues.get((device.kind, device.index, occurrence.stream))
        if lasting is not None and not occurrence.lane:
            self._lasting[occurrence.device, occurrence.stream] = lasting

    def _device_of(self, name: str) -> Device | None:
        """The device that an occurrence names, if it is one whose kind is judged."""
        found = self._devices.get(name)
        if found is None:
            kind, colon, index = name.partition(":")
            if not (colon and index.isdigit()):
                return None
            found = self._devices[name] = Device(kind, int(index)), registry.backend(kind)
        return found[0] if touched.is_observable(found[1]) else None

    def _table(self) -> dict[str, Callable[[Occurrence, Queue], object]]:
        """What is done at each event that names a stream."""
        engine = self.engine
        return {
            "accessed": lambda told, queue: engine.launch(queue, told.name, told.accesses),
            "event_recorded": lambda told, queue: engine.record(queue, _kind(told), told.subject),
            "event_waited": lambda told, queue: engine.wait(queue, _kind(told), told.subject),
            "stream_synchronized": lambda told, queue: engine.host_waits_for(queue),
            "stream_found_done": lambda told, queue: engine.host_waits_for(queue),
            "memory_taken": lambda told, queue: engine.take(told.device, told.subject, told.nbytes, queue),
            "memory_recorded": lambda told, queue: engine.use(told.device, told.subject, queue),
            "memory_returned": lambda told, queue: engine.give_back(told.device, told.subject, told.nbytes, queue),
            "graph_capture_begun": lambda told, queue: engine.begin_capture(told.subject, queue),
            "graph_body_begun": lambda told, queue: engine.body(told.subject, queue, begins=True),
            "graph_body_ended": lambda told, queue: engine.body(told.subject, queue, begins=False),
            "graph_replay_begun": lambda told, queue: engine.replay(told.subject, queue),
        }


def _kind(told: Occurrence) -> str:
    return told.device.partition(":")[0]


#: Events whose subject is the stream.
_OF_SUBJECT = frozenset({"stream_synchronized", "stream_found_done"})

#: What is done at each event that names none.
_WITHOUT_STREAM: Mapping[str, Callable[[Engine, Occurrence], object]] = {
    "event_dropped": lambda engine, told: engine.drop_event(_kind(told), told.subject),
    "event_synchronized": lambda engine, told: engine.host_waits_for_event(_kind(told), told.subject),
    "event_found_done": lambda engine, told: engine.host_waits_for_event(_kind(told), told.subject),
    "device_synchronized": lambda engine, told: engine.host_waits_for_device(Device(told.device)),
    "graph_captured": lambda engine, told: engine.end_capture(told.subject),
    "graph_updated": lambda engine, told: engine.move_graph(told.subject, told.other),
    "graph_dropped": lambda engine, told: engine.drop_graph(told.subject),
}


@contextmanager
def sanitized() -> Iterator[Sanitizer]:
    """Inside the block races and early frees raise `RaceError`; one found last is raised at the block's end."""
    sanitizer = Sanitizer()
    sanitizer.start()
    try:
        yield sanitizer
        sanitizer.finish()
    finally:
        sanitizer.stop()


def summary(sanitizer: Sanitizer) -> list[str]:
    """Lines for the end of a run: how many errors were raised, and what could not be seen."""
    found = len(sanitizer.engine.found)
    lines = [f"cuassay sanitizer: {found} error{'' if found == 1 else 's'} found"]
    return lines + [f"cuassay sanitizer: not seen: {count:,} {what}" for what, count in sanitizer.unseen().items()]
