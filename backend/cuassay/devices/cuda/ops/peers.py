"""Copies between two devices, in order of the current streams of both; directly where one device reaches the other.

Else the driver takes them through the host. As on kind `sim`, the copy comes after what either stream was given before,
and before what it is given later. Called by `elementwise.copy`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy

from cuassay.devices.cuda.driver import graph_driver, runtime
from cuassay.devices.cuda.driver.context import at, explained
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous, is_f_contiguous
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.alignment import aligned, copyto
from cuassay.devices.cuda.streams.stream import current_stream
from cuassay.errors import CaptureError

__all__ = ["copy"]

Array = Any


def copy(a: Array, out: Array) -> None:
    """Copy `a` into `out`, of the same shape and dtype, on another device.

    While one of the streams is being captured, and not the other, the copy is recorded as that one's: it is replayed
    with the graph, and orders nothing on the other device. In one capture of both it is ordered on both.

    Raises
    ------
    CaptureError
        If an array whose elements are not side by side would need a kernel on the device that is not captured, or the
        devices do not reach each other.
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
    """Whether what `stream` is given is recorded; a default stream is not asked: it cannot be captured."""
    return bool(stream.ptr) and graph_driver.capture_status(stream.ptr) == "active"


def _packed(a: Array, out: Array, *, is_refused: bool) -> Array:
    """`a`, or a copy of it on its device whose elements lie side by side."""
    if is_c_contiguous(a) or (is_f_contiguous(a) and is_f_contiguous(out)):
        return a
    if is_refused:
        raise _uncaptured("from", a)
    with at(a.data.device_id):
        return cupy.ascontiguousarray(aligned(a))


def _there(out: Array, packed: Array, *, is_refused: bool) -> Array:
    """`out`, or contiguous memory of its own where its elements do not lie as those of `packed` do."""
    if (is_c_contiguous(out) and is_c_contiguous(packed)) or (is_f_contiguous(out) and is_f_contiguous(packed)):
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
    """As `_send`, into the graph that `stream` is captured into: by addresses, as a graph holds no peer copies."""
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
    """Let both devices reach each other's memory where they can: copies take the direct way then."""
    from cuda.bindings import runtime as cudart

    for index, peer in ((source, target), (target, source)):
        if runtime.can_device_access_peer(index, peer):
            with at(index), graph_driver.relaxed():
                (status,) = cudart.cudaDeviceEnablePeerAccess(peer, 0)
            if status:  # CuPy or another library did it already, or there are too many: then through the host
                cudart.cudaGetLastError()
