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
from cuassay.core.watchers import Occurrence, WatchHandle, watch
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


class _Thread(threading.local):
    """How many ops this thread is inside of."""

    depth = 0


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
        self._local = _Thread()
        self._queues: dict[tuple[str, int], Queue] = {}
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
        with self._working():
            self.engine.raise_late()

    def unseen(self) -> Mapping[str, int]:
        """How often something could not be looked at, by the reason."""
        return dict(self.engine.unseen)

    # -------------------------------------------------------------------------------------------- streams

    def _queue(self, device: str, number: int | None, lane: str = "") -> Queue:
        """The engine's queue for a stream that watchers know by `number`; None is the current one."""
        found = self._queues.get((device, number)) if number is not None else None
        if found is not None:
            return found
        where = Device(device)
        backend: Any = registry.backend(where.kind)
        facts = backend.stream_facts(where.index, number)
        made = self.engine.queue(
            Device(where.kind, facts.device_index), facts.number, lane or facts.label, blocking=facts.is_blocking
        )
        if number is not None:
            self._queues[device, number] = made
        return made

    # -------------------------------------------------------------------------------------------- ops

    def _judging(self, call: Callable[..., Any]) -> Callable[..., Any]:
        local = self._local

        def judged(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            if local.depth:
                return call(op, *args, out=out, **scalars)
            arrays = touched.by_call(op, args, out, scalars)
            return self._around(op.name, arrays, out, lambda: call(op, *args, out=out, **scalars))

        return judged

    def _judging_plan(self, plain: Callable[[Plan], Any]) -> Callable[[Plan], Any]:
        local = self._local

        def run(plan: Plan) -> Any:
            if local.depth:
                return plain(plan)
            arrays = touched.by_schema(plan.op, plan.bound, plan.out)
            return self._around(plan.op.name, arrays, plan.out, lambda: plain(plan))

        return run

    def _around(self, name: str, arrays: list[tuple[Any, bool]], out: Any, run: Callable[[], Any]) -> Any:
        """Run one call: its arrays are judged before, an array that it makes after."""
        work = touched.located(arrays)
        if work is None:
            return run()
        device, others, accesses = work
        with self._working():
            queue = self._queue(device, None)
            elsewhere = [self._queue(other, None) for other in others]
            self.engine.joins(queue, elsewhere)
            self.engine.launch(queue, name, accesses)
        self._local.depth += 1
        try:
            result = run()
        finally:
            self._local.depth -= 1
        with self._working():
            if out is None and (made := touched.located([(result, True)])) is not None:
                if made[0] != device:
                    elsewhere.append(self._queue(made[0], None))
                self.engine.launch(queue, name, made[2])
            for other in elsewhere:
                self.engine.joins(other, [queue])
        return result

    # -------------------------------------------------------------------------------------------- watchers

    def _watch(self, occurrence: Occurrence) -> None:
        if occurrence.event == "accessed" and self._local.depth:
            return
        with self._lock:
            if self._is_busy:  # a finaliser that ran meanwhile, in this thread
                self._deferred.append(occurrence)
                return
        with self._working():
            self._take(occurrence)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Nothing else changes the engine inside; what is given back meanwhile is entered after."""
        with self._lock:
            self._is_busy = True
            try:
                yield
            finally:
                while self._deferred:
                    self._take(self._deferred.popleft())
                self._is_busy = False

    def _take(self, occurrence: Occurrence) -> None:
        event, device = occurrence.event, occurrence.device
        if not _is_device(device):
            if event == "memory_returned" and device.startswith(_PINNED):
                self.engine.forget(_PINNED, occurrence.subject, occurrence.nbytes)
            return
        without = _WITHOUT_STREAM.get(event)
        if without is not None:
            without(self.engine, occurrence)
            return
        number: int | None = occurrence.subject if event in _OF_SUBJECT else occurrence.stream
        if event == "graph_replay_begun":
            number = None
        self._told[event](occurrence, self._queue(device, number, occurrence.lane))

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


def _is_device(name: str) -> bool:
    kind, colon, index = name.partition(":")
    return bool(colon) and index.isdigit() and touched.is_observable(registry.backend(kind))


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
