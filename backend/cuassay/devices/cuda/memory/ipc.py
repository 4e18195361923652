"""Arrays shared between processes of one machine: a handle to send, and the array that the other process makes of it.

The exporter owns the memory. It keeps the memory as long as a handle is in transit or open elsewhere. Each handle has a
small file, which the importer holds locked while it uses the memory; the lock ends with its process, however the
process ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cupy

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.allocator import allocator
from cuassay.devices.cuda.memory.order import at, relaxed
from cuassay.errors import ArgumentError, DeviceError

__all__ = ["IpcHandle", "collect", "open_handle", "share"]

_OPENED = b"1"


@dataclass(frozen=True, slots=True, kw_only=True)
class IpcHandle:
    """What another process needs to use an array: pickled and sent to that process, and opened there once.

    Attributes
    ----------
    device_uuid : str
        The device, independent of its index in either process.
    offset : int
        The offset of the array in the exported memory, in bytes.
    """

    device_uuid: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int
    memory: bytes = field(repr=False)
    event: bytes = field(repr=False)
    lock: str = field(repr=False)


#: Handles that may still be in use: path of the lock, its descriptor, the array.
_given: dict[str, tuple[int, Any]] = {}
_lock = threading.Lock()


def share(array: Any) -> IpcHandle:
    """Return a handle of `array`, whose memory is kept until the importer is done with it; see `collect`.

    The importer's work waits for the work that the current stream has been given so far.

    Raises
    ------
    ArgumentError
        If the array's memory is not cuassay's, or is not in one piece.
    """
    from cuda.bindings import runtime as cudart

    block = hook.block_of(array)
    if block is None:
        raise ArgumentError("only an array in cuassay's memory can be shared; make it with cuassay.empty")
    index, base = array.data.device_id, block.segment.address
    with at(index):  # the driver crashes if another device is current
        status, handle = cudart.cudaIpcGetMemHandle(base)
        if status:
            raise ArgumentError(
                f"the array lies in pages ({status.name}), which a handle cannot describe; make it inside "
                "use_mem_pool(MemPool(one_handle=True))"
            )
        event = _record_event()
        exported = check(cudart.cudaIpcGetEventHandle(event.event), "exporting an event")
        lock = _lock_file()
    with _lock:
        _given[lock[1]] = lock[0], (array, event)
    _collect_when_short(index)
    return IpcHandle(
        device_uuid=str(runtime.get_device_properties(index).uuid),
        shape=tuple(array.shape),
        strides=tuple(array.strides),
        dtype=dtype_name(array.dtype),
        offset=array.data.ptr - base,
        memory=bytes(handle.reserved),
        event=bytes(exported.reserved),
        lock=lock[1],
    )


class _Event:
    """An event that other processes can wait for."""

    def __init__(self) -> None:
        from cuda.bindings import runtime as cudart

        flags = cudart.cudaEventDisableTiming | cudart.cudaEventInterprocess
        self.event = check(cudart.cudaEventCreateWithFlags(flags), "making an event")

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # the driver may be gone, and the event with it
        from cuda.bindings import runtime as cudart

        cudart.cudaEventDestroy(self.event)


def _record_event() -> _Event:
    from cuda.bindings import runtime as cudart

    made = _Event()
    check(cudart.cudaEventRecord(made.event, cupy.cuda.get_current_stream().ptr), "recording an event")
    return made


def _lock_file() -> tuple[int, str]:
    return tempfile.mkstemp(prefix="cuassay-ipc-")


def collect() -> int:
    """Drop the handles that importers are done with, and return their number; called when memory is short."""
    with _lock:
        done = [path for path, (descriptor, _) in _given.items() if _is_done(descriptor)]
        gone = [(path, *_given.pop(path)) for path in done]
    for path, descriptor, _ in gone:
        os.close(descriptor)
        Path(path).unlink(missing_ok=True)
    return len(gone)


@atexit.register
def _end() -> None:
    """Close all handles at exit: nobody can open them any more, and events must go while the driver exists."""
    with _lock:
        gone = dict(_given)
        _given.clear()
    for path, (descriptor, _) in gone.items():
        os.close(descriptor)
        Path(path).unlink(missing_ok=True)


def _is_done(descriptor: int) -> bool:
    """Whether the handle was opened, and nobody holds it open now."""
    if os.pread(descriptor, 1, 0) != _OPENED:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _collect_when_short(index: int) -> None:
    callbacks = allocator(index).free_memory_callbacks
    if _when_short not in callbacks:
        callbacks.append(_when_short)


def _when_short(nbytes: int) -> bool:
    del nbytes
    return collect() > 0


# ------------------------------------------------------------------------------------------------ in the other process


class _Opened:
    """Memory of another process, mapped here until the last array on it is gone."""

    def __init__(self, handle: IpcHandle, index: int) -> None:
        self._index = index
        self._descriptor = _hold_lock(handle.lock)
        try:
            with at(index):
                self.base = _map_memory(handle)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __del__(self) -> None:
        if not hasattr(self, "base") or sys.is_finalizing():
            return
        from cuda.bindings import runtime as cudart

        is_idle = True
        try:
            with at(self._index), relaxed():
                # This process's work must be done before the exporter reuses the memory. This wait cannot be
                # interrupted.
                (status,) = cudart.cudaDeviceSynchronize()
                is_idle = "StreamCapture" not in status.name  # a device that captures cannot be waited for
                if is_idle:
                    cudart.cudaIpcCloseMemHandle(self.base)
        finally:
            if is_idle:  # otherwise the exporter keeps the memory until this process ends
                os.close(self._descriptor)  # releases the lock


def _hold_lock(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise ArgumentError(
            "this handle was opened and dropped, or its exporter is gone; let the exporter share the array again"
        ) from None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if os.pread(descriptor, 1, 0) == _OPENED:
        os.close(descriptor)
        raise ArgumentError("this handle was opened before; let the exporter share the array again")
    os.pwrite(descriptor, _OPENED, 0)
    return descriptor


def _map_memory(handle: IpcHandle) -> int:
    from cuda.bindings import runtime as cudart

    memory = cudart.cudaIpcMemHandle_t()
    memory.reserved = handle.memory
    status, address = cudart.cudaIpcOpenMemHandle(memory, cudart.cudaIpcMemLazyEnablePeerAccess)
    if status:
        raise DeviceError(
            f"the memory of another process cannot be opened ({status.name}); a handle can be opened only in another "
            "process, while the exporter is running"
        )
    return int(address)


def open_handle(handle: IpcHandle) -> Any:
    """Open the array of another process; the current stream waits for the work it had been given there.

    Raises
    ------
    ArgumentError
        If the handle was opened already, or its exporter is gone.
    DeviceError
        If its device is not visible here, or this process is the exporter.
    """
    index = _index(handle.device_uuid)
    opened = _Opened(handle, index)
    with at(index), _open_event(handle.event) as event:
        cupy.cuda.runtime.streamWaitEvent(cupy.cuda.get_current_stream().ptr, event)
    dtype = as_dtype(handle.dtype)
    nbytes = _extent(handle, dtype.itemsize)
    memory = cupy.cuda.UnownedMemory(opened.base + handle.offset, nbytes, opened, index)
    return cupy.ndarray(handle.shape, dtype, cupy.cuda.MemoryPointer(memory, 0), handle.strides)


def _extent(handle: IpcHandle, itemsize: int) -> int:
    """Return the bytes from the first element to the end of the last."""
    steps = ((extent - 1) * abs(stride) for extent, stride in zip(handle.shape, handle.strides, strict=True))
    return itemsize + sum(steps) if all(handle.shape) else 0


def _index(uuid: str) -> int:
    for index in range(runtime.device_count()):
        if str(runtime.get_device_properties(index).uuid) == uuid:
            return index
    raise DeviceError(f"the array is on device {uuid}, which this process does not see; see CUDA_VISIBLE_DEVICES")


@contextmanager
def _open_event(handle: bytes) -> Iterator[int]:
    from cuda.bindings import runtime as cudart

    shared = cudart.cudaIpcEventHandle_t()
    shared.reserved = handle
    event = check(cudart.cudaIpcOpenEventHandle(shared), "opening an event of another process")
    try:
        yield int(event)
    finally:
        cudart.cudaEventDestroy(event)
