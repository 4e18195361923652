"""Copies between two arrays that are contiguous along different axes, such as ``a.T`` to C order.

An elementwise kernel accesses single elements of one of the arrays: on an H200 such copies of CuPy and torch run at a
quarter of the copy rate. This kernel moves tiles through shared memory. Kernel: kernels/transpose.cu. Called by
`elementwise.copy`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.layouts import MAX_AXES, merged_axes, pack_length

__all__ = ["copyto", "transpose"]

Array = Any

_BLOCK = 256
_OUTER_AXES = MAX_AXES - 2

#: The type that transpose.cu uses for an element, by the element's size in bytes.
_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "uint4"}

#: The least extent of both axes. Below it a tile is so empty that its rows are read no faster than single elements.
_LEAST_EXTENT = 16

#: The least size of a copy for which examining the strides takes less time than the kernel saves.
_LEAST_NBYTES = 1 << 21


class _Transposition(ctypes.Structure):
    """``Transposition`` of transpose.cu."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "columns", "row_stride", "column_stride", "axes")),
        *((name, ctypes.c_int64 * _OUTER_AXES) for name in ("extent", "origin", "to")),
    )


def copyto(out: Array, a: Array) -> None:
    """Copy `a`, of the same dtype and shape, into `out`, which shares no memory with it, on the current stream."""
    if (
        out.nbytes < _LEAST_NBYTES
        or not alignment.is_aligned(a)
        or not alignment.is_aligned(out)
        or not transpose(out, a)
    ):
        alignment.copyto(out, a)


def transpose(out: Array, a: Array) -> bool:
    """Copy `a` into `out` by tiles, if they are contiguous along different axes; return whether it was done.

    The elements of both arrays must be aligned.
    """
    itemsize = out.dtype.itemsize
    if out.ndim > MAX_AXES or not out.size:
        return False
    inner, *axes = merged_axes(out, a) or [(1, [0, 0])]
    columns = next((axis for axis in axes if axis[1][1] == 1), None)
    if columns is None or inner[1][0] != 1 or min(inner[0], columns[0]) < _LEAST_EXTENT:
        return False
    axes.remove(columns)
    place = _Transposition(inner[0], columns[0], inner[1][1], columns[1][0], len(axes))
    for number, (extent, (to, origin)) in enumerate(axes):
        place.extent[number], place.to[number], place.origin[number] = extent, to, origin
    strides = (stride for axis in axes for stride in axis[1])
    length = pack_length((a, out), inner[0], columns[0], inner[1][1], columns[1][0], *strides)
    tile = 64 if itemsize < 8 else 32
    pack = min(length, max(1, 4 // itemsize))
    blocks = out.size // (inner[0] * columns[0]) * -(-inner[0] // tile) * -(-columns[0] // tile)
    kernel("transpose.cu", f"transpose<{_WORDS[itemsize]}, {pack}>")(blocks, _BLOCK, (a, out, place))
    return True
