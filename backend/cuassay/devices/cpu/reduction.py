"""Reductions on NumPy arrays.

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


def register() -> None:
    """Enter these into the registry."""
    table: dict[str, registry.Implementation] = {"sum": sum, "amax": amax}
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
