"""Arrays in host memory, between guards: a kernel that writes next to an array is found after its launch."""

from __future__ import annotations

import ctypes
import weakref
from itertools import count
from math import prod
from typing import Any

import cupy
import numpy as np

__all__ = ["GUARD", "allocate", "as_cupy", "as_numpy", "guarded", "places", "written_next_to"]

Array = Any

#: Bytes of a guard: as far as the threads of one block too many write.
GUARD = 16_384

#: The least 16-bit word that guards and new arrays are filled with, and how many there are: each makes every float NaN.
#: An allocation has one of its own, so that copies from outside of one array to outside of another are found.
_LEAST_POISON, _POISONS = 0xFF81, 127

#: What a new array's address is a multiple of, bytes.
_ALIGNMENT = 256

_serials = count()

#: By address: the memory of each allocation that is in use, and its length.
_in_use: weakref.WeakValueDictionary[int, _Allocation] = weakref.WeakValueDictionary()


class _Allocation:
    """Host memory of `nbytes` that begins at a multiple of 256."""

    def __init__(self, nbytes: int) -> None:
        self._poison = np.uint16(_LEAST_POISON + next(_serials) % _POISONS)
        self._words = np.full(-(-nbytes // 2) + GUARD + _ALIGNMENT // 2, self._poison, np.uint16)
        self.address = -(-(self._words.ctypes.data + GUARD) // _ALIGNMENT) * _ALIGNMENT
        self.nbytes = nbytes
        self.__array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3,
        }  # fmt: skip
        _in_use[self.address] = self

    @property
    def is_whole(self) -> bool:
        """Whether nothing was written next to it."""
        first = (self.address - self._words.ctypes.data) // 2
        end = first + self.nbytes // 2
        if self.nbytes % 2:  # the last word is half the array's
            end += 1
            if self._words[end - 1] >> 8 != self._poison >> 8:
                return False
        return bool((self._words[:first] == self._poison).all() and (self._words[end:] == self._poison).all())


def written_next_to() -> bool:
    """Whether a guard was overwritten."""
    return not all(allocation.is_whole for allocation in list(_in_use.values()))


def places() -> tuple[Any, Any]:
    """Address and length of each allocation that is in use, and how many there are, as C takes them."""
    held = list(_in_use.values())
    pairs = [number for one in held for number in (one.address, one.nbytes)]
    return (ctypes.c_uint64 * len(pairs))(*pairs), ctypes.c_size_t(len(held))


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None) -> Array:
    """A NumPy array without values, contiguous unless `strides` are given."""
    nbytes = prod(shape) * dtype.itemsize
    whole = np.asarray(_Allocation(nbytes)).view(dtype) if nbytes else np.empty(0, dtype)
    return np.ndarray(shape, dtype, whole, strides=strides)


def allocate(nbytes: int) -> Any:
    """An allocator for CuPy that gives guarded host memory."""
    allocation = _Allocation(nbytes)
    memory = cupy.cuda.UnownedMemory(allocation.address, nbytes, allocation, 0)
    return cupy.cuda.MemoryPointer(memory, 0)


class CupyArray(cupy.ndarray):  # type: ignore[misc] # cupy ships no types
    """A CuPy array in the host's memory, whose methods do by NumPy what CuPy does by kernels of its own."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where it lies; CuPy's own asks for the current stream."""
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": f"|V{self.dtype.itemsize}",
            "data": (self.data.ptr, False),
            "version": 3,
        }

    def astype(self, dtype: Any, order: str = "K", *, copy: bool = True, **rest: Any) -> Any:
        """As NumPy's."""
        if not copy and self.dtype == dtype:
            return self
        return as_cupy(as_numpy(self).astype(dtype, order=order))

    def copy(self, order: str = "C") -> Any:
        """As NumPy's."""
        return as_cupy(as_numpy(self).copy(order=order))

    def fill(self, value: Any) -> None:
        """As NumPy's."""
        as_numpy(self)[...] = value

    def set(self, host: Array, stream: Any = None) -> None:
        """Copy `host` here."""
        as_numpy(self)[...] = host


def as_cupy(array: Array) -> CupyArray:
    """A CuPy array on the memory of a NumPy array."""
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = cupy.cuda.UnownedMemory(low, high - low, array, 0)
    offset = array.__array_interface__["data"][0] - low
    return CupyArray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, offset), array.strides)


def as_numpy(array: Array) -> Array:
    """A NumPy array on the memory of a CuPy array, and that array if it is one already."""
    if isinstance(array, np.ndarray):
        return array
    if not array.size:
        return np.empty(array.shape, array.dtype)

    class Holder:
        kept = array
        __array_interface__ = CupyArray.__cuda_array_interface__.fget(array)

    return np.asarray(Holder()).view(array.dtype)
