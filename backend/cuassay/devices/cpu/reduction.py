"""Reductions on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.reduction`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import compute_dtype, promote
from cuassay.arrays.rounding import narrowed
from cuassay.devices.cpu.elementwise import widened
from cuassay.ops import registry
from cuassay.ops.shapes import reduced_axes

__all__ = ["register"]

Array = NDArray[Any]


def sum(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Sum, pairwise where NumPy does so; the accumulator has `out`'s dtype, or float32 for 16-bit floats."""
    accumulator = compute_dtype(out.dtype)
    out[...] = np.sum(a, axis=_axes(axis), keepdims=bool(keepdims), dtype=accumulator).astype(out.dtype, copy=False)


def amax(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Compute the maximum; NaN wins."""
    wide = widened(a, compute_dtype(a.dtype))
    out[...] = np.max(wide, axis=_axes(axis), keepdims=bool(keepdims)).astype(out.dtype, copy=False)


def amin(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Compute the minimum; NaN wins."""
    wide = widened(a, compute_dtype(a.dtype))
    out[...] = np.min(wide, axis=_axes(axis), keepdims=bool(keepdims)).astype(out.dtype, copy=False)


def argmax(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Return the position of the first maximum; the first NaN wins."""
    wide = widened(a, compute_dtype(a.dtype))
    out[...] = np.argmax(wide, axis=axis, keepdims=bool(keepdims))


def prod(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Multiply in `out`'s dtype, or float32 for 16-bit floats."""
    accumulator = compute_dtype(out.dtype)
    out[...] = np.prod(a, axis=_axes(axis), keepdims=bool(keepdims), dtype=accumulator).astype(out.dtype, copy=False)


def mean(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Divide the sum by the number of elements."""
    axes = reduced_axes(axis, a.ndim)
    total = np.sum(a, axis=axes, keepdims=bool(keepdims), dtype=compute_dtype(out.dtype))
    out[...] = (total / total.dtype.type(_count(a, axes))).astype(out.dtype, copy=False)


def var(a: Array, *, axis: Any, correction: float, keepdims: bool, out: Array) -> None:
    """Compute the variance in two passes."""
    axes, wide = reduced_axes(axis, a.ndim), widened(a, compute_dtype(out.dtype))
    rest = wide - np.sum(wide, axis=axes, keepdims=True) / wide.dtype.type(_count(a, axes))
    total = np.sum(rest * rest, axis=axes, keepdims=bool(keepdims))
    out[...] = (total / total.dtype.type(max(_count(a, axes) - correction, 0))).astype(out.dtype, copy=False)


def cumsum(a: Array, *, axis: int, out: Array) -> None:
    """Compute prefix sums along `axis`, in `out`'s dtype, or float32 for 16-bit floats."""
    out[...] = np.cumsum(a, axis=axis, dtype=compute_dtype(out.dtype)).astype(out.dtype, copy=False)


def _below(a: Array, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Return `a` minus its maximum, the maximum, and the logarithm of the sum of the exponentials."""
    top = np.max(a, axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, a.dtype.type(0))
    rest = a - top
    return rest, top, np.log(np.sum(np.exp(rest), axis=axes, keepdims=True))


def logsumexp(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Compute ``log(sum(exp(a)))``, shifted by the maximum."""
    axes, wide = reduced_axes(axis, a.ndim), widened(a, compute_dtype(out.dtype))
    if not _count(a, axes):
        out[...] = -np.inf
        return
    _, top, logarithm = _below(wide, axes)
    out[...] = (top + logarithm).reshape(out.shape).astype(out.dtype, copy=False)


def log_softmax(a: Array, *, axis: int, dtype: object, out: Array) -> None:
    """Compute ``a - logsumexp(a)``, shifted by the maximum."""
    if not a.size:
        return
    wide = compute_dtype(promote(a.dtype, out.dtype))
    rest, _, logarithm = _below(widened(a, wide), reduced_axes(axis, a.ndim) if a.ndim else ())
    out[...] = narrowed(rest - logarithm, out.dtype)


def _count(a: Array, axes: tuple[int, ...]) -> int:
    """Return the number of elements that make one result."""
    return math.prod(a.shape[axis] for axis in axes)


def _axes(axis: Any) -> Any:
    """Return `axis` as NumPy accepts it: several axes must be a tuple."""
    return tuple(axis) if isinstance(axis, list) else axis


def register() -> None:
    """Add these implementations to the registry."""
    for implementation in (sum, amax, amin, argmax, prod, mean, var, cumsum, logsumexp, log_softmax):
        name = implementation.__name__
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
