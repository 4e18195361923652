"""Pinned host arrays: plain `numpy.ndarray` objects with memory from one allocator, and existing memory that is pinned.

An array's memory returns to the allocator when its last view is gone, and is not reused before the copies that were
reported to `mark` are done. Existing memory can be pinned in place. A forked child does not own what it inherits: it
does not have the pages, and releases nothing.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from math import prod
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.core.participants import join
from cuassay.devices.cuda.driver import forks, runtime
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory import pins
from cuassay.devices.cuda.memory.pinned_pages import PinnedSource, is_registered, stream_key
from cuassay.devices.cuda.memory.pins import Pin
from cuassay.errors import ArgumentError, CuassayError
from cuassay.memory.blocks import Block
from cuassay.memory.host import HOST, CaptureKeepAlive, HostAllocator
from cuassay.memory.stream_pool import free

__all__ = [
    "Pin",
    "address_of",
    "allocator",
    "empty",
    "is_allocated",
    "is_pinned",
    "mark",
    "opened",
    "pin",
    "reserve",
    "unpin",
]

HostArray = np.ndarray[Any, Any]


# ------------------------------------------------------------------------------------------------ the allocator


class _Keeper:
    """The thread that maintains the allocator: it wakes when memory was pinned, and polls while copies are pending."""

    _PATIENCE = 1e-3

    def __init__(self, tended: HostAllocator, index: int) -> None:
        self._allocator = tended
        self._index = index
        self._woken = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Wake the thread."""
        if not self._allocator.config.pinned_use_background_threads or self._is_stopped:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cuassay-pinned", daemon=True)
            self._thread.start()
        self._woken.set()

    def _run(self) -> None:
        runtime.set_device(self._index)
        while not self._is_stopped:
            self._woken.wait(self._PATIENCE if self._allocator.stream_pool(HOST).deferred.queue else None)
            self._woken.clear()
            if not self._is_stopped:
                self._maintain()

    def _maintain(self) -> None:
        try:
            self._allocator.maintain()
        except (MemoryError, CuassayError):  # a request that needs memory will raise it; this thread has no caller
            self._woken.clear()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._is_stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout=10)


class _Tether(weakref.ref[HostArray]):
    """A weak reference that frees an array's block when the array is gone, after the work on its streams."""

    __slots__ = ("block", "name", "streams")

    block: Block
    name: int
    streams: dict[int, Any] | None


class _Pool:
    """All pinned memory of this process: the allocator, its thread, and the arrays by identity."""

    def __init__(self) -> None:
        self.index = runtime.current_device()
        self.is_abandoned = False
        self.allocator = HostAllocator(
            PinnedSource(lambda: self.allocator.config, self.index), config=allocators.config()
        )
        self.keeper = _Keeper(self.allocator, self.index)
        self.allocator.on_growth = self.keeper.wake
        self.malloc = self.allocator.stream_pool(HOST).malloc
        self.tethers: dict[int, _Tether] = {}
        self.captured = _Captured(self.allocator)
        self.buffers: dict[int, Any] = {}
        join("cuda", self.captured)

    def buffer(self, start: int, nbytes: int) -> Any:
        """Return the buffer that the arrays of the segment at `start` are views of."""
        buffer = self.buffers[start] = (ctypes.c_char * nbytes).from_address(start)
        return buffer

    def give_back(self, tether: _Tether) -> None:
        """Free the block of an array that is gone, unless this is a forked child (the parent owns it) or exit."""
        if not self.is_abandoned:
            del self.tethers[tether.name]
            if tether.streams and self.captured.is_open:
                self.captured.streams.append(tether.streams)
            free(tether.block)


class _Captured(CaptureKeepAlive):
    """Keeps captured arrays alive, and stops the allocator from querying or recording events during captures."""

    def __init__(self, of: HostAllocator) -> None:
        super().__init__()
        self._allocator = of
        self._entered: dict[int, AbstractContextManager[None]] = {}
        #: The streams of arrays that were dropped during captures; events are recorded on them at the end.
        self.streams: list[dict[int, Any]] = []

    def capture_begin(self, capture: object, device: Device) -> None:
        super().capture_begin(capture, device)
        entered = self._entered[id(capture)] = self._allocator.capturing()
        entered.__enter__()

    def capture_end(self, capture: object, device: Device) -> None:
        super().capture_end(capture, device)
        entered = self._entered.pop(id(capture), None)
        try:
            if entered is not None:
                entered.__exit__(None, None, None)
        finally:
            if not self.is_open:
                self.streams.clear()


class _State:
    pool: _Pool | None = None


_lock = threading.Lock()


def _pool() -> _Pool:
    return _State.pool or _opened_pool()


def _opened_pool() -> _Pool:
    runtime.init()
    with _lock:
        if _State.pool is None:
            _State.pool = _Pool()
        return _State.pool


def allocator() -> HostAllocator:
    """Return the allocator of pinned memory, which is made now if there is none.

    Raises
    ------
    DeviceError, ForkError
        If there is no device, or this process was forked from one that used CUDA.
    """
    return _pool().allocator


def opened() -> HostAllocator | None:
    """Return the allocator of pinned memory, or None if nothing has requested any."""
    return _State.pool.allocator if _State.pool is not None else None


