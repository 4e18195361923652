"""Reading and adding up where an array of whole numbers says, on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.indexing`.
"""

from __future__ import annotations

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
    """`index` as int64; raises `ArgumentError` where a number names no place among `extent`."""
    outside = index[(index < 0) | (index >= extent)]
    if outside.size:
        raise ArgumentError(
            f"{name}'s index holds {int(outside[0])}; it names one of {extent} places, from 0; count from the front"
        )
    return index.astype(np.int64)


def embedding(index: Array, weight: Array, *, out: Array) -> None:
    """The rows of `weight` that `index` names."""
    out[...] = weight[_checked("embedding", index, weight.shape[0])]


def segment_sum(a: Array, index: Array, *, count: int, out: Array) -> None:
    """Row r is the sum of the rows of `a` where `index` is r."""
    total = np.zeros(out.shape, compute_dtype(out.dtype))
    np.add.at(total, _checked("segment_sum", index, count), widened(a, total.dtype))
    out[...] = total.astype(out.dtype, copy=False)


def index_add(a: Array, index: Array, source: Array, *, axis: int, out: Array) -> None:
    """``a``, and ``source`` added along `axis` at the places that `index` names."""
    total = np.moveaxis(a.astype(compute_dtype(out.dtype)), axis, 0)
    added = widened(source, compute_dtype(out.dtype))
    np.add.at(total, _checked("index_add", index, a.shape[axis]), np.moveaxis(added, axis, 0))
    out[...] = np.moveaxis(total, 0, axis).astype(out.dtype, copy=False)


def gather(a: Array, index: Array, *, axis: int, out: Array) -> None:
    """``a[..., index[..., i, ...], ...]`` along `axis`."""
    out[...] = np.take_along_axis(a, _checked("gather", index, a.shape[axis]), axis)


def scatter_sum(a: Array, index: Array, *, count: int, axis: int, out: Array) -> None:
    """Each element of `a` added where `index` says along `axis`."""
    total = np.zeros(out.shape, compute_dtype(out.dtype))
    places = list(np.ogrid[tuple(slice(extent) for extent in a.shape)])
    places[axis] = _checked("scatter_sum", index, count)
    np.add.at(total, tuple(places), widened(a, total.dtype))
    out[...] = total.astype(out.dtype, copy=False)


def register() -> None:
    """Enter these into the registry."""
    for implementation in (embedding, segment_sum, index_add, gather, scatter_sum):
        name = implementation.__name__
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
