"""Where a CUDA array lies, and what a stream is, for a sanitizer: see `cuassay.core.protocols.Observable`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.core.protocols import StreamFacts
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.driver.context import device_of_stream
from cuassay.devices.cuda.driver.graph_driver import relaxed
from cuassay.devices.cuda.memory import hook, perthread, pinned
from cuassay.devices.cuda.memory.order import name_of
from cuassay.devices.cuda.streams.stream import OURS, current_stream
from cuassay.order.extents import Extent

__all__ = ["PINNED", "extent", "pinned_extent", "stream_facts"]

#: How messages name page-locked host memory.
PINNED = "pinned host memory"

_NON_BLOCKING = 1  # cudaStreamNonBlocking
#: Whether a stream was made blocking, by its address: it costs a call of the driver, and addresses are few.
_blocking: dict[int, bool] = {}


def extent(array: Any) -> Extent:
    """Where `array`, a `cupy.ndarray`, lies; watchers hear of the end of our allocator's memory only."""
    data, dtype = array.data, array.dtype
    address = data.ptr
    return Extent(
        f"cuda:{data.device_id}",
        address,
        array.shape,
        array.strides,
        dtype.itemsize,
        dtype.name,
        f"address {address:#x}",
        type(data.mem) is hook.Memory,
    )


def pinned_extent(array: np.ndarray[Any, Any]) -> Extent | None:
    """Where a host array lies; None where it is pageable, which a copy has read when it returns."""
    if not pinned.is_pinned(array):
        return None
    address = int(array.__array_interface__["data"][0])
    return Extent(
        PINNED,
        address,
        array.shape,
        array.strides,
        array.itemsize,
        array.dtype.name,
        f"address {address:#x} of the host",
        pinned.is_allocated(array),
    )


def stream_facts(index: int, number: int | None = None) -> StreamFacts:
    """The stream that watchers know by `number` (None: the current one) on device `index`.

    A thread's own default stream has the number that allocators give it; of any other stream the address tells its
    device, whichever device's memory it was met with.
    """
    current = current_stream(index) if number is None else None
    address = int(current.ptr) if current is not None else int(number or 0)
    if address <= perthread.LEGACY:
        return StreamFacts(index, 0, "stream 0")
    where = device_of_stream(address, current) if not perthread.is_number(address) else perthread.device_of(address)
    where = index if where is None else where
    if address == perthread.PER_THREAD:
        address = name_of(address, where)
    if perthread.is_number(address):
        return StreamFacts(where, address, f"stream of thread {address // 2}", is_blocking=True)
    return StreamFacts(where, address, f"stream {address:#x}", _is_blocking(address, current))


def _is_blocking(address: int, stream: Any) -> bool:
    if stream is not None and stream.__class__ in OURS and getattr(stream, "_owner", None) is None:
        return False
    if address not in _blocking:
        from cuda.bindings import runtime as cudart

        with relaxed():
            flags = int(check(cudart.cudaStreamGetFlags(address), f"asking for the flags of stream {address:#x}"))
        _blocking[address] = not flags & _NON_BLOCKING
    return _blocking[address]