@atexit.register
def _stop() -> None:
    """Make sure that no call is in the driver when it is torn down."""
    if _State.pool is not None:
        _State.pool.is_abandoned = True
        _State.pool.keeper.stop()


def _in_child() -> None:
    """Forget the parent's pool: its pages and its thread are not here, and its locks may be held forever."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    if _State.pool is not None:
        _State.pool.is_abandoned = True
    _State.pool = None


os.register_at_fork(after_in_child=_in_child)


# ------------------------------------------------------------------------------------------------ arrays


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32) -> HostArray:
    """Return an uninitialised C-contiguous array in pinned memory.

    Parameters
    ----------
    shape : int or tuple of int
        The extents.
    dtype : dtype or str
        Any dtype of NumPy or ml_dtypes.

    Raises
    ------
    OutOfMemoryError
        If no more host memory can be pinned.
    """
    pool = _State.pool or _opened_pool()
    wanted = _dtype(dtype)
    nbytes = shape * wanted.itemsize if type(shape) is int else prod(shape) * wanted.itemsize  # type: ignore[arg-type]
    block = pool.malloc(nbytes)
    segment = block.segment
    start = segment.address
    buffer = pool.buffers.get(start)
    if buffer is None or len(buffer) != segment.nbytes:
        buffer = pool.buffer(start, segment.nbytes)
    try:
        array: HostArray = np.ndarray(shape, wanted, buffer, block.address - start)
    except BaseException:
        free(block)
        raise
    tether = _Tether(array, pool.give_back)
    tether.block, tether.streams = block, None
    tether.name = name = id(array)
    pool.tethers[name] = tether
    return array


_dtype = cache(as_dtype)


def reserve(nbytes: int) -> None:
    """Pin `nbytes` for arrays made later, in several pieces at the same time."""
    tended = allocator()
    with ThreadPoolExecutor(4, "cuassay-pin") as threads:
        tended.reserve(nbytes, threads.map)


def _root(array: HostArray) -> HostArray:
    """Return the array that owns `array`'s memory; NumPy keeps it alive as the base."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return array


def _block_of(array: HostArray) -> Block | None:
    """Return the block that `array` is in, if the memory is this allocator's."""
    pool = _State.pool
    if pool is None:
        return None
    tether = pool.tethers.get(id(_root(array)))
    return tether.block if tether is not None else pool.allocator.block_at(_address(array))


def _address(array: HostArray) -> int:
    return int(array.ctypes.data)


def is_allocated(array: HostArray) -> bool:
    """Whether `array` is in pinned memory of this allocator."""
    return _block_of(array) is not None


def is_pinned(array: HostArray) -> bool:
    """Whether `array` is in pinned memory: this allocator's, pinned in place, or another library's.

    This initializes neither the driver nor a context.
    """
    if _block_of(array) is not None or pins.find(array) is not None:
        return True
    return bool(array.size) and not forks.is_child() and forks.driver_is_up() and is_registered(_address(array))


# ------------------------------------------------------------------------------------------------ memory that exists


def pin(array: HostArray) -> Pin:
    """Pin the memory of `array` in place, for every device.

    Raises
    ------
    ArgumentError
        If the array is pinned already, has no elements, is read-only, or is not dense.
    OutOfMemoryError
        If the system does not allow more memory to be pinned.
    """
    runtime.init()
    pins.check(array)
    if is_pinned(array):
        raise ArgumentError(f"{pins.described(array)} is pinned already; use it as it is")
    return Pin(array)


def unpin(array: HostArray) -> None:
    """Undo `pin`, after waiting for pending copies.

    Raises
    ------
    ArgumentError
        If `pin` did not pin this memory.
    """
    found = pins.find(array)
    if found is None:
        raise ArgumentError(f"{pins.described(array)} was not pinned by pin; unpin what pin was given, once")
    found.unpin()


# ------------------------------------------------------------------------------------------------ use


def mark(host: HostArray, index: int, stream: Any) -> bool:
    """Record that a copy on `stream` (CuPy's, of device `index`) uses the memory; return False if it is pageable."""
    pool = _State.pool
    tether = pool.tethers.get(id(_root(host))) if pool is not None else None
    if tether is None or pool is None:
        return _mark_other(host, index, stream)
    key = stream_key(index, stream.ptr)
    if tether.streams is None:
        tether.streams = {}
    if key not in tether.streams:
        tether.streams[key] = stream
        pool.allocator.record_stream(tether.block, key)
    if pool.captured.is_open and stream.is_capturing():
        pool.captured.keep(host)
    return True


def _mark_other(host: HostArray, index: int, stream: Any) -> bool:
    """`mark` for memory outside of this allocator's arrays: pinned in place, by others, or reached by its address."""
    block = _block_of(host)
    if block is not None and _State.pool is not None:
        _State.pool.allocator.record_stream(block, stream_key(index, stream.ptr))
        return True
    found = pins.find(host)
    if found is not None:
        found.used_by(index, stream.ptr)
    return found is not None or is_registered(_address(host))


def address_of(host: HostArray) -> int:
    """Return the address of `host`'s memory."""
    pool = _State.pool
    tether = pool.tethers.get(id(host)) if pool is not None else None
    return tether.block.address if tether is not None else _address(host)
