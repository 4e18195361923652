"""Gathering and summing by integer arrays, on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.indexing`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import compute_dtype
from cuassay.devices.cpu.elementwise import widened
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]


def _checked(name: str, index: Array, extent: int) -> Array:
    """Return `index` as int64; raise `ArgumentError` if a number is not a position in `extent`."""
    outside = index[(index < 0) | (index >= extent)]
    if outside.size:
        raise ArgumentError(
            f"{name}'s index holds {int(outside[0])}; it names one of {extent} places, from 0; count from the front"
        )
    return index.astype(np.int64)


def _rows(array: Array, axis: int) -> tuple[Array, tuple[int, ...]]:
    """Return a matrix with `axis` first, and its former shape: `numpy.add.at` crashes on arrays of 64 axes."""
    moved = np.moveaxis(array, axis, 0)
    return np.array(moved).reshape(moved.shape[0], math.prod(moved.shape[1:])), moved.shape


def embedding(index: Array, weight: Array, *, out: Array) -> None:
    """Gather the rows of `weight` that `index` selects."""
    out[...] = weight[_checked("embedding", index, weight.shape[0])]


def segment_sum(a: Array, index: Array, *, count: int, out: Array) -> None:
    """Sum, into row r, the rows of `a` where `index` is r."""
    total = np.zeros((count, math.prod(out.shape[1:])), compute_dtype(out.dtype))
    rows = widened(a, total.dtype).reshape(index.size, total.shape[1])
    np.add.at(total, _checked("segment_sum", index, count).reshape(-1), rows)
    out[...] = total.astype(out.dtype, copy=False).reshape(out.shape)


def index_add(a: Array, index: Array, source: Array, *, axis: int, out: Array) -> None:
    """``a``, and ``source`` added along `axis` at the places that `index` names."""
    total, moved = _rows(a.astype(compute_dtype(out.dtype)), axis)
    added, _ = _rows(widened(source, total.dtype), axis)
    np.add.at(total, _checked("index_add", index, a.shape[axis]), added)
    out[...] = np.moveaxis(total.reshape(moved), 0, axis).astype(out.dtype, copy=False)


def gather(a: Array, index: Array, *, axis: int, out: Array) -> None:
    """Gather ``a[..., index[..., i, ...], ...]`` along `axis`."""
    out[...] = np.take_along_axis(a, _checked("gather", index, a.shape[axis]), axis)


def scatter_sum(a: Array, index: Array, *, count: int, axis: int, out: Array) -> None:
    """Add each element of `a` at the position in `index` along `axis`."""
    places, (_, *others) = _rows(_checked("scatter_sum", index, count), axis)
    total = np.zeros((count, places.shape[1]), compute_dtype(out.dtype))
    np.add.at(total, (places, np.arange(places.shape[1])), _rows(widened(a, total.dtype), axis)[0])
    out[...] = np.moveaxis(total.reshape(count, *others), 0, axis).astype(out.dtype, copy=False)


def register() -> None:
    """Add these implementations to the registry."""
    for implementation in (embedding, segment_sum, index_add, gather, scatter_sum):
        name = implementation.__name__
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
