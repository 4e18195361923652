"""Dtypes by name, their properties, and their promotion by NumPy 2's rules and a table for the other dtypes.

NumPy promotes its own dtypes. `_CHOSEN` defines the rest: bfloat16 promotes with integers as float16 does, float16
with bfloat16 gives float32 because neither can represent the other, and fp8 promotes only with itself.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import ml_dtypes
import numpy as np

from cuassay.core.capability import DTYPE_NAMES, FEATURES, unknown_dtype
from cuassay.errors import DTypeError

__all__ = [
    "ALL",
    "BOOL",
    "COMPLEX",
    "FLOATS",
    "FP8",
    "HALVES",
    "INTEGERS",
    "SIGNED",
    "UNSIGNED",
    "as_dtype",
    "compute_dtype",
    "dtype_name",
    "epsilon",
    "is_complex",
    "is_float",
    "largest",
    "promote",
    "reference_dtype",
    "smallest_subnormal",
]

DType = np.dtype[Any]

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FP8 = ("float8_e4m3fn", "float8_e5m2")
HALVES = ("bfloat16", "float16")
FLOATS = (*HALVES, "float32", "float64")
COMPLEX = ("complex64", "complex128")
ALL = DTYPE_NAMES

_BY_NAME: dict[str, DType] = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in ALL}
_NAMES: dict[DType, str] = {dtype: name for name, dtype in _BY_NAME.items()}
_KNOWN: dict[Any, DType] = {**_BY_NAME, **{dtype: dtype for dtype in _NAMES}}
_FLOAT32 = _BY_NAME["float32"]

#: torch's names for complex numbers of two float16.
_COMPLEX_HALF = ("complex_half", "complex32", "chalf", "torch.complex32")

#: The promotion of bfloat16 with each other dtype: as that of float16, except that float16 with bfloat16 is float32.
_CHOSEN: dict[str, str] = {
    "bool": "bfloat16",
    "int8": "bfloat16",
    "uint8": "bfloat16",
    "int16": "float32",
    "uint16": "float32",
    "int32": "float64",
    "uint32": "float64",
    "int64": "float64",
    "uint64": "float64",
    "float16": "float32",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}


def as_dtype(dtype: Any) -> DType:
    """Return the dtype object for a name, a scalar type or a dtype.

    Raises
    ------
    DTypeError
        If it is not one of `ALL`, or its byte order differs from that of the machine.
    """
    try:
        return _KNOWN[dtype]
    except (KeyError, TypeError):  # another spelling of a dtype, or unhashable
        return _read(dtype)


def _read(dtype: Any) -> DType:
    try:
        found = None if dtype is None else np.dtype(dtype)  # NumPy takes None for float64
    except (TypeError, ValueError):
        found = None
    if found in _NAMES:
        return _BY_NAME[_NAMES[found]]
    hint = f"; complex_half is for {FEATURES['complex_half']}" if str(dtype) in _COMPLEX_HALF else ""
    raise DTypeError(f"{unknown_dtype(dtype)}{hint}") from None  # the failed lookup would not help the reader


def dtype_name(dtype: Any) -> str:
    """Return the canonical name of a dtype, such as ``'bfloat16'``. Raises `DTypeError` as `as_dtype` does."""
    found = _NAMES.get(dtype) if isinstance(dtype, np.dtype) else None
    return _NAMES[as_dtype(dtype)] if found is None else found


def promote(*operands: Any) -> DType:
    """Return the common dtype of `operands`, which are dtypes and Python numbers; numbers are weak as in NumPy 2.

    The order of the operands does not matter. This does not check whether the value of a Python number fits.

    Raises
    ------
    DTypeError
        If two dtypes have no common dtype, or no operand is a dtype.
    """
    found: DType | None = None
    weak: type | None = None
    mixed = False
    for operand in operands:
        if operand is found:
            continue
        rank = _RANK.get(type(operand))
        if rank is None:
            mixed = found is not None
            found = operand if isinstance(operand, np.dtype) else as_dtype(operand)
        elif weak is None or rank > _RANK[weak]:
            weak = type(operand)
    if found is None:
        raise DTypeError("promotion needs at least one dtype; got only Python numbers; give an array")
    if mixed:
        found = _common(*(operand for operand in operands if type(operand) not in _RANK))
    if weak is not None:
        return _weak(found, weak)
    return found if found in _NAMES else as_dtype(found)


_RANK: dict[type, int] = {bool: 0, int: 1, float: 2, complex: 3}


@cache
def _common(*dtypes: Any) -> DType:
    """Promote pairwise, the most general dtype first, so that int8, uint8 and float16 give float16."""
    names = {dtype_name(dtype) for dtype in dtypes}
    return reduce(_pair, (_BY_NAME[name] for name in sorted(names, key=ALL.index, reverse=True)))


def _pair(a: DType, b: DType) -> DType:
    names = dtype_name(a), dtype_name(b)
    if names[0] in FP8 or names[1] in FP8:
        raise DTypeError(
            f"{names[0]} and {names[1]} have no common dtype: fp8 promotes with nothing else; cast one explicitly"
        )
    if "bfloat16" in names:
        return _BY_NAME[_CHOSEN[names[0] if names[1] == "bfloat16" else names[1]]]
    return as_dtype(np.promote_types(a, b))


@cache
def _weak(dtype: DType, number: type) -> DType:
    """Promote `dtype` with a Python number, which can change the kind (integer, float, complex) but not the size."""
    name = dtype_name(dtype)
    if number is complex and not is_complex(dtype):
        if name in FP8:
            raise DTypeError(f"{name} and a Python complex have no common dtype; cast the array first")
        return _BY_NAME["complex64" if name in (*HALVES, "float32") else "complex128"]
    if number is float and name in (*BOOL, *INTEGERS):
        return _BY_NAME["float64"]
    if number is int and name in BOOL:
        return _BY_NAME["int64"]
    return dtype


@cache
def compute_dtype(dtype: Any) -> DType:
    """Return the dtype that `dtype` is computed in: float32 for 16-bit and fp8 floats, else itself."""
    return _FLOAT32 if dtype_name(dtype) in (*HALVES, *FP8) else as_dtype(dtype)


@cache
def reference_dtype(dtype: Any) -> DType:
    """Return the dtype of references for `dtype`: float64 or complex128; integers and bool are unchanged."""
    if is_complex(dtype):
        return _BY_NAME["complex128"]
    return _BY_NAME["float64"] if is_float(dtype) else as_dtype(dtype)


def is_float(dtype: Any) -> bool:
    """Return True for real floating-point dtypes, including fp8."""
    return dtype_name(dtype) in (*FLOATS, *FP8)


def is_complex(dtype: Any) -> bool:
    """Return True for complex dtypes."""
    return dtype_name(dtype) in COMPLEX


@cache
def _finfo(dtype: Any) -> Any:
    name = dtype_name(dtype)
    if name not in (*FLOATS, *FP8, *COMPLEX):
        raise DTypeError(f"{name} is not a floating-point dtype; give one of {', '.join((*FP8, *FLOATS, *COMPLEX))}")
    return ml_dtypes.finfo(as_dtype(dtype))  # type: ignore[no-untyped-call] # ml_dtypes types it in part


def epsilon(dtype: Any) -> float:
    """Return the distance from 1 to the next larger number. Raises `DTypeError` for integers."""
    return float(_finfo(dtype).eps)


def largest(dtype: Any) -> float:
    """Return the largest finite number. Raises `DTypeError` for integers."""
    return float(_finfo(dtype).max)


def smallest_subnormal(dtype: Any) -> float:
    """Return the smallest positive number. Raises `DTypeError` for integers."""
    return float(_finfo(dtype).smallest_subnormal)
