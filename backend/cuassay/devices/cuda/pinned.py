"""Pinned host arrays: plain `numpy.ndarray`, their memory from one allocator; and memory pinned where it is.

The memory of an array returns when the last view of it is gone, and is not reused before the copies that `mark` told of
are done. Memory that exists already can be pinned in place. What a forked child inherits is not its own: the
pages are not there, and nothing is given back.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from math import prod
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.participants import join
from cuassay.devices.cuda import forks, runtime
from cuassay.devices.cuda.memory.order import at
from cuassay.devices.cuda.pages import PinnedSource, is_registered, register, stream_key, unregister
from cuassay.errors import ArgumentError
from cuassay.memory.blocks import Block
from cuassay.memory.host import HOST, HostAllocator
from cuassay.memory.lane import free

__all__ = ["Pin", "allocator", "empty", "is_pinned", "mark", "opened", "pin", "unpin"]

HostArray = np.ndarray[Any, Any]


# ------------------------------------------------------------------------------------------------ the allocator


class _Keeper:
    """The thread that tends the allocator: wakes when memory was pinned, stays awake while copies are awaited."""

    _PATIENCE = 1e-3

    def __init__(self, tended: HostAllocator, index: int) -> None:
        self._allocator = tended
        self._index = index
        self._woken = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to do."""
        if not self._allocator.config.pinned_use_background_threads or self._is_stopped:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cuassay-pinned", daemon=True)
            self._thread.start()
        self._woken.set()

    def _run(self) -> None:
        runtime.set_device(self._index)
        while not self._is_stopped:
            self._woken.wait(self._PATIENCE if self._allocator.lane(HOST).deferred.queue else None)
            self._woken.clear()
            if not self._is_stopped:
                self._tend()

    def _tend(self) -> None:
        try:
            self._allocator.tend()
        except MemoryError:  # nothing can be pinned ahead: whoever needs memory will be told
            self._woken.clear()

    def stop(self) -> None:
        """End the thread; waits for it."""
        self._is_stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout=10)


class _Tether(weakref.ref[HostArray]):
    """Follows one array to its end, to give its block back."""

    __slots__ = ("block", "name")

    block: Block
    name: int


class _Pool:
    """All pinned memory of this process: the allocator, its thread, and the arrays by identity."""

    def __init__(self) -> None:
        self.index = runtime.current_device()
        self.is_abandoned = False
        self.allocator = HostAllocator(PinnedSource(lambda: self.allocator.config, self.index))
        self.keeper = _Keeper(self.allocator, self.index)
        self.allocator.on_growth = self.keeper.wake
        self.malloc = self.allocator.lane(HOST).malloc
        self.tethers: dict[int, _Tether] = {}
        self.captured = _Captured(self.allocator)
        self._buffers: dict[int, Any] = {}
        join("cuda", self.captured)

    def buffer(self, block: Block) -> tuple[Any, int]:
        """What the array of `block` is a view of, and where it begins there."""
        segment = block.segment
        start = segment.address
        buffer = self._buffers.get(start)
        if buffer is None or len(buffer) != segment.nbytes:
            buffer = self._buffers[start] = (ctypes.c_char * segment.nbytes).from_address(start)
        return buffer, block.address - start

    def give_back(self, tether: _Tether) -> None:
        """The array is gone; in a forked child, its block is still the parent's."""
        if not self.is_abandoned:
            del self.tethers[tether.name]
            free(tether.block)


class _Captured:
    """What captured copies use stays while their graph may be replayed; and during a capture no event is asked for."""

    def __init__(self, of: HostAllocator) -> None:
        self._allocator = of
        self._open: dict[int, Any] = {}
        self._kept: dict[int, list[HostArray]] = {}

    def capture_begin(self, capture: object, device: Device) -> None:
        self._kept[id(capture)] = []
        opened = self._open[id(capture)] = self._allocator.capturing()
        opened.__enter__()

    def capture_end(self, capture: object, device: Device) -> None:
        self._close(capture)

    def capture_forget(self, capture: object, device: Device) -> None:
        self._close(capture)
        self._kept.pop(id(capture), None)

    def _close(self, capture: object) -> None:
        opened = self._open.pop(id(capture), None)
        if opened is not None:
            opened.__exit__(None, None, None)

    @property
    def is_open(self) -> bool:
        """Whether something is being captured."""
        return bool(self._open)

    def keep(self, array: HostArray) -> None:
        """A copy that is being captured uses `array`."""
        for capture in self._open:
            self._kept[capture].append(array)


class _State:
    pool: _Pool | None = None
    pins: dict[int, Pin] = {}  # noqa: RUF012  # the process's one state


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
    """The allocator of pinned memory, made now if there was none.

    Raises
    ------
    DeviceError, ForkError
        If there is no device, or this process was forked from one that used CUDA.
    """
    return _pool().allocator


def opened() -> HostAllocator | None:
    """The allocator of pinned memory, or None where nothing has asked for any."""
    return _State.pool.allocator if _State.pool is not None else None


@atexit.register
def _stop() -> None:
    """No thread of ours is in the driver when it is torn down."""
    if _State.pool is not None:
        _State.pool.keeper.stop()


