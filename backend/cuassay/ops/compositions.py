"""Compositions of other operations, for device kinds that have no kernel for an operation.

16-bit floats are cast to float32 first, and the result is rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from cuassay.arrays.dtypes import HALVES, as_dtype, compute_dtype, dtype_name, promote
from cuassay.ops.registry import op
from cuassay.ops.shapes import reduced_axes

__all__ = ["log_softmax", "logsumexp", "var"]

Array = Any


def _wide(a: Array) -> Array:
    return op("cast")(a, dtype="float32") if dtype_name(a.dtype) in HALVES else a


def _as(array: Array, dtype: Any) -> Array:
    return array if array.dtype == dtype else op("cast")(array, dtype=dtype)


def _without(array: Array, axis: Any, *, keepdims: bool) -> Array:
    """Return `array` without the axes of extent 1 that a reduction kept."""
    if keepdims:
        return array
    axes = reduced_axes(axis, array.ndim)
    return array.reshape(tuple(extent for place, extent in enumerate(array.shape) if place not in axes))


def _centred(a: Array, axis: Any) -> tuple[Array, Array, Array]:
    """Return ``log(sum(exp(a - max)))``, the maximum, and ``a - max``.

    An infinite or NaN maximum is replaced by 0, so that it reaches the exponential unchanged.
    """
    top = op("amax")(a, axis=axis, keepdims=True)
    top = op("where")(op("less")(op("abs")(top), math.inf), top, 0.0)
    below = op("sub")(a, top)
    return op("log")(op("sum")(op("exp")(below), axis=axis, keepdims=True)), top, below


def logsumexp(a: Array, *, axis: Any, keepdims: bool) -> Array:
    """Compute ``log(sum(exp(a)))``."""
    wide = _wide(a)
    if 0 in (a.shape[place] for place in reduced_axes(axis, a.ndim)):
        found = op("log")(op("sum")(wide, axis=axis, keepdims=True))
    else:
        logarithm, top, _ = _centred(wide, axis)
        found = op("add")(logarithm, top)
    return _as(_without(found, axis, keepdims=bool(keepdims)), a.dtype)


def log_softmax(a: Array, *, axis: int, dtype: Any) -> Array:
    """Compute ``a - logsumexp(a)``."""
    result = a.dtype if dtype is None else as_dtype(dtype)
    if not a.size:
        return _as(op("copy")(a), result)
    logarithm, _, below = _centred(_as(a, compute_dtype(promote(a.dtype, result))), axis)
    return _as(op("sub")(below, logarithm), result)


def var(a: Array, *, axis: Any, correction: float, keepdims: bool) -> Array:
    """Compute the variance in two passes: first the mean, then the mean square of the deviations."""
    wide = _wide(a)
    count = math.prod(a.shape[place] for place in reduced_axes(axis, a.ndim))
    rest = op("sub")(wide, op("mean")(wide, axis=axis, keepdims=True))
    total = op("sum")(op("mul")(rest, rest), axis=axis, keepdims=bool(keepdims))
    return _as(op("div")(total, float(max(count - correction, 0))), a.dtype)
