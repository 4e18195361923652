"""Copies between host arrays and a device, in order of its current stream, without waiting if memory is pinned."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuassay.core import syncdebug, watchers
from cuassay.core.watchers import Occurrence
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous, is_f_contiguous
from cuassay.devices.cuda.memory.alignment import aligned, copyto
from cuassay.devices.cuda.memory.order import at
from cuassay.devices.cuda.memory.pinned import HostArray, address_of, empty, mark
from cuassay.devices.cuda.streams.stream import Ordering
from cuassay.errors import CaptureError

__all__ = ["transfer"]

_memcpy = cupy.cuda.runtime.memcpyAsync
_TO_DEVICE = cupy.cuda.runtime.memcpyHostToDevice
_TO_HOST = cupy.cuda.runtime.memcpyDeviceToHost


def transfer(src: Any, dst: Any, *, non_blocking: bool = False) -> None:
    """Copy between host and device in order of the device's current stream; one of the two is a `numpy.ndarray`.

    Parameters
    ----------
    src, dst : array
        Arrays of the same shape and dtype, as `cuassay.devices.copy` has checked.
    non_blocking : bool
        Whether to return at once if the host memory is pinned. That memory must not be written (or, if the host is the
        target, read) before the copy is done, but may be dropped. Pageable memory is copied and waited for, as in
        torch; so is a host target whose elements are in another order than the device's.

    Raises
    ------
    CaptureError
        If the host would have to wait while the stream is being captured.
    """
    host, device = (src, dst) if isinstance(src, np.ndarray) else (dst, src)
    if not host.size:
        return
    index = device.data.device_id
    if index == cupy.cuda.runtime.getDevice():
        _transfer(host, device, index, is_upward=host is src, non_blocking=non_blocking)
    else:
        with at(index):
            _transfer(host, device, index, is_upward=host is src, non_blocking=non_blocking)


def _transfer(host: HostArray, device: Any, index: int, *, is_upward: bool, non_blocking: bool) -> None:
    stream = cupy.cuda.get_current_stream(index)
    if is_upward:
        here = host if _is_alike(host, device) else _packed(host)
        there = device if _is_alike(here, device) else cupy.empty(device.shape, device.dtype)
    else:
        there = device if _is_alike(host, device) else cupy.ascontiguousarray(aligned(device))
        here = host if _is_alike(host, there) else empty(host.shape, host.dtype)
    is_left = mark(here, index, stream) and non_blocking and (is_upward or here is host)
    if not is_left:
        _check_wait(stream)
    if is_upward:
        _memcpy(there.data.ptr, address_of(here), here.nbytes, _TO_DEVICE, stream.ptr)
        if there is not device:
            copyto(device, there)
    else:
        _memcpy(address_of(here), there.data.ptr, here.nbytes, _TO_HOST, stream.ptr)
    if not is_left:
        stream.synchronize()
        if watchers.state.watchers and not isinstance(stream, Ordering):  # CuPy's own streams do not tell watchers
            watchers.tell(Occurrence("stream_synchronized", f"cuda:{index}", stream.ptr))
    if here is not host and not is_upward:
        host[...] = here


def _check_wait(stream: Any) -> None:
    """Raise `CaptureError` if the host must not wait; otherwise report the wait to the sync debug mode."""
    if stream.is_capturing():
        raise CaptureError(
            "a copy that the host waits for is illegal while the current stream is being captured; use pinned memory "
            "and non_blocking=True, or copy before the capture"
        )
    syncdebug.waits("a copy between host and device")


def _packed(host: HostArray) -> HostArray:
    """Return a C-contiguous copy in pinned memory; `host` has been read when this returns."""
    packed = empty(host.shape, host.dtype)
    packed[...] = host
    return packed


def _is_alike(host: HostArray, device: Any) -> bool:
    """Whether the elements of both are contiguous and in the same order, so that bytes can be copied."""
    if is_c_contiguous(device):
        return bool(host.flags.c_contiguous)
    return bool(is_f_contiguous(device) and host.flags.f_contiguous)
