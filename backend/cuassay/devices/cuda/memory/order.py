"""The order of one device's streams, as an allocator needs it: markers, waits and queries, by reused events.

Streams are addresses (``cudaStream_t``). 0 is the legacy default stream of the device; a number of `perthread` is the
default stream of a thread.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cuassay.core.interrupts import Attempt, finish
from cuassay.devices.cuda.driver import forks
from cuassay.devices.cuda.driver.check import check, error_of
from cuassay.devices.cuda.memory import perthread

__all__ = ["Marker", "Order", "at", "attempt", "finished", "keep", "kept", "name_of", "number", "relaxed"]

#: Streams that memory was allocated or used on, by address. They live as long as the process: waiting on a destroyed
#: stream is a crash, not an error, and its address may be reused for a stream that does not know its work.
kept: dict[int, Any] = {}


@atexit.register
def _outlive() -> None:
    """Keep the streams' destructors from running at exit, when the driver is gone."""
    for stream in kept.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


def keep(index: int, address: int) -> None:
    """Keep the current stream of device `index` alive if its address is `address`; others are their owners' to keep."""
    import cupy

    current = cupy.cuda.get_current_stream(index)
    if current.ptr == address:
        kept[address] = current


def at(index: int) -> AbstractContextManager[Any]:
    """Make device `index` the current one of this thread inside the block."""
    from cuassay.devices.cuda.streams import stream  # imports CuPy

    return stream.at(index)


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow this thread to allocate and wait while streams are captured; these calls are safe there."""
    from cuda.bindings import runtime as cudart

    modes = cudart.cudaStreamCaptureMode
    former = check(cudart.cudaThreadExchangeStreamCaptureMode(modes.cudaStreamCaptureModeRelaxed))
    try:
        yield
    finally:
        check(cudart.cudaThreadExchangeStreamCaptureMode(former))


def attempt(call: Callable[..., Any], *arguments: Any) -> Attempt[Any]:
    """Make a `cuassay.core.interrupts.Attempt` for a function of cuda.bindings, whose results begin with a status."""
    return Attempt(call, *arguments, succeeded=_succeeded)


def finished(call: Callable[..., Any], *arguments: Any, undo: Callable[[Any], object]) -> Any:
    """Call `cuassay.core.interrupts.finish` for a function of cuda.bindings, whose results begin with a status."""
    return finish(call, *arguments, succeeded=_succeeded, undo=undo)


def _succeeded(answer: Any) -> bool:
    return not answer[0]


class Marker:
    """Marks the work that a stream has been given so far; its event is reused when the marker is dropped."""

    __slots__ = ("_idle", "event")

    def __init__(self, event: Any, idle: list[Any]) -> None:
        self.event = event
        self._idle = idle

    def __del__(self) -> None:
        self._idle.append(self.event)


class Order:
    """The stream-ordering part of a `cuassay.core.protocols.MemorySource`, for device `index`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._idle: list[Any] = []
        self._others: dict[int, Order] = {}  # by other devices whose streams use this one's memory

    def record(self, stream: int) -> Marker | None:
        """Return a marker of the work that `stream` has been given so far.

        The marker is None in a forked child and while the interpreter ends, when arrays may still be dropped.
        """
        if forks.is_child() or sys.is_finalizing():
            return None
        marker: Marker | None = perthread.ended(stream)
        if marker is not None:
            return marker
        where = perthread.device_of(stream)
        if where is not None and where != self.index:
            return self._others.setdefault(where, Order(where)).record(stream)
        from cuda.bindings import runtime as cudart

        with at(self.index):
            marker = Marker(self._event(), self._idle)
            (status,) = cudart.cudaEventRecord(marker.event, perthread.handle(stream))
            if status:
                return self._record_elsewhere(stream, status)
        return marker

    def _record_elsewhere(self, stream: int, status: Any) -> Marker | None:
        """Return a marker by an event of the stream's own device; if that is this device, raise `status`.

        The driver records only events of the stream's own device; any device may wait for and query them.
        """
        from cuda.bindings import runtime as cudart

        from cuassay.devices.cuda.driver.context import device_of_stream

        cudart.cudaGetLastError()  # clear the error, or the next launch would report it
        where = device_of_stream(stream)
        if where is None or where == self.index:
            raise error_of(status, f"recording an event on stream {stream:#x}")
        return self._others.setdefault(where, Order(where)).record(stream)

    def _event(self) -> Any:
        from cuda.bindings import runtime as cudart

        try:
            return self._idle.pop()
        except IndexError:
            return check(cudart.cudaEventCreateWithFlags(cudart.cudaEventDisableTiming), "making an event")

    def wait(self, stream: int, event: Marker | None) -> None:
        """Make later work of `stream` wait for `event`, on the device."""
        if event is None:
            return
        from cuda.bindings import runtime as cudart

        with at(self.index):
            waiting = cudart.cudaStreamWaitEvent(perthread.handle(stream), event.event, 0)
            check(waiting, f"letting stream {stream:#x} wait for an event")

    def query(self, event: Marker | None) -> bool:
        """Return True if `event` has been reached."""
        if event is None:
            return True
        from cuda.bindings import runtime as cudart

        with relaxed():  # otherwise it would break another thread's capture
            (status,) = cudart.cudaEventQuery(event.event)
        if status == cudart.cudaError_t.cudaErrorNotReady:
            cudart.cudaGetLastError()  # clear the error, or the next launch would report it
            return False
        if status:
            raise error_of(status, "asking for an event")
        return True

    def synchronize(self, streams: object) -> None:
        """Block the host until the device is idle, because some of `streams` may have been destroyed.

        The sync debug mode is not consulted: an error from it would leave an allocator in the middle of a change.
        """
        del streams
        from cuda.bindings import runtime as cudart

        with at(self.index), relaxed():
            check(cudart.cudaDeviceSynchronize(), f"waiting for cuda:{self.index}")


def number(index: int) -> int:
    """Return the number of this thread's default stream on device `index`."""
    found = perthread.own.lease.numbers.get(index)
    return perthread.take(index, Order(index)) if found is None else found


def name_of(address: int, index: int) -> int:
    """Return a name of the stream that is the same in all threads: its address, or this thread's `number`."""
    return number(index) if address == perthread.PER_THREAD else address
