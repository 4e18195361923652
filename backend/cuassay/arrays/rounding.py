"""What a narrower format does to a float32 number, for references and simulation.

All round to nearest, ties to even. Tensor cores take float32 operands of TF32 products by their upper 19 bits;
cuBLAS rounds them to nearest first, which is what `round_tf32` imitates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import FP8, as_dtype, dtype_name, largest
from cuassay.errors import ArgumentError, DTypeError

__all__ = ["round_tf32", "round_to", "split"]

Float32 = NDArray[np.float32]

_TF32_DROPPED_BITS = 13


def round_tf32(x: NDArray[Any]) -> Float32:
    """`x` (float32) with a mantissa of 10 explicit bits; NaN and infinities as they are, overflow to infinity.

    Raises
    ------
    DTypeError
        If `x` is not float32.
    """
    x = np.asarray(x)
    if x.dtype != np.float32:
        raise DTypeError(f"round_tf32 takes float32; got {x.dtype}; cast first")
    bits = x.view(np.uint32)
    half = np.uint32((1 << (_TF32_DROPPED_BITS - 1)) - 1)
    odd = (bits >> np.uint32(_TF32_DROPPED_BITS)) & np.uint32(1)
    kept = np.uint32(0xFFFFFFFF << _TF32_DROPPED_BITS & 0xFFFFFFFF)
    rounded = ((bits + half + odd) & kept).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def round_to(x: NDArray[Any], dtype: Any, *, saturate: bool = False) -> Float32:
    """`x` (float32) as `dtype` would hold it, back in float32.

    Parameters
    ----------
    saturate : bool
        Finite numbers too large become the largest finite one (as fp8 conversions on the device do) instead of
        what the format has for overflow: infinity, or NaN in float8_e4m3fn.
    """
    target = as_dtype(dtype)
    wide = np.asarray(x, dtype=np.float32)
    if saturate:
        limit = np.float32(largest(target))
        wide = np.where(np.isfinite(wide), np.clip(wide, -limit, limit), wide)
    with np.errstate(over="ignore"):
        return wide.astype(target).astype(np.float32)


def split(x: NDArray[Any], dtype: str, parts: int) -> tuple[Float32, ...]:
    """`x` (float32) as a sum of `parts` numbers that `dtype` (``bfloat16`` or ``tf32``) holds exactly, largest first.

    Three bfloat16 parts hold every bit of a float32 that is not near the ends of its range.

    Raises
    ------
    ArgumentError
        If `dtype` is another, or `parts` is not positive.
    """
    if parts < 1 or (dtype != "tf32" and dtype_name(dtype) in FP8):
        raise ArgumentError(f"cannot split into {parts} parts of {dtype!r}; give one or more of 'bfloat16' or 'tf32'")
    rest = np.asarray(x, dtype=np.float32)
    found: list[Float32] = []
    for _ in range(parts):
        part = round_tf32(rest) if dtype == "tf32" else round_to(rest, dtype)
        found.append(part)
        with np.errstate(invalid="ignore"):
            rest = np.where(np.isfinite(part), rest - part, np.float32(0))
    return tuple(found)
