"""Headers: NumPy arrays with a shape, strides and a dtype, at an address without memory.

NumPy computes the shape and strides of a view without reading an element, so a header gives them by NumPy's own rules,
for shapes too large for any memory. Nothing may read or write the elements of a header: that ends the process.
Headers therefore stay inside this package, and their repr does not read elements, as debuggers and tracebacks show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.arrays.layout import contiguous_strides
from cuassay.errors import ShapeError

__all__ = ["Header", "empty", "header_of", "kept_order", "reshaped", "strided"]


class Header(np.ndarray[tuple[int, ...], np.dtype[Any]]):
    """An array whose repr shows no elements."""

    def __repr__(self) -> str:
        return f"Header(shape={self.shape}, strides={self.strides}, dtype={self.dtype})"

    __str__ = __repr__


header_of: Callable[[Any], Header] = attrgetter("_header")
"""The header of a `cuassay.devices.meta.MetaArray`."""

#: In the lowest page, which Linux never maps; aligned for every dtype.
_ADDRESS = 4096


class _Described:
    """An object that `numpy.asarray` wraps without a copy; typed as bytes, because the interface has no bfloat16."""

    def __init__(self, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": f"|V{itemsize}",
            "data": (_ADDRESS, False),
        }


def strided(shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> Header:
    """Return a header of `shape` with `strides` in bytes.

    Raises
    ------
    ShapeError
        If an array of that shape has more bytes than an address can count, or more axes than NumPy allows.
    """
    try:
        return np.asarray(_Described(shape, strides, dtype.itemsize)).view(dtype, Header)
    except (OverflowError, ValueError) as error:
        raise ShapeError(
            f"an array cannot have this shape: {error}; got {tuple(shape)} {dtype_name(dtype)}; give fewer elements or "
            "axes"
        ) from error


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Header:
    """Return a C-contiguous header; raises like `strided`."""
    return strided(shape, contiguous_strides(shape, dtype.itemsize), dtype)


def kept_order(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Header:
    """Return a dense header of the shape of `array` whose axes have the same order in memory."""
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))  # stable: equal strides stay in order
    made = empty([array.shape[axis] for axis in order], dtype)
    return made.transpose([order.index(axis) for axis in range(array.ndim)])


def reshaped(array: Header, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """Return a view of `array` in `shape`, which has the same size; None if its strides allow no view."""
    try:
        return np.reshape(array, shape, copy=False)
    except ValueError:
        return None
