"""Captures of the simulated device: work given to a stream is recorded, and replayed as one piece.

While a stream is captured nothing runs; its outputs stay poisoned. A stream joins the capture by waiting for an
event recorded inside it, and must be waited for in turn before the end. A replay gives the recorded launches
to the current stream and to a queue of the capture's own for each stream that joined, with the recorded waits, so
that a missing one is a race as it is outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.sim.clock import Clock, Queue, join
from cuassay.devices.sim.machine import SimDevice, call_site
from cuassay.devices.sim.stream import SimStream
from cuassay.errors import CaptureError

__all__ = ["SimCapture"]


@dataclass(frozen=True, slots=True, eq=False)
class _Marker:
    """An event recorded inside a capture: what it waits for, by lane."""

    capture: SimCapture
    lane: int
    clock: Clock = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Launch:
    lane: int
    name: str
    accesses: Sequence[tuple[Any, bool]]
    work: Callable[[], object]
    site: tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Record:
    lane: int
    marker: _Marker


@dataclass(frozen=True, slots=True)
class _Wait:
    lane: int
    marker: _Marker


class SimCapture(Handle):
    """Records the work given to a stream; see `cuassay.core.protocols.Capture`.

    It keeps the arrays it touches alive until `reset`.
    """

    def __init__(self, sim_device: SimDevice) -> None:
        self.sim_device = sim_device
        self._nodes: list[_Launch | _Record | _Wait] = []
        self._captured: list[Queue] = []  # lane number to queue, while capturing
        self._clocks: list[Clock] = []  # lane number to what it waits for, by lane
        self._lanes: list[Queue] = []  # lane number (less one) to the queue of replays
        self._ready = False
        self._last: tuple[Clock, float] = {}, 0.0

    def __repr__(self) -> str:
        state = "capturing" if self._captured else "ready" if self._ready else "empty"
        launches = sum(isinstance(node, _Launch) for node in self._nodes)
        return f"SimCapture({self.device}, {state}, {launches} launches)"

    @property
    def device(self) -> Device:
        """Where it replays."""
        return self.sim_device.device

    # ---------------------------------------------------------------------------------------------- life

    def begin(self, stream: SimStream | None = None) -> None:
        """From here, work given to `stream` (None: the current one) is recorded.

        Raises
        ------
        CaptureError
            If the stream is the default one, is being captured already, or this capture holds work.
        """
        machine = self.sim_device.machine
        with machine.working():
            queue = machine.current_queue(self.sim_device) if stream is None else stream.queue
            if self._captured or self._ready:
                raise CaptureError(f"{self!r} holds work already; call reset() first, or make another capture")
            if queue is self.sim_device.default:
                raise CaptureError("the default stream cannot be captured, as in CUDA; use one from new_stream")
            if queue.capture is not None:
                raise CaptureError(f"{queue.label} is being captured already; end that capture first")
            self._enter(queue)

    def end(self) -> None:
        """Stop recording; the work can be replayed.

        Raises
        ------
        CaptureError
            If nothing was begun, or a stream that joined was not waited for; the work is then dropped.
        """
        with self.sim_device.machine.working():
            if not self._captured:
                raise CaptureError(f"{self!r} is not capturing; call begin() first")
            unjoined = [queue.label for lane, queue in enumerate(self._captured) if not self._joined(lane)]
            origin = self._captured[0].label
            self._leave()
            if unjoined:
                self._nodes.clear()
                raise CaptureError(
                    f"the capture on {origin} ended with work of {', '.join(unjoined)} that it does not wait for; "
                    f"let {origin} wait for {'them' if len(unjoined) > 1 else 'it'} before end()"
                )
            self._ready = True
            branches = range(1, len(self._clocks))
            self._lanes = [self.sim_device.new_queue(f"{origin}.branch{lane}") for lane in branches]

    def replay(self) -> None:
        """Give the recorded work to the current stream; replays of one capture follow each other.

        Raises
        ------
        CaptureError
            If nothing was captured, or the current stream is itself being captured.
        RaceError
            If the work races with other work, or inside itself.
        """
        machine = self.sim_device.machine
        with machine.working():
            queue = machine.current_queue(self.sim_device)
            if not self._ready:
                raise CaptureError(f"{self!r} has nothing to replay; call begin(), the work, end() first")
            if queue.capture is not None:
                raise CaptureError(f"{queue.label} is being captured; a captured graph cannot be replayed into another")
            self._run([queue, *self._lanes])

    def reset(self) -> None:
        """Forget the recorded work and free what it held; twice is allowed."""
        with self.sim_device.machine.working():
            self._leave()
            self._nodes.clear()
            for queue in self._lanes:
                self.sim_device.forget_queue(queue)
            self._lanes, self._clocks, self._ready = [], [], False

    def _enter(self, queue: Queue) -> None:
        queue.capture = self
        self._captured.append(queue)
        self._clocks.append({})

    def _leave(self) -> None:
        for queue in self._captured:
            queue.capture = None
        self._captured = []

    def _joined(self, lane: int) -> bool:
        return self._clocks[0].get(lane, 0) >= self._clocks[lane].get(lane, 0)

    # ---------------------------------------------------------------------------------------------- recording

    def add(self, queue: Queue, name: str, accesses: Sequence[tuple[Any, bool]], work: Callable[[], object]) -> None:
        """Record one launch of `queue`, with the arrays it touches and whether it writes each."""
        lane = self._captured.index(queue)
        self._clocks[lane][lane] = self._clocks[lane].get(lane, 0) + 1
        self._nodes.append(_Launch(lane, name, accesses, work, call_site()))

    def record(self, queue: Queue) -> _Marker:
        """An event is recorded on `queue`; gives what waiting for it needs."""
        lane = self._captured.index(queue)
        marker = _Marker(self, lane, dict(self._clocks[lane]))
        self._nodes.append(_Record(lane, marker))
        return marker

    def fork(self, queue: Queue, marker: _Marker) -> None:
        """`queue` waits for `marker`; it joins the capture if it was outside.

        Raises
        ------
        CaptureError
            If the capture is over, or `queue` is part of another one.
        """
        if not self._captured:
            raise CaptureError(f"{queue.label} cannot wait for an event of a capture that has ended; record it again")
        if queue.capture is None:
            self._enter(queue)
        elif queue.capture is not self:
            raise CaptureError(f"{queue.label} is part of another capture; two captures cannot wait for each other")
        lane = self._captured.index(queue)
        join(self._clocks[lane], marker.clock)
        self._nodes.append(_Wait(lane, marker))

    # ---------------------------------------------------------------------------------------------- replay

    def _run(self, lanes: Sequence[Queue]) -> None:
        reached: dict[int, tuple[Clock, float]] = {}
        lanes[0].waits(*self._last)
        for node in self._nodes:
            queue = lanes[node.lane]
            if isinstance(node, _Launch):
                self._launch(node, queue)
            elif isinstance(node, _Record):
                reached[id(node.marker)] = dict(queue.clock), queue.finished
            else:
                queue.waits(*reached[id(node.marker)])
        self._last = dict(lanes[0].clock), lanes[0].finished

    def _launch(self, node: _Launch, queue: Queue) -> None:
        for array, _ in node.accesses:
            if array.block is not None:  # the driver, too, frees a graph's memory after its last replay
                array.block.used_by(queue)
        self.sim_device.launch(queue, node.name, node.accesses, site=node.site)
        node.work()
