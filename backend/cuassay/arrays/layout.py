"""How the elements of an array lie in memory: strides, byte ranges, overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.errors import ShapeError

__all__ = ["broadcast_shapes", "byte_range", "contiguous_strides", "is_contiguous", "normalize_axis", "overlap"]

#: Work `numpy.shares_memory` may do before the answer is "perhaps", which counts as yes.
_MAX_WORK = 10_000


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a C-contiguous array."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """True when the elements lie in C order without gaps; strides along axes of extent 1 do not matter."""
    if 0 in shape:
        return True
    wanted = contiguous_strides(shape, itemsize)
    return all(extent == 1 or stride == want for extent, stride, want in zip(shape, strides, wanted, strict=True))


def byte_range(shape: Sequence[int], strides: Sequence[int], itemsize: int, offset: int = 0) -> tuple[int, int]:
    """First byte, and the one past the last, that an array touches; `offset` is where its first element is."""
    if 0 in shape:
        return offset, offset
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = offset + sum(step for step in reach if step < 0)
    return low, offset + sum(step for step in reach if step > 0) + itemsize


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape they broadcast to, NumPy's rule.

    Raises
    ------
    ShapeError
        If they do not.
    """
    first = shapes[0] if shapes else ()
    if all(shape == first for shape in shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(map(str, shapes))
        raise ShapeError(f"shapes {listed} do not broadcast; from the right, extents must be equal or 1") from None


def normalize_axis(axis: int, ndim: int) -> int:
    """`axis` counted from the front.

    Raises
    ------
    ShapeError
        If an array of `ndim` dimensions has no such axis.
    """
    if not -ndim <= axis < ndim:
        raise ShapeError(f"axis {axis} does not exist; the array has {ndim} dimensions; give {-ndim} to {ndim - 1}")
    return axis % ndim


def overlap(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """True when some byte belongs to an element of both; where that is too hard to decide, True as well."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_MAX_WORK))  # type: ignore[arg-type] # the stub lists the two special values only
    except np.exceptions.TooHardError:
        return True
