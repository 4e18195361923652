"""The candidate's side of an arena in a GPU's memory: the arrays of a call are views of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.capability import DTYPE_NAMES
from cuassay.core.device import Device
from cuassay.judging.protocol import Placed, Room

__all__ = ["DeviceMemory"]


class DeviceMemory:
    """Memory of a device that the judge shares with this process.

    It is mapped when the first call needs it, because the process initialises the device only in its jail.

    Parameters
    ----------
    device : Device
        The device.
    nbytes : int
        The size in bytes.
    descriptor : int
        The file descriptor of the memory.
    """

    def __init__(self, device: Device, nbytes: int, descriptor: int) -> None:
        self._device, self._nbytes, self._descriptor = device, nbytes, descriptor
        self._memory: Any = None

    def __repr__(self) -> str:
        return f"DeviceMemory({self._device}, {self._nbytes:,} bytes)"

    def array(self, placed: Placed) -> Any:
        """Return an input, with its layout."""
        dtype = as_dtype(DTYPE_NAMES[placed.dtype])
        return self._mapped().array(placed.shape, dtype, placed.first, placed.strides)

    def host(self, placed: Placed) -> NDArray[Any]:
        """Return a copy of an input on the host."""
        found: NDArray[Any] = self.array(placed).get()
        return found

    def put(self, result: Any, room: Room) -> None:
        """Copy an output to its room, ordered on the current stream."""
        view = self._mapped().array(tuple(result.shape), result.dtype, room.offset)
        if isinstance(result, np.ndarray):
            view.set(np.ascontiguousarray(result).reshape(result.shape))
        else:
            view[...] = result

    def _mapped(self) -> Any:
        if self._memory is None:
            from cuassay.devices.cuda.memory.shared import SharedMemory

            self._memory = SharedMemory(self._device.index, self._nbytes, self._descriptor)
        return self._memory
