"""Row-wise normalizations on NumPy arrays.

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
    table: dict[str, registry.Implementation] = {"softmax": softmax, "layer_norm": layer_norm}
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
