"""Device memory by ``torch.cuda.memory``'s names.

Where we differ from torch: options given to `set_allocator_settings` change those and keep the others; a pluggable
allocator keeps our statistics, and may come and go at any time; what is asked of the allocator before anything was
allocated answers with nothing, and makes no context.
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

#: As torch spells them.
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

#: What `caching_allocator_alloc` gave: an array's block is its own to free.
_raw: dict[int, Block] = {}


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: Any = None) -> int:
    """The address of `size` bytes on `device`, in the order of `stream` (None: the device's current one).

    Parameters
    ----------
    size : int
        Bytes.
    stream : object, optional
        One of ours, CuPy's, an address, or any object with ``__cuda_stream__``.

    Raises
    ------
    ArgumentError
        If `size` is negative or not an int, or `stream` is not a stream.
    OutOfMemoryError
        If there is no room.
    """
    block: Block = parts.module("hook").take(size, index_of(device), stream)
    _raw[block.address] = block
    return block.address


def caching_allocator_delete(mem_ptr: Any) -> None:
    """Give back what `caching_allocator_alloc` gave at this address.

    Raises
    ------
    ArgumentError
        If it gave nothing there, or it was given back already; nothing is changed then.
    """
    try:
        block = _raw.pop(mem_ptr)
    except (KeyError, TypeError):
        shown = f"{mem_ptr:#x}" if isinstance(mem_ptr, int) else repr(mem_ptr)
        raise ArgumentError(
            f"caching_allocator_alloc gave nothing at {shown} that is still to be freed; give an address of its, once"
        ) from None
    CachingAllocator.free(block)


def caching_allocator_enable(value: bool = True) -> None:
    """With False, each allocation is one of the driver's own, which tools such as compute-sanitizer can then watch.

    A block freed then goes back to the driver at the next allocation. Blocks made before stay what they are, and
    those of a private pool, as a capture's, are cut from its segments as ever.
    """
    parts.allocators().enable_caching(enabled=bool(value))


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """`caching_allocator_enable` with False inside the block, and as it was after it."""
    former = parts.allocators().is_caching()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(former)


def record_stream(array: Any, stream: Any) -> None:
    """After `array` is dropped, its memory is used again only after what `stream` was given until then.

    torch has it as a method of tensors. Raises `ArgumentError` for an array whose memory is not ours.
    """
    parts.module("hook").record_stream(array, stream)


def use_with_cupy(enabled: bool = True) -> None:
    """Make every allocation of CuPy ours, in every thread; with False CuPy's own pool serves again.

    Arrays made before keep the memory they have.
    """
    parts.module("hook").use_with_cupy(enabled=enabled)


def use_with_numba() -> None:
    """Let Numba take its device memory from us, in the order of the default stream; call it before Numba's first use.

    Raises
    ------
    LibraryNotFoundError
        If Numba is not installed.
    """
    parts.module("interop").use_with_numba()


def memory_resource(device: DeviceLike = None) -> Any:
    """A ``cuda.core.MemoryResource`` over the allocator of `device`."""
    return parts.module("interop").memory_resource(index_of(device))


# ------------------------------------------------------------------------------------------------ other processes


def ipc_handle(array: Any) -> IpcHandle:
    """What another process needs to use `array`, once: pickle it, send it, call `open_ipc_handle` there.

    The memory is kept until the importer has dropped its array, or ended. Raises `ArgumentError` for memory that is not
    ours or in pages; what is allocated inside ``use_mem_pool(MemPool(one_handle=True))`` is in one piece.
    """
    handle: IpcHandle = parts.module("ipc").share(array)
    return handle


def open_ipc_handle(handle: IpcHandle) -> Any:
    """The array of another process; the current stream waits for what it was given there.

    Raises
    ------
    ArgumentError
        If the handle was opened already, or its exporter is gone.
    DeviceError
        If its device is not visible here, or this is the exporter itself.
    """
    return parts.module("ipc").open_handle(handle)


def ipc_collect() -> None:
    """Let go of exported memory whose importers are done; this happens by itself when memory is short."""
    parts.module("ipc").collect()


# ------------------------------------------------------------------------------------------------ how it behaves


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Let this process reserve at most `fraction` (0 to 1) of the memory of `device`.

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
    """The index of `device`, whose allocator exists after this."""
    index = index_of(device)
    parts.allocators().allocator(index)
    return index


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The share of the memory of `device` that this process may reserve."""
    return parts.allocator(device).config.per_process_memory_fraction


def set_allocator_settings(settings: str) -> None:
    """Change the options that `settings` mentions, on every device, now and for allocators that are made later.

    Parameters
    ----------
    settings : str
        As ``CUASSAY_ALLOC_CONF``, such as ``"max_split_size_mb:128,garbage_collection_threshold:0.8"``. Options that
        it does not mention keep their value, unlike torch's.

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
    """The options in force on `device` that are not at their default, as `set_allocator_settings` takes them."""
    found = parts.opened(device)
    return str(parts.allocators().config() if found is None else found.config)


def get_allocator_backend() -> str:
    """Where memory comes from: ``native``, ``cudaMallocAsync`` or ``pluggable``."""
    return "pluggable" if parts.allocators().is_changed() else str(parts.allocators().config().backend)


def change_current_allocator(allocator: CUDAPluggableAllocator | None) -> None:
    """Take the memory of every device from `allocator`; None takes it from the driver again.

    It may be called at any time, unlike torch's. Arrays made before stay where they are, and their memory goes back to
    the allocator that made it. What was set for a device holds on. Figures are those of the allocator in force; of the
    ones before, `memory_snapshot` has what is still live. Pools made before serve no more.
    """
    parts.allocators().change_allocator(None if allocator is None else allocator.source)


def empty_cache() -> None:
    """Give every free segment of every device back to the driver; nothing while a capture runs, or before any use."""
    for found in parts.allocators().every_allocator():
        found.empty_cache()


def use_mem_pool(pool: Any, device: DeviceLike = None) -> AbstractContextManager[None]:
    """Allocations of this thread, CuPy's among them, come from `pool` inside the block; the inner one of two wins.

    Parameters
    ----------
    pool : MemPool or tuple of int
        A pool, or the id of one.

    Raises
    ------
    ArgumentError
        If it is not a pool of `device`.
    """
    entered: AbstractContextManager[None] = parts.module("pools").use_mem_pool(
        pool, None if device is None else index_of(device)
    )
    return entered
