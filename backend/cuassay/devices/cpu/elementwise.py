"""Elementwise operations and copies on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.elementwise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import ALL, compute_dtype
from cuassay.arrays.rounding import narrowed
from cuassay.arrays.special import erf
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def widened(value: Any, dtype: np.dtype[Any]) -> Any:
    """An operand in the dtype it is computed in; Python numbers stay as they are."""
    return value.astype(dtype, copy=False) if isinstance(value, np.ndarray) else value


def _ufunc(function: Callable[..., Array]) -> Callable[..., None]:
    """An implementation from a NumPy ufunc: operands widened, result rounded once into `out`."""

    def run(*operands: Any, out: Array) -> None:
        wide = compute_dtype(out.dtype)
        if wide == out.dtype:
            function(*operands, out=out, dtype=wide)
        else:
            out[...] = function(*(widened(operand, wide) for operand in operands)).astype(out.dtype, copy=False)

    return run


def relu(a: Array, *, out: Array) -> None:
    """``max(a, 0)``."""
    wide = compute_dtype(out.dtype)
    out[...] = np.maximum(widened(a, wide), wide.type(0)).astype(out.dtype, copy=False)


def gelu(a: Array, *, approximate: str, out: Array) -> None:
    """GELU by erf (``'none'``) or by tanh (``'tanh'``)."""
    x = widened(a, compute_dtype(out.dtype))
    if approximate == "none":
        gate = 1 + erf(x * x.dtype.type(_SQRT_HALF))
    elif approximate == "tanh":
        gate = 1 + np.tanh(x.dtype.type(_SQRT_2_OVER_PI) * (x + x.dtype.type(0.044715) * x * x * x))
    else:
        raise ArgumentError(f"gelu's approximate must be 'none' or 'tanh'; got {approximate!r}")
    out[...] = (x.dtype.type(0.5) * x * gate).astype(out.dtype, copy=False)


def copy(a: Array, *, device: object, out: Array) -> None:
    """Element by element; strides may differ."""
    out[...] = a


def cast(a: Array, *, dtype: object, out: Array) -> None:
    """Element by element, rounded once."""
    with np.errstate(over="ignore"):
        out[...] = narrowed(a, out.dtype)


def register() -> None:
    """Enter these into the registry."""
    table: dict[str, registry.Implementation] = {
        "add": _ufunc(np.add),
        "mul": _ufunc(np.multiply),
        "exp": _ufunc(np.exp),
        "relu": relu,
        "gelu": gelu,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
    registry.implement("copy", kind="cpu", dtypes=ALL)(copy)
    registry.implement("cast", kind="cpu", dtypes=registry.op("cast").schema.dtypes)(cast)
