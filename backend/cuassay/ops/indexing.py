"""Shape rules of operations that read or add elements at positions given by an array of whole numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from cuassay.arrays.dtypes import INTEGERS, dtype_name
from cuassay.arrays.layout import normalize_axis
from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops.shapes import shape_of

__all__ = ["embedding", "gather", "index_add", "scatter_sum", "segment_sum"]

Shape = tuple[int, ...]


def _index(name: str, bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``index``, which must be an array of whole numbers."""
    index = bound["index"]
    if not hasattr(index, "dtype") or dtype_name(index.dtype) not in INTEGERS:
        raise DTypeError(f"{name}'s index must be an array of whole numbers; got {shown(index)}; give int64")
    return shape_of(index)


def _extent(name: str, word: str, value: Any) -> int:
    whole = as_whole(value)
    if whole is None or not 0 <= whole <= sys.maxsize:
        raise ArgumentError(
            f"{name}'s {word} must be a whole number of at least 0, and at most {sys.maxsize:,}; got {shown(value)}"
        )
    return whole


def embedding(bound: Mapping[str, Any]) -> Shape:
    """Return ``index.shape`` followed by the row length of the matrix ``weight``."""
    index, weight = _index("embedding", bound), shape_of(bound["weight"])
    if len(weight) != 2:
        raise ShapeError(f"embedding needs a weight of rows, (V, D); got {weight}; reshape it")
    return (*index, weight[1])


def segment_sum(bound: Mapping[str, Any]) -> Shape:
    """Return ``count`` followed by the axes of ``a`` after those of ``index``."""
    index, a = _index("segment_sum", bound), shape_of(bound["a"])
    if a[: len(index)] != index:
        raise ShapeError(f"segment_sum needs an a that begins with the shape of index, {index}; got {a}")
    return (_extent("segment_sum", "count", bound["count"]), *a[len(index) :])


def index_add(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``; ``source`` must have it too, except that along ``axis`` it is as long as ``index``."""
    index, a, source = _index("index_add", bound), shape_of(bound["a"]), shape_of(bound["source"])
    axis = normalize_axis(bound["axis"], len(a))
    wanted = (*a[:axis], *index, *a[axis + 1 :])
    if len(index) != 1 or source != wanted:
        raise ShapeError(
            f"index_add needs an index of one axis and a source of shape {wanted}, a's but as long as index along axis "
            f"{axis}; got index {index} and source {source}"
        )
    return a


def gather(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``index``, which must equal that of ``a`` except along ``axis``."""
    index, a = _index("gather", bound), shape_of(bound["a"])
    axis = normalize_axis(bound["axis"], len(a))
    if len(index) != len(a) or (*index[:axis], *index[axis + 1 :]) != (*a[:axis], *a[axis + 1 :]):
        raise ShapeError(
            f"gather needs an index of the shape of a, {a}, but for its length along axis {axis}; got {index}; "
            "broadcast it first with numpy's or cupy's broadcast_to"
        )
    return index


def scatter_sum(bound: Mapping[str, Any]) -> Shape:
    """Return the shape that ``a`` and ``index`` share, with ``count`` along ``axis``."""
    index, a = _index("scatter_sum", bound), shape_of(bound["a"])
    axis = normalize_axis(bound["axis"], len(a))
    if index != a:
        raise ShapeError(f"scatter_sum needs an index of the shape of a, {a}; got {index}; broadcast it first")
    return (*a[:axis], _extent("scatter_sum", "count", bound["count"]), *a[axis + 1 :])
