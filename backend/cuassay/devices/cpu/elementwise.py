"""Elementwise operations and copies on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.elementwise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import ALL, compute_dtype, promote
from cuassay.arrays.rounding import narrowed
from cuassay.arrays.special import erf
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def widened(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return an operand in the dtype of the computation; Python numbers are returned unchanged."""
    return value.astype(dtype, copy=False) if isinstance(value, np.ndarray) else value


def _ufunc(function: Callable[..., Array]) -> Callable[..., None]:
    """Make an implementation from a NumPy ufunc: operands are widened, and the result is rounded once into `out`."""

    def run(*operands: Any, out: Array) -> None:
        wide = compute_dtype(out.dtype)
        if wide == out.dtype:
            function(*operands, out=out, dtype=wide)
        else:
            out[...] = function(*(widened(operand, wide) for operand in operands)).astype(out.dtype, copy=False)

    return run


def relu(a: Array, *, out: Array) -> None:
    """Compute ``max(a, 0)``."""
    wide = compute_dtype(out.dtype)
    out[...] = np.maximum(widened(a, wide), wide.type(0)).astype(out.dtype, copy=False)


def gelu(a: Array, *, approximate: str, out: Array) -> None:
    """Compute GELU by erf (``'none'``) or by tanh (``'tanh'``)."""
    x = widened(a, compute_dtype(out.dtype))
    if approximate == "none":
        gate = 1 + erf(x * x.dtype.type(_SQRT_HALF))
    elif approximate == "tanh":
        gate = 1 + np.tanh(x.dtype.type(_SQRT_2_OVER_PI) * (x + x.dtype.type(0.044715) * x * x * x))
    else:
        raise ArgumentError(f"gelu's approximate must be 'none' or 'tanh'; got {approximate!r}")
    out[...] = (x.dtype.type(0.5) * x * gate).astype(out.dtype, copy=False)


def _formula(function: Callable[..., Any]) -> Callable[..., None]:
    """Make an implementation from a function of arrays in the dtype of the computation."""

    def run(*operands: Any, out: Array) -> None:
        wide = compute_dtype(out.dtype)
        out[...] = function(*(widened(operand, wide) for operand in operands)).astype(out.dtype, copy=False)

    return run


def _sigmoid(x: Array) -> Any:
    """Use an exponential of a nonpositive number, which cannot overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (1 + small)


def _sign(x: Array) -> Any:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def clamp(a: Array, *, min: Any, max: Any, out: Array) -> None:  # noqa: A002  the op's names
    """Compute ``minimum(maximum(a, min), max)``; NaN wins."""
    wide = compute_dtype(out.dtype)
    found = widened(a, wide)
    for bound, function in ((min, np.maximum), (max, np.minimum)):
        found = found if bound is None else function(found, np.asarray(bound, wide))
    out[...] = found.astype(out.dtype, copy=False)


#: Beyond this both derivatives of GELU are 0 or 1 to float64's precision; the square of it does not overflow.
_FAR = 40.0


def gelu_backward(grad: Any, a: Any, *, approximate: str, out: Array) -> None:
    """Compute ``grad * (Phi(a) + a * Phi'(a))``, or the tanh form's derivative, in float64 because they cancel."""
    x = np.asarray(a).astype(np.float64)
    near = np.clip(x, -_FAR, _FAR)
    if approximate == "none":
        slope = 0.5 * (1 + erf(x * _SQRT_HALF)) + near * np.exp(-near * near / 2) / math.sqrt(2 * math.pi)
    elif approximate == "tanh":
        small = np.exp(-2 * _SQRT_2_OVER_PI * np.abs(near + 0.044715 * near**3))  # 1 - tanh^2 would cancel
        gate = np.where(near < 0, small, 1) / (1 + small)
        slope = gate + 2 * near * small / (1 + small) ** 2 * _SQRT_2_OVER_PI * (1 + 0.134145 * near * near)
    else:
        raise ArgumentError(f"gelu_backward's approximate must be 'none' or 'tanh'; got {approximate!r}")
    product = np.asarray(grad).astype(np.float64) * slope
    out[...] = product.astype(compute_dtype(out.dtype)).astype(out.dtype, copy=False)


def _comparison(function: Callable[..., Array]) -> Callable[..., None]:
    """Make an implementation from a NumPy comparison: operands of two dtypes are compared in the promoted one."""

    def run(a: Any, b: Any, *, out: Array) -> None:
        wide = compute_dtype(promote(*(getattr(operand, "dtype", operand) for operand in (a, b))))
        function(widened(a, wide), widened(b, wide), out=out)

    return run


def logical_not(a: Array, *, out: Array) -> None:
    """Write True where `a` is 0."""
    np.logical_not(widened(a, compute_dtype(a.dtype)), out=out)


def where(condition: Array, a: Any, b: Any, *, out: Array) -> None:
    """Select `a` where the condition holds, else `b`."""
    out[...] = np.where(condition, _rounded(a, out.dtype), _rounded(b, out.dtype))


def _rounded(value: Any, dtype: np.dtype[Any]) -> Array:
    return np.asarray(value).astype(dtype, copy=False) if isinstance(value, np.ndarray) else np.asarray(value, dtype)


def copy(a: Array, *, device: object, memory_format: object, out: Array) -> None:
    """Copy element by element; strides may differ."""
    out[...] = a


def pad(a: Array, *, widths: Sequence[Sequence[int]], value: float, out: Array) -> None:
    """Fill with `value`, and copy `a` inside."""
    out[...] = np.asarray(value, out.dtype)
    out[tuple(slice(before, before + extent) for (before, _), extent in zip(widths, a.shape, strict=True))] = a


def cast(a: Array, *, dtype: object, out: Array) -> None:
    """Cast element by element, rounding once."""
    with np.errstate(over="ignore"):
        out[...] = narrowed(a, out.dtype)


#: Ops that are a NumPy ufunc, a function of wide arrays, or a NumPy comparison.
_UFUNCS: dict[str, Callable[..., Array]] = {
    "add": np.add, "mul": np.multiply, "sub": np.subtract, "div": np.divide, "pow": np.power, "maximum": np.maximum,
    "minimum": np.minimum, "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "reciprocal": np.reciprocal,
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip
_FORMULAS: dict[str, Callable[..., Any]] = {
    "sign": _sign,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": erf,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
}
_COMPARISONS: dict[str, Callable[..., Array]] = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}  # fmt: skip


def register() -> None:
    """Add these implementations to the registry."""
    table: dict[str, registry.Implementation] = {
        **{name: _ufunc(function) for name, function in _UFUNCS.items()},
        **{name: _formula(function) for name, function in _FORMULAS.items()},
        **{name: _comparison(function) for name, function in _COMPARISONS.items()},
        "logical_not": logical_not,
        "relu": relu,
        "clamp": clamp,
        "gelu": gelu,
        "gelu_backward": gelu_backward,
        "where": where,
        "pad": pad,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
    registry.implement("copy", kind="cpu", dtypes=ALL)(copy)
    registry.implement("cast", kind="cpu", dtypes=registry.op("cast").schema.dtypes)(cast)
