"""Streams: CuPy's streams with the names of ``torch.cuda``, exchanged with any ``__cuda_stream__`` object.

They are subclasses of CuPy's streams, so that CuPy's current stream follows and ``with stream`` costs no more than
CuPy's. Their handles come from the pools of `stream_handles`.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import cupy

from cuassay.core import syncdebug
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.devices.cuda.driver import forks, runtime
from cuassay.devices.cuda.driver.addresses import address_of
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
from cuassay.devices.cuda.streams import hostwaits
from cuassay.devices.cuda.streams.event import Event, hold
from cuassay.devices.cuda.streams.event_handles import give_back, take
from cuassay.devices.cuda.streams.stream_handles import priority_range, take_stream
from cuassay.errors import DeviceError

__all__ = [
    "OURS",
    "Event",
    "ExternalStream",
    "Stream",
    "adopt",
    "at",
    "current_stream",
    "default_stream",
    "priority_range",
    "set_stream",
    "use",
]

get_current_stream = cupy.cuda.get_current_stream
_query = cupy.cuda.runtime.streamQuery
_record = cupy.cuda.runtime.eventRecord
_synchronize = cupy.cuda.runtime.streamSynchronize
_wait = cupy.cuda.runtime.streamWaitEvent


class Ordering(Handle):
    """What cuassay's streams add to CuPy's.

    Attributes
    ----------
    own_ptr : int
        The driver's handle. Absent on a default stream, whose handle 0 means that of the current device.
    join_ptr : int
        The event that waits for this stream reuse: a later record includes everything before an earlier one. Absent
        before the first wait.
    """

    ptr: int
    device_id: int
    own_ptr: int
    join_ptr: int

    def __init__(self, ptr: int, device_id: int) -> None:
        BaseStream.__init__(self, ptr, device_id)
        if ptr:
            self.own_ptr = ptr

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        """Return the event's handle; the stream itself belongs to the pool, or to somebody else."""
        if "join_ptr" in self.__dict__ and not is_finalizing() and not forks.is_child():
            give_back(self.device_id, self.join_ptr)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device}, {self.ptr:#x})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BaseStream) or other.ptr != self.ptr:
            return False
        return self.ptr != 0 or self.device_id == _device_id(other)

    def __hash__(self) -> int:
        return hash(self.ptr)  # CuPy's streams, which may be equal to these, hash this way

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version and the handle, for the protocol by which CUDA libraries exchange streams."""
        return 0, self.ptr

    @property
    def device(self) -> Device:
        """The device that the stream's work runs on."""
        return Device("cuda", self.device_id)

    @property
    def cuda_stream(self) -> int:
        """The handle, by torch's name."""
        return self.ptr

    def query(self) -> bool:
        """Return True if all work submitted to the stream is done."""
        if self.ptr:
            status = _query(self.ptr)
        else:
            with at(self.device_id):
                status = _query(0)
        if status not in (0, NOT_READY):
            raise refusal(status, f"asking whether {self!r} is done")
        return bool(status == 0)

    @property
    def done(self) -> bool:
        """`query`, by CuPy's name."""
        return self.query()

    def synchronize(self) -> None:
        """Block the host until all work submitted to the stream is done; other threads continue."""
        if syncdebug.state.mode:
            syncdebug.waits("Stream.synchronize")
        with at(self.device_id), explained(f"waiting for {self!r}"):
            _synchronize(self.ptr)

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new event without timing, on this stream, and return it."""
        if event is None:
            event = Event()
            event.admit(self.device_id)
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Make later work of this stream wait for a cuassay, CuPy, torch or cuda.core event, if it was recorded."""
        try:
            _wait(self.own_ptr, event.recorded_ptr)
        except (AttributeError, CUDARuntimeError):
            hold(self, event)

    def wait_stream(self, stream: Any) -> None:
        """Make later work of this stream wait for all work submitted to `stream` so far."""
        try:
            handle = stream.join_ptr
            _record(handle, stream.own_ptr)
            _wait(self.own_ptr, handle)
        except (AttributeError, CUDARuntimeError):
            self._join_carefully(adopt(stream))

    def _join_carefully(self, stream: Ordering) -> None:
        """Wait for a stream for the first time, for a default stream, or after the plain calls failed."""
        if "join_ptr" not in stream.__dict__:
            stream.join_ptr = take(stream.device_id)
        with at(stream.device_id), explained(f"recording an event on {stream!r}"):
            _record(stream.join_ptr, stream.ptr)
        with at(self.device_id), explained(f"letting {self!r} wait for {stream!r}"):
            _wait(self.ptr, stream.join_ptr)


class _Entered(threading.local):
    """State of this thread, used only if there are several devices.

    Attributes
    ----------
    blocks : list
        For each open ``with stream`` of cuassay's streams: the device that was current before, and the stream that was
        current on this stream's device.
    lasting : dict
        By device, the streams that `set_stream` left at the bottom of CuPy's stack, in stack order.
    """

    def __init__(self) -> None:
        self.blocks: list[tuple[int, Any]] = []
        self.lasting: dict[int, Any] = {}


_entered = _Entered()


class _Switching:
    """``with stream`` for several devices: the stream's device becomes current, and both are restored at the end.

    CuPy's stack restores the stream of the enclosing block; `_Entered.blocks` remembers what was set inside that block.
    """

    device_id: int

    def __enter__(self) -> Any:
        former = cupy.cuda.runtime.getDevice(), get_current_stream(self.device_id)
        cupy.cuda.runtime.setDevice(self.device_id)
        entered = super().__enter__()  # type: ignore[misc] # CuPy's
        _entered.blocks.append(former)
        return entered

    def __exit__(self, *error: object) -> None:
        cupy.cuda.runtime.setDevice(self.device_id)
        super().__exit__(*error)  # type: ignore[misc] # CuPy's
        device, stream = _entered.blocks.pop()
        stream.use()
        cupy.cuda.runtime.setDevice(device)


class _Staying:
    """With one device there is nothing to switch.

    CuPy's own methods are used, because Python methods cost 50 % more.
    """


_has_many = runtime.device_count() > 1
_Entering: Any = _Switching if _has_many else _Staying


class Stream(Ordering, _Entering, cupy.cuda.Stream):  # type: ignore[misc] # cupy ships no types
    """A stream from the pool of `device` (None: the current one), which has 32 streams of each priority, used in turn.

    Parameters
    ----------
    device : int, str or Device, optional
        The device that its work runs on.
    priority : int
        Lower numbers go first; the priority is limited to `priority_range`.
    """

    def __init__(self, device: int | str | Device | None = None, priority: int = 0) -> None:
        runtime.init()
        index = index_of(device)
        super().__init__(take_stream(index, priority), index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority, such as (0, -5)."""
        return priority_range(index_of(None))


class ExternalStream(Ordering, _Entering, cupy.cuda.Stream):  # type: ignore[misc] # cupy ships no types
    """A stream that somebody else owns, by its address, on `device` (None: the current one).

    The stream keeps `owner` alive and is never destroyed here.

    Raises
    ------
    DeviceError
        If the stream belongs to another device.
    """

    def __init__(self, ptr: int, device: int | str | Device | None = None, owner: Any = None) -> None:
        index = index_of(device)
        if _has_many and device_of_stream(ptr) not in (None, index):
            raise DeviceError(
                f"the stream at {ptr:#x} is of cuda:{device_of_stream(ptr)}; got device cuda:{index}; "
                "give the stream's device"
            )
        super().__init__(ptr, index)
        self._owner = owner


class _Lasting(ExternalStream):
    """The stream that `set_stream` leaves at the bottom of a thread's stack of current streams."""


#: The types that `adopt` returns unchanged.
OURS = frozenset((Stream, ExternalStream, _Lasting))


# ------------------------------------------------------------------------------------------------ others' streams


def adopt(stream: Any) -> Any:
    """Return `stream` as a cuassay stream; CuPy's streams, addresses and ``__cuda_stream__`` objects are wrapped.

    Raises
    ------
    ArgumentError
        If it is not one of these.
    """
    if isinstance(stream, Ordering):
        return stream
    if isinstance(stream, BaseStream):
        return ExternalStream(stream.ptr, device_of_stream(stream.ptr, stream), stream)
    address = address_of(stream)
    return ExternalStream(address, device_of_stream(address), stream)


def _device_id(stream: Any) -> int:
    """Return the stream's device; CuPy's default stream has -1, which means the current device."""
    known = stream.device_id
    return index_of(None) if known is None or known < 0 else int(known)


# ------------------------------------------------------------------------------------------------ the current one


def current_stream(index: int = -1) -> Any:
    """Return this thread's current stream in CuPy on device `index` (-1: the current one), as a cuassay stream."""
    found = get_current_stream(index)
    return found if found.__class__ in OURS else ours_for(found, index)


def ours_for(found: Any, index: int) -> Any:
    """Return the cuassay stream for a CuPy stream that is current on device `index` (-1: the current one)."""
    return adopt(found) if found.ptr else default_stream(index_of(None) if index < 0 else index)


@cache
def default_stream(index: int) -> ExternalStream:
    """Return the legacy default stream of device `index`; blocking streams and this one wait for each other."""
    return ExternalStream(0, index)


@cache
def cupy_default() -> Any:
    """Return CuPy's object for the default stream, which is current in every thread that has not chosen one.

    A new thread is asked for it, because ``CUPY_CUDA_PER_THREAD_DEFAULT_STREAM`` changes it.
    """
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(cupy.cuda.get_current_stream).result()


def use(stream: Any) -> AbstractContextManager[Any]:
    """Submit this thread's work to `stream` inside the block, with its device current; None changes nothing."""
    if stream is None:
        return nullcontext()
    adopted: AbstractContextManager[Any] = adopt(stream)
    return adopted


def set_stream(stream: Any) -> None:
    """Submit this thread's work to `stream` from now on, and again after each ``with stream`` block; None: no change.

    Inside such a block it lasts until the end of the block.
    """
    if stream is None:
        return
    adopted = adopt(stream)
    with at(adopted.device_id):
        if _has_many:
            _set_among_many(adopted)
            return
        with default_stream(adopted.device_id):  # leaving a block makes the top of the stack current
            pass
        top = get_current_stream()
        is_bottom = top is cupy_default()
        if not is_bottom:
            BaseStream.__exit__(top)
        lasting = is_bottom or isinstance(top, _Lasting)
        BaseStream.__enter__(_Lasting(adopted.ptr, adopted.device_id, adopted) if lasting else adopted)


def _set_among_many(stream: Any) -> None:
    """`set_stream` with several devices.

    CuPy keeps one stack of blocks for all devices, from which only the top can be removed. So lasting streams are
    pushed only if the stack holds nothing else. Inside a block, whose end ends the setting, the stream is only made
    current.
    """
    lasting = _entered.lasting
    currents = map(get_current_stream, range(runtime.device_count()))
    if _entered.blocks or any(one is not cupy_default() and not isinstance(one, _Lasting) for one in currents):
        stream.use()
        return
    for index in reversed(lasting):
        with at(index):
            BaseStream.__exit__(lasting[index])
    lasting[stream.device_id] = _Lasting(stream.ptr, stream.device_id, stream)
    for index, one in lasting.items():
        with at(index):
            BaseStream.__enter__(one)


# ------------------------------------------------------------------------------------------------ forks


def _in_child() -> None:
    if forks.is_child():
        Ordering.__enter__ = lambda self: index_of(None)  # type: ignore[attr-defined] # replaces CuPy's; it raises


os.register_at_fork(after_in_child=_in_child)
refused_in_child(globals(), "_query", "_record", "_synchronize", "_wait", "get_current_stream")


syncdebug.on_change(hostwaits.watch)
