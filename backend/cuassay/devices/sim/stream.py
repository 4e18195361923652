"""Streams and events of the simulated device. Names and meanings follow ``torch.cuda``.

Waits join clocks (see `clock`), and times are virtual. A query costs the host the time of a call, so that a polling
loop ends. Streams come from a pool of 32 for each device and priority, in turn, as on a CUDA device: the 33rd is
ordered with the first, as it is there.
"""

from __future__ import annotations

import sys
import weakref
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from cuassay.core import syncdebug, watchers
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.watchers import Occurrence
from cuassay.devices.sim.device import SimDevice
from cuassay.devices.sim.machine import refuse_capture, refuse_wait
from cuassay.errors import ArgumentError, CaptureError, DeviceError
from cuassay.order.clock import Clock, Queue

if TYPE_CHECKING:
    from cuassay.devices.sim.capture import Marker

__all__ = ["SimEvent", "SimStream"]

_numbers = count(1)


class SimStream(Handle):
    """An ordered queue of work on one simulated device.

    Parameters
    ----------
    sim_device : SimDevice
        The device.
    queue : Queue
        The default queue, one of the device's pool, or a separate one.
    priority : int
        Kept and shown; virtual time has no contention for it to affect.
    """

    def __init__(self, sim_device: SimDevice, queue: Queue, priority: int = 0) -> None:
        self.sim_device = sim_device
        self.queue = queue
        self.priority = priority
        if queue.blocking:  # other queues belong to the pool or the device
            weakref.finalize(self, sim_device.forget_queue, queue).atexit = False

    def __repr__(self) -> str:
        return f"SimStream({self.queue.label} of {self.device})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimStream) and other.queue is self.queue

    def __hash__(self) -> int:
        return hash((SimStream, self.queue.number))

    def __enter__(self) -> Self:
        """Submit this thread's work to the stream inside the block."""
        self.sim_device.machine.enter(self.sim_device.index, self)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous stream of its device."""
        self.sim_device.machine.leave()

    @property
    def device(self) -> Device:
        """The device that its work runs on."""
        return self.sim_device.device

    @property
    def capturing(self) -> bool:
        """Whether work submitted to it is recorded instead of run."""
        return self.queue.capture is not None

    def query(self) -> bool:
        """Return True if all work submitted to the stream is done in virtual time.

        The host then counts as having waited.
        """
        with self.sim_device.machine.working():
            refuse_capture(self.queue, "Stream.query", "end the capture first", breaks=True)
            refuse_wait("Stream.query")
            is_done = self.sim_device.machine.is_reached(self.queue.clock, self.queue.finished)
            if is_done and self.sim_device.is_watched:
                watchers.tell(Occurrence("stream_found_done", str(self.device), self.queue.number))
            return is_done

    def synchronize(self) -> None:
        """Make the host wait for all work submitted to the stream.

        Raises
        ------
        CaptureError
            If the stream is being captured.
        RaceError
            For an early free that was found since the last call.
        """
        syncdebug.waits("Stream.synchronize")
        with self.sim_device.machine.working():
            refuse_capture(
                self.queue, "Stream.synchronize", "end the capture first, or order streams by events", breaks=True
            )
            refuse_wait("Stream.synchronize")
            self.sim_device.raise_late()
            self.sim_device.host_waits(self.queue)

    def record_event(self, event: SimEvent | None = None) -> SimEvent:
        """Record `event`, or a new event without timing, and return it."""
        event = event or SimEvent(self.sim_device)
        event.record(self)
        return event

    def wait_event(self, event: SimEvent) -> None:
        """Make later work of this stream wait for `event`, of any device, if it was recorded."""
        if not isinstance(event, SimEvent):
            raise ArgumentError(f"{self!r} waits for simulated events; got {event!r}; give an event from record_event")
        event.wait(self)

    def wait_stream(self, stream: SimStream) -> None:
        """Make later work of this stream wait for all work submitted to `stream` so far."""
        if not isinstance(stream, SimStream):
            raise ArgumentError(f"{self!r} waits for simulated streams; got {stream!r}; give a simulated stream")
        self.wait_event(stream.record_event())


def as_stream(stream: Any) -> SimStream:
    """Return `stream`. Raises `ArgumentError` if it is not a stream of this kind."""
    if not isinstance(stream, SimStream):
        raise ArgumentError(
            f"{stream!r} is not a simulated stream; give one from new_stream or current_stream, or None"
        )
    return stream


class SimEvent(Handle):
    """A point in a stream's order, and in virtual time.

    Parameters
    ----------
    sim_device : SimDevice
        The device on which it may be recorded.
    timing : bool
        Whether `elapsed_time` may use it.

    Attributes
    ----------
    number : int
        Its number, unique in the process, by which watchers know it.
    """

    def __init__(self, sim_device: SimDevice, *, timing: bool = False) -> None:
        if timing:
            sim_device.require("timing", "make the event with timing=False")
        self.sim_device = sim_device
        self.timing = timing
        self.number = next(_numbers)
        self._clock: Clock | None = None
        self._reached = 0.0
        self._node: Marker | None = None
        self._tell("event_made")

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        """Tell watchers that the event is gone."""
        if hasattr(self, "_node") and not is_finalizing():
            self._tell("event_dropped")

    def _tell(self, event: str, queue: Queue | None = None) -> None:
        if self.sim_device.is_watched:
            stream, lane = (0, "") if queue is None else (queue.number, queue.label)
            watchers.tell(Occurrence(event, str(self.device), self.number, stream, lane=lane))

    def __repr__(self) -> str:
        state = "captured" if self._node is not None else "recorded" if self._clock is not None else "not recorded"
        return f"SimEvent({self.device}, {state}{', timing' if self.timing else ''})"

    @property
    def device(self) -> Device:
        """The device on which it may be recorded."""
        return self.sim_device.device

    def record(self, stream: SimStream | None = None) -> None:
        """Mark the end of the work submitted to `stream` (None: the current one) so far.

        Raises
        ------
        DeviceError
            If the stream belongs to another device.
        """
        queue = self._queue(stream)
        if queue.device != self.device:
            raise DeviceError(
                f"an event of {self.device} cannot be recorded on {queue.label} of {queue.device}; make one there"
            )
        with self.sim_device.machine.working():
            if queue.capture is not None:
                self._node, self._clock = queue.capture.record(queue), None
            else:
                self._node, self._clock, self._reached = None, dict(queue.clock), queue.finished
            self._tell("event_recorded", queue)

    def wait(self, stream: SimStream | None = None) -> None:
        """Make later work of `stream` (None: the current one) wait, if the event was recorded.

        The host does not wait.
        """
        queue = self._queue(stream)
        with self.sim_device.machine.working():
            if self._node is not None:
                self._node.capture.fork(queue, self._node)
            elif queue.capture is not None and self._clock is not None:
                raise CaptureError(
                    f"{queue.label} is being captured and cannot wait for an event recorded outside the capture; "
                    f"record it on a captured stream, or wait before the capture begins"
                )
            elif self._clock is not None:
                queue.waits(self._clock, self._reached)
            if self._node is not None or self._clock is not None:
                self._tell("event_waited", queue)

    def query(self) -> bool:
        """Return True if the recorded work is done in virtual time, or nothing was recorded."""
        with self.sim_device.machine.working():
            self._refuse_captured("Event.query")
            refuse_wait("Event.query")
            is_done = self._clock is None or self.sim_device.machine.is_reached(self._clock, self._reached)
            if is_done:
                self._tell("event_found_done")
            return is_done

    def synchronize(self) -> None:
        """Make the host wait until the recorded work is done."""
        syncdebug.waits("Event.synchronize")
        with self.sim_device.machine.working():
            self._refuse_captured("Event.synchronize")
            refuse_wait("Event.synchronize")
            begin = self.sim_device.machine.host.now
            if self._clock is not None:
                self.sim_device.machine.host.joins(self._clock, self._reached)
            if self.sim_device.is_watched:
                watchers.tell(self.sim_device.waited("event_synchronized", self.number, begin))

    def elapsed_time(self, end: SimEvent) -> float:
        """Return the virtual time in milliseconds from this event to `end`.

        Raises
        ------
        ArgumentError
            If either event was made without timing, was not recorded, or is not reached yet.
        """
        if not isinstance(end, SimEvent):
            raise ArgumentError(f"elapsed_time takes a simulated event; got {end!r}; give one from record_event")
        self._refuse_captured("Event.elapsed_time")
        if not (self.timing and end.timing):
            raise ArgumentError("elapsed_time needs two events made with timing=True; one has none; make both so")
        if self._clock is None or end._clock is None:
            raise ArgumentError("elapsed_time needs two recorded events; one is not recorded; record both first")
        if max(self._reached, end._reached) > self.sim_device.machine.host.now:
            raise ArgumentError("elapsed_time needs two events that are reached; one is not yet; synchronize it first")
        return (end._reached - self._reached) * 1e3

    def _queue(self, stream: SimStream | None) -> Queue:
        return self.sim_device.machine.current_queue(self.sim_device) if stream is None else as_stream(stream).queue

    def _refuse_captured(self, what: str) -> None:
        if self._node is not None:
            raise CaptureError(f"{what} is illegal on an event recorded inside a capture; record it again outside")
