"""Memory of a GPU that two processes map at the same time, passed from one to the other as a file descriptor.

The handles of `cuassay.devices.cuda.memory.ipc` name the process that made them, which a process in namespaces of its
own cannot find. A descriptor can be sent to any process.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import cupy
import numpy as np

from cuassay.core.handle import Closing
from cuassay.devices.cuda.memory.virtual import AddressSpace, granularity
from cuassay.errors import CapabilityError

__all__ = ["SharedMemory"]


class SharedMemory(Closing):
    """Memory of one device that another process can map; it is freed when every process has closed it.

    Its methods copy and fill on a stream of its own, which waits for no other: earlier work on the arrays must have
    ended.

    Parameters
    ----------
    index : int
        The device.
    nbytes : int
        The least size in bytes; it is rounded up to whole pages.
    descriptor : int, optional
        The descriptor that another process got from `descriptor`, with the same `nbytes`; by default new memory is
        taken. It may be closed afterwards.

    Attributes
    ----------
    nbytes : int
        The size in bytes.

    Raises
    ------
    CapabilityError
        If the device cannot map pages.
    OutOfMemoryError
        If there is not enough memory.
    """

    def __init__(self, index: int, nbytes: int, descriptor: int | None = None) -> None:
        page_nbytes = granularity(index)
        if not page_nbytes:
            raise CapabilityError(f"cuda:{index} cannot map memory; pass arrays through the host")
        self.index, self.nbytes = index, -(-nbytes // page_nbytes) * page_nbytes
        space = AddressSpace(index, is_shared=True)
        with ExitStack() as undo:
            page = space.create([self.nbytes])[0] if descriptor is None else space.imported(descriptor, self.nbytes)
            undo.callback(space.destroy, [page])
            address = space.reserve(self.nbytes)
            undo.callback(space.free, address, self.nbytes)
            space.map(address, [page])
            undo.callback(space.unmap, address, [page])
            self._undo = undo.pop_all()
        self._space, self._page = space, page
        self._memory = cupy.cuda.UnownedMemory(address, self.nbytes, self, index)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pinned: np.ndarray[Any, Any] = np.empty(0, np.uint8)

    def __repr__(self) -> str:
        return f"SharedMemory(cuda:{self.index}, {self.nbytes:,} bytes)"

    def descriptor(self) -> int:
        """Return a new file descriptor of the memory; the caller closes it."""
        return self._space.exported(self._page)

    def array(self, shape: tuple[int, ...], dtype: Any, first: int, strides: tuple[int, ...] | None = None) -> Any:
        """Return a `cupy.ndarray` of the memory whose first element is `first` bytes from its start.

        Parameters
        ----------
        strides : tuple of int, optional
            Bytes from one element to the next along each axis; in C order by default.
        """
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(self._memory, first), strides=strides)

    def copy(self, to: Any, source: Any, spans: Iterable[tuple[int, int]]) -> None:
        """Copy within the device from one array of bytes to another, and wait for it.

        Parameters
        ----------
        spans : iterable of (int, int)
            The first byte of each part, in both arrays, and its number of bytes.
        """
        into, from_ = to.data, source.data
        for first, nbytes in spans:
            if nbytes:
                (into + first).copy_from_device_async(from_ + first, nbytes, self._stream)
        self._stream.synchronize()

    def fill(self, to: Any, pattern: bytes) -> None:
        """Fill an array of bytes on the device with a repeated pattern, and wait for it."""
        if not to.nbytes:
            return
        into, done = to.data, min(len(pattern), to.nbytes)
        if len(pattern) == 1:
            into.memset_async(pattern[0], to.nbytes, self._stream)
            done = to.nbytes
        else:
            to[:done].set(np.frombuffer(pattern, np.uint8, done), stream=self._stream)
        while done < to.nbytes:
            count = min(done, to.nbytes - done)
            (into + done).copy_from_device_async(into, count, self._stream)
            done += count
        self._stream.synchronize()

    def on_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy of a device array of bytes on the host."""
        return self.seen(array).copy()

    def seen(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy of a device array of bytes in pinned memory, which holds it until the next call.

        A copy to other memory of the host takes several times as long.
        """
        if self._pinned.nbytes < array.nbytes:
            self._pinned = np.empty(0, np.uint8)  # frees the old one first
            memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
            self._pinned = np.frombuffer(memory, np.uint8, array.nbytes)
        found = self._pinned[: array.nbytes]
        if array.nbytes:
            array.get(stream=self._stream, out=found)
            self._stream.synchronize()
        return found

    def close(self) -> None:
        """Unmap the memory, whose arrays must not be used after; a second call does nothing."""
        self._pinned = np.empty(0, np.uint8)
        self._undo.close()
