"""Device memory under ``torch.cuda.memory``'s names.

Differences from torch: `set_allocator_settings` changes only the options it is given; a pluggable allocator keeps the
package's statistics and may be set and removed at any time; queries before the first allocation return empty results
and make no context.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from cuassay.cuda import memory_parts as parts
from cuassay.cuda.memory_figures import (
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
)
from cuassay.cuda.naming import DeviceLike, index_of
from cuassay.errors import ArgumentError
from cuassay.memory import Block, CachingAllocator

if TYPE_CHECKING:
    from cuassay.devices.cuda.memory.ipc import IpcHandle
    from cuassay.devices.cuda.memory.pluggable import CUDAPluggableAllocator
    from cuassay.devices.cuda.memory.pools import MemPool

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "empty_cache",
    "get_allocator_backend",
    "get_allocator_settings",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "ipc_collect",
    "ipc_handle",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_resource",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "open_ipc_handle",
    "record_stream",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_allocator_settings",
    "set_per_process_memory_fraction",
    "use_mem_pool",
    "use_with_cupy",
    "use_with_numba",
]

_CLASSES = {"CUDAPluggableAllocator": "pluggable", "MemPool": "pools"}

#: Names with torch's underscore.
_HISTORY = {
    "_dump_snapshot": "dump_snapshot",
    "_record_memory_history": "record_memory_history",
    "_snapshot": "snapshot",
}


def __getattr__(name: str) -> Any:
    if name in _HISTORY:
        from cuassay.cuda import history

        return getattr(history, _HISTORY[name])
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    found = globals()[name] = getattr(parts.module(_CLASSES[name]), name)
    return found


# ------------------------------------------------------------------------------------------------ memory by address

#: Live blocks of `caching_allocator_alloc`; blocks of arrays are not in it, because the arrays free them.
_raw: dict[int, Block] = {}


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: Any = None) -> int:
    """Return the address of `size` bytes on `device`, ordered by `stream` (None: the device's current stream).

    Parameters
    ----------
    size : int
        The size in bytes.
    stream : object, optional
        A stream of cuassay or CuPy, an address, or any object with ``__cuda_stream__``.

    Raises
    ------
    ArgumentError
        If `size` is negative or not an int, or `stream` is not a stream.
    OutOfMemoryError
        If there is not enough memory.
    """
    block: Block = parts.module("hook").take(size, index_of(device), stream)
    _raw[block.address] = block
    return block.address


def caching_allocator_delete(mem_ptr: Any) -> None:
    """Free the memory that `caching_allocator_alloc` returned at this address.

    Raises
    ------
    ArgumentError
        If it returned no such address, or the memory was freed already; nothing is changed then.
    """
    try:
        block = _raw.pop(mem_ptr)
    except (KeyError, TypeError):
        shown = f"{mem_ptr:#x}" if isinstance(mem_ptr, int) else repr(mem_ptr)
        raise ArgumentError(
            f"no block of caching_allocator_alloc is live at {shown}; free each address that it returned once"
        ) from None
    CachingAllocator.free(block)


def caching_allocator_enable(value: bool = True) -> None:
    """With False, make each allocation from the driver directly, so that tools such as compute-sanitizer can check it.

    Freed blocks are then returned to the driver at the next allocation. Earlier blocks keep their kind, and blocks of a
    private pool, such as a capture's, are still cut from its segments.
    """
    parts.allocators().enable_caching(enabled=bool(value))


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Set `caching_allocator_enable` to False inside the block, and restore it afterwards."""
    former = parts.allocators().is_caching()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(former)


def record_stream(array: Any, stream: Any) -> None:
    """Delay reuse of the memory of `array` until the work that `stream` has when `array` is dropped is done.

    In torch it is a method of tensors. Raises `ArgumentError` if the memory is not from this package's allocator.
    """
    parts.module("hook").record_stream(array, stream)


def use_with_cupy(enabled: bool = True) -> None:
    """Make all CuPy allocations, in every thread, use this package's allocator; False restores CuPy's own pool.

    Existing arrays keep their memory.
    """
    parts.module("hook").use_with_cupy(enabled=enabled)


def use_with_numba() -> None:
    """Make Numba allocate through this package, in the order of the default stream; call it before Numba's first use.

    Raises
    ------
    LibraryNotFoundError
        If Numba is not installed.
    """
    parts.module("interop").use_with_numba()


def memory_resource(device: DeviceLike = None) -> Any:
    """Return a ``cuda.core.MemoryResource`` over the allocator of `device`."""
    return parts.module("interop").memory_resource(index_of(device))


# ------------------------------------------------------------------------------------------------ other processes


def ipc_handle(array: Any) -> IpcHandle:
    """Return a handle by which another process can use `array` once: pickle it, send it, call `open_ipc_handle` there.

    The memory is kept until the importing process has dropped its array or ended. Raises `ArgumentError` for memory
    that is not from this package's allocator, or is made of pages; ``use_mem_pool(MemPool(one_handle=True))`` avoids
    pages.
    """
    handle: IpcHandle = parts.module("ipc").share(array)
    return handle


def open_ipc_handle(handle: IpcHandle) -> Any:
    """Return the array of another process; the current stream waits for the exporter's work on it.

    Raises
    ------
    ArgumentError
        If the handle was already opened, or its exporter has ended.
    DeviceError
        If its device is not visible here, or if this process is the exporter.
    """
    return parts.module("ipc").open_handle(handle)


def ipc_collect() -> None:
    """Release exported memory whose importers are done; this happens automatically when memory is short."""
    parts.module("ipc").collect()


# ------------------------------------------------------------------------------------------------ how it behaves


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit the memory that this process may reserve on `device` to a `fraction` of it, from 0 to 1.

    Raises
    ------
    TypeError
        If `fraction` is not a float.
    SettingError
        If it is not from 0 to 1.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"a memory fraction is a float; got {fraction!r}; write {_as_float(fraction)}")
    parts.allocators().configure(f"per_process_memory_fraction:{fraction!r}", _allocator_index(device))


