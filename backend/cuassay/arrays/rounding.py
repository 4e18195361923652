"""Round float32 numbers to narrower formats, for references and simulation.

All functions round to nearest, ties to even. The tensor core reads only the upper 19 bits of a TF32 operand, so a
product of unrounded float32 operands truncates them. cuBLAS rounds first: on an H200 the error of its TF32 products of
normal data is 2.9e-4 (relative, Frobenius norm), as with `round_tf32`, while truncation gives 7.7e-4. Random data does
not show how it rounds ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import FLOATS, FP8, as_dtype, dtype_name, is_float, largest
from cuassay.errors import ArgumentError, DTypeError

__all__ = ["narrowed", "round_tf32", "round_to", "split"]

Float32 = NDArray[np.float32]

_TF32_DROPPED_BITS = 13
_LARGEST_TF32 = (2.0 - 2.0**-10) * 2.0**127


def round_tf32(x: NDArray[Any]) -> Float32:
    """Round `x` (float32) to a mantissa of 10 explicit bits. NaN and infinities are kept; overflow gives infinity.

    Raises
    ------
    DTypeError
        If `x` is not float32.
    """
    x = _float32(x)
    bits = x.view(np.uint32)
    half = np.uint32((1 << (_TF32_DROPPED_BITS - 1)) - 1)
    odd = (bits >> np.uint32(_TF32_DROPPED_BITS)) & np.uint32(1)
    kept = np.uint32(0xFFFFFFFF << _TF32_DROPPED_BITS & 0xFFFFFFFF)
    rounded = ((bits + half + odd) & kept).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def _float32(x: NDArray[Any]) -> Float32:
    # A wider number would be rounded twice, which can differ from rounding once.
    found = np.asarray(x)
    if found.dtype != np.float32:
        raise DTypeError(f"rounding starts from float32; got {found.dtype}; cast first")
    return found


def round_to(x: NDArray[Any], dtype: Any, *, saturate: bool = False) -> Float32:
    """Round `x` (float32) to `dtype`, and return the result in float32.

    Parameters
    ----------
    x : array
        The numbers.
    dtype : dtype
        The format to round to.
    saturate : bool
        Whether numbers that are too large, including infinity, become the largest finite number (the device's
        ``satfinite``). Otherwise they overflow to infinity, or to NaN in float8_e4m3fn. NaN stays NaN.

    Raises
    ------
    DTypeError
        If `x` is not float32, or `dtype` is not a real floating-point dtype.
    """
    target = as_dtype(dtype)
    if not is_float(target):
        raise DTypeError(f"{dtype_name(target)} is not a format to round to; give one of {', '.join((*FP8, *FLOATS))}")
    wide = _float32(x)
    if saturate and largest(target) < largest(np.float32):
        limit = np.float32(largest(target))
        wide = np.clip(wide, -limit, limit)
    with np.errstate(over="ignore"):
        return wide.astype(target).astype(np.float32)


def narrowed(x: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Convert `x` to `dtype` with a single rounding.

    ml_dtypes converts float64 to its formats by way of float32, which rounds twice. Here the intermediate float32 is
    rounded to odd, which makes the result correct if it has at least two more bits than the target: S. Boldo and G.
    Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Transactions on Computers 57 (2008). It has 13 more
    bits than the widest of the formats.
    """
    target = as_dtype(dtype)
    if x.dtype != np.float64 or target.itemsize > 2 or target == np.float16:
        return x.astype(target, copy=False)
    nearest = x.astype(np.float32)
    wide, bits = nearest.astype(np.float64), nearest.view(np.uint32)
    towards_zero = bits - (np.abs(wide) > np.abs(x))
    odd = np.where(wide == x, bits, towards_zero | 1).astype(np.uint32)
    return np.where(np.isnan(x), nearest, odd.view(np.float32)).astype(target)


def split(x: NDArray[Any], dtype: str, parts: int) -> tuple[Float32, ...]:
    """Split `x` (float32) into a sum of `parts` numbers that are exact in `dtype` (``bfloat16`` or ``tf32``).

    The largest part comes first. Three bfloat16 parts represent a float32 exactly, and two TF32 parts do so except for
    the last bit, unless it has bits below the smallest of `dtype`: 2**-133 for bfloat16. A part that would round to
    infinity is truncated instead, and the next part holds the rest. For infinity and NaN the further parts are 0.

    Raises
    ------
    DTypeError
        If `x` is not float32.
    ArgumentError
        If `dtype` is another format, or `parts` is not positive.
    """
    if parts < 1 or dtype not in ("bfloat16", "tf32"):
        raise ArgumentError(f"cannot split into {parts} parts of {dtype!r}; give one or more of 'bfloat16' or 'tf32'")
    rest = _float32(x)
    found: list[Float32] = []
    for _ in range(parts):
        part = _leading(rest, dtype)
        found.append(part)
        with np.errstate(invalid="ignore"):
            rest = np.where(np.isfinite(part), rest - part, np.float32(0))
    return tuple(found)


def _leading(x: Float32, dtype: str) -> Float32:
    rounded = round_tf32(x) if dtype == "tf32" else round_to(x, dtype)
    largest_part = np.float32(_LARGEST_TF32 if dtype == "tf32" else largest(dtype))
    return np.where(np.isinf(rounded) & np.isfinite(x), np.copysign(largest_part, x), rounded)
