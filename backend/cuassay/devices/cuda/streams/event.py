"""Events: CuPy's, with ``torch.cuda``'s names, over handles that are used again.

An event has no handle before it is first recorded; then it takes an idle one of its device and kind, and gives it
back when it dies. That may be while the recorded work is under way: a wait was settled when it was asked for, and the
next owner records before anything else. Handles that others may know (interprocess, and external ones, which a graph
holds) are destroyed with their event instead.

The methods first try the one call that nearly always serves, on `Event.recorded_ptr` and `Ordering.own_ptr`, which
exist only where it does. Testing first would take 0.03 µs longer (CPython 3.11): of 0.27 µs that `record` takes on the
H200, 0.14 µs above C.
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
    """The handle of an event of ours, CuPy's, torch's or cuda.core's; 0 for one of ours never recorded.

    Raises
    ------
    ArgumentError
        If it is not one of these.
    """
    if isinstance(event, Event):
        return event.handle
    for name in ("ptr", "cuda_event", "handle"):
        found = getattr(event, name, None)
        if found is not None and not hasattr(event, "device_id"):  # a stream of CuPy's, or memory, has that
            return int(found)
    raise ArgumentError(f"{event!r} is not a CUDA event; give one of ours, CuPy's, torch's or cuda.core's")


# ------------------------------------------------------------------------------------------------ events


class Event(Handle, cupy.cuda.Event):  # type: ignore[misc] # cupy ships no types
    """A point in a stream's order; it belongs to the device of the stream it is first recorded on.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may use it.
    blocking : bool
        Whether a thread in `synchronize` sleeps instead of spinning.
    interprocess : bool
        Whether other processes may wait for it, by `ipc_handle`; then it has no timing.
    external : bool
        Whether a record or a wait inside a capture becomes an event node of the graph, seen by other streams and
        graphs at each replay; keep the event alive as long as the graph.

    Attributes
    ----------
    handle : int
        The driver's; 0 before the first record.
    recorded_ptr : int
        The same, where plain calls serve: absent before the first record, on external events, and on imported ones
        where there are several devices.
    is_imported : bool
        Another process's.
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
        """An event that only streams of device `index` may record."""
        event = cls(**options)
        event._index = index
        return event

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        """Give the handle back."""
        if not self.handle or is_finalizing() or forks.is_child():
            return
        if self._external or self._flags & _INTERPROCESS:
            destroy(self.handle)
        else:
            give_back(self._index, self.handle, self._flags)

    def __repr__(self) -> str:
        # Whether it is done is not asked: inside a capture, that question breaks the capture.
        state = "recorded" if self.handle else "not recorded"
        return f"Event({self.device}, {state}{'' if self._flags & DISABLE_TIMING else ', timing'})"

    @property
    def device(self) -> Device:
        """The device it belongs to; before the first record, the current one."""
        return Device("cuda", index_of(None) if self._index < 0 else self._index)

    @property
    def ptr(self) -> int:
        """The handle, made now if there is none: for a library that records the event without our knowing."""
        if not self.handle:
            index = index_of(None) if self._index < 0 else self._index
            self._own(index, make(index, self._flags))  # an idle one would still stand for its former work
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
        """Make it one of device `index`, with a handle.

        Raises
        ------
        DeviceError
            If it belongs to another device.
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
        """Mark the end of what `stream` (None: the current one, of its device if it has one) has been given so far.

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
        """The first record, those of external events, on default streams and others', and those that fail."""
        stream = _located(stream, self._index)
        self.admit(stream.device_id)
        with at(stream.device_id), explained(f"recording {self!r} on {stream!r}"):
            if self.is_node(stream.ptr):
                _record_node(self.handle, stream.ptr)
            else:
                _record(self.handle, stream.ptr)

    def wait(self, stream: Any = None) -> None:
        """Hold `stream` (None: the current one) until the recorded point; the host does not wait.

        An event never recorded holds nothing.
        """
        try:
            _wait(get_current_stream().ptr if stream is None else stream.own_ptr, self.recorded_ptr)
        except (AttributeError, CUDARuntimeError):
            hold(_located(stream), self)

    def is_node(self, address: int) -> bool:
        """Whether a record on the stream at `address`, or its wait, becomes an event node of a graph."""
        return self._external and bool(cupy.cuda.runtime.streamIsCapturing(address))

    # -------------------------------------------------------------------------------------------- the host

    def query(self) -> bool:
        """True when the recorded work is done, or nothing was recorded."""
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
        """Block the host until the recorded work is done; other threads go on."""
        if syncdebug.state.mode:
            syncdebug.waits("Event.synchronize")
        if self.handle:
            with explained(f"waiting for {self!r}"):
                _synchronize(self.handle)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of device time from this event to `end`; waits for neither.

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
        """Raise `ArgumentError` when no time can be read from this event."""
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
        """64 bytes by which another process opens this event with `from_ipc_handle`.

        Raises
        ------
        ArgumentError
            If it was not made with ``interprocess=True``.
        """
        if not self._flags & _INTERPROCESS:
            raise ArgumentError(f"{self!r} is of this process only; make it with interprocess=True")
        handle = self.ptr
        # The driver crashes where it is asked with another device current.
        with at(self._index), explained(f"sharing {self!r} with other processes"):
            return bytes(cupy.cuda.runtime.ipcGetEventHandle(handle))

    @classmethod
    def from_ipc_handle(cls, device: int | str | Device, handle: bytes) -> Event:
        """Another process's event on the same device, by its `ipc_handle`; that process must still run.

        Streams of its own device wait for it; those of another device are refused.
        """
        event, index = cls(interprocess=True), index_of(device)
        runtime.init()
        with at(index), explained("opening an event of another process (not of this one, and not after its end)"):
            event._index, event.handle = index, int(cupy.cuda.runtime.ipcOpenEventHandle(bytes(handle)))
        event.is_imported = True
        if runtime.device_count() == 1:  # else each wait asks whose stream it is, before the driver does
            event.recorded_ptr = event.handle
        return event


# ------------------------------------------------------------------------------------------------ streams


class _Located(NamedTuple):
    """What an event must know of a stream that does not tell its device; `stream` is kept alive."""

    ptr: int
    device_id: int
    stream: Any

    def __repr__(self) -> str:
        return f"the stream {self.ptr:#x} of cuda:{self.device_id}"


def _located(stream: Any, index: int = -1) -> Any:
    """`stream`, or what is known of it; None is the current one of device `index` (-1: of the current one)."""
    found = get_current_stream(index) if stream is None else stream
    if isinstance(found, BaseStream):
        if found.device_id is not None and found.device_id >= 0:  # ours, and most of CuPy's
            return found
        address = found.ptr
    else:
        address = address_of(found)
    device = index if stream is None and index >= 0 else device_of_stream(address)
    return _Located(address, index_of(device), found)


def hold(stream: Any, event: Any) -> None:
    """Let `stream`, which tells `ptr` and `device_id`, wait for `event`: ours, CuPy's, torch's or cuda.core's.

    One never recorded holds nothing.

    Raises
    ------
    ArgumentError
        If `event` is not one of these.
    DeviceError
        If it is another process's and of another device.
    """
    handle = handle_of(event)
    if not handle:
        return
    flags = 0
    if isinstance(event, Event):
        if event.is_imported and event.device.index != stream.device_id:
            # The driver does not refuse it: the process ends (seen on two H200, CUDA 13.0).
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
