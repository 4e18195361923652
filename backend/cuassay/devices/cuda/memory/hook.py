"""CuPy arrays on this allocator's memory: the memory object of an array, its finaliser, and CuPy's allocation hook.

An array holds a `Memory`, which is CuPy's `UnownedMemory` with a block as its owner. When the last array on it is gone,
its finaliser frees the block. That is one ``list.append``, which is safe at any time and in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import cupy

from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda.driver import cupy_private, runtime
from cuassay.devices.cuda.driver.context import device_of_stream
from cuassay.devices.cuda.launch.launch import stream_address
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory import perthread
from cuassay.devices.cuda.memory.order import kept, number
from cuassay.devices.cuda.memory.uncached import UncachedAllocator
from cuassay.errors import ArgumentError, CapabilityError, DeviceError
from cuassay.memory import Block
from cuassay.memory.blocks import FREED

__all__ = [
    "Memory",
    "address_of",
    "allocate",
    "block_of",
    "empty",
    "fresh",
    "is_ours",
    "pointer",
    "record_stream",
    "take",
    "use_with_cupy",
    "using",
]


class Memory(cupy.cuda.UnownedMemory):  # type: ignore[misc] # cupy ships no types
    """A block as CuPy holds it; it frees the block when the last array on it is gone."""

    __slots__ = ()
    block: Any = cupy_private.owner_of_memory

    def __del__(self, freed: Any = FREED) -> None:
        # cuassay.memory.free, inlined to save a call for every array
        block = self.block
        home = block.home
        block.home = freed
        home.append(block)


_pointer: Any = cupy.cuda.MemoryPointer
_unowned: Any = cupy.cuda.UnownedMemory
_current_stream: Callable[..., Any] = cupy.cuda.get_current_stream
_current_device: Callable[[], int] = cupy.cuda.runtime.getDevice
_array = cupy_private.make_array
_fast: Callable[[int], Callable[[int], Block] | None] = allocators.malloc_by_stream.get

#: With one device, the current device is always 0.
_has_many = runtime.device_count() > 1


def pointer(block: Block, nbytes: int, index: int) -> Any:
    """Return a `cupy.cuda.MemoryPointer` to `block` of device `index`, which frees the block when it is gone."""
    return _pointer(Memory(block.address, nbytes, block, index), 0)


def allocate(nbytes: int) -> Any:
    """Allocate on the current device, in the order of its current stream; this is an allocator in CuPy's sense.

    Raises
    ------
    OutOfMemoryError
        If there is not enough memory.
    """
    try:
        index = _current_device() if _has_many else 0
        address = _current_stream().ptr
    except RuntimeError:  # CuPy's error in a forked child; init raises one that says what to do
        runtime.init()
        raise
    if not nbytes:
        return _pointer(_unowned(0, 0, None, index), 0)
    serve = _fast(address or -index)
    block = serve(nbytes) if serve is not None else allocators.find_malloc(index, address)(nbytes)
    return _pointer(Memory(block.address, nbytes, block, index), 0)


#: Maps every accepted form of a dtype to the dtype and its size, so that one look-up converts and checks.
_stored: dict[Any, tuple[Any, int]] = {}


def _admit(dtype: Any, index: int) -> tuple[Any, int]:
    wanted = as_dtype(dtype)
    if wanted.itemsize == 1 and wanted.kind not in "biu":
        raise CapabilityError(f"cuda:{index}: no {dtype}: CuPy has no fp8 dtype; keep it as uint8")
    entry = _stored[dtype] = wanted, wanted.itemsize
    return entry


def empty(shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
    """Return an uninitialised C-contiguous array on device `index`, in the order of `stream` (None: its current one).

    Raises
    ------
    OutOfMemoryError
        If there is not enough memory.
    CapabilityError
        If CuPy has no such dtype.
    DeviceError
        If `stream` belongs to another device.
    """
    try:
        dtype, itemsize = _stored[dtype]
    except (KeyError, TypeError):
        dtype, itemsize = _admit(dtype, index)
    try:
        address = _current_stream(index).ptr if stream is None else _address_on(index, stream)
    except DeviceError:
        raise
    except RuntimeError:  # as in `allocate`
        runtime.init()
        raise
    nbytes = prod(shape) * itemsize
    if not nbytes:
        return _array(shape, dtype, _pointer(_unowned(0, 0, None, index), 0))
    serve = _fast(address or -index)
    block = serve(nbytes) if serve is not None else allocators.find_malloc(index, address)(nbytes)
    return _array(shape, dtype, _pointer(Memory(block.address, nbytes, block, index), 0))


def fresh(shape: tuple[int, ...], dtype: Any, nbytes: int, index: int, address: int) -> Any:
    """`empty` for callers that know CuPy's dtype, the bytes (more than 0), and the address of the current stream."""
    serve = _fast(address or -index)
    block = serve(nbytes) if serve is not None else allocators.find_malloc(index, address)(nbytes)
    return _array(shape, dtype, _pointer(Memory(block.address, nbytes, block, index), 0))


