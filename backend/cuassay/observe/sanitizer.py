"""The race sanitizer checks op calls and watcher events by happens-before.

The schema of an op says what it reads and writes. For everything else that touches arrays (copies, user kernels,
functions of the array library), the device kind reports an ``"accessed"`` event. Work that a kind does inside an op
belongs to the op and is not checked again. The operands of a call are checked before it runs, and the arrays that it
allocates afterwards.

All host threads share one clock; see `cuassay.order.clock`.
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

#: Why replays of graphs captured by other libraries are not checked.
_FOREIGN = "graphs that other libraries captured: their replays are not reported"

#: Memory whose allocator reuses a block only after every stream that used it has finished.
_PINNED = "pinned host memory"


class Sanitizer:
    """Check the work of all devices whose kind reports accesses, from `start` to `stop`.

    Attributes
    ----------
    engine : Engine
        Holds the errors found, and counts of what could not be checked.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self._lock = threading.RLock()
        self._is_busy = False
        self._deferred: deque[Occurrence] = deque()
        self._queues: dict[tuple[str, int, int], Queue] = {}
        self._lasting: dict[tuple[str, int], Queue] = {}
        self._functions: dict[str, tuple[Callable[[int], int], Callable[[int], bool] | None]] = {}
        self._foreign: set[int] = set()
        self._devices: dict[str, tuple[Device, Any]] = {}
        self._handle: WatchHandle | None = None
        self._wrapping = Wrapping(self._judging, self._judging_plan)
        self._actions: dict[str, Callable[[Occurrence, Queue], object]] = self._stream_actions()
        self._of_memory = {"memory_taken": self.engine.take, "memory_returned": self.engine.give_back}

    def __repr__(self) -> str:
        return f"Sanitizer({'off' if self._handle is None else 'on'}, {len(self.engine.found)} found)"

    def start(self) -> None:
        """Start checking. Raises `StateError` if the sanitizer is already on."""
        if self._handle is not None:
            raise StateError(f"{self!r} is on already; stop it first, or make another one")
        self._handle = watch(self._watch, (*self._actions, *_WITHOUT_STREAM, "devices_replaced"))
        wrap(self._wrapping)

    def stop(self) -> None:
        """Stop checking. Calling it twice is allowed."""
        if self._handle is not None:
            unwrap(self._wrapping)
            self._handle.remove()
            self._handle = None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Neither raise nor record the errors that are found inside the block."""
        self.engine.is_quiet, former = True, self.engine.is_quiet
        try:
            yield
        finally:
            self.engine.is_quiet = former

    def finish(self) -> None:
        """Raise the early free, if one was found since the last launch or wait."""
        with self._working():
            self.engine.raise_late()

    def unseen(self) -> Mapping[str, int]:
        """Return how many accesses and replays could not be checked, by reason."""
        return dict(self.engine.unseen)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Lock the engine. Code that runs at every call inlines this, which saves a microsecond."""
        with self._lock:
            self._is_busy = True
            try:
                yield
            finally:
                self._catch_up()

    def _catch_up(self) -> None:
        """Process the occurrences that finalizers reported while the engine was busy."""
        try:
            while self._deferred:
                self._take(self._deferred.popleft())
        finally:
            self._is_busy = False

    # -------------------------------------------------------------------------------------------- streams

    def _queue(self, device: Device, number: int, lane: str = "") -> Queue:
        """Return the engine's queue for the stream that watchers know by `number`."""
        stream = device.kind, device.index, number  # hashing a Device would take as long as everything else here
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
        """Return whether the stream may no longer exist. Asking the driver about a destroyed stream crashes it.

        Memory allocated before the sanitizer was on may be freed in the order of such a stream.
        """
        return number != 0 and (device.kind, device.index, number) not in self._queues

    def _current(self, device: Device) -> Queue:
        number = self._stream_functions(device.kind)[0](device.index)
        queue = self._queue(device, number)
        self._follow(queue, number, device.kind)
        return queue

    def _stream_functions(self, kind: str) -> tuple[Callable[[int], int], Callable[[int], bool] | None]:
        """Return the kind's functions that give a device's current stream, and whether a stream is being captured."""
        found = self._functions.get(kind)
        if found is None:
            backend: Any = registry.backend(kind)
            found = self._functions[kind] = backend.current_number, getattr(backend, "is_capturing", None)
        return found

    def _follow(self, queue: Queue, number: int, kind: str) -> None:
        """Ask the driver whether another library is capturing the stream, because watchers are not notified of that."""
        is_known = number in self._foreign
        if queue.capture is not None and not is_known:
            return
        asked = self._stream_functions(kind)[1]
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
        """Check the operands of a call. Returns the queue that it is launched on, then those of the other devices."""
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
        """Enter the results as written by the call, and order the other devices' queues after it."""
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
            if self._is_busy:  # a finalizer that ran in this thread while the engine was busy
                self._deferred.append(occurrence)
                return
            self._is_busy = True
            try:  # memory events are the most frequent, so they have a shortcut
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
        act = self._actions.get(event)
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
        """Forget the devices and streams of `kind`: new devices now use their names and numbers."""
        self.engine.forget_devices(kind)
        self._queues = {stream: queue for stream, queue in self._queues.items() if stream[0] != kind}
        self._lasting = {of: queue for of, queue in self._lasting.items() if queue.device.kind != kind}

    def _remember(self, device: Device, occurrence: Occurrence) -> None:
        """Cache the queue of the occurrence's stream for later memory events."""
        lasting = self._queues.get((device.kind, device.index, occurrence.stream))
        if lasting is not None and not occurrence.lane:
            self._lasting[occurrence.device, occurrence.stream] = lasting

    def _device_of(self, name: str) -> Device | None:
        """Return the device that an occurrence names, or None if its kind is not checked."""
        found = self._devices.get(name)
        if found is None:
            kind, colon, index = name.partition(":")
            if not (colon and index.isdigit()):
                return None
            found = self._devices[name] = Device(kind, int(index)), registry.backend(kind)
        return found[0] if touched.is_observable(found[1]) else None

    def _stream_actions(self) -> dict[str, Callable[[Occurrence, Queue], object]]:
        """Return the action for each event that names a stream."""
        engine = self.engine
        return {
            "accessed": lambda event, queue: engine.launch(queue, event.name, event.accesses),
            "event_recorded": lambda event, queue: engine.record(queue, _kind(event), event.subject),
            "event_waited": lambda event, queue: engine.wait(queue, _kind(event), event.subject),
            "stream_synchronized": lambda event, queue: engine.host_waits_for(queue),
            "stream_found_done": lambda event, queue: engine.host_waits_for(queue),
            "memory_taken": lambda event, queue: engine.take(event.device, event.subject, event.nbytes, queue),
            "memory_recorded": lambda event, queue: engine.use(event.device, event.subject, queue),
            "memory_returned": lambda event, queue: engine.give_back(event.device, event.subject, event.nbytes, queue),
            "graph_capture_begun": lambda event, queue: engine.begin_capture(event.subject, queue),
            "graph_body_begun": lambda event, queue: engine.body(event.subject, queue, begins=True),
            "graph_body_ended": lambda event, queue: engine.body(event.subject, queue, begins=False),
            "graph_replay_begun": lambda event, queue: engine.replay(event.subject, queue),
        }


