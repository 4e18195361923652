"""Comparisons, logical operations and `where` on CuPy arrays of any strides, by cuassay's own kernels.

Kernels: kernels/elementwise.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.comparison`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import compute_dtype, promote
from cuassay.devices.cuda.driver.cupy_private import in_one_order
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.elementwise import c_name, launch_strided, layout_of_strides, packed
from cuassay.devices.cuda.ops.layouts import pack_length
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

_BLOCK = 256

#: Each has a struct with its name in elementwise.cu: ``less_equal`` is ``LessEqual``.
_COMPARISONS = (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip

#: The struct that gives the same result for exchanged operands, if it is another one.
_EXCHANGED = {"Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual"}


@alignment.on_aligned
def _compare(a: Any, b: Any, *, out: Array, functor: str) -> None:
    """Compare; a Python number is compared in the dtype that the kernel computes in."""
    if not out.size:
        return
    wide = compute_dtype(promote(*(getattr(operand, "dtype", operand) for operand in (a, b))))
    if not isinstance(b, cupy.ndarray):
        _compare_number(a, np.asarray(b, wide)[()], out, functor)  # OverflowError if an integer does not fit
    elif not isinstance(a, cupy.ndarray):
        _compare_number(b, np.asarray(a, wide)[()], out, _EXCHANGED.get(functor, functor))
    elif a.dtype == b.dtype and _is_dense(a, b, out):
        length = pack_length((a, b, out))
        launched = kernel("elementwise.cu", f"dense_comparison<{functor}, {c_name(a.dtype)}, {length}>")
        launched(-(-out.size // (_BLOCK * length)), _BLOCK, (a, b, out, out.size))
    else:
        names = ", ".join(map(c_name, (wide, a.dtype, b.dtype)))
        launch_strided(f"strided_comparison<{functor}, {names}>", (a, b, out), layout_of_strides(out, a, b))


def _compare_number(a: Array, number: Any, out: Array, functor: str) -> None:
    names = f"{functor}, {c_name(number.dtype)}, {c_name(a.dtype)}"
    if _is_dense(a, out):
        length = pack_length((a, out))
        launched = kernel("elementwise.cu", f"dense_comparison_scalar<{names}, {length}>")
        launched(-(-out.size // (_BLOCK * length)), _BLOCK, (a, number, out, out.size))
    else:
        launch_strided(f"strided_comparison_scalar<{names}>", (a, number, out), layout_of_strides(out, a))


def _is_dense(*arrays: Array) -> bool:
    """Whether the arrays are contiguous in one order and of the same size.

    Their shapes then differ only in leading axes of extent 1.
    """
    return all(array.size == arrays[0].size for array in arrays) and in_one_order(*arrays)


def logical_not(a: Array, *, out: Array) -> None:
    """Write whether `a` equals 0, which NaN does not."""
    _compare(a, 0, out=out, functor="Equal")


@alignment.on_aligned
def where(condition: Array, a: Any, b: Any, *, out: Array) -> None:
    """Select `a` where the condition holds, else `b`, by copying bits in the dtype of `out`."""
    if not out.size:
        return
    bits = np.dtype(f"uint{8 * out.dtype.itemsize}")
    (left, number_left), (right, number_right) = (_array_or_number(operand, out.dtype, bits) for operand in (a, b))
    arguments = (condition, left, right, number_left, number_right, out)
    arrays = [array for array in (condition, left, right) if isinstance(array, cupy.ndarray)]
    if _is_dense(out, *arrays):
        length = pack_length((out, *arrays))
        launched = kernel("elementwise.cu", f"dense_where<{c_name(bits)}, {length}>")
        launched(-(-out.size // (_BLOCK * length)), _BLOCK, (*arguments, out.size))
    else:
        placed = [array if isinstance(array, cupy.ndarray) else condition for array in (condition, left, right)]
        layout = layout_of_strides(out, *placed)
        length = packed(layout, (out, *placed))
        name = f"packed_where<{c_name(bits)}, {length}>" if length > 1 else f"strided_where<{c_name(bits)}>"
        launch_strided(name, arguments, layout)


def _array_or_number(operand: Any, dtype: np.dtype[Any], bits: np.dtype[Any]) -> tuple[Any, Any]:
    """Return an array of `dtype` and 0, or a null pointer and the bits of a number in `dtype`."""
    if isinstance(operand, cupy.ndarray):
        return operand.astype(dtype, copy=False), bits.type(0)
    return 0, np.asarray(operand, dtype).reshape(1).view(bits)[0]  # OverflowError if an integer does not fit


def register() -> None:
    """Add these implementations to the registry."""
    named = {name: name.title().replace("_", "") for name in _COMPARISONS}
    table: dict[str, Callable[..., None]] = {
        **{name: partial(_compare, functor=functor) for name, functor in named.items()},
        "logical_not": logical_not,
        "where": where,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
