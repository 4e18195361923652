"""Reductions and row-wise normalizations on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.reduction`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import compute_dtype
from cuassay.devices.cpu.elementwise import widened
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]


def sum(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """Pairwise where NumPy is; the accumulator is `out`'s dtype, float32 for 16-bit floats."""
    accumulator = compute_dtype(out.dtype)
    out[...] = np.sum(a, axis=_axes(axis), keepdims=bool(keepdims), dtype=accumulator).astype(out.dtype, copy=False)


def amax(a: Array, *, axis: Any, keepdims: bool, out: Array) -> None:
    """The maximum; NaN wins."""
    wide = widened(a, compute_dtype(a.dtype))
    out[...] = np.max(wide, axis=_axes(axis), keepdims=bool(keepdims)).astype(out.dtype, copy=False)


def _axes(axis: Any) -> Any:
    """`axis` as NumPy takes it: several axes must be a tuple."""
    return tuple(axis) if isinstance(axis, list) else axis


def softmax(a: Array, *, axis: int, out: Array) -> None:
    """Shifted by the row's maximum, so that nothing overflows."""
    if not a.size:
        return
    x = widened(a, compute_dtype(a.dtype))
    with np.errstate(invalid="ignore"):  # a row of -inf is NaN by definition
        weights = np.exp(x - np.max(x, axis=axis, keepdims=True))
        out[...] = (weights / np.sum(weights, axis=axis, keepdims=True)).astype(out.dtype, copy=False)


def layer_norm(a: Array, weight: Array, bias: Array, *, eps: float, out: Array) -> None:
    """Mean first, then the variance about it: no cancellation, unlike E[x^2] - E[x]^2."""
    if not a.size:
        return
    wide = compute_dtype(out.dtype)
    centred = widened(a, wide) - np.mean(a, axis=-1, keepdims=True, dtype=wide)
    variance = np.mean(np.square(centred), axis=-1, keepdims=True)
    normal = centred / np.sqrt(variance + wide.type(eps))
    out[...] = (normal * widened(weight, wide) + widened(bias, wide)).astype(out.dtype, copy=False)


def register() -> None:
    """Enter these into the registry."""
    table: dict[str, registry.Implementation] = {"sum": sum, "amax": amax, "softmax": softmax, "layer_norm": layer_norm}
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
