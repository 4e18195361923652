"""Comparisons, logical operations and `where` on CuPy arrays of any strides, by kernels of our own.

Kernels: kernels/elementwise.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.comparison`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import compute_dtype, promote
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.elementwise import c_name, launch_strided, layout_of_strides, pack_length
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

_BLOCK = 256

#: Each has a struct of its name in elementwise.cu: ``less_equal`` is ``LessEqual``.
_COMPARISONS = (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


@alignment.on_aligned
def _compare(a: Any, b: Any, *, out: Array, functor: str) -> None:
    """A Python number is compared in the dtype that the kernel computes in, as an array without axes."""
    if not out.size:
        return
    wide = compute_dtype(promote(*(getattr(operand, "dtype", operand) for operand in (a, b))))
    left, right = (_as_array(operand, wide) for operand in (a, b))
    if _is_dense(left, right, out):
        length = pack_length((left, right, out))
        launched = kernel("elementwise.cu", f"dense_comparison<{functor}, {c_name(left.dtype)}, {length}>")
        launched(-(-out.size // (_BLOCK * length)), _BLOCK, (left, right, out, out.size))
        return
    names = ", ".join(map(c_name, (wide, left.dtype, right.dtype)))
    launch_strided(f"strided_comparison<{functor}, {names}>", (left, right, out), layout_of_strides(out, left, right))


def _is_dense(left: Array, right: Array, out: Array) -> bool:
    """Whether the kernel for contiguous arrays of one dtype and size serves them."""
    alike = left.dtype == right.dtype and left.size == right.size == out.size
    return alike and all(map(is_c_contiguous, (left, right, out)))


def logical_not(a: Array, *, out: Array) -> None:
    """Whether `a` equals 0, which NaN does not."""
    _compare(a, 0, out=out, functor="Equal")


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
    named = {name: name.title().replace("_", "") for name in _COMPARISONS}
    table: dict[str, Callable[..., None]] = {
        **{name: partial(_compare, functor=functor) for name, functor in named.items()},
        "logical_not": logical_not,
        "where": where,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
