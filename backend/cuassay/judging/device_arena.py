"""An arena in a GPU's memory, which the judge and a candidate's process both map.

While the clock runs, the judge copies a call's arrays within the device: 8 MiB take 20 µs, where copies through shared
memory of the host take milliseconds, and their times vary by more than a fast candidate takes.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import devices
from cuassay.core.device import Device
from cuassay.errors import CapabilityError, DriverError, OutOfMemoryError
from cuassay.judging.arena import Arena, Layout, bytes_of, same_bits
from cuassay.judging.protocol import Placed

__all__ = ["DeviceArena"]

#: The most bytes of a call that are written on the host and copied to the device at once.
_SMALL = 1 << 20

#: Seconds that the device is kept busy before the clock starts.
_BUSY_SECONDS = 0.002


class DeviceArena(Arena):
    """Memory of a CUDA device that holds the arrays of one call at a time.

    `place` and `prepare` write a call's arrays and the poison into an image that only the judge sees. It is on the
    device before the clock starts.

    Parameters
    ----------
    device : Device
        The device.
    nbytes : int
        The size in bytes.
    """

    def __init__(self, device: Device, nbytes: int) -> None:
        from cuassay.devices.cuda.memory.shared import SharedMemory

        super().__init__(memoryview(mmap.mmap(-1, nbytes)))
        self._device = device
        with self._active():
            self._memory = SharedMemory(device.index, nbytes)
            try:
                os.close(self._memory.descriptor())  # a device may map memory without sharing it
            except BaseException:
                self._memory.close()
                raise
            self._all = self._memory.array((nbytes,), np.uint8, 0)
            self._image = self._taken = self._all[:0]
        self._gap, self._end, self._rooms = 0, 0, list[tuple[int, int]]()

    @classmethod
    def made(cls, device: Device, nbytes: int) -> DeviceArena | None:
        """Return an arena; None if the device has no memory that processes can share, or not enough of it."""
        if device.kind != "cuda":
            return None
        try:
            return cls(device, nbytes)
        except (CapabilityError, DriverError, OutOfMemoryError):
            return None

    def descriptor(self) -> int:
        """Return a new file descriptor of the memory; the caller closes it."""
        return self._memory.descriptor()

    def close(self) -> None:
        """Release the memory; a second call does nothing."""
        super().close()
        with self._active():
            self._image = self._taken = self._all = self._all[:0]
            self._memory.close()

    def rouse(self) -> None:
        """Keep the device busy for a moment: a GPU that was idle runs its next kernels more slowly."""
        if self._image.nbytes:
            until = time.perf_counter() + _BUSY_SECONDS
            while time.perf_counter() < until:
                self._copy(self._taken, self._image, [(0, self._image.nbytes)])

    def _poison(self, layout: Layout, gap: int) -> None:
        """Write the poison of a small call on the host; `prepare` writes that of a large one on the device."""
        self._gap = gap
        if layout.end <= _SMALL:
            super()._poison(layout, gap)

    def prepare(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Write the inputs and the poison into private memory of the device."""
        self._end, self._rooms = layout.end, [(room.offset, room.nbytes) for room in layout.rooms]
        if self._image.nbytes < layout.end:
            self._image, self._taken = (devices.empty((layout.end,), "uint8", self._device) for _ in range(2))
        with self._active():
            if layout.end <= _SMALL:
                super().give(layout, inputs)
                self._image[: layout.end].set(self._bytes[: layout.end])
            else:
                self._prepare_large(layout, inputs)
            devices.backend(self._device.kind).synchronize(self._device.index)

    def _prepare_large(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Fill the image part by part: poison is made on the device, and arrays in C order are copied only once."""
        at = 0
        for first, nbytes in layout.spans:
            self._memory.fill(self._image[at:first], bytes([self._gap]))
            at = first + nbytes
        for (first, nbytes), pattern in zip(self._rooms, layout.poisons, strict=True):
            self._memory.fill(self._image[first : first + nbytes], pattern)
        for placed, array in zip(layout.inputs, inputs, strict=True):
            part = self._image[placed.low : placed.low + placed.nbytes]
            if not placed.nbytes:
                continue
            if array.flags.c_contiguous:
                part.set(bytes_of(array))
            else:
                host = self._bytes[placed.low : placed.low + placed.nbytes]
                host[:] = self._gap
                self._view(placed.first, array.shape, array.dtype, array.strides)[...] = array
                part.set(host)

    def give(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Copy what `prepare` wrote into the arena, within the device."""
        self._copy(self._all, self._image, [(0, self._end)])

    def take(self, layout: Layout) -> Callable[[], list[NDArray[Any]]]:
        """Copy all rooms to private memory of the device; the function that is returned copies them to the host."""
        rooms = self._rooms
        self._copy(self._taken, self._all, rooms)
        return lambda: [self._on_host(self._taken[first : first + nbytes]) for first, nbytes in rooms]

    def is_as_taken(self, layout: Layout, taken: Sequence[NDArray[Any]]) -> bool:
        """Return whether the rooms still hold the bytes that the last `take` copied."""
        return all(
            same_bits(self._seen(self._all[room.offset : room.offset + room.nbytes]), then)
            for room, then in zip(layout.rooms, taken, strict=True)
        )

    def changed(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
        """Return the indices of the inputs whose bits have changed."""
        return tuple(
            index
            for index, (placed, array) in enumerate(zip(layout.inputs, inputs, strict=True))
            if not same_bits(self._read(placed, array), array)
        )

    def _read(self, placed: Placed, array: NDArray[Any]) -> NDArray[Any]:
        """Return an input as it is in the arena now, valid until the next copy to the host."""
        found = self._seen(self._all[placed.low : placed.low + placed.nbytes])
        return np.ndarray(array.shape, array.dtype, found.data, placed.first - placed.low, array.strides)

    def _active(self) -> AbstractContextManager[None]:
        return devices.backend(self._device.kind).activate(self._device.index)

    def _copy(self, to: Any, source: Any, spans: Sequence[tuple[int, int]]) -> None:
        with self._active():
            self._memory.copy(to, source, spans)

    def _on_host(self, array: Any) -> NDArray[np.uint8]:
        with self._active():
            return self._memory.on_host(array)

    def _seen(self, array: Any) -> NDArray[np.uint8]:
        with self._active():
            return self._memory.seen(array)
