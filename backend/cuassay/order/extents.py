"""What an array touches, as plain numbers: kept where the array itself must not be kept alive."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from cuassay.arrays import layout
from cuassay.order.accesses import Span

__all__ = ["Extent", "span_of"]

#: NumPy takes no array at address 0, which is where the memory of a simulated device begins.
_ABOVE_NULL = 2**12


@dataclass(slots=True, eq=False)  # not frozen: that makes it four times as slow to make
class Extent:
    """Where an array lies, and how its elements do; nothing reads them, and nothing changes it.

    Attributes
    ----------
    memory : str
        Whose bytes they are, as messages name it: ``"cuda:0"``, ``"pinned host memory"``.
    address : int
        Of the first element, unique in `memory`.
    shape, strides : tuple of int
        As NumPy has them; strides in bytes.
    dtype : numpy.dtype
        Of the elements.
    span : Span
        The bytes from the first to the last.
    form : str
        How messages write the address that `span` begins at.
    is_told : bool
        Whether watchers hear when the memory is given back; other memory is looked at only while it is known.
    """

    memory: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    span: Span
    form: str = "address {:#x}"
    is_told: bool = True

    @property
    def place(self) -> str:
        """Where it begins, in words."""
        return self.form.format(self.span.low)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.itemsize

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


def span_of(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Span:
    """The bytes from the first to the last; dense where all of them are elements'. Nothing of an empty array."""
    if 0 in shape:
        return Span(0, 0, dense=True)
    low, high = layout.byte_range(shape, strides, itemsize, address)
    step, is_dense = itemsize, True
    axes = ((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    for stride, extent in sorted(axes):
        is_dense = is_dense and stride == step
        step *= extent
    return Span(low, high, is_dense)
