"""Row-wise normalizations on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.reduction`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import compute_dtype, promote
from cuassay.arrays.rounding import narrowed
from cuassay.devices.cpu.elementwise import widened
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]


def softmax(a: Array, *, axis: int, dtype: object, out: Array) -> None:
    """Compute softmax, shifted by the row's maximum, so that nothing overflows."""
    if not a.size:
        return
    x = widened(a, compute_dtype(promote(a.dtype, out.dtype)))
    with np.errstate(invalid="ignore"):  # a row of -inf is NaN by definition
        weights = np.exp(x - np.maximum.reduce(x, axis=axis, keepdims=True))
        out[...] = narrowed(weights / np.add.reduce(weights, axis=axis, keepdims=True), out.dtype)


def layer_norm(a: Array, weight: Array, bias: Array, *, eps: float, out: Array) -> None:
    """Normalize: the mean first, then the variance about it; unlike E[x^2] - E[x]^2 this does not cancel."""
    if not a.size:
        return
    wide = compute_dtype(out.dtype)
    centred = widened(a, wide) - _mean(a, wide)
    variance = _mean(np.square(centred), wide)
    normal = centred / np.sqrt(variance + wide.type(eps))
    out[...] = (normal * widened(weight, wide) + widened(bias, wide)).astype(out.dtype, copy=False)


def softmax_backward(grad: Array, result: Array, *, axis: int, out: Array) -> None:
    """Compute ``result * (grad - sum(grad * result))`` along `axis`."""
    wide = compute_dtype(out.dtype)
    g, y = widened(grad, wide), widened(result, wide)
    with np.errstate(invalid="ignore"):  # inf - inf of a gradient that overflowed
        out[...] = (y * (g - np.add.reduce(g * y, axis=axis, keepdims=True))).astype(out.dtype, copy=False)


def layer_norm_backward(grad: Array, a: Array, weight: Array, *, eps: float, out: Array) -> None:
    """Compute the gradient; mean and variance are computed again as in `layer_norm`."""
    if not a.size:
        return
    wide = compute_dtype(out.dtype)
    centred = widened(a, wide) - _mean(a, wide)
    deviation = np.sqrt(_mean(np.square(centred), wide) + wide.type(eps))
    weighted, normal = widened(grad, wide) * widened(weight, wide), centred / deviation
    with np.errstate(invalid="ignore"):
        found = weighted - _mean(weighted, wide)
        found -= normal * _mean(weighted * normal, wide)
        out[...] = (found / deviation).astype(out.dtype, copy=False)


def _mean(a: Array, wide: np.dtype[Any]) -> Array:
    """Return the mean along the last axis, which is kept; `numpy.mean` takes twice as long for a few rows."""
    total: Array = np.add.reduce(a, axis=-1, dtype=wide, keepdims=True)
    return np.true_divide(total, np.intp(a.shape[-1]), out=total, casting="unsafe")  # as in numpy.mean


def register() -> None:
    """Add these implementations to the registry."""
    table: dict[str, registry.Implementation] = {
        "softmax": softmax,
        "layer_norm": layer_norm,
        "softmax_backward": softmax_backward,
        "layer_norm_backward": layer_norm_backward,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
