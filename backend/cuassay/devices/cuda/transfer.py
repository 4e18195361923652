"""Copies between host arrays and a device, in order of its current stream, without a wait where memory is pinned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.devices.cuda.memory.order import at
from cuassay.devices.cuda.pinned import HostArray, empty, mark
from cuassay.errors import ArgumentError, CaptureError

__all__ = ["transfer"]


def transfer(src: Any, dst: Any, *, non_blocking: bool = False) -> None:
    """Copy between host and device in order of the device's current stream; one of the two is a `numpy.ndarray`.

    Parameters
    ----------
    src, dst : array
        Of one shape and dtype.
    non_blocking : bool
        Return at once where the host memory is pinned; it must not be written (read, on the way to the host) before
        the copy is done, but may be dropped. Pageable memory is copied, and waited for, as torch does; so is a host
        array on the way back whose elements lie otherwise than the device's.

    Raises
    ------
    ArgumentError
        If shapes or dtypes differ.
    CaptureError
        If the host would have to wait while the stream is being captured.
    """
    host, device = (src, dst) if isinstance(src, np.ndarray) else (dst, src)
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise ArgumentError(
            f"copy takes two arrays of one shape and dtype; got {src.shape}, {dtype_name(src.dtype)} and {dst.shape}, "
            f"{dtype_name(dst.dtype)}; cast or reshape on the device"
        )
    if not host.size:
        return
    index = device.data.device_id
    with at(index):
        stream = cupy.cuda.get_current_stream(index)
        if host is src:
            _to_device(host, device, stream, non_blocking=non_blocking)
        else:
            _to_host(device, host, stream, non_blocking=non_blocking)


def _to_device(host: HostArray, device: Any, stream: Any, *, non_blocking: bool) -> None:
    here = host if _is_alike(host, device) else _packed(host)
    there = device if _is_alike(here, device) else cupy.empty(device.shape, device.dtype)
    with _waiting(here, stream, non_blocking=non_blocking):
        _copy(there.data.ptr, _at(here), here.nbytes, cupy.cuda.runtime.memcpyHostToDevice, stream)
        if there is not device:
            cupy.copyto(device, there)


def _to_host(device: Any, host: HostArray, stream: Any, *, non_blocking: bool) -> None:
    there = device if _is_alike(host, device) else cupy.ascontiguousarray(device)
    here = host if _is_alike(host, there) else empty(host.shape, host.dtype)
    with _waiting(here, stream, non_blocking=non_blocking and here is host):
        _copy(_at(here), there.data.ptr, here.nbytes, cupy.cuda.runtime.memcpyDeviceToHost, stream)
    if here is not host:
        host[...] = here


def _packed(host: HostArray) -> HostArray:
    """A C-contiguous copy in pinned memory: the host has read `host` when this returns."""
    packed = empty(host.shape, host.dtype)
    packed[...] = host
    return packed


@contextmanager
def _waiting(host: HostArray, stream: Any, *, non_blocking: bool) -> Iterator[None]:
    """The copy of the block is waited for, unless that was asked not to be, and `host` is pinned.

    Raises
    ------
    CaptureError
        If the host would have to wait while the stream is being captured.
    """
    is_left = mark(host, stream) and non_blocking
    if not is_left and stream.is_capturing():
        raise CaptureError(
            "a copy that the host waits for is illegal while the current stream is being captured; use pinned memory "
            "and non_blocking=True, or copy before the capture"
        )
    yield
    if not is_left:
        stream.synchronize()


def _is_alike(host: HostArray, device: Any) -> bool:
    """Whether the elements of both lie side by side and in one order, so that bytes can be copied."""
    if host.flags.c_contiguous:
        return bool(device.flags.c_contiguous)
    return bool(host.flags.f_contiguous and device.flags.f_contiguous)


def _copy(to: int, come_from: int, nbytes: int, kind: int, stream: Any) -> None:
    cupy.cuda.runtime.memcpyAsync(to, come_from, nbytes, kind, stream.ptr)


def _at(array: HostArray) -> int:
    return int(array.ctypes.data)
