"""Existing memory that is pinned in place: which arrays are pinned, and what to wait for before they are unpinned.

`pinned` checks whether an array may be pinned, because it knows the rest of the pinned memory.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from cuassay.core.handle import Handle
from cuassay.core.interrupts import is_late
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory.order import at
from cuassay.devices.cuda.memory.pinned_pages import register, stream_key, unregister
from cuassay.errors import ArgumentError

__all__ = ["Pin", "check", "described", "find"]

HostArray = np.ndarray[Any, Any]

_pins: dict[int, Pin] = {}
os.register_at_fork(after_in_child=_pins.clear)


class Pin(Handle):
    """Memory of an array that is pinned in place; ``with pin(array):`` unpins it at the end of the block.

    Attributes
    ----------
    array : numpy.ndarray
        The array, which the pin keeps alive.
    address : int
        The address of its memory.
    """

    def __init__(self, array: HostArray) -> None:
        self.array = array
        self.address = _lowest(array)
        self._users: dict[int, int] = {}
        with at(runtime.current_device()):
            register(self.address, array.nbytes)
        _pins[self.address] = self

    def __repr__(self) -> str:
        state = "pinned" if _pins.get(self.address) is self else "unpinned"
        return f"Pin({self.array.nbytes:,} bytes at {self.address:#x}, {state})"

    def used_by(self, index: int, address: int) -> None:
        """Make unpinning wait for a copy on the stream at `address` of device `index`."""
        self._users[stream_key(index, address)] = index

    def unpin(self) -> None:
        """Unpin the memory after waiting for pending copies; a second call has no effect."""
        if _pins.get(self.address) is not self:
            return
        for index in set(self._users.values()):  # the whole device, because some streams may be gone
            runtime.synchronize(index)
        del _pins[self.address]
        try:
            unregister(self.address)
        except BaseException as error:
            if not is_late(error):
                _pins[self.address] = self
            raise

    def __enter__(self) -> HostArray:
        return self.array

    def __exit__(self, *error: object) -> None:
        self.unpin()


def find(array: HostArray) -> Pin | None:
    """Return the pin whose memory `array` is in, or None."""
    if not _pins:
        return None
    low = _lowest(array)
    for found in tuple(_pins.values()):
        if found.address <= low < found.address + found.array.nbytes:
            return found
    return None


def check(array: Any) -> None:
    """Raise `ArgumentError` if the memory of `array` cannot be pinned."""
    if not isinstance(array, np.ndarray) or not array.size or not array.flags.writeable or not _is_dense(array):
        raise ArgumentError(
            f"pin takes a writable numpy.ndarray without gaps between elements; got {described(array)}; "
            "pin the array it is a view of, or copy it with pin_memory"
        )


def _lowest(array: HostArray) -> int:
    return int(np.lib.array_utils.byte_bounds(array)[0])


def _is_dense(array: HostArray) -> bool:
    low, high = np.lib.array_utils.byte_bounds(array)
    return bool(high - low == array.nbytes)


def described(array: object) -> str:
    """Describe an array for messages."""
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__qualname__}"
    return f"an array of shape {array.shape}, {array.dtype}, strides {array.strides}"
