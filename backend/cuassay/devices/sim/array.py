"""The array of the simulated device: it wraps a NumPy array in the device's arena and does not expose its memory.

Like `cupy.ndarray`, it is not a `numpy.ndarray`. Operators, ufuncs, NumPy's functions, methods and indexing all go
through `cuassay.devices.sim.calls.call`, which logs reads and writes. Everything that would give the host the memory
without a wait (`numpy.asarray`, buffers, ``ctypes``) raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence
from cuassay.devices.sim import calls, exchange, functions
from cuassay.devices.sim.device_array import DeviceArray

__all__ = ["SimArray"]

_ADVICE = "call .get() or cuassay.devices.to_host(array), which wait for it"


class SimArray(DeviceArray, NDArrayOperatorsMixin):
    """An array in a simulated device's memory.

    A device's namespace, `cuassay.devices.from_host` or an operation makes it; do not call the class.
    """

    __slots__ = ()

    # Comparison returns an array, so there is no hash, as in numpy.ndarray.
    __hash__ = None  # type: ignore[assignment]

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
        """Return a copy on the host, read in order of the current stream, after waiting for it."""
        return calls.to_host(self, "get").copy(order="K")

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number, after waiting."""
        return calls.to_host(self, "item").item(*index)

    def tolist(self) -> Any:
        """Return nested lists of Python numbers, after waiting."""
        return calls.to_host(self, "tolist").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the elements as bytes, after waiting."""
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
        """Return the namespace of its device, as the Python array API standard defines it."""
        return exchange.namespace_of(self, api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """Return `self` if it is on the device, a copy on another simulated device, or a `numpy.ndarray` for ``"cpu"``.

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
        """Return a copy on the host for ``dl_device=(1, 0)``, after waiting.

        Raise `BufferError` for the memory itself.
        """
        return exchange.capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return a device type beyond DLPack's list, and the device's index."""
        return exchange.EXTENSION, self.owner.index

    # ---------------------------------------------------------------------------------------------- order

    def record_stream(self, stream: Any) -> None:
        """Keep its memory from being reused before the work that `stream` has when it is dropped, as in torch."""
        if self.block is not None:
            self.block.used_by(stream.queue)
            if watchers.state.watchers:
                user = stream.queue.number
                watchers.tell(Occurrence("memory_recorded", str(self.device), self.block.low, user))

    # ---------------------------------------------------------------------------------------------- refused

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(f"{self!r} is not converted to a numpy.ndarray implicitly; {_ADVICE}")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: its memory belongs to a device; {_ADVICE}")
