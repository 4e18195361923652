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

__all__ = ["Sanitizer", "sanitized", "summary"]

#: Memory whose allocator waits for every user of a block before it is given out again.
_PINNED = "pinned host memory"


class _Working:
    """Nothing else changes the engine inside; what is given back meanwhile, by finalisers, is entered after."""

    def __init__(self, lock: Any, deferred: deque[Occurrence], take: Callable[[Occurrence], object]) -> None:
        self._lock, self._deferred, self._take = lock, deferred, take
        self.is_busy = False

    def __enter__(self) -> None:
        self._lock.acquire()
        self.is_busy = True

    def __exit__(self, *error: object) -> None:
        try:
            while self._deferred:
                self._take(self._deferred.popleft())
        finally:
            self.is_busy = False
            self._lock.release()


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
        self._deferred: deque[Occurrence] = deque()
        self._working = _Working(self._lock, self._deferred, self._take)
        self._queues: dict[tuple[Device, int], Queue] = {}
        self._devices: dict[str, Device | None] = {}
        self._handle: WatchHandle | None = None
        self._wrapping = Wrapping(self._judging, self._judging_plan)
        self._told: dict[str, Callable[[Occurrence, Queue], object]] = self._table()

    def __repr__(self) -> str:
        return f"Sanitizer({'off' if self._handle is None else 'on'}, {len(self.engine.found)} found)"

    def start(self) -> None:
        """Judge from here. Raises `StateError` where it is on already."""
        if self._handle is not None:
            raise StateError(f"{self!r} is on already; stop it first, or make another one")
        self._handle = watch(self._watch, (*self._told, *_WITHOUT_STREAM))
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
        with self._working:
            self.engine.raise_late()

    def unseen(self) -> Mapping[str, int]:
        """How often something could not be looked at, by the reason."""
        return dict(self.engine.unseen)

    # -------------------------------------------------------------------------------------------- streams

    def _queue(self, device: Device, number: int, lane: str = "") -> Queue:
        """The engine's queue for a stream that watchers know by `number`."""
        found = self._queues.get((device, number))
        if found is None:
            backend: Any = registry.backend(device.kind)
            facts = backend.stream_facts(device.index, number)
            home, label = Device(device.kind, facts.device_index), lane or facts.label
            found = self.engine.queue(home, facts.number, label, blocking=facts.is_blocking)
            if not facts.is_of_thread:
                self._queues[device, number] = found
        return found

    def _current(self, device: Device) -> Queue:
        backend: Any = registry.backend(device.kind)
        return self._queue(device, backend.current_number(device.index))

    # -------------------------------------------------------------------------------------------- ops

    def _judging(self, call: Callable[..., Any]) -> Callable[..., Any]:
        begin, end = self._begin, self._end

        def judged(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            work = None if hidden.depth else touched.located(touched.by_call(op, args, out, scalars))
            if work is None:
                return call(op, *args, out=out, **scalars)
            order = begin(op.name, work)
            hidden.depth += 1
            try:
                result = call(op, *args, out=out, **scalars)
            finally:
                hidden.depth -= 1
            if out is None or len(order) > 1:
                end(op.name, order, result if out is None else None)
            return result

        return judged

    def _judging_plan(self, plain: Callable[[Plan], Any]) -> Callable[[Plan], Any]:
        def run(plan: Plan) -> Any:
            work = None if hidden.depth else touched.located(touched.by_schema(plan.op, plan.bound, plan.out))
            if work is None:
                return plain(plan)
            order = self._begin(plan.op.name, work)
            hidden.depth += 1
            try:
                result = plain(plan)
            finally:
                hidden.depth -= 1
            self._end(plan.op.name, order, None)
            return result

        return run

    def _begin(self, name: str, work: touched.Work) -> list[Queue]:
        """Judge what a call touches, but for what it makes; gives the queue that it is given to, then the others."""
        device, others, accesses = work
        with self._working:
            order = [self._current(device), *map(self._current, others)]
            if others:
                self.engine.joins(order[0], order[1:])
            self.engine.launch(order[0], name, accesses)
        return order

    def _end(self, name: str, order: list[Queue], made: Any) -> None:
        """The array that a call made is written by it; the other devices' queues go on after it."""
        results = made if isinstance(made, (tuple, list)) else [made]
        work = touched.located([(one, True) for one in results])
        with self._working:
            queue = order[0]
            if work is not None:
                if work[0] != queue.device:
                    order.append(self._current(work[0]))
                self.engine.launch(queue, name, work[2])
            for other in order[1:]:
                self.engine.joins(other, [queue])

    # -------------------------------------------------------------------------------------------- watchers

    def _watch(self, occurrence: Occurrence) -> None:
        with self._lock:
            if self._working.is_busy:  # a finaliser that ran meanwhile, in this thread
                self._deferred.append(occurrence)
                return
            with self._working:
                self._take(occurrence)

    def _take(self, occurrence: Occurrence) -> None:
        event, device = occurrence.event, self._device_of(occurrence.device)
        if device is None:
            if event == "memory_returned" and occurrence.device.startswith(_PINNED):
                self.engine.forget(_PINNED, occurrence.subject, occurrence.nbytes)
            return
        without = _WITHOUT_STREAM.get(event)
        if without is not None:
            without(self.engine, occurrence)
            return
        if event == "graph_replay_begun":
            queue = self._current(device)
        else:
            number = occurrence.subject if event in _OF_SUBJECT else occurrence.stream
            queue = self._queue(device, number, occurrence.lane)
        self._told[event](occurrence, queue)

    def _device_of(self, name: str) -> Device | None:
        """The device that an occurrence names, if it is one whose kind is judged."""
        if name not in self._devices:
            kind, colon, index = name.partition(":")
            self._devices[name] = Device(kind, int(index)) if colon and index.isdigit() else None
        device = self._devices[name]
        return device if device is not None and touched.is_observable(registry.backend(device.kind)) else None

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
