"""The memory of an array as plain numbers, for code that must not keep the array itself alive."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from cuassay.arrays import layout
from cuassay.order.accesses import Span

__all__ = ["Extent", "span_of"]

#: Added to addresses, because NumPy rejects arrays at address 0, where the memory of a simulated device begins.
_ABOVE_NULL = 2**12


@dataclass(slots=True, eq=False)  # not frozen, because that makes construction four times as slow
class Extent:
    """The address and layout of an array. Treat it as immutable; the elements are never read.

    Attributes
    ----------
    memory : str
        The name of the memory in messages: ``"cuda:0"``, ``"pinned host memory"``.
    address : int
        The address of the first element, unique in `memory`.
    shape, strides : tuple of int
        As in NumPy; strides in bytes.
    dtype : numpy.dtype
        The type of the elements.
    span : Span
        The byte range from the first to the last element.
    form : str
        The format by which messages show the start of `span`.
    is_told : bool
        Whether watchers are notified when the memory is freed. Other memory is checked only inside a known block.
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
        """The text for where it begins."""
        return self.form.format(self.span.low)

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return prod(self.shape) * self.itemsize

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Lets NumPy decide whether two extents overlap."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": f"|V{self.itemsize}",
            "data": (self.address + _ABOVE_NULL, False),
            "strides": self.strides,
        }


def span_of(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Span:
    """Return the byte range of an array. It is dense if elements fill it, and empty for an empty array."""
    if 0 in shape:
        return Span(0, 0, dense=True)
    low, high = layout.byte_range(shape, strides, itemsize, address)
    step, is_dense = itemsize, True
    axes = ((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    for stride, extent in sorted(axes):
        is_dense = is_dense and stride == step
        step *= extent
    return Span(low, high, is_dense)
