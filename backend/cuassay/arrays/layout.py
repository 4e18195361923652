"""The layout of arrays in memory: strides, byte ranges and overlap."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ShapeError

__all__ = [
    "as_shape",
    "broadcast_shapes",
    "byte_range",
    "contiguous_strides",
    "has_internal_overlap",
    "is_aligned",
    "is_channels_last",
    "is_contiguous",
    "normalize_axis",
    "overlap",
]

#: The limit of work in `numpy.shares_memory`, and of elements checked here. Beyond it, arrays count as overlapping.
_MAX_WORK = 10_000


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return `shape` as a tuple of ints. A single extent is accepted.

    Raises
    ------
    ShapeError
        If an extent is not a whole number, or is below 0.
    """
    try:
        extents = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError as error:
        raise ShapeError(f"{shape!r} is not a shape: {error}; give whole numbers, 0 or more") from error
    if min(extents, default=0) < 0:
        raise ShapeError(f"{shape!r} is not a shape: negative extents are not allowed; give whole numbers, 0 or more")
    return extents


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-contiguous array."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return True if the elements are in C order without gaps. Strides along axes of extent 1 do not matter."""
    if 0 in shape:
        return True
    wanted = contiguous_strides(shape, itemsize)
    return all(extent == 1 or stride == want for extent, stride, want in zip(shape, strides, wanted, strict=True))


def is_aligned(shape: Sequence[int], strides: Sequence[int], itemsize: int, address: int = 0) -> bool:
    """Return True if each element begins at a multiple of `itemsize`. Strides along axes of extent 1 do not matter."""
    if 0 in shape:
        return True
    steps = (stride for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    return address % itemsize == 0 and not any(step % itemsize for step in steps)


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if the strides of images (N, C, H, W) grow in the order C, W, H, N, with or without gaps.

    Strides along axes of extent 1 matter, because they tell which order was meant. The rule is torch's:
    ``is_channels_last_strides_2d`` in ``c10/core/MemoryFormat.h``.
    """
    if len(shape) != 4 or strides[3] < strides[1] or strides[1] == 0 or 0 in shape:
        return False
    reach = 0
    for axis in (1, 3, 2):
        if strides[axis] < reach:
            return False
        reach = strides[axis] * shape[axis]
    return strides[0] >= reach != strides[1]  # equal for (N, 1, 1, 1), whose strides tell nothing


def byte_range(shape: Sequence[int], strides: Sequence[int], itemsize: int, offset: int = 0) -> tuple[int, int]:
    """Return the first byte of an array and the byte after its last. `offset` is the place of its first element."""
    if 0 in shape:
        return offset, offset
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = offset + sum(step for step in reach if step < 0)
    return low, offset + sum(step for step in reach if step > 0) + itemsize


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to, by NumPy's rules.

    Raises
    ------
    ShapeError
        If they do not broadcast.
    """
    first = shapes[0] if shapes else ()
    if all(shape == first for shape in shapes):
        return first
    axes = zip_longest(*map(reversed, shapes), fillvalue=1)  # numpy.broadcast_shapes supports only 32 axes
    found = [set(extents) - {1} for extents in axes]
    if any(len(extents) > 1 for extents in found):
        listed = ", ".join(map(str, shapes))
        raise ShapeError(f"shapes do not broadcast; got {listed}; from the right, extents must be equal or 1")
    return tuple(extents.pop() if extents else 1 for extents in reversed(found))


def normalize_axis(axis: int, ndim: int) -> int:
    """Return `axis` counted from the front.

    Raises
    ------
    ShapeError
        If an array of `ndim` dimensions has no such axis.
    """
    whole = as_whole(axis)
    if whole is None or not -ndim <= whole < ndim:
        allowed = f"give {-ndim} to {ndim - 1}" if ndim else "a scalar has no axis to give"
        raise ShapeError(f"axis {shown(axis)} does not exist; the array has {ndim} dimensions; {allowed}")
    return whole % ndim


def overlap(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return True if an element of `a` and one of `b` share a byte, or if that is too hard to decide."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_MAX_WORK))  # type: ignore[arg-type] # the stub lists the two special values only
    except np.exceptions.TooHardError:
        return True


def has_internal_overlap(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return True if two elements of one array share a byte, so that writing one changes the other.

    The result is exact for up to 10,000 elements. In larger arrays, strides that do not nest count as overlapping.
    """
    if 0 in shape:
        return False
    axes = sorted((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    reach = itemsize
    for stride, extent in axes:
        if stride < reach:
            return _elements_touch(axes, itemsize)
        reach += stride * (extent - 1)
    return False


def _elements_touch(axes: Sequence[tuple[int, int]], itemsize: int) -> bool:
    if math.prod(extent for _, extent in axes) > _MAX_WORK:
        return True
    starts = np.zeros(1, dtype=np.int64)
    for stride, extent in axes:
        starts = np.add.outer(starts, stride * np.arange(extent, dtype=np.int64)).ravel()
    return bool(np.any(np.diff(np.sort(starts)) < itemsize))
