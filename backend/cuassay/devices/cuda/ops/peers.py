"""Copies between two devices, in order of both current streams; they are direct if one device can access the other.

Otherwise the driver copies through the host. As on kind `sim`, the copy comes after the earlier work of both streams,
and before their later work. Called by `elementwise.copy`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy

from cuassay.devices.cuda.driver import graph_driver, runtime
from cuassay.devices.cuda.driver.context import at, explained
from cuassay.devices.cuda.driver.cupy_private import in_one_order, is_c_contiguous
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.alignment import aligned, copyto
from cuassay.devices.cuda.streams.stream import current_stream
from cuassay.errors import CaptureError

__all__ = ["copy"]

Array = Any


def copy(a: Array, out: Array) -> None:
    """Copy `a` into `out`, which has the same shape and dtype, on another device.

    If only one of the streams is being captured, the copy is recorded into that capture: it is replayed with the graph,
    and orders nothing on the other device. If one capture includes both streams, the copy is ordered on both.

    Raises
    ------
    CaptureError
        If a non-contiguous array would need a kernel on the device that is not captured, or the devices cannot access
        each other.
    """
    if not out.size:
        return
    source, target = a.data.device_id, out.data.device_id
    near, far = current_stream(source), current_stream(target)
    is_near_captured, is_far_captured = _is_captured(near), _is_captured(far)
    packed = _packed(a, out, is_refused=is_far_captured and not is_near_captured)
    there = _there(out, packed, is_refused=is_near_captured and not is_far_captured)
    _connect(source, target)
    if is_near_captured != is_far_captured:
        _record(packed, there, near if is_near_captured else far)
    else:
        near.wait_stream(far)
        (_record if is_near_captured else _send)(packed, there, near)
        far.wait_stream(near)
    if there is not out:
        with at(target):
            copyto(out, there)


def _is_captured(stream: Any) -> bool:
    """Whether `stream` is being captured; a default stream is not queried, because it cannot be captured."""
    return bool(stream.ptr) and graph_driver.capture_status(stream.ptr) == "active"


def _packed(a: Array, out: Array, *, is_refused: bool) -> Array:
    """Return `a`, or a contiguous copy of it on its device."""
    if is_c_contiguous(a) or in_one_order(a, out):
        return a
    if is_refused:
        raise _uncaptured("from", a)
    with at(a.data.device_id):
        return cupy.ascontiguousarray(aligned(a))


def _there(out: Array, packed: Array, *, is_refused: bool) -> Array:
    """Return `out`, or separate contiguous memory if its elements are not in the order of `packed`'s."""
    if in_one_order(out, packed):
        return out
    if is_refused:
        raise _uncaptured("to", out)
    return hook.empty(out.shape, out.dtype, out.data.device_id)


def _uncaptured(way: str, array: Array) -> CaptureError:
    return CaptureError(
        f"a copy {way} an array of cuda:{array.data.device_id} with strides {array.strides} cannot be captured on "
        "another device: it needs a kernel there; copy through a contiguous array"
    )


def _send(packed: Array, there: Array, stream: Any) -> None:
    source, target = packed.data.device_id, there.data.device_id
    with at(stream.device_id), explained(f"copying {packed.nbytes:,} bytes from cuda:{source} to cuda:{target}"):
        cupy.cuda.runtime.memcpyPeerAsync(there.data.ptr, target, packed.data.ptr, source, packed.nbytes, stream.ptr)


def _record(packed: Array, there: Array, stream: Any) -> None:
    """Copy as `_send` does, into `stream`'s graph: by addresses, because a graph cannot hold peer copies."""
    source, target = packed.data.device_id, there.data.device_id
    doing = f"a copy of {packed.nbytes:,} bytes from cuda:{source} to cuda:{target}"
    if not runtime.can_device_access_peer(*((source, target) if stream.device_id == source else (target, source))):
        raise CaptureError(
            f"{doing} cannot be captured: neither device reaches the other's memory; copy before the capture, or after "
            "the replay"
        )
    with at(stream.device_id), explained(f"recording {doing}"):
        way = cupy.cuda.runtime.memcpyDeviceToDevice
        cupy.cuda.runtime.memcpyAsync(there.data.ptr, packed.data.ptr, packed.nbytes, way, stream.ptr)


@cache
def _connect(source: int, target: int) -> None:
    """Enable access between the devices in both directions where possible, so that copies are direct."""
    from cuda.bindings import runtime as cudart

    for index, peer in ((source, target), (target, source)):
        if runtime.can_device_access_peer(index, peer):
            with at(index), graph_driver.relaxed():
                (status,) = cudart.cudaDeviceEnablePeerAccess(peer, 0)
            if status:  # enabled already, or too many peers: then copies go through the host
                cudart.cudaGetLastError()
