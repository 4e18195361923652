"""The mathematical functions that a body may call, on NumPy arrays, with the overloads of ``<cmath>``.

A function of float32 is computed in float64 and rounded once, which is more accurate than C and CUDA guarantee; one of
complex64 in complex128. `OF_COMPLEX` names the functions that take complex numbers, as those of ``<complex>`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.special import erf
from cuassay.errors import DTypeError
from cuassay.jit.arithmetic import as_type, common_type, real_dtype

__all__ = ["CONSTANTS", "FUNCTIONS", "OF_COMPLEX", "MathFunction", "complex_of"]

Value = NDArray[Any]

_FLOAT32, _FLOAT64, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)
_COMPLEX128 = np.dtype(np.complex128)


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
    """Return a function of real numbers, or of complex ones if there is one among them."""

    def call(*values: Value) -> Value:
        if any(value.dtype.kind == "c" for value in values):
            dtype = common_type(*(value.dtype for value in values))
            return np.asarray(function(*(value.astype(_COMPLEX128) for value in values))).astype(dtype)
        return _in_float64(function, _real_type(*values), *values)

    return call


def _part(function: Callable[..., Any]) -> Callable[..., Value]:
    """Return a function whose result is real."""

    def call(value: Value) -> Value:
        is_complex = value.dtype.kind == "c"
        dtype = real_dtype(value.dtype) if is_complex else _real_type(value)
        return np.asarray(function(value.astype(_COMPLEX128 if is_complex else _FLOAT64))).astype(dtype)

    return call


def _absolute(value: Value) -> Value:
    return _part(np.abs)(value) if value.dtype.kind == "c" else _common(np.abs)(value)


def complex_of(real: Value, imaginary: Value) -> Value:
    """Return complex numbers of two parts, which have been converted to the type of the result."""
    if real.dtype.kind != "c":
        raise DTypeError(f"two values make a complex number, not one of {real.dtype}; call it with complex arrays")
    return np.asarray(real + imaginary.real * real.dtype.type(1j))


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
    "abs": MathFunction(1, _absolute),
    "arg": MathFunction(1, _part(np.angle)),
    "conj": MathFunction(1, _real(np.conj)),
    "imag": MathFunction(1, _part(np.imag)),
    "real": MathFunction(1, _part(np.real)),
    "max": MathFunction(2, _common(np.fmax)),
    "min": MathFunction(2, _common(np.fmin)),
}

#: The functions of complex numbers.
OF_COMPLEX = frozenset(
    (
        *("abs", "arg", "conj", "cos", "cosh", "exp", "imag", "log", "log10", "pow", "real", "sin", "sinh", "sqrt"),
        *("tan", "tanh"),
    )
)

#: The constants that ``<cmath>`` and CUDA define.
CONSTANTS: Mapping[str, Any] = {
    "INFINITY": np.float32(np.inf),
    "NAN": np.float32(np.nan),
    "M_PI": np.float64(np.pi),
    "M_E": np.float64(np.e),
    "M_SQRT2": np.float64(np.sqrt(2.0)),
    "FLT_MAX": np.finfo(np.float32).max,
    "FLT_EPSILON": np.finfo(np.float32).eps,
    "DBL_MAX": np.finfo(np.float64).max,
    "DBL_EPSILON": np.finfo(np.float64).eps,
    "INT_MAX": np.int32(np.iinfo(np.int32).max),
    "INT_MIN": np.int32(np.iinfo(np.int32).min),
}
