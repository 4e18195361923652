"""Streams and events: CuPy's, with ``torch.cuda``'s names, exchanged with any ``__cuda_stream__`` object.

Ours are subclasses of CuPy's, so that CuPy's current stream follows and ``with stream`` costs what CuPy's does.
New streams are non-blocking, as torch's are: nothing is implicitly ordered with the legacy default stream.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy

from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.errors import ArgumentError

__all__ = ["Event", "ExternalStream", "Stream", "adopt", "at"]


def at(index: int) -> AbstractContextManager[Any]:
    """Make device `index` current where it is not: address 0 means the default stream of the current device."""
    if index < 0 or cupy.cuda.runtime.getDevice() == index:
        return nullcontext()
    device: AbstractContextManager[Any] = cupy.cuda.Device(index)
    return device


class Event(Handle, cupy.cuda.Event):  # type: ignore[misc] # cupy ships no types
    """A point in a stream's order, on the device that was current when it was made."""

    def __init__(self, *, timing: bool = False, blocking: bool = False) -> None:
        super().__init__(block=blocking, disable_timing=not timing)
        self._timing = timing
        self._recorded = False
        self._device = Device("cuda", cupy.cuda.runtime.getDevice())

    def __repr__(self) -> str:
        state = "not recorded" if not self._recorded else "done" if self.query() else "pending"
        return f"Event({self._device}, {state})"

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        return self._device

    def record(self, stream: Any = None) -> None:
        """Mark the end of what `stream` (None: the current one) has been given so far."""
        with at(self._device.index):
            super().record(cupy.cuda.get_current_stream() if stream is None else adopt(stream))
        self._recorded = True

    def wait(self, stream: Any = None) -> None:
        """Hold `stream` (None: the current one) until the recorded point; the host does not wait."""
        if stream is None:
            with at(self._device.index):
                cupy.cuda.runtime.streamWaitEvent(cupy.cuda.get_current_stream().ptr, self.ptr)
        else:
            adopt(stream).wait_event(self)

    def query(self) -> bool:
        """True when the recorded work is done, or nothing was recorded."""
        return bool(self.done)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of device time from this event to `end`; waits for neither.

        Raises
        ------
        ArgumentError
            If either was made without timing, was not recorded, or is not done.
        """
        self.check_timed("start")
        end.check_timed("end")
        return float(cupy.cuda.get_elapsed_time(self, end))

    def check_timed(self, which: str) -> None:
        """Raise `ArgumentError` when no time can be read from this event."""
        if not self._timing:
            raise ArgumentError(f"elapsed_time's {which} event was made without timing; make it with timing=True")
        if not self._recorded:
            raise ArgumentError(f"elapsed_time's {which} event was never recorded; record it on a stream first")
        if not self.query():
            raise ArgumentError(f"elapsed_time's {which} event is not done yet; synchronize it first")


class _Ordering(Handle):
    """What both kinds of stream add to CuPy's."""

    ptr: int
    device_id: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device}, {self.ptr:#x})"

    @property
    def device(self) -> Device:
        """The device it queues work on."""
        return Device("cuda", self.device_id)

    def query(self) -> bool:
        """True when everything given to the stream is done."""
        with at(self.device_id):
            return bool(self.done)  # type: ignore[attr-defined]

    def synchronize(self) -> None:
        """Block the host until everything given to the stream is done."""
        with at(self.device_id):
            super().synchronize()  # type: ignore[misc]

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, here; gives the event."""
        if event is None:
            with at(self.device_id):  # an event belongs to the device that was current when it was made
                event = Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Later work of this stream waits for `event`."""
        with at(self.device_id):
            cupy.cuda.runtime.streamWaitEvent(self.ptr, event.ptr)

    def wait_stream(self, stream: Any) -> None:
        """Later work of this stream waits for everything given to `stream` so far."""
        self.wait_event(adopt(stream).record_event())


class Stream(_Ordering, cupy.cuda.Stream):  # type: ignore[misc] # cupy ships no types
    """A new non-blocking stream on the current device; a lower `priority` goes first."""

    def __init__(self, priority: int = 0) -> None:
        super().__init__(non_blocking=True, priority=priority)


#: CuPy's `ExternalStream` is deprecated, and its successor `Stream.from_external` destroys the foreign stream when the
#: wrapper dies (CuPy 14.2); their common base does neither.
_Base: Any = cupy.cuda.Stream.__base__


class ExternalStream(_Ordering, _Base):  # type: ignore[misc] # cupy ships no types
    """Somebody else's stream, by its address; `owner` is kept alive, and the stream is never destroyed here."""

    def __init__(self, ptr: int, device_id: int, owner: Any = None) -> None:
        super().__init__(ptr, device_id)
        self._owner = owner


def adopt(stream: Any) -> Any:
    """`stream` as one of ours: ours as it is; CuPy's, an address, or any object with ``__cuda_stream__`` wrapped.

    Raises
    ------
    ArgumentError
        If it is none of these.
    """
    if isinstance(stream, _Ordering):
        return stream
    device_id = getattr(stream, "device_id", -1)
    device_id = cupy.cuda.runtime.getDevice() if device_id is None or device_id < 0 else device_id
    if isinstance(stream, _Base):
        return ExternalStream(stream.ptr, device_id, stream)
    if hasattr(stream, "__cuda_stream__"):
        described = stream.__cuda_stream__
        _, address = described() if callable(described) else described
        return ExternalStream(int(address), device_id, stream)
    if isinstance(stream, int) and not isinstance(stream, bool):
        return ExternalStream(stream, device_id)
    raise ArgumentError(
        f"{stream!r} is no CUDA stream; give one of ours, CuPy's, an address, or an object with __cuda_stream__"
    )
