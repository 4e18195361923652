"""What every simulated array is to the modules that work on it: its memory, where it is, and its facts.

`calls`, `creation` and `functions` read and make these; `cuassay.devices.sim.array` adds the user's interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cuassay.arrays import layout
from cuassay.core.device import Device
from cuassay.devices.sim.device import SimDevice
from cuassay.devices.sim.memory import Block
from cuassay.order.accesses import Span

__all__ = ["DeviceArray", "Flags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """An array's flags as attributes and, in capitals, as items, as in NumPy and CuPy."""

    c_contiguous: bool
    f_contiguous: bool
    writeable: bool = True

    @property
    def forc(self) -> bool:
        """Whether the array is contiguous in C or Fortran order."""
        return self.c_contiguous or self.f_contiguous

    @property
    def fnc(self) -> bool:
        """Whether the array is contiguous in Fortran order and not in C order."""
        return self.f_contiguous and not self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        if name not in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "FORC", "FNC"):
            raise KeyError(f"{name!r} is not a flag; flags: C_CONTIGUOUS, F_CONTIGUOUS, WRITEABLE, FORC, FNC")
        found: bool = getattr(self, name.lower())
        return found


class DeviceArray:
    """Memory of a simulated device with a shape and a dtype; nothing here reads or writes it."""

    __slots__ = ("__weakref__", "block", "owner", "raw", "span")

    def __init__(
        self, raw: np.ndarray[Any, Any], owner: SimDevice, block: Block | None, span: Span | None = None
    ) -> None:
        self.raw: np.ndarray[tuple[int, ...], np.dtype[Any]] = raw
        self.owner = owner
        self.block = block
        self.span = _span(raw, owner.arena.base) if span is None else span

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each axis."""
        return tuple(self.raw.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.raw.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.raw.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.raw.size

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.raw.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.raw.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next, by axis."""
        return self.raw.strides

    @property
    def flags(self) -> Flags:
        """The contiguity, by NumPy's names; a copy, so that nothing can be set through it."""
        flags = self.raw.flags
        return Flags(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    @property
    def device(self) -> Device:
        """The device of the array."""
        return self.owner.device

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"SimArray(shape={self.shape}, dtype={self.dtype}, device='{self.device}')"

    if TYPE_CHECKING:  # the parts of `SimArray` that lower modules use

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def get(self) -> np.ndarray[Any, Any]: ...  # noqa: D102


def _span(raw: np.ndarray[Any, Any], base: int) -> Span:
    """Return the bytes of `raw`, counted from the start of the arena; empty for an array without elements."""
    if not raw.size:
        return Span(0, 0, dense=True)
    low = raw.__array_interface__["data"][0] - base
    if raw.flags.c_contiguous or raw.flags.f_contiguous:
        return Span(low, low + raw.nbytes, dense=True)
    return Span(*layout.byte_range(raw.shape, raw.strides, raw.itemsize, low), dense=False)
