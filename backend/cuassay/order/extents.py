"""What an array touches, as plain numbers: kept where the array itself must not be kept alive."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from cuassay.arrays import layout
from cuassay.order.accesses import Span

__all__ = ["Extent"]

#: NumPy takes no array at address 0, which is where the memory of a simulated device begins.
_ABOVE_NULL = 2**12


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an array lies, and how its elements do; nothing reads them.

    Attributes
    ----------
    memory : str
        Whose bytes they are, as messages name it: ``"cuda:0"``, ``"pinned host memory"``.
    address : int
        Of the first element, unique in `memory`.
    shape, strides : tuple of int
        As NumPy has them; strides in bytes.
    itemsize : int
        Bytes of an element; `dtype` is its type's name.
    place : str
        The address in words.
    is_told : bool
        Whether watchers hear when the memory is given back; other memory is looked at only while it is known.
    """

    memory: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str
    place: str = ""
    is_told: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.itemsize

    @property
    def span(self) -> Span:
        """The bytes from the first to the last; dense where all of them are elements'."""
        nbytes = self.nbytes
        if not nbytes:
            return Span(0, 0, dense=True)
        low, high = layout.byte_range(self.shape, self.strides, self.itemsize, self.address)
        return Span(low, high, dense=self._is_dense())

    def _is_dense(self) -> bool:
        step = self.itemsize
        axes = ((abs(stride), extent) for stride, extent in zip(self.strides, self.shape, strict=True) if extent > 1)
        for stride, extent in sorted(axes):
            if stride != step:
                return False
            step *= extent
        return True

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """By which NumPy finds out whether two overlap."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": f"|V{self.itemsize}",
            "data": (self.address + _ABOVE_NULL, False),
            "strides": self.strides,
        }
