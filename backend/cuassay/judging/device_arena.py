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
from cuassay.judging.arena import Arena, Layout

__all__ = ["DeviceArena"]

#: Seconds that the device is kept busy before the clock starts.
_BUSY_SECONDS = 0.002


class DeviceArena(Arena):
    """Memory of a CUDA device that holds the arrays of one call at a time.

    `place` writes the poison, and `prepare` the inputs, into an image that only the judge sees. It is on the device
    before the clock starts.

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

    def prepare(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Copy the inputs and the poison to private memory of the device."""
        super().give(layout, inputs)
        if self._image.nbytes < layout.end:
            self._image, self._taken = (devices.empty((layout.end,), "uint8", self._device) for _ in range(2))
        with self._active():
            self._image[: layout.end].set(self._bytes[: layout.end])
            devices.backend(self._device.kind).synchronize(self._device.index)

    def give(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Copy what `prepare` wrote into the arena, within the device."""
        self._copy(self._all, self._image, [(0, layout.end)])

    def take(self, layout: Layout) -> Callable[[], list[NDArray[Any]]]:
        """Copy all rooms to private memory of the device; the function that is returned copies them to the host."""
        spans = [(room.offset, room.nbytes) for room in layout.rooms]
        self._copy(self._taken, self._all, spans)
        return lambda: [self._on_host(self._taken[first : first + nbytes]) for first, nbytes in spans]

    def changed(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
        """Return the indices of the inputs whose bits have changed."""
        self._bytes[: layout.end] = self._on_host(self._all[: layout.end])
        return super().changed(layout, inputs)

    def _active(self) -> AbstractContextManager[None]:
        return devices.backend(self._device.kind).activate(self._device.index)

    def _copy(self, to: Any, source: Any, spans: Sequence[tuple[int, int]]) -> None:
        with self._active():
            self._memory.copy(to, source, spans)

    def _on_host(self, array: Any) -> NDArray[np.uint8]:
        with self._active():
            return self._memory.on_host(array)
