"""`equal`, `less_equal` and `where` on CuPy arrays of any strides, by kernels of our own.

Kernels: kernels/elementwise.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.comparison`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import compute_dtype, promote
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.elementwise import c_name, launch_strided, layout_of_strides
from cuassay.ops import registry

__all__ = ["register"]

Array = Any


@alignment.on_aligned
def _compare(a: Any, b: Any, *, out: Array, functor: str) -> None:
    """A Python number is compared in the dtype that the kernel computes in, as an array without axes."""
    if not out.size:
        return
    wide = compute_dtype(promote(*(getattr(operand, "dtype", operand) for operand in (a, b))))
    left, right = (_as_array(operand, wide) for operand in (a, b))
    names = ", ".join(map(c_name, (wide, left.dtype, right.dtype)))
    launch_strided(f"strided_comparison<{functor}, {names}>", (left, right, out), layout_of_strides(out, left, right))


def _as_array(operand: Any, dtype: np.dtype[Any]) -> Array:
    if isinstance(operand, cupy.ndarray):
        return operand
    return cupy.full((), np.asarray(operand, dtype)[()], dtype)  # OverflowError where an integer does not fit


@alignment.on_aligned
def where(condition: Array, a: Any, b: Any, *, out: Array) -> None:
    """`a` where the condition holds, else `b`: the bits of either in the dtype of `out`."""
    if not out.size:
        return
    bits = np.dtype(f"uint{8 * out.dtype.itemsize}")
    left, right = (_as_array(operand, out.dtype).astype(out.dtype, copy=False) for operand in (a, b))
    launch_strided(
        f"strided_where<{c_name(bits)}>",
        (condition, left, right, out),
        layout_of_strides(out, condition, left, right),
    )


def register() -> None:
    """Enter these into the registry."""
    table: dict[str, Callable[..., None]] = {
        "equal": partial(_compare, functor="Equal"),
        "less_equal": partial(_compare, functor="LessEqual"),
        "where": where,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