def _in_child() -> None:
    """The parent's: its pages are not here, its thread neither, and its locks may be held by nobody."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    if _State.pool is not None:
        _State.pool.is_abandoned = True
    _State.pool, _State.pins = None, {}


os.register_at_fork(after_in_child=_in_child)


# ------------------------------------------------------------------------------------------------ arrays


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32) -> HostArray:
    """An uninitialised C-contiguous array in pinned memory.

    Parameters
    ----------
    shape : int or tuple of int
        Its extents.
    dtype : dtype or str
        Any that NumPy and ml_dtypes have.

    Raises
    ------
    OutOfMemoryError
        If the host has no memory left to pin.
    """
    pool = _State.pool or _opened_pool()
    wanted = as_dtype(dtype)
    extents = shape if isinstance(shape, tuple) else (shape,)
    block = pool.malloc(prod(extents) * wanted.itemsize)
    try:
        buffer, offset = pool.buffer(block)
        array: HostArray = np.ndarray(extents, wanted, buffer, offset)
    except BaseException:
        free(block)
        raise
    tether = _Tether(array, pool.give_back)
    tether.block, tether.name = block, id(array)
    pool.tethers[id(array)] = tether
    return array


def _root(array: HostArray) -> HostArray:
    """The array whose memory `array` shows; NumPy keeps it alive as its base."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return array


def _block_of(array: HostArray) -> Block | None:
    """The block of ours that `array` lies in."""
    pool = _State.pool
    if pool is None:
        return None
    tether = pool.tethers.get(id(_root(array)))
    return tether.block if tether is not None else pool.allocator.block_at(_address(array))


def _address(array: HostArray) -> int:
    return int(array.ctypes.data)


def is_pinned(array: HostArray) -> bool:
    """Whether `array` is in pinned memory: of ours, pinned in place, or of another library.

    Neither the driver nor a context is brought up to find out.
    """
    if _block_of(array) is not None or _pin_of(array) is not None:
        return True
    return bool(array.size) and not forks.is_child() and forks.driver_is_up() and is_registered(_address(array))


# ------------------------------------------------------------------------------------------------ memory that exists


class Pin(Handle):
    """Memory of an array pinned where it is; ``with pin(array):`` unpins it at the end of the block.

    Attributes
    ----------
    array : numpy.ndarray
        The array, which the pin keeps alive.
    """

    def __init__(self, array: HostArray, address: int) -> None:
        self.array = array
        self.address = address
        self._users: dict[int, int] = {}

    def __repr__(self) -> str:
        state = "pinned" if _State.pins.get(self.address) is self else "unpinned"
        return f"Pin({self.array.nbytes:,} bytes at {self.address:#x}, {state})"

    def used_by(self, index: int, address: int) -> None:
        """A copy on the stream at `address` of device `index` uses it: unpinning waits for that stream."""
        self._users[stream_key(index, address)] = index

    def unpin(self) -> None:
        """Make the memory ordinary again, once copies under way are done; a second time changes nothing."""
        if _State.pins.get(self.address) is not self:
            return
        for index in set(self._users.values()):  # of the streams themselves, some may be gone
            runtime.synchronize(index)
        del _State.pins[self.address]
        unregister(self.address)

    def __enter__(self) -> HostArray:
        return self.array

    def __exit__(self, *error: object) -> None:
        self.unpin()


def pin(array: HostArray) -> Pin:
    """Pin the memory of `array` where it is, for every device.

    Raises
    ------
    ArgumentError
        If it is pinned already, has no elements, cannot be written, or is not dense.
    OutOfMemoryError
        If the system lets no more be pinned.
    """
    runtime.init()
    if not array.size or not array.flags.writeable or not _is_dense(array):
        raise ArgumentError(
            f"pin takes a numpy.ndarray that can be written, with elements side by side; got {_described(array)}; "
            "pin the array it is a view of, or copy it with pin_memory"
        )
    if is_pinned(array):
        raise ArgumentError(f"{_described(array)} is pinned already; use it as it is")
    made = Pin(array, min(_address(array), _lowest(array)))
    with at(runtime.current_device()):
        register(made.address, array.nbytes)
    _State.pins[made.address] = made
    return made


def unpin(array: HostArray) -> None:
    """Undo `pin`, once copies under way are done.

    Raises
    ------
    ArgumentError
        If `pin` did not pin this memory.
    """
    found = _pin_of(array)
    if found is None:
        raise ArgumentError(f"{_described(array)} was not pinned by pin; unpin what pin was given, once")
    found.unpin()


def _pin_of(array: HostArray) -> Pin | None:
    if not _State.pins:
        return None
    low = _lowest(array)
    for found in tuple(_State.pins.values()):
        if found.address <= low < found.address + found.array.nbytes:
            return found
    return None


def _lowest(array: HostArray) -> int:
    return int(np.lib.array_utils.byte_bounds(array)[0])


def _is_dense(array: Any) -> bool:
    low, high = np.lib.array_utils.byte_bounds(array)
    return bool(high - low == array.nbytes)


def _described(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return f"{type(array).__qualname__}"
    return f"an array of shape {array.shape}, {array.dtype}, strides {array.strides}"


# ------------------------------------------------------------------------------------------------ use


def mark(host: HostArray, stream: Any) -> bool:
    """Note that a copy on `stream` (CuPy's, of the current device) uses the memory; False where it is pageable."""
    block, index = _block_of(host), runtime.current_device()
    if block is not None:
        pool = _pool()
        pool.allocator.record_stream(block, stream_key(index, stream.ptr))
        if pool.captured.is_open and stream.is_capturing():
            pool.captured.keep(host)
        return True
    found = _pin_of(host)
    if found is not None:
        found.used_by(index, stream.ptr)
    return found is not None or is_registered(_address(host))
