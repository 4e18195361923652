"""CuPy arrays on memory of ours: the object that CuPy holds, the finaliser in it, and the hook that makes all so.

An array's memory is CuPy's `UnownedMemory` over a lease: when the last array on it is gone, so is the lease, and its
finaliser is `cuassay.memory`'s ``free``: one ``list.append``, safe at any moment and in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import cupy

from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.launch import stream_address
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory.direct import Direct
from cuassay.devices.cuda.memory.order import kept
from cuassay.errors import ArgumentError
from cuassay.memory import Block
from cuassay.memory.blocks import FREED

__all__ = ["Lease", "allocate", "block_of", "empty", "is_ours", "pointer", "record_stream", "use_with_cupy", "using"]

_ndarray: Any = cupy.ndarray
_pointer: Any = cupy.cuda.MemoryPointer
_memory: Any = cupy.cuda.UnownedMemory
_current_stream: Callable[..., Any] = cupy.cuda.get_current_stream
_current_device: Callable[[], int] = cupy.cuda.runtime.getDevice


class Lease:
    """Gives a block back when it is dropped.

    Attributes
    ----------
    block : Block
        The block.
    """

    __slots__ = ("block",)

    def __init__(self, block: Block) -> None:
        self.block = block

    def __del__(self, freed: Any = FREED) -> None:
        # cuassay.memory.free, written out: a call less on every array
        block = self.block
        home = block.home
        block.home = freed
        home.append(block)

    def __repr__(self) -> str:
        return f"Lease({self.block!r})"


def pointer(block: Block, nbytes: int, index: int) -> Any:
    """A `cupy.cuda.MemoryPointer` to `block` of device `index`, which gives the block back when it is gone."""
    return _pointer(_memory(block.address, nbytes, Lease(block), index), 0)


def allocate(nbytes: int) -> Any:
    """Memory on the current device, in the order of its current stream: what CuPy calls an allocator.

    Raises
    ------
    OutOfMemoryError
        If there is no room.
    """
    index = _current_device()
    malloc = _serving.get(index) or allocators.malloc(index)
    if not nbytes:
        return _pointer(_memory(0, 0, None, index), 0)
    return pointer(malloc(nbytes, _current_stream().ptr), nbytes, index)


def empty(shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
    """An uninitialised C-contiguous array on device `index`, in the order of `stream` (None: its current one).

    Raises
    ------
    OutOfMemoryError
        If there is no room.
    """
    malloc = _serving.get(index) or allocators.malloc(index)
    nbytes = prod(shape) * dtype.itemsize
    if not nbytes:
        return _ndarray(shape, dtype, _pointer(_memory(0, 0, None, index), 0))
    address = _current_stream(index).ptr if stream is None else address_of(stream)
    return _ndarray(shape, dtype, pointer(malloc(nbytes, address), nbytes, index))


def address_of(stream: Any) -> int:
    """The address of `stream`, an int, ours, CuPy's or any ``__cuda_stream__`` object, as the allocator numbers it.

    Raises
    ------
    ArgumentError
        If it is no stream, or the per-thread default one: one address for a stream in each thread.
    """
    address = stream_address(stream)
    if address == _PER_THREAD:
        raise ArgumentError(
            f"{stream!r} is the per-thread default stream, another one in each thread; give a stream of its own"
        )
    if address <= _LEGACY:
        return 0
    kept.setdefault(address, stream)
    return address


def current_address(index: int, stream: Any = None) -> int:
    """`address_of`, and of the current stream of device `index` for None."""
    return int(_current_stream(index).ptr) if stream is None else address_of(stream)


#: Addresses that the driver reserves for its two default streams; 0 is the legacy one as well.
_LEGACY, _PER_THREAD = 1, 2

#: Device index to what serves it: `allocators`' table itself, a call less.
_serving = allocators.serving


def block_of(array: Any) -> Block | None:
    """The block that `array` lies in, or None where it is not ours."""
    lease = getattr(array.data.mem, "_owner", None)
    return lease.block if type(lease) is Lease else None


# ------------------------------------------------------------------------------------------------ every allocation


def use_with_cupy(*, enabled: bool = True) -> None:
    """Make every allocation of CuPy ours, in every thread; with ``enabled=False`` CuPy's own pool serves again.

    Arrays made before keep the memory they have.
    """
    runtime.init()
    cupy.cuda.set_allocator(allocate if enabled else cupy.get_default_memory_pool().malloc)


def record_stream(array: Any, stream: Any) -> None:
    """The memory of `array` is not used again before what `stream` was given until the array is dropped.

    Raises
    ------
    ArgumentError
        If the array's memory is not ours.
    """
    block = block_of(array)
    if block is None:
        raise ArgumentError(
            "record_stream needs an array on our memory, this one's is another's; make it with cuassay.empty, or call "
            "use_with_cupy() first"
        )
    if type(block.home) is Direct:
        return  # the driver waits for every stream before it takes such a block back
    allocators.allocator(array.data.device_id).record_stream(block, address_of(stream))


def is_ours() -> bool:
    """Whether CuPy allocates from us in this thread."""
    return bool(cupy.cuda.get_allocator() is allocate)


@contextmanager
def using() -> Iterator[None]:
    """CuPy allocates from us inside the block, in this thread."""
    with cupy.cuda.using_allocator(allocate):
        yield
