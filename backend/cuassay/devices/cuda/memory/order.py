"""The order of streams of one device, as an allocator needs it: markers, waits and queries, by reused events.

Streams are addresses (``cudaStream_t``); 0 is the legacy default stream of the device, a number of
`perthread` the default stream of a thread.
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

#: Streams by address that memory was allocated or used on. They live as long as the process: a wait on a destroyed
#: stream is a crash, not an error, and its address may return for a stream that does not know its work.
kept: dict[int, Any] = {}


@atexit.register
def _outlive() -> None:
    """Let no destructor of theirs run: the driver would be gone by then."""
    for stream in kept.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


def keep(index: int, address: int) -> None:
    """Keep the current stream of device `index` alive, if `address` is its; others are their owners' to keep."""
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
    """Let this thread take memory and wait while streams are captured; these calls are safe there."""
    from cuda.bindings import runtime as cudart

    modes = cudart.cudaStreamCaptureMode
    former = check(cudart.cudaThreadExchangeStreamCaptureMode(modes.cudaStreamCaptureModeRelaxed))
    try:
        yield
    finally:
        check(cudart.cudaThreadExchangeStreamCaptureMode(former))


def attempt(call: Callable[..., Any], *arguments: Any) -> Attempt[Any]:
    """`cuassay.core.interrupts.Attempt` for a function of cuda.bindings, whose answers begin with a status."""
    return Attempt(call, *arguments, succeeded=_succeeded)


def finished(call: Callable[..., Any], *arguments: Any, undo: Callable[[Any], object]) -> Any:
    """`cuassay.core.interrupts.finish` for a function of cuda.bindings, whose answers begin with a status."""
    return finish(call, *arguments, succeeded=_succeeded, undo=undo)


def _succeeded(answer: Any) -> bool:
    return not answer[0]


class Marker:
    """Marks the work that a stream was given so far; its event is reused when the marker is dropped."""

    __slots__ = ("_idle", "event")

    def __init__(self, event: Any, idle: list[Any]) -> None:
        self.event = event
        self._idle = idle

    def __del__(self) -> None:
        self._idle.append(self.event)


class Order:
    """The part of a `cuassay.core.protocols.MemorySource` that is about streams; for device `index`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._idle: list[Any] = []
        self._others: dict[int, Order] = {}  # of devices whose streams use this one's memory

    def record(self, stream: int) -> Marker | None:
        """A marker of what `stream` was given so far.

        None in a forked child and while the interpreter ends, when arrays may still be dropped.
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
        """A marker by an event of the device whose stream it is; where it is this one's, `status` is raised.

        The driver takes an event of the stream's own device only; to wait for it and ask for it, any device will do.
        """
        from cuda.bindings import runtime as cudart

        from cuassay.devices.cuda.driver.context import device_of_stream

        cudart.cudaGetLastError()  # clear it: else the next launch would report it
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
        """Later work of `stream` waits for `event`, on the device."""
        if event is None:
            return
        from cuda.bindings import runtime as cudart

        with at(self.index):
            waiting = cudart.cudaStreamWaitEvent(perthread.handle(stream), event.event, 0)
            check(waiting, f"letting stream {stream:#x} wait for an event")

    def query(self, event: Marker | None) -> bool:
        """True when `event` was reached."""
        if event is None:
            return True
        from cuda.bindings import runtime as cudart

        with relaxed():  # else it breaks what another thread captures
            (status,) = cudart.cudaEventQuery(event.event)
        if status == cudart.cudaError_t.cudaErrorNotReady:
            cudart.cudaGetLastError()  # clear it: else the next launch would report it
            return False
        if status:
            raise error_of(status, "asking for an event")
        return True

    def synchronize(self, streams: object) -> None:
        """Block the host until the device is idle: of `streams`, some may have been destroyed since.

        The sync debug mode is not asked: an error from it would leave an allocator in the middle of a change.
        """
        del streams
        from cuda.bindings import runtime as cudart

        with at(self.index), relaxed():
            check(cudart.cudaDeviceSynchronize(), f"waiting for cuda:{self.index}")


def number(index: int) -> int:
    """What represents this thread's default stream on device `index`."""
    found = perthread.own.lease.numbers.get(index)
    return perthread.take(index, Order(index)) if found is None else found


def name_of(address: int, index: int) -> int:
    """A stream by which to tell it from others, whichever thread asks: its address, or this thread's `number`."""
    return number(index) if address == perthread.PER_THREAD else address
