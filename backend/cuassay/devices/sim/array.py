"""The array of the simulated device: it holds a NumPy array in the device's arena and lets none of it out.

It is no ndarray, as `cupy.ndarray` is none. Operators, ufuncs, NumPy's functions, methods and indexing all go
through `cuassay.devices.sim.calls.call`, which logs reads and writes; what would hand the memory to the host
without a wait (`numpy.asarray`, buffers, ``ctypes``) raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cuassay.arrays import layout
from cuassay.core.device import Device
from cuassay.devices.sim import calls, exchange, functions
from cuassay.devices.sim.clock import Span
from cuassay.devices.sim.machine import SimDevice
from cuassay.devices.sim.memory import Block

__all__ = ["Flags", "SimArray"]

_ADVICE = "call .get() or cuassay.devices.to_host(array), which wait for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """An array's flags as attributes and, in capitals, as items: as NumPy's and CuPy's."""

    c_contiguous: bool
    f_contiguous: bool
    writeable: bool = True

    @property
    def forc(self) -> bool:
        """Contiguous in one order or the other."""
        return self.c_contiguous or self.f_contiguous

    @property
    def fnc(self) -> bool:
        """Contiguous in Fortran's order, and not in C's."""
        return self.f_contiguous and not self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        if name not in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "FORC", "FNC"):
            raise KeyError(f"{name!r} is no flag; flags: C_CONTIGUOUS, F_CONTIGUOUS, WRITEABLE, FORC, FNC")
        found: bool = getattr(self, name.lower())
        return found


class SimArray(NDArrayOperatorsMixin):
    """An array in a simulated device's memory.

    Made by a device's namespace, `cuassay.devices.from_host` or an operation, never directly.
    """

    __slots__ = ("__weakref__", "block", "owner", "raw", "span")

    # Comparison gives an array, so there is nothing to hash by; as numpy.ndarray.
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, raw: np.ndarray[Any, Any], owner: SimDevice, block: Block | None, span: Span | None = None
    ) -> None:
        self.raw: np.ndarray[tuple[int, ...], np.dtype[Any]] = raw
        self.owner = owner
        self.block = block
        self.span = _span(raw, owner.arena.base) if span is None else span

    # ---------------------------------------------------------------------------------------------- facts, no access

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return tuple(self.raw.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.raw.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.raw.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.raw.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.raw.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.raw.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by axis."""
        return self.raw.strides

    @property
    def flags(self) -> Flags:
        """Contiguity, by NumPy's names; a copy, so that nothing can be set through it."""
        flags = self.raw.flags
        return Flags(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    @property
    def device(self) -> Device:
        """Where it lives."""
        return self.owner.device

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"SimArray(shape={self.shape}, dtype={self.dtype}, device='{self.device}')"

    # ---------------------------------------------------------------------------------------------- through call()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return functions.call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        return functions.call_function(function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return functions.attribute(self, name)

    def __getitem__(self, index: Any) -> Any:
        return functions.get_item(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        functions.set_item(self, index, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("a 0-d array cannot be iterated over; use .item()")
        return (self[position] for position in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    # ---------------------------------------------------------------------------------------------- to the host

    def get(self) -> np.ndarray[Any, Any]:
        """A copy on the host; waits for the current stream, in whose order it reads."""
        return calls.to_host(self, "get").copy(order="K")

    def item(self, *index: Any) -> Any:
        """One element as a Python number; waits."""
        return calls.to_host(self, "item").item(*index)

    def tolist(self) -> Any:
        """Nested lists of Python numbers; waits."""
        return calls.to_host(self, "tolist").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements as bytes; waits."""
        return calls.to_host(self, "tobytes").tobytes(order)

    def __bool__(self) -> bool:
        return bool(calls.to_host(self, "bool"))

    def __int__(self) -> int:
        return int(calls.to_host(self, "int").item())

    def __float__(self) -> float:
        return float(calls.to_host(self, "float").item())

    def __complex__(self) -> complex:
        return complex(calls.to_host(self, "complex").item())

    def __index__(self) -> int:
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError(f"only a 0-d integer array is an index; got {self!r}")
        return int(calls.to_host(self, "index").item())

    def __str__(self) -> str:
        return str(calls.to_host(self, "str"))

    def __format__(self, spec: str) -> str:
        host = calls.to_host(self, "format")
        return format(host if host.ndim else host.item(), spec)

    # ---------------------------------------------------------------------------------------------- other libraries

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of its device, as the Python array API standard has it."""
        return exchange.namespace_of(self, api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """`self` when it is there, a copy on another simulated device, or a `numpy.ndarray` for ``"cpu"``.

        Raises
        ------
        DeviceError
            If there is no such device, or it is of another kind.
        """
        return exchange.to_device(self, device, stream)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A copy on the host, for ``dl_device=(1, 0)``, waited for; `BufferError` for the memory itself."""
        return exchange.capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """A device beyond DLPack's list, by its index."""
        return exchange.EXTENSION, self.owner.index

    # ---------------------------------------------------------------------------------------------- order

    def record_stream(self, stream: Any) -> None:
        """Its memory is not taken again before what `stream` was given until it is dropped; as in torch."""
        if self.block is not None:
            self.block.used_by(stream.queue)

    # ---------------------------------------------------------------------------------------------- refused

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(f"{self!r} is not made a numpy.ndarray implicitly; {_ADVICE}")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: its memory belongs to a device; {_ADVICE}")


def _span(raw: np.ndarray[Any, Any], base: int) -> Span:
    """The bytes of `raw`, counted from the start of the arena; empty for an array without elements."""
    if not raw.size:
        return Span(0, 0, dense=True)
    low = raw.__array_interface__["data"][0] - base
    if raw.flags.c_contiguous or raw.flags.f_contiguous:
        return Span(low, low + raw.nbytes, dense=True)
    return Span(*layout.byte_range(raw.shape, raw.strides, raw.itemsize, low), dense=False)
