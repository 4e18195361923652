"""Events: CuPy's events with the names of ``torch.cuda``, on handles that are reused.

An event has no handle before it is first recorded. It then takes an idle handle of its device and kind, and returns it
when it is destroyed. The recorded work may still be running then: earlier waits were bound to that record when they
were issued, and the next owner records before it uses the handle in any other way. Handles that others may know (of
interprocess events, and of external events, which a graph holds) are destroyed with their event instead.

The methods first try the one call that nearly always works, on `Event.recorded_ptr` and `Ordering.own_ptr`; these
attributes exist only where that call is right. Testing first would take 0.03 µs longer (CPython 3.11). On the H200 host
`record` takes 0.27 µs, which is 0.14 µs more than in C.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import cupy

from cuassay.core import syncdebug
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.cuda.driver import forks, runtime
from cuassay.devices.cuda.driver.addresses import address_of
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.driver.context import (
    NOT_READY,
    CUDARuntimeError,
    at,
    device_of_stream,
    explained,
    index_of,
    refusal,
    refused_in_child,
)
from cuassay.devices.cuda.driver.cupy_private import BaseStream
from cuassay.devices.cuda.streams.event_handles import DISABLE_TIMING, destroy, give_back, make, take
from cuassay.errors import ArgumentError, DeviceError

__all__ = ["Event", "handle_of", "hold"]

_EXTERNAL = 1  # cudaEventWaitExternal
_INTERPROCESS = cupy.cuda.runtime.eventInterprocess

get_current_stream = cupy.cuda.get_current_stream
_elapsed = cupy.cuda.runtime.eventElapsedTime
_query = cupy.cuda.runtime.eventQuery
_record = cupy.cuda.runtime.eventRecord
_synchronize = cupy.cuda.runtime.eventSynchronize
_wait = cupy.cuda.runtime.streamWaitEvent


def handle_of(event: Any) -> int:
    """Return the handle of a cuassay, CuPy, torch or cuda.core event; 0 for a cuassay event that was never recorded.

    Raises
    ------
    ArgumentError
        If it is not such an event.
    """
    if isinstance(event, Event):
        return event.handle
    for name in ("ptr", "cuda_event", "handle"):
        found = getattr(event, name, None)
        if found is not None and not hasattr(event, "device_id"):  # a CuPy stream, or memory, has a device_id
            return int(found)
    raise ArgumentError(f"{event!r} is not a CUDA event; give a cuassay, CuPy, torch or cuda.core event")


# ------------------------------------------------------------------------------------------------ events


class Event(Handle, cupy.cuda.Event):  # type: ignore[misc] # cupy ships no types
    """A point in a stream's order. An event belongs to the device of the stream that it is first recorded on.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may use it.
    blocking : bool
        Whether a thread in `synchronize` sleeps instead of spinning.
    interprocess : bool
        Whether other processes may wait for it, by `ipc_handle`; such an event has no timing.
    external : bool
        Whether a record or a wait inside a capture becomes an event node of the graph, which other streams and graphs
        see at each replay. Keep the event alive as long as the graph.

    Attributes
    ----------
    handle : int
        The driver's handle; 0 before the first record.
    recorded_ptr : int
        The same handle, if plain calls are right. It is absent before the first record, on external events, and on
        imported events if there are several devices.
    is_imported : bool
        Whether it is another process's event.
    """

    handle: int = 0
    recorded_ptr: int
    is_imported = False
    _index = -1

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        if interprocess and enable_timing:
            raise ArgumentError("an interprocess event has no timing; got enable_timing=True; make two events")
        self._flags = int(blocking) | (0 if enable_timing else DISABLE_TIMING) | _INTERPROCESS * interprocess
        self._external = external

    @classmethod
    def of_device(cls, index: int, **options: bool) -> Event:
        """Return an event that only streams of device `index` may record."""
        event = cls(**options)
        event._index = index
        return event

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        """Return the handle for reuse."""
        if not self.handle or is_finalizing() or forks.is_child():
            return
        if self._external or self._flags & _INTERPROCESS:
            destroy(self.handle)
        else:
            give_back(self._index, self.handle, self._flags)

    def __repr__(self) -> str:
        # The repr does not query whether the event is done, because a query inside a capture breaks the capture.
        state = "recorded" if self.handle else "not recorded"
        return f"Event({self.device}, {state}{'' if self._flags & DISABLE_TIMING else ', timing'})"

    @property
    def device(self) -> Device:
        """The event's device; before the first record, the current device."""
        return Device("cuda", index_of(None) if self._index < 0 else self._index)

    @property
    def ptr(self) -> int:
        """The handle, which is made now if there is none, so that a library can record the event on its own."""
        if not self.handle:
            index = index_of(None) if self._index < 0 else self._index
            self._own(index, make(index, self._flags))  # an idle handle would still refer to its previous record
        return self.handle

    @property
    def cuda_event(self) -> int:
        """The handle, by torch's name; 0 before the first record."""
        return self.handle

    @property
    def done(self) -> bool:
        """`query`, by CuPy's name."""
        return self.query()

    def admit(self, index: int) -> None:
        """Bind the event to device `index` and give it a handle.

        Raises
        ------
        DeviceError
            If the event belongs to another device.
        """
        if self._index not in (-1, index):
            raise DeviceError(
                f"an event of cuda:{self._index} cannot be recorded on a stream of cuda:{index}; make one there"
            )
        if not self.handle:
            self._own(index, take(index, self._flags))

    def _own(self, index: int, handle: int) -> None:
        self._index, self.handle = index, handle
        if not self._external:
            self.recorded_ptr = handle

    # -------------------------------------------------------------------------------------------- order

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work submitted to `stream` so far.

        None is the current stream, of the event's device if it has one.

        Raises
        ------
        ArgumentError
            If `stream` is not a stream.
        DeviceError
            If the event belongs to another device than the stream.
        """
        try:
            _record(self.recorded_ptr, get_current_stream().ptr if stream is None else stream.own_ptr)
        except (AttributeError, CUDARuntimeError):
            self._record_carefully(stream)

    def _record_carefully(self, stream: Any) -> None:
        """Record the first time, an external event, on default or foreign streams, or after the plain call failed."""
        stream = _located(stream, self._index)
        self.admit(stream.device_id)
        with at(stream.device_id), explained(f"recording {self!r} on {stream!r}"):
            if self.is_node(stream.ptr):
                _record_node(self.handle, stream.ptr)
            else:
                _record(self.handle, stream.ptr)

    def wait(self, stream: Any = None) -> None:
        """Make `stream` (None: the current one) wait for the recorded point; the host does not wait.

        Waiting for an event that was never recorded has no effect.
        """
        try:
            _wait(get_current_stream().ptr if stream is None else stream.own_ptr, self.recorded_ptr)
        except (AttributeError, CUDARuntimeError):
            hold(_located(stream), self)

    def is_node(self, address: int) -> bool:
        """Whether recording on, or waiting on, the stream at `address` makes an event node of a graph."""
        return self._external and bool(cupy.cuda.runtime.streamIsCapturing(address))

    # -------------------------------------------------------------------------------------------- the host

    def query(self) -> bool:
        """Return True if the recorded work is done, or nothing was recorded."""
        handle = self.handle
        if not handle:
            return True
        status = _query(handle)
        if status == 0:
            return True
        if status == NOT_READY:
            return False
        raise refusal(status, f"asking whether {self!r} is done")

    def synchronize(self) -> None:
        """Block the host until the recorded work is done; other threads continue."""
        if syncdebug.state.mode:
            syncdebug.waits("Event.synchronize")
        if self.handle:
            with explained(f"waiting for {self!r}"):
                _synchronize(self.handle)

    def elapsed_time(self, end: Event) -> float:
        """Return the device time in milliseconds from this event to `end`, without waiting for either.

        Raises
        ------
        ArgumentError
            If either was made without timing, was not recorded, or is not done.
        """
        for which, event in (("start", self), ("end", end)):
            event.check_timed(which)
        with explained(f"timing from {self!r} to {end!r}"):
            return float(_elapsed(self.handle, end.handle))

    def check_timed(self, which: str) -> None:
        """Raise `ArgumentError` if no time can be read from this event."""
        if self._flags & DISABLE_TIMING:
            raise ArgumentError(
                f"elapsed_time's {which} event was made without timing; make it with enable_timing=True"
            )
        if not self.handle:
            raise ArgumentError(f"elapsed_time's {which} event was never recorded; record it on a stream first")
        if not self.query():
            raise ArgumentError(f"elapsed_time's {which} event is not done yet; synchronize it first")

    # -------------------------------------------------------------------------------------------- other processes

    def ipc_handle(self) -> bytes:
        """Return 64 bytes with which another process opens this event in `from_ipc_handle`.

        Raises
        ------
        ArgumentError
            If it was not made with ``interprocess=True``.
        """
        if not self._flags & _INTERPROCESS:
            raise ArgumentError(f"{self!r} cannot be shared with other processes; make it with interprocess=True")
        handle = self.ptr
        # The driver crashes if another device is current.
        with at(self._index), explained(f"sharing {self!r} with other processes"):
            return bytes(cupy.cuda.runtime.ipcGetEventHandle(handle))

    @classmethod
    def from_ipc_handle(cls, device: int | str | Device, handle: bytes) -> Event:
        """Open another process's event on the same device, by its `ipc_handle`; that process must still be running.

        Only streams of the event's own device may wait for it.
        """
        event, index = cls(interprocess=True), index_of(device)
        runtime.init()
        with at(index), explained("opening an event of another process (not of this one, and not after its end)"):
            event._index, event.handle = index, int(cupy.cuda.runtime.ipcOpenEventHandle(bytes(handle)))
        event.is_imported = True
        if runtime.device_count() == 1:  # otherwise each wait must check the stream's device first
            event.recorded_ptr = event.handle
        return event


# ------------------------------------------------------------------------------------------------ streams


class _Located(NamedTuple):
    """The facts an event needs about a stream that does not tell its device; `stream` is kept alive."""

    ptr: int
    device_id: int
    stream: Any

    def __repr__(self) -> str:
        return f"the stream {self.ptr:#x} of cuda:{self.device_id}"


def _located(stream: Any, index: int = -1) -> Any:
    """Return `stream` or its address and device.

    None is the current stream of device `index` (-1: the current device).
    """
    found = get_current_stream(index) if stream is None else stream
    if isinstance(found, BaseStream):
        if found.device_id is not None and found.device_id >= 0:  # cuassay's streams, and most of CuPy's
            return found
        address = found.ptr
    else:
        address = address_of(found)
    device = index if stream is None and index >= 0 else device_of_stream(address)
    return _Located(address, index_of(device), found)


def hold(stream: Any, event: Any) -> None:
    """Make `stream`, which has `ptr` and `device_id`, wait for a cuassay, CuPy, torch or cuda.core event.

    Waiting for an event that was never recorded has no effect.

    Raises
    ------
    ArgumentError
        If `event` is not such an event.
    DeviceError
        If `event` belongs to another process and another device.
    """
    handle = handle_of(event)
    if not handle:
        return
    flags = 0
    if isinstance(event, Event):
        if event.is_imported and event.device.index != stream.device_id:
            # The driver does not report this as an error: the process ends (seen on two H200, CUDA 13.0).
            raise DeviceError(
                f"{event!r} of another process cannot be waited for by {stream!r}; let a stream of {event.device} "
                "wait, and wait for that stream"
            )
        flags = _EXTERNAL if event.is_node(stream.ptr) else 0
    with at(stream.device_id), explained(f"letting {stream!r} wait for {event!r}"):
        _wait(stream.ptr, handle, flags)


def _record_node(handle: int, stream: int) -> None:
    """Record so that the capture of `stream` gets an event node."""
    from cuda.bindings import runtime as cudart

    check(cudart.cudaEventRecordWithFlags(handle, stream, cudart.cudaEventRecordExternal), "recording an event node")


# ------------------------------------------------------------------------------------------------ forks


refused_in_child(globals(), "_elapsed", "_query", "_record", "_synchronize", "_wait", "get_current_stream")
