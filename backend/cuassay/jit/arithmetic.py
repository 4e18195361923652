"""C's arithmetic on NumPy arrays: which type two operands meet in, and what each operator gives.

Integers wrap around. What C leaves undefined has a value here, so that lanes that are masked out can be computed too: a
division by an integer zero gives 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINARY", "as_type", "common_type", "promoted", "truth"]

Value = NDArray[Any]
DType = np.dtype[Any]

_INT32 = np.dtype(np.int32)


def promoted(dtype: DType) -> DType:
    """Types narrower than int become int."""
    return _INT32 if dtype.kind in "biu" and dtype.itemsize < 4 else dtype


def common_type(*dtypes: DType) -> DType:
    """The type in which operands of these types are computed: C's usual arithmetic conversions."""
    return reduce(_common, map(promoted, dtypes))


def _common(a: DType, b: DType) -> DType:
    floats = [dtype for dtype in (a, b) if dtype.kind == "f"]
    if floats:
        return max(floats, key=lambda dtype: dtype.itemsize)
    # Of two sizes the wider one; of one size the unsigned.
    return max(a, b, key=lambda dtype: (dtype.itemsize, dtype.kind == "u"))


def as_type(value: Value, dtype: DType) -> Value:
    """The value converted as C does: to bool by whether it is 0, to integers by cutting off."""
    return truth(value) if dtype.kind == "b" else value.astype(dtype, copy=False)


def truth(value: Value) -> Value:
    """Whether each element is not 0."""
    return value if value.dtype.kind == "b" else np.asarray(value != 0)


def _in_common(function: Callable[[Value, Value], Any]) -> Callable[[Value, Value], Value]:
    def compute(a: Value, b: Value) -> Value:
        dtype = common_type(a.dtype, b.dtype)
        return np.asarray(function(a.astype(dtype, copy=False), b.astype(dtype, copy=False)))

    return compute


def _quotient(a: Value, b: Value) -> Value:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, b.dtype.type(1), b)
    down: Value = a // safe  # towards minus infinity; C cuts off
    is_inexact = (down * safe != a) & ((a < 0) != (safe < 0))
    return np.asarray(np.where(b == 0, b.dtype.type(0), down + is_inexact.astype(a.dtype)))


def _remainder(a: Value, b: Value) -> Value:
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.asarray(np.where(b == 0, b.dtype.type(0), np.fmod(a, safe)))


def _shift(function: Callable[[Value, Value], Any]) -> Callable[[Value, Value], Value]:
    """The type is that of the left operand."""

    def compute(a: Value, b: Value) -> Value:
        left = a.astype(promoted(a.dtype), copy=False)
        return np.asarray(function(left, b.astype(left.dtype)))

    return compute


#: Operator to what it computes; ``&&``, ``||`` and ``?:`` are `run`'s, as they evaluate only what is asked for.
BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": _in_common(np.add),
    "-": _in_common(np.subtract),
    "*": _in_common(np.multiply),
    "/": _in_common(_quotient),
    "%": _in_common(_remainder),
    "&": _in_common(np.bitwise_and),
    "|": _in_common(np.bitwise_or),
    "^": _in_common(np.bitwise_xor),
    "<<": _shift(np.left_shift),
    ">>": _shift(np.right_shift),
    "<": _in_common(np.less),
    "<=": _in_common(np.less_equal),
    ">": _in_common(np.greater),
    ">=": _in_common(np.greater_equal),
    "==": _in_common(np.equal),
    "!=": _in_common(np.not_equal),
}
