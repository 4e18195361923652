"""The allocator for other libraries: as a memory resource of cuda.core, and as Numba's external memory manager.

Both import their library only when they are called.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.check import guarded
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.allocator import allocator
from cuassay.devices.cuda.memory.uncached import UncachedAllocator
from cuassay.errors import ArgumentError, LibraryNotFoundError
from cuassay.memory import Block, CachingAllocator

__all__ = ["memory_resource", "numba_memory_manager", "use_with_numba"]


def memory_resource(index: int | None = None) -> Any:
    """Return a ``cuda.core.MemoryResource`` over the allocator of device `index` (None: the current one).

    Set it as ``device.memory_resource``, or call its `allocate`. If a buffer is closed on another stream than the one
    it was made on, its memory is reused after that stream's work.
    """
    runtime.init()
    return _resource_class()(runtime.current_device() if index is None else index)


@cache
def _resource_class() -> type:
    with guarded("cuda.core"):
        from cuda.core import Buffer, MemoryResource, Stream

    class AllocatorResource(MemoryResource):  # type: ignore[misc] # cuda.core ships no types that mypy reads
        """Makes cuda.core buffers on cuassay's memory."""

        def __init__(self, index: int) -> None:
            self._index = index
            self._blocks: dict[int, Block] = {}

        def __repr__(self) -> str:
            return f"AllocatorResource(cuda:{self._index})"

        def allocate(self, size: int, *, stream: Any = None) -> Any:
            """Return a buffer of `size` bytes, in the order of `stream` (None: CuPy's current one)."""
            block = hook.take(size, self._index, stream)
            self._blocks[block.address] = block
            ordered = {"stream": stream} if isinstance(stream, Stream) else {}
            return Buffer.from_handle(block.address, size, mr=self, **ordered)

        def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
            """Free a buffer's memory after the work that `stream` has been given."""
            block = self._blocks.get(int(ptr))
            if block is None:
                raise ArgumentError(f"{self!r} has no buffer at {int(ptr):#x}; close each of its buffers once")
            if stream is not None and type(block.home) is not UncachedAllocator:  # as in `hook.record_stream`
                allocator(self._index).record_stream(block, hook.address_of(stream, self._index))
            del self._blocks[int(ptr)]
            CachingAllocator.free(block)

        @property
        def is_device_accessible(self) -> bool:
            """True."""
            return True

        @property
        def is_host_accessible(self) -> bool:
            """False."""
            return False

        @property
        def device_id(self) -> int:
            """The index of its device."""
            return self._index

    return AllocatorResource


# ------------------------------------------------------------------------------------------------ Numba


def use_with_numba() -> None:
    """Make Numba take its device memory from cuassay, in the order of the default stream.

    Call it before Numba's first use.

    Numba names no stream when it allocates, so wait for work on other streams before an array is dropped.

    Raises
    ------
    LibraryNotFoundError
        If Numba is not installed.
    """
    manager = numba_memory_manager()
    from numba import cuda

    cuda.set_memory_manager(manager)


@cache
def numba_memory_manager() -> type:
    """Return the class that ``numba.cuda.set_memory_manager`` takes."""
    try:
        from numba import cuda
    except ImportError as error:
        raise LibraryNotFoundError(f"Numba cannot be used: {error}; install numba-cuda") from error

    class NumbaMemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Numba's external memory management interface, version 1, over the allocator of each device."""

        def initialize(self) -> None:
            """Do nothing: the allocator is made at its first use."""

        def memalloc(self, size: int) -> Any:
            """Allocate `size` bytes on the context's device."""
            block = hook.take(size, int(self.context.device.id), 0)
            return cuda.MemoryPointer(self.context, block.address, size, finalizer=lambda: CachingAllocator.free(block))

        def get_memory_info(self) -> Any:
            """Return the free and the total memory of the context's device, in bytes."""
            free, total = runtime.mem_get_info(int(self.context.device.id))
            return cuda.MemoryInfo(free=free, total=total)

        @property
        def interface_version(self) -> int:
            """1."""
            return 1

    return NumbaMemoryManager