def _as_float(value: object) -> str:
    return f"{float(value)}" if isinstance(value, int) else "0.5, say"


def _allocator_index(device: DeviceLike) -> int:
    """Return the index of `device`, after creating its allocator."""
    index = index_of(device)
    parts.allocators().allocator(index)
    return index


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Return the fraction of the memory of `device` that this process may reserve."""
    return parts.allocator(device).config.per_process_memory_fraction


def set_allocator_settings(settings: str) -> None:
    """Change the options that `settings` names, on every device, now and for allocators that are created later.

    Parameters
    ----------
    settings : str
        As in ``CUASSAY_ALLOC_CONF``, such as ``"max_split_size_mb:128,garbage_collection_threshold:0.8"``. Other
        options keep their values, unlike in torch.

    Raises
    ------
    SettingError
        If an option does not exist or has a bad value; nothing is changed then.
    ArgumentError
        If the backend would change after the first allocation.
    """
    parts.allocators().configure(settings)
    if (host := parts.host()) is not None:
        host.configure(settings)


def get_allocator_settings(device: DeviceLike = None) -> str:
    """Return the options of `device` that are not at their defaults, in the form of `set_allocator_settings`."""
    found = parts.opened(device)
    return str(parts.allocators().config() if found is None else found.config)


def get_allocator_backend() -> str:
    """Return the source of memory: ``native``, ``cudaMallocAsync`` or ``pluggable``."""
    return "pluggable" if parts.allocators().is_changed() else str(parts.allocators().config().backend)


def change_current_allocator(allocator: CUDAPluggableAllocator | None) -> None:
    """Allocate the memory of every device from `allocator`; None restores the driver.

    Unlike in torch, it may be called at any time. Existing arrays keep their memory, which is freed by the allocator
    that made it. Settings of a device stay. Statistics are those of the current allocator; `memory_snapshot` also lists
    the live blocks of earlier ones. Pools made before cannot be used any more.
    """
    parts.allocators().change_allocator(None if allocator is None else allocator.source)


def empty_cache() -> None:
    """Return all free segments of all devices to the driver; does nothing during a capture or before the first use."""
    for found in parts.allocators().every_allocator():
        found.empty_cache()


def use_mem_pool(pool: Any, device: DeviceLike = None) -> AbstractContextManager[None]:
    """Make this thread's allocations, including CuPy's, come from `pool` inside the block; the innermost block wins.

    Parameters
    ----------
    pool : MemPool or tuple of int
        A pool, or a pool's id.

    Raises
    ------
    ArgumentError
        If `pool` is not a pool of `device`.
    """
    entered: AbstractContextManager[None] = parts.module("pools").use_mem_pool(
        pool, None if device is None else index_of(device)
    )
    return entered
