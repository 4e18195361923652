"""The mathematical functions that a body may call, on NumPy arrays, with the overloads of ``<cmath>``.

A function of float32 is computed in float64 and rounded once, which is more accurate than C and CUDA guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.special import erf
from cuassay.jit.arithmetic import as_type, common_type

__all__ = ["FUNCTIONS", "MathFunction"]

Value = NDArray[Any]

_FLOAT32, _FLOAT64, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A function: its number of arguments, and its implementation."""

    arguments: int
    call: Callable[..., Value]


def _real_type(*values: Value) -> np.dtype[Any]:
    """Return float32 if all arguments are float32, else float64. An integer counts as float64, as in ``<cmath>``."""
    return _FLOAT32 if all(value.dtype == _FLOAT32 for value in values) else _FLOAT64


def _in_float64(function: Callable[..., Any], dtype: np.dtype[Any], *values: Value) -> Value:
    return np.asarray(function(*(value.astype(_FLOAT64) for value in values))).astype(dtype)


def _real(function: Callable[..., Any]) -> Callable[..., Value]:
    return lambda *values: _in_float64(function, _real_type(*values), *values)


def _single(function: Callable[..., Any]) -> Callable[..., Value]:
    """Return the form with the suffix ``f``, whose arguments and result are float32."""
    return lambda *values: _in_float64(function, _FLOAT32, *(as_type(value, _FLOAT32) for value in values))


def _test(function: Callable[[Any], Any]) -> Callable[..., Value]:
    return lambda value: np.asarray(function(value.astype(_FLOAT64))).astype(_BOOL)


def _common(function: Callable[..., Any]) -> Callable[..., Value]:
    """Return a function that computes in the common type of its arguments, so that integers stay integers."""

    def call(*values: Value) -> Value:
        dtype = common_type(*(value.dtype for value in values))
        return np.asarray(function(*(as_type(value, dtype) for value in values))).astype(dtype)

    return call


def _rounded(x: Value) -> Value:
    """Round to the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    away = np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0)
    return np.asarray(np.copysign(whole + away, x))  # keeps infinities, and the sign of zeros


def _positive_difference(a: Value, b: Value) -> Value:
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a > b, a - b, 0.0))


def _product_plus(a: Value, b: Value, c: Value) -> Value:
    """Return ``a * b + c``, rounded once for float32. For float64 it is computed in the machine's widest type."""
    return np.asarray(a.astype(np.longdouble) * b + c)


#: From a name to the number of arguments and the NumPy function, which computes in float64.
_REAL: dict[str, tuple[int, Callable[..., Any]]] = {
    "acos": (1, np.arccos), "acosh": (1, np.arccosh), "asin": (1, np.arcsin), "asinh": (1, np.arcsinh),
    "atan": (1, np.arctan), "atan2": (2, np.arctan2), "atanh": (1, np.arctanh), "cbrt": (1, np.cbrt),
    "ceil": (1, np.ceil), "copysign": (2, np.copysign), "cos": (1, np.cos), "cosh": (1, np.cosh), "erf": (1, erf),
    "exp": (1, np.exp), "exp2": (1, np.exp2), "expm1": (1, np.expm1), "fabs": (1, np.abs),
    "fdim": (2, _positive_difference), "floor": (1, np.floor),
    "fma": (3, _product_plus), "fmax": (2, np.fmax), "fmin": (2, np.fmin), "fmod": (2, np.fmod),
    "hypot": (2, np.hypot), "log": (1, np.log), "log10": (1, np.log10), "log1p": (1, np.log1p), "log2": (1, np.log2),
    "nearbyint": (1, np.rint), "pow": (2, np.power), "rint": (1, np.rint), "round": (1, _rounded),
    "rsqrt": (1, lambda x: 1.0 / np.sqrt(x)), "sin": (1, np.sin), "sinh": (1, np.sinh), "sqrt": (1, np.sqrt),
    "tan": (1, np.tan), "tanh": (1, np.tanh), "trunc": (1, np.trunc),
}  # fmt: skip

#: All functions, by the name that a body uses.
FUNCTIONS: dict[str, MathFunction] = {
    **{name: MathFunction(arguments, _real(function)) for name, (arguments, function) in _REAL.items()},
    **{f"{name}f": MathFunction(arguments, _single(function)) for name, (arguments, function) in _REAL.items()},
    "isfinite": MathFunction(1, _test(np.isfinite)),
    "isinf": MathFunction(1, _test(np.isinf)),
    "isnan": MathFunction(1, _test(np.isnan)),
    "signbit": MathFunction(1, _test(np.signbit)),
    "abs": MathFunction(1, _common(np.abs)),
    "max": MathFunction(2, _common(np.fmax)),
    "min": MathFunction(2, _common(np.fmin)),
}
