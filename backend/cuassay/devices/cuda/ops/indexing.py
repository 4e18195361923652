"""Gathering and summing by integer arrays, on CuPy arrays, by cuassay's own kernels.

An index out of range is an error on kinds `cpu` and `sim`. Here nothing waits for the device to find one: a read gives
NaN, or all bits set, and an addition is skipped. Sums are in the order of the index, without atomics.
Kernels: kernels/indexing.cu, and the strided ones of kernels/elementwise.cu. Called by `cuassay.ops`; OpSpecs:
`cuassay.testing.specs.indexing`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.layout import normalize_axis
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.elementwise import c_name, launch_strided, layout_of_strides
from cuassay.devices.cuda.ops.layouts import pack_length
from cuassay.errors import ShapeError
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

_BLOCK = 256
_MAX_GRID_Y = 65_535

#: The bytes of one column's sums that a block of `segment_sum` keeps: 32 rows, or 16 of float64.
_ROWS_NBYTES = 128
#: Fewer blocks than this leave parts of a large GPU idle; then each block takes one row.
_FEW_BLOCKS = 256


def _contiguous(array: Array) -> Array:
    return array if array.flags.c_contiguous else cupy.ascontiguousarray(array)


def _bits(dtype: np.dtype[Any]) -> str:
    """Return the unsigned integer type of a dtype's size."""
    return f"uint{8 * dtype.itemsize}"


@alignment.on_aligned
def embedding(index: Array, weight: Array, *, out: Array) -> None:
    """Gather the rows of `weight` that `index` selects."""
    if not out.size:
        return
    index, weight = _contiguous(index), _contiguous(weight)
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    length = pack_length((weight, target), weight.shape[1])
    name = f"gather_rows<{_bits(out.dtype)}, {c_name(index.dtype)}, {length}>"
    arguments = (weight, index, target, index.size, weight.shape[1], weight.shape[0])
    kernel("indexing.cu", name)(-(-out.size // (_BLOCK * length)), _BLOCK, arguments)
    if target is not out:
        cupy.copyto(out, target)


@alignment.on_aligned
def segment_sum(a: Array, index: Array, *, count: int, out: Array) -> None:
    """Sum, into row r, the rows of `a` where `index` is r."""
    if out.size:
        _segments(_contiguous(a), _contiguous(index), None, out, (1, count, prod(out.shape[1:])))


@alignment.on_aligned
def index_add(a: Array, index: Array, source: Array, *, axis: int, out: Array) -> None:
    """Add `source` to `a` along `axis`, at the positions in `index`."""
    if not out.size:
        return
    axis = normalize_axis(axis, a.ndim)
    folded = prod(a.shape[:axis]), a.shape[axis], prod(a.shape[axis + 1 :])
    a, source = (_contiguous(one.astype(out.dtype, copy=False)) for one in (a, source))
    _segments(source, _contiguous(index), a, out, folded)


def _segments(source: Array, index: Array, start: Array | None, out: Array, folded: tuple[int, int, int]) -> None:
    outer, rows, inner = folded
    tiles = -(-inner // _BLOCK)
    if tiles > _MAX_GRID_Y:
        most = _MAX_GRID_Y * _BLOCK
        raise ShapeError(f"a sum by an index takes rows of at most {most:,} elements on cuda; got {inner:,}; sum parts")
    target = out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)
    together = _ROWS_NBYTES // max(out.dtype.itemsize, 4)
    if outer * -(-rows // together) * tiles < _FEW_BLOCKS:
        together = 1
    of_start = "false" if start is None else "true"
    name = f"segment_sum<{c_name(out.dtype)}, {c_name(index.dtype)}, {of_start}, {together}>"
    arguments = (source, index, source if start is None else start, target, rows, index.size, inner)
    kernel("indexing.cu", name)((outer * -(-rows // together), tiles, 1), _BLOCK, arguments)
    if target is not out:
        cupy.copyto(out, target)


def _at_first(array: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """Return a view of the first element along `axis`, broadcast to `shape`."""
    return cupy.broadcast_to(array[(slice(None),) * axis + (slice(0, 1),)], shape)


def _step(array: Array, axis: int) -> int:
    return int(array.strides[axis]) // int(array.dtype.itemsize)


@alignment.on_aligned
def gather(a: Array, index: Array, *, axis: int, out: Array) -> None:
    """Gather ``a[..., index[..., i, ...], ...]`` along `axis`."""
    if not out.size:
        return
    axis = normalize_axis(axis, a.ndim)
    if not a.shape[axis]:
        a = cupy.empty(tuple(1 if place == axis else extent for place, extent in enumerate(a.shape)), a.dtype)
        index = cupy.full(index.shape, -1, np.int64)
    layout = layout_of_strides(out, index, _at_first(a, axis, out.shape))
    name = f"strided_gather<{_bits(out.dtype)}, {c_name(index.dtype)}>"
    launch_strided(name, (a, index, out, a.shape[axis], _step(a, axis)), layout)


@alignment.on_aligned
def scatter_sum(a: Array, index: Array, *, count: int, axis: int, out: Array) -> None:
    """Add each element of `a` at the position in `index` along `axis`."""
    if not out.size:
        return
    if not a.size:
        out.fill(0)
        return
    axis = normalize_axis(axis, a.ndim)
    steps = [index.dtype.itemsize if place == axis else 0 for place in range(out.ndim)]
    places = cupy.lib.stride_tricks.as_strided(index, out.shape, steps)  # only its strides are used
    layout = layout_of_strides(out, *(_at_first(one, axis, out.shape) for one in (a, index)), places)
    name = f"strided_scatter_sum<{c_name(out.dtype)}, {c_name(index.dtype)}>"
    launch_strided(name, (a, index, out, a.shape[axis], _step(a, axis), _step(index, axis)), layout)


def register() -> None:
    """Add these implementations to the registry."""
    for implementation in (embedding, segment_sum, index_add, gather, scatter_sum):
        name = implementation.__name__
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
