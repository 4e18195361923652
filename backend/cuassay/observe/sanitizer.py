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
from cuassay.core.watchers import MemoryWatcher, Occurrence, WatchHandle, hidden, watch
from cuassay.errors import StateError
from cuassay.observe import touched
from cuassay.observe.sanitizer_events import (
    OF_MEMORY,
    OF_SUBJECT,
    WITHOUT_STREAM,
    ActOnMemory,
    memory_actions,
    with_stream,
)
from cuassay.observe.stream_queues import StreamQueues
from cuassay.ops import Op, registry
from cuassay.ops.plan import Plan
from cuassay.ops.wrapping import Wrapping, packed, unwrap, wrap
from cuassay.order.clock import Queue
from cuassay.order.engine import Engine
from cuassay.order.journal import LAUNCHED, MOST_ENTRIES
from cuassay.order.sites import Site, call_site

__all__ = ["Sanitizer", "sanitized", "summary"]

#: A result is written.
_WRITTEN = (True,)

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
        self._streams = StreamQueues(self.engine)
        self._current, self._launch = self._streams.current, self.engine.launch_on
        self._journal = self.engine.journal
        self._lasting: dict[tuple[str, int], Queue] = {}
        self._devices: dict[str, tuple[Device, Any]] = {}
        self._handle: WatchHandle | None = None
        self._wrapping = Wrapping(self._judging, self._judging_plan)
        self._actions: dict[str, Callable[[Occurrence, Queue], object]] = with_stream(self.engine)

    def __repr__(self) -> str:
        return f"Sanitizer({'off' if self._handle is None else 'on'}, {len(self.engine.found)} found)"

    def start(self) -> None:
        """Start checking. Raises `StateError` if the sanitizer is already on."""
        if self._handle is not None:
            raise StateError(f"{self!r} is on already; stop it first, or make another one")
        wanted = (*self._actions, *WITHOUT_STREAM, "devices_replaced")
        of_memory = {event: self._watch_memory(act, event) for event, act in memory_actions(self.engine).items()}
        self._handle = watch(self._watch, wanted, of_memory=of_memory)
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

    @property
    def has_seen_work(self) -> bool:
        """Whether it met any stream; otherwise nothing was checked."""
        return self._streams.has_found

    def unseen(self) -> Mapping[str, int]:
        """Return how many accesses and replays could not be checked, by reason."""
        with self._working():
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

    # -------------------------------------------------------------------------------------------- ops

    def _judging(self, call: Callable[..., Any]) -> Callable[..., Any]:
        describe, of_thread, run = touched.described_call, hidden, packed(call)
        begin, end, judge_any = self._begin, self._end, self._judge_any

        def judged(op: Op, /, *args: Any, out: Any = None, **scalars: Any) -> Any:
            if of_thread.depth:
                return run(op, args, out, scalars)
            work = describe(op, args, out, scalars)
            if work is None:
                return judge_any(call, op, touched.by_call(op, args, out, scalars), args, out, scalars)
            site = call_site()
            queue = begin(op.name, work, site)
            of_thread.depth = 1  # it was 0: reading it again takes longer
            try:
                result = run(op, args, out, scalars)
            finally:
                of_thread.depth = 0
            if out is None and result is not None:
                end(op.name, queue, work, result, site)
            return result

        return judged

    def _judging_plan(self, plain: Callable[[Plan], Any]) -> Callable[[Plan], Any]:
        def run(plan: Plan) -> Any:
            arrays = [] if hidden.depth else touched.by_schema(plan.op, plan.bound, plan.out)
            work = touched.described(arrays)
            if work is None:
                return self._judge_any(lambda *_, **__: plain(plan), plan.op, arrays, (), plan.out, {})
            self._begin(plan.op.name, work, call_site())
            hidden.depth += 1
            try:
                return plain(plan)
            finally:
                hidden.depth -= 1

        return run

    def _judge_any(
        self,
        call: Callable[..., Any],
        op: Op,
        arrays: touched.Touched,
        args: tuple[Any, ...],
        out: Any,
        scalars: Mapping[str, Any],
    ) -> Any:
        """Run and check a call whose arrays are of several types or devices, or of a kind that does not tell traits."""
        given = scalars if out is None else {**scalars, "out": out}
        work = touched.located(arrays)
        if work is None:
            return call(op, *args, **given)
        site = call_site()
        order = self._begin_any(op.name, work, site)
        hidden.depth += 1
        try:
            result = call(op, *args, **given)
        finally:
            hidden.depth -= 1
        if out is None or len(order) > 1:
            self._end_any(op.name, order, result if out is None else None, site)
        return result

    def _begin(self, name: str, work: touched.Described, site: Site) -> Queue:
        """Check the operands of a call, and return the queue that it is launched on."""
        look, index, arrays, writes = work
        journal = self._journal
        with self._lock:
            self._is_busy = True
            try:
                queue = self._current(look.kind, index)
                memory = look.memories.get(index) or look.memory(index)
                if queue is journal.queue and queue.capture is None and len(journal.entries) < MOST_ENTRIES:
                    epoch = queue.clock[queue.number] = queue.clock[queue.number] + 1  # as `launch_on` does
                    journal.entries.append((LAUNCHED, memory, epoch, arrays, writes, look.extent_of, name, site))
                else:
                    self._launch(queue, name, memory, arrays, writes, look.extent_of, site)
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False
        return queue

    def _end(self, name: str, queue: Queue, work: touched.Described, made: Any, site: Site) -> None:
        """Enter the results as written by the call."""
        look, index = work[:2]
        if made.__class__ is not look.array_type or (traits := look.traits_of(made))[1] != index:
            self._end_any(name, [queue], made, site)
            return
        journal = self._journal
        with self._lock:
            self._is_busy = True
            try:
                if queue is journal.queue and queue.capture is None and len(journal.entries) < MOST_ENTRIES:
                    memory = look.memories[index]
                    epoch = queue.clock[queue.number] = queue.clock[queue.number] + 1
                    journal.entries.append((LAUNCHED, memory, epoch, (traits,), _WRITTEN, look.extent_of, name, site))
                else:
                    self._launch(queue, name, look.memories[index], (traits,), _WRITTEN, look.extent_of, site)
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False

    def _begin_any(self, name: str, work: touched.Work, site: Site) -> list[Queue]:
        """Check the operands of a call. Returns the queue that it is launched on, then those of the other devices."""
        device, others, accesses = work
        with self._lock:
            self._is_busy = True
            try:
                order = [self._current(device.kind, device.index)]
                if others:
                    order += (self._current(one.kind, one.index) for one in others)
                    self.engine.joins(order[0], order[1:])
                self.engine.launch(order[0], name, accesses, site)
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False
        return order

    def _end_any(self, name: str, order: list[Queue], made: Any, site: Site) -> None:
        """Enter the results as written by the call, and order the other devices' queues after it."""
        work = touched.located(touched.outputs(made))
        if work is None and len(order) == 1:
            return
        with self._lock:
            self._is_busy = True
            try:
                queue = order[0]
                if work is not None:
                    if work[0] is not queue.device and work[0] != queue.device:
                        order.append(self._current(work[0].kind, work[0].index))
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
            try:
                self._take(occurrence)
            finally:
                if self._deferred:
                    self._catch_up()
                self._is_busy = False

    def _watch_memory(self, act: ActOnMemory, event: str) -> MemoryWatcher:
        """Return what handles a memory event, the most frequent of all; a known stream needs no occurrence."""
        lock, journal, number = self._lock, self.engine.journal, OF_MEMORY[event]

        def told(device: str, address: int, stream: int, nbytes: int) -> None:
            with lock:
                queue = self._lasting.get((device, stream))
                if queue is None or self._is_busy:
                    self._watch(Occurrence(event, device, address, stream, nbytes))
                elif queue is journal.queue and queue.capture is None:  # as `act` does
                    journal.entries.append((number, device, address, nbytes))
                else:
                    self._is_busy = True
                    try:
                        act(device, address, nbytes, queue)
                    finally:
                        if self._deferred:
                            self._catch_up()
                        self._is_busy = False

        return told

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
            WITHOUT_STREAM[event](self.engine, occurrence)
        elif event == "graph_replay_begun":
            act(occurrence, self._current(device.kind, device.index))
        elif event == "memory_returned" and self._streams.may_be_gone(device, occurrence.stream):
            self.engine.forget(occurrence.device, occurrence.subject, occurrence.nbytes)
        else:
            number = occurrence.subject if event in OF_SUBJECT else occurrence.stream
            queue = self._streams.find(device, number, occurrence.lane)
            if event == "accessed" or number in self._streams.foreign:
                self._streams.follow(queue, number, device.kind)
            act(occurrence, queue)
            if event in OF_MEMORY and touched.is_always_observable(device.kind):
                self._remember(device, occurrence)

    def _forget(self, kind: str) -> None:
        """Forget the devices and streams of `kind`: new devices now use their names and numbers."""
        self.engine.forget_devices(kind)
        self._streams.forget(kind)
        self._lasting = {of: queue for of, queue in self._lasting.items() if queue.device.kind != kind}

    def _remember(self, device: Device, occurrence: Occurrence) -> None:
        """Cache the queue of the occurrence's stream for later memory events."""
        lasting = self._streams.lasting(device, occurrence.stream)
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
    if not sanitizer.has_seen_work:
        lines.append("cuassay sanitizer: nothing was checked: no work on a CUDA device was seen")
    return lines + [f"cuassay sanitizer: not seen: {count:,} {what}" for what, count in sanitizer.unseen().items()]