def _kind(event: Occurrence) -> str:
    return event.device.partition(":")[0]


#: Events whose subject is a stream.
_OF_SUBJECT = frozenset({"stream_synchronized", "stream_found_done"})

#: The action for each event that does not name a stream.
_WITHOUT_STREAM: Mapping[str, Callable[[Engine, Occurrence], object]] = {
    "event_dropped": lambda engine, event: engine.drop_event(_kind(event), event.subject),
    "event_synchronized": lambda engine, event: engine.host_waits_for_event(_kind(event), event.subject),
    "event_found_done": lambda engine, event: engine.host_waits_for_event(_kind(event), event.subject),
    "device_synchronized": lambda engine, event: engine.host_waits_for_device(Device(event.device)),
    "graph_captured": lambda engine, event: engine.end_capture(event.subject),
    "graph_updated": lambda engine, event: engine.move_graph(event.subject, event.other),
    "graph_dropped": lambda engine, event: engine.drop_graph(event.subject),
}


@contextmanager
def sanitized() -> Iterator[Sanitizer]:
    """Raise `RaceError` for races and early frees inside the block; a last early free is raised at the block's end."""
    sanitizer = Sanitizer()
    sanitizer.start()
    try:
        yield sanitizer
        sanitizer.finish()
    finally:
        sanitizer.stop()


def summary(sanitizer: Sanitizer) -> list[str]:
    """Return the lines for the end of a run: how many errors were found, and what could not be checked."""
    found = len(sanitizer.engine.found)
    lines = [f"cuassay sanitizer: {found} error{'' if found == 1 else 's'} found"]
    return lines + [f"cuassay sanitizer: not seen: {count:,} {what}" for what, count in sanitizer.unseen().items()]
