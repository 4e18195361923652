"""Where a CUDA array is, and what a stream is, for a sanitizer; see `cuassay.core.protocols.Observable`."""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod
from typing import Any

import cupy
import numpy as np

from cuassay.core.protocols import StreamFacts
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.driver.context import device_of_stream
from cuassay.devices.cuda.driver.cupy_private import traits_of
from cuassay.devices.cuda.driver.graph_driver import capture_status, relaxed
from cuassay.devices.cuda.memory import hook, perthread, pinned
from cuassay.devices.cuda.memory.order import name_of
from cuassay.devices.cuda.streams.stream import get_current_stream
from cuassay.order.accesses import Span
from cuassay.order.extents import Extent, span_of

__all__ = [
    "PINNED",
    "current_number",
    "extent",
    "extent_of",
    "is_capturing",
    "is_own_handle",
    "pinned_extent",
    "stream_facts",
    "traits_of",
]

#: The name of page-locked host memory in messages.
PINNED = "pinned host memory"

#: How many extents are kept, because the same arrays are used again and again.
_MOST_EXTENTS = 4096

_FORM = "address {:#x}"

_NON_BLOCKING = 1  # cudaStreamNonBlocking


def extent(array: Any) -> Extent:
    """Return where `array`, a `cupy.ndarray`, is; watchers are told only about the frees of cuassay's allocator."""
    return extent_of(traits_of(array))


@lru_cache(_MOST_EXTENTS)
def extent_of(traits: tuple[Any, ...]) -> Extent:
    """Return `extent` of the array with these `traits_of`."""
    address, index, memory, shape, strides, dtype, is_dense = traits
    if is_dense:
        span = Span(address, address + prod(shape) * dtype.itemsize, True)
    else:
        span = span_of(address, shape, strides, dtype.itemsize)
    return Extent(_name(index), address, shape, strides, dtype, span, _FORM, memory is hook.Memory)


@cache
def _name(index: int) -> str:
    return f"cuda:{index}"


def pinned_extent(array: np.ndarray[Any, Any]) -> Extent | None:
    """Return where a host array is; None if it is pageable, because a copy has read it when it returns."""
    if not pinned.is_pinned(array):
        return None
    address = int(array.__array_interface__["data"][0])
    span = span_of(address, array.shape, array.strides, array.itemsize)
    form, is_told = f"{_FORM} of the host", pinned.is_allocated(array)
    return Extent(PINNED, address, array.shape, array.strides, array.dtype, span, form, is_told)


def current_number(index: int) -> int:
    """Return the number by which watchers know the current stream of device `index`: its address; see `perthread`."""
    address = int(get_current_stream(index).ptr)
    return name_of(address, index) if address == perthread.PER_THREAD else address


_is_capturing = cupy.cuda.runtime.streamIsCapturing


def is_capturing(number: int) -> bool:
    """Whether the stream that watchers know by `number` is being captured, by whomever; a default stream never is."""
    return number > perthread.PER_THREAD and is_own_handle(number) and bool(_is_capturing(number))


def is_own_handle(number: int) -> bool:
    """Whether watchers know a stream by the driver's handle; a thread's default stream has another number."""
    return number != perthread.PER_THREAD and not perthread.is_number(number)


def stream_facts(index: int, number: int) -> StreamFacts:
    """Return the facts of the stream that watchers know by `number`, seen with device `index`.

    A thread's own default stream has the number that allocators give it. The address of any other stream tells its
    device, whatever device's memory it was seen with.
    """
    if number <= perthread.LEGACY:
        return StreamFacts(index, 0, "stream 0")
    is_of_thread = number == perthread.PER_THREAD
    if is_of_thread:
        number = name_of(number, index)
    if perthread.is_number(number):
        where, label = perthread.device_of(number), f"stream of thread {number // 2}"
        home = index if where is None else where
        return StreamFacts(home, number, label, is_blocking=True, is_of_thread=is_of_thread)
    where = device_of_stream(number)
    return StreamFacts(index if where is None else where, number, f"stream {number:#x}", _is_blocking(number))


def _is_blocking(address: int) -> bool:
    """Whether the stream waits for the legacy default stream; False for a stream first seen during its capture.

    The driver does not report the flags of a stream that is being captured (status 900); cuassay's streams do not wait.
    """
    from cuda.bindings import runtime as cudart

    if capture_status(address) != "none":
        return False
    with relaxed():  # another thread may be capturing
        flags = check(cudart.cudaStreamGetFlags(address), f"asking for the flags of stream {address:#x}")
    return not int(flags) & _NON_BLOCKING