def address_of(stream: Any, index: int = -1) -> int:
    """Return the allocator's number of `stream`: an int, a cuassay or CuPy stream, or any ``__cuda_stream__`` object.

    For this thread's own default stream it is the number for device `index` (-1: the current one).

    Raises
    ------
    ArgumentError
        If it is not a stream.
    """
    address = stream_address(stream)
    if address <= perthread.LEGACY:
        return 0
    if address == perthread.PER_THREAD:
        where = device_of_stream(address, stream)
        if where is None:
            where = _current_device() if index < 0 else index
        return number(where)
    kept.setdefault(address, stream)
    return address


def _address_on(index: int, stream: Any) -> int:
    """Return `address_of` a stream that may order memory of device `index`, which must be on that device."""
    address = address_of(stream, index)
    named = perthread.PER_THREAD if perthread.is_number(address) else address
    if _has_many and (where := device_of_stream(named, stream)) not in (None, index):
        raise DeviceError(
            f"memory of cuda:{index} is not ordered by a stream of cuda:{where}; give one of cuda:{index}, or take "
            f"memory of cuda:{where}"
        )
    return address


def take(nbytes: int, index: int, stream: Any = None) -> Block:
    """Return a block of device `index`, in the order of `stream` (None: its current one).

    Raises the errors of `empty`.
    """
    address = _current_stream(index).ptr if stream is None else _address_on(index, stream)
    serve = _fast(address or -index)
    return serve(nbytes) if serve is not None else allocators.find_malloc(index, address)(nbytes)


def block_of(array: Any) -> Block | None:
    """Return the block that `array` is in, or None if its memory is not cuassay's."""
    memory = array.data.mem
    return memory.block if type(memory) is Memory else None


# ------------------------------------------------------------------------------------------------ every allocation


def use_with_cupy(*, enabled: bool = True) -> None:
    """Make all of CuPy's allocations come from cuassay, in every thread; ``enabled=False`` restores CuPy's pool.

    Existing arrays keep their memory.
    """
    runtime.init()
    cupy.cuda.set_allocator(allocate if enabled else cupy.get_default_memory_pool().malloc)


def record_stream(array: Any, stream: Any) -> None:
    """Keep the memory of `array` from being reused before the work that `stream` has when the array is dropped.

    Raises
    ------
    ArgumentError
        If the array's memory is not cuassay's.
    DeviceError
        If `stream` is the default stream of another device: its address, 0, is the same on each device.
    """
    block = block_of(array)
    if block is None:
        raise ArgumentError(
            "record_stream needs an array in cuassay's memory; this array's memory is another allocator's; make it "
            "with cuassay.empty, or call use_with_cupy() first"
        )
    if type(block.home) is UncachedAllocator:
        return  # the driver waits for every stream before it frees such a block
    index = array.data.device_id
    address = address_of(stream, index)
    if _has_many and not address and (where := device_of_stream(address, stream)) not in (None, index):
        raise DeviceError(
            f"the default stream of cuda:{where} cannot be recorded for memory of cuda:{index}; "
            "use a non-default stream"
        )
    allocators.allocator(index).record_stream(block, address)


def is_ours() -> bool:
    """Whether CuPy allocates from cuassay in this thread."""
    return bool(cupy.cuda.get_allocator() is allocate)


@contextmanager
def using() -> Iterator[None]:
    """Make CuPy allocate from cuassay inside the block, in this thread."""
    with cupy.cuda.using_allocator(allocate):
        yield
