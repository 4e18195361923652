"""Find the queue of a stream that watchers know by number, and follow captures by other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuassay.core.device import Device
from cuassay.ops import registry
from cuassay.order.clock import Queue
from cuassay.order.engine import Engine

__all__ = ["StreamQueues"]

#: Why replays of graphs captured by other libraries are not checked.
_FOREIGN = "graphs that other libraries captured: their replays are not reported"


class StreamQueues:
    """The engine's queues by the numbers of their streams.

    Attributes
    ----------
    foreign : set of int
        The numbers of streams that other libraries are capturing.
    has_found : bool
        Whether any stream was met.
    """

    def __init__(self, engine: Engine) -> None:
        self.foreign: set[int] = set()
        self.has_found = False
        self._engine = engine
        self._queues: dict[tuple[str, int, int], Queue] = {}
        self._functions: dict[str, tuple[Callable[[int], int], Callable[[int], bool] | None]] = {}

    def find(self, device: Device, number: int, lane: str = "") -> Queue:
        """Return the queue of the stream that watchers know by `number`."""
        stream = device.kind, device.index, number  # hashing a Device would take as long as everything else here
        found = self._queues.get(stream)
        if found is None:
            self.has_found = True
            backend: Any = registry.backend(device.kind)
            facts = backend.stream_facts(device.index, number)
            home = device if facts.device_index == device.index else Device(device.kind, facts.device_index)
            found = self._engine.queue(home, facts.number, lane or facts.label, blocking=facts.is_blocking)
            if not facts.is_of_thread:
                self._queues[stream] = found
        return found

    def lasting(self, device: Device, number: int) -> Queue | None:
        """Return the queue of the stream if it was asked for before and stays the same, or None."""
        return self._queues.get((device.kind, device.index, number))

    def may_be_gone(self, device: Device, number: int) -> bool:
        """Return whether the stream may no longer exist. Asking the driver about a destroyed stream crashes it.

        Memory allocated before the sanitizer was on may be freed in the order of such a stream.
        """
        return number != 0 and (device.kind, device.index, number) not in self._queues

    def current(self, kind: str, index: int) -> Queue:
        """Return the queue of the current stream of a device."""
        find_number, is_capturing = self._functions.get(kind) or self._find_functions(kind)
        number = find_number(index)
        queue = self._queues.get((kind, index, number)) or self.find(Device(kind, index), number)
        if self.foreign or (queue.capture is None and is_capturing is not None and is_capturing(number)):
            self.follow(queue, number, kind)
        return queue

    def _find_functions(self, kind: str) -> tuple[Callable[[int], int], Callable[[int], bool] | None]:
        """Return the kind's functions that give a device's current stream, and whether a stream is being captured."""
        backend: Any = registry.backend(kind)
        found = getattr(backend, "stream_functions", None)
        if found is None:
            found = backend.current_number, getattr(backend, "is_capturing", None)
        self._functions[kind] = found
        return found

    def follow(self, queue: Queue, number: int, kind: str) -> None:
        """Ask the driver whether another library is capturing the stream, because watchers are not notified of that."""
        is_known = number in self.foreign
        if queue.capture is not None and not is_known:
            return
        asked = (self._functions.get(kind) or self._find_functions(kind))[1]
        is_captured = asked is not None and asked(number)
        if is_captured and not is_known:
            self.foreign.add(number)
            self._engine.begin_capture(-number, queue)
            self._engine.unseen[_FOREIGN] += 1
        elif is_known and not is_captured:
            self.foreign.discard(number)
            self._engine.drop_graph(-number)

    def forget(self, kind: str) -> None:
        """Forget the streams of `kind`, because new devices now use their numbers."""
        self._queues = {stream: queue for stream, queue in self._queues.items() if stream[0] != kind}
