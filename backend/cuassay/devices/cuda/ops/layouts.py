"""What the strides of CuPy arrays allow a kernel: how many elements an access takes, and which axes are merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cupy

from cuassay.errors import ShapeError

__all__ = ["MAX_AXES", "PACK_NBYTES", "merged_axes", "pack_length"]

Array = Any

#: The number of axes that a kernel's description of a layout has room for.
MAX_AXES = 8

#: Bytes of the widest access.
PACK_NBYTES = 16


def pack_length(arrays: Sequence[Array], *extents: int) -> int:
    """Return the elements that one access may take, given the arrays' alignment and the extents it must divide."""
    itemsizes = [array.dtype.itemsize for array in arrays]
    offsets = [array.data.ptr // itemsize for array, itemsize in zip(arrays, itemsizes, strict=True)]
    return math.gcd(PACK_NBYTES // max(itemsizes), *offsets, *extents)  # a power of two, like its first argument


def merged_axes(out: Array, *operands: Array, in_c_order: bool = False) -> list[tuple[int, list[int]]]:
    """Return extents and strides from the innermost axis outwards; neighbouring axes are merged if all arrays allow it.

    Parameters
    ----------
    out : cupy.ndarray
        The array whose shape and order of axes in memory are used.
    *operands : cupy.ndarray
        Broadcast to the shape of `out`.
    in_c_order : bool
        Whether the last axis is the innermost one, whatever the strides.

    Returns
    -------
    list of (int, list of int)
        Each extent, and the stride of each array in elements, `out` first.

    Raises
    ------
    ShapeError
        If more than `MAX_AXES` axes remain.
    """
    views = [cupy.broadcast_to(operand, out.shape) for operand in operands]
    arrays = (out, *views)
    axes: list[tuple[int, list[int]]] = []
    order = range(out.ndim - 1, -1, -1)
    for axis in order if in_c_order else sorted(order, key=lambda axis: abs(out.strides[axis])):
        extent = out.shape[axis]
        if extent == 1:
            continue
        strides = [array.strides[axis] // array.dtype.itemsize for array in arrays]
        if axes and strides == [inner * axes[-1][0] for inner in axes[-1][1]]:
            axes[-1] = (axes[-1][0] * extent, axes[-1][1])
        else:
            axes.append((extent, strides))
    if len(axes) > MAX_AXES:
        raise ShapeError(
            f"at most {MAX_AXES} axes may have unrelated strides; got {len(axes)} in shape {out.shape}; "
            "make an operand contiguous"
        )
    return axes
