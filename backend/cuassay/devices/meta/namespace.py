"""The array namespace of kind `meta`: NumPy's names, which make arrays without memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import FP8, as_dtype
from cuassay.arrays.layout import as_shape
from cuassay.arrays.subclasses import host_array
from cuassay.core.device import Device
from cuassay.devices.meta import functions, headers
from cuassay.devices.meta.array import MetaArray
from cuassay.devices.meta.stream import DEVICE
from cuassay.errors import MissingNameError

__all__ = ["Namespace"]

_DEFAULT = np.dtype(np.float64)


class Namespace:
    """The ``xp`` of ``meta:0``; NumPy's functions dispatch to its arrays by NumPy's protocols."""

    #: The class of its arrays, for isinstance; `empty` and similar functions make arrays.
    ndarray = MetaArray

    def __repr__(self) -> str:
        return f"Namespace({DEVICE})"

    @property
    def device(self) -> Device:
        """The device where arrays are made."""
        return DEVICE

    def __getattr__(self, name: str) -> Any:
        if name in ("bfloat16", *FP8):
            return as_dtype(name).type
        found = getattr(np, name, None)
        if name in functions.OFFERED or isinstance(found, type | np.ufunc | float):
            return found
        raise MissingNameError(f"{DEVICE} has no numpy.{name}; {functions.ADVICE}")

    @property
    def newaxis(self) -> None:
        """None, which adds an axis of extent 1 in an index."""
        return

    # ---------------------------------------------------------------------------------------------- new arrays

    def empty(self, shape: Any, dtype: Any = _DEFAULT) -> MetaArray:
        """Return a C-contiguous array."""
        return MetaArray(headers.empty(as_shape(shape), as_dtype(dtype)))

    zeros = ones = empty

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> MetaArray:
        """Return a C-contiguous array, by default in the dtype of `fill_value`."""
        return self.empty(shape, _dtype_of(fill_value) if dtype is None else dtype)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> MetaArray:
        """Return a vector with as many elements as there are numbers from `start` up to `stop` by `step`."""
        first, end = (0, start) if stop is None else (start, stop)
        found = np.result_type(*(_dtype_of(one) for one in (first, end, step)))
        return self.empty(max(0, math.ceil((end - first) / step)), found if dtype is None else dtype)

    def eye(self, N: int, M: int | None = None, k: int = 0, dtype: Any = _DEFAULT) -> MetaArray:
        """Return a matrix (N, M), by default (N, N)."""
        del k
        return self.empty((N, N if M is None else M), dtype)

    tri = eye

    def asarray(self, a: Any, dtype: Any = None) -> MetaArray:
        """Return `a` if it is an array of this kind, else an array with the shape and dtype of ``numpy.asarray(a)``."""
        if isinstance(a, MetaArray):
            return a if dtype is None else a.astype(dtype, copy=False)
        host = host_array(a)
        return MetaArray(headers.kept_order(host, host.dtype if dtype is None else as_dtype(dtype)))


def _dtype_of(value: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = getattr(value, "dtype", None) or np.asarray(value).dtype
    return found
