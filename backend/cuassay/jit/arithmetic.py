"""C's arithmetic on NumPy arrays: the common type of two operands, and the result of each operator.

Complex numbers are computed by NumPy's formulas, for which a real operand becomes a complex number. Integers wrap
around. Operations that are undefined in C have a value here, because masked-out elements are also computed: an integer
division by zero gives 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINARY", "as_type", "common_type", "constant", "promoted", "real_dtype", "truth"]

Value = NDArray[Any]
DType = np.dtype[Any]

_INT32 = np.dtype(np.int32)
_COMPLEX: tuple[DType, ...] = (np.dtype(np.complex64), np.dtype(np.complex128))
_REAL: tuple[DType, ...] = (np.dtype(np.float32), np.dtype(np.float64))


def promoted(dtype: DType) -> DType:
    """Promote integer types narrower than int to int."""
    return _INT32 if dtype.kind in "biu" and dtype.itemsize < 4 else dtype


def common_type(*dtypes: DType) -> DType:
    """Return the type in which operands of these types are computed, by C's usual arithmetic conversions."""
    return reduce(_common, map(promoted, dtypes))


def real_dtype(dtype: DType) -> DType:
    """Return the type of the parts of a complex type; any other type is returned as it is."""
    return _REAL[_COMPLEX.index(dtype)] if dtype.kind == "c" else dtype


def _common(a: DType, b: DType) -> DType:
    if "c" in (a.kind, b.kind):  # the parts meet as real numbers do
        return _COMPLEX[_common(real_dtype(a), real_dtype(b)).itemsize > 4]
    floats = [dtype for dtype in (a, b) if dtype.kind == "f"]
    if floats:
        return max(floats, key=lambda dtype: dtype.itemsize)
    # The wider type; for equal sizes the unsigned one.
    return max(a, b, key=lambda dtype: (dtype.itemsize, dtype.kind == "u"))


def as_type(value: Value, dtype: DType) -> Value:
    """Convert a value as C does: to bool by comparing with 0, to integers by truncation."""
    return truth(value) if dtype.kind == "b" else value.astype(dtype, copy=False)


def truth(value: Value) -> Value:
    """Return whether each element is not 0."""
    return value if value.dtype.kind == "b" else np.asarray(value != 0)


def constant(text: str, kind: str) -> Value:
    """Return the value of a literal, whose kind is C's name of its type, as pycparser gives it."""
    if kind in ("float", "double"):
        return np.asarray(float(text.rstrip("fFlL")), np.float32 if kind == "float" else np.float64)
    text = text.rstrip("uUlL")
    is_octal = text.isdigit() and text.startswith("0")
    whole = int(text, 8 if is_octal else 0)
    return np.asarray(whole, _integer_type(whole, kind))


def _integer_type(number: int, suffix: str) -> DType:
    """Return the first of C's types that can represent the constant."""
    unsigned = "unsigned" in suffix
    narrow, wide = (np.uint32, np.uint64) if unsigned else (np.int32, np.int64)
    is_narrow = "long" not in suffix and number <= np.iinfo(narrow).max
    return np.dtype(narrow if is_narrow else wide if number <= np.iinfo(wide).max else np.uint64)


def _in_common(function: Callable[[Value, Value], Any]) -> Callable[[Value, Value], Value]:
    def compute(a: Value, b: Value) -> Value:
        dtype = common_type(a.dtype, b.dtype)
        return np.asarray(function(a.astype(dtype, copy=False), b.astype(dtype, copy=False)))

    return compute


def _quotient(a: Value, b: Value) -> Value:
    if a.dtype.kind in "fc":
        return np.asarray(a / b)
    safe = np.where(b == 0, b.dtype.type(1), b)
    down: Value = a // safe  # rounds towards minus infinity, while C truncates
    is_inexact = (down * safe != a) & ((a < 0) != (safe < 0))
    return np.asarray(np.where(b == 0, b.dtype.type(0), down + is_inexact.astype(a.dtype)))


def _remainder(a: Value, b: Value) -> Value:
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.asarray(np.where(b == 0, b.dtype.type(0), np.fmod(a, safe)))


def _shift(function: Callable[[Value, Value], Any]) -> Callable[[Value, Value], Value]:
    """Return a shift whose result has the type of the left operand."""

    def compute(a: Value, b: Value) -> Value:
        left = a.astype(promoted(a.dtype), copy=False)
        return np.asarray(function(left, b.astype(left.dtype)))

    return compute


#: From an operator to its function. `run` handles ``&&``, ``||`` and ``?:``, which do not evaluate all operands.
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
