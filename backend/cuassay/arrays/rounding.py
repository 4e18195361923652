"""What a narrower format does to a float32 number, for references and simulation.

All round to nearest, ties to even. Of a TF32 operand the tensor core reads the upper 19 bits and ignores the rest, so
a product of raw float32 operands truncates. cuBLAS rounds them first: on an H200 its TF32 products of normal data are
off by 2.9e-4 (relative, Frobenius norm), where `round_tf32` gives 2.9e-4 and truncation 7.7e-4. Which way it
takes ties, random data does not show.
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
    """`x` (float32) with a mantissa of 10 explicit bits; NaN and infinities as they are, overflow to infinity.

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
    # A wider number would be rounded twice, which is not the same as once.
    found = np.asarray(x)
    if found.dtype != np.float32:
        raise DTypeError(f"rounding starts from float32; got {found.dtype}; cast first")
    return found


def round_to(x: NDArray[Any], dtype: Any, *, saturate: bool = False) -> Float32:
    """`x` (float32) as `dtype` would hold it, back in float32.

    Parameters
    ----------
    saturate : bool
        What is too large, infinity included, becomes the largest finite number (the device's ``satfinite``) instead of
        what the format has for overflow: infinity, or NaN in float8_e4m3fn. NaN stays NaN.

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
    """`x` in `dtype`, rounded once: ml_dtypes takes float64 to its formats by way of float32, which rounds twice.

    That float32 is rounded to odd here. It has 13 bits more than the widest of those formats, and two suffice: S. Boldo
    and G. Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Transactions on Computers 57 (2008).
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
    """`x` (float32) as a sum of `parts` numbers that `dtype` (``bfloat16`` or ``tf32``) holds exactly, largest first.

    Three bfloat16 parts, or two TF32 ones but for the last bit, hold a float32 whole, unless it has bits below what
    `dtype` holds: 2**-133 for bfloat16. What would round to infinity is truncated instead, and the next part has the
    rest. Of an infinity or NaN the further parts are 0.

    Raises
    ------
    DTypeError
        If `x` is not float32.
    ArgumentError
        If `dtype` is another, or `parts` is not positive.
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
