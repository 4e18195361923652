"""CUDA devices under ``torch.cuda``'s names; importing this touches no driver and no CUDA library.

Differences from torch: `is_available` and `device_count` never initialise CUDA in this process, so they are safe before
a fork. Only `set_device`, `synchronize`, `mem_get_info` and functions that run work on the device make a context.
`compile_kernel` passes a Python int as 64 bits and checks every argument against the kernel's signature.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.cuda.naming import DeviceLike, index_of

if TYPE_CHECKING:
    from cuassay.cuda.blas import cublas_workspace_size, current_blas_handle, matmul, preferred_blas_library
    from cuassay.cuda.graphs import (
        CUDAGraph,
        GraphedCallable,
        graph,
        graph_pool_handle,
        is_current_stream_capturing,
        make_graphed_callables,
        register_graph_capture_end_hook,
        register_graph_capture_start_hook,
        register_graph_destroy_hook,
        register_graph_instantiate_hook,
        register_graph_replay_end_hook,
        register_graph_replay_start_hook,
    )
    from cuassay.cuda.history import dump_snapshot, record_memory_history
    from cuassay.cuda.host import empty_host_cache, empty_pinned, is_pinned, pin, pin_memory, reserve_pinned, unpin
    from cuassay.cuda.memory import (
        CUDAPluggableAllocator,
        MemPool,
        caching_allocator_alloc,
        caching_allocator_delete,
        caching_allocator_disabled,
        caching_allocator_enable,
        change_current_allocator,
        empty_cache,
        get_allocator_backend,
        get_allocator_settings,
        get_per_process_memory_fraction,
        host_memory_stats,
        host_memory_stats_as_nested_dict,
        ipc_collect,
        ipc_handle,
        max_memory_allocated,
        max_memory_cached,
        max_memory_reserved,
        memory_allocated,
        memory_cached,
        memory_reserved,
        memory_resource,
        memory_snapshot,
        memory_stats,
        memory_stats_as_nested_dict,
        memory_summary,
        open_ipc_handle,
        record_stream,
        reset_accumulated_host_memory_stats,
        reset_accumulated_memory_stats,
        reset_max_memory_allocated,
        reset_max_memory_cached,
        reset_peak_host_memory_stats,
        reset_peak_memory_stats,
        set_allocator_settings,
        set_per_process_memory_fraction,
        use_mem_pool,
        use_with_cupy,
        use_with_numba,
    )
    from cuassay.cuda.random import (
        get_rng_state,
        get_rng_state_all,
        initial_seed,
        manual_seed,
        manual_seed_all,
        seed,
        seed_all,
        set_rng_state,
        set_rng_state_all,
    )
    from cuassay.cuda.streams import (
        Event,
        ExternalStream,
        Stream,
        current_stream,
        default_stream,
        get_stream_from_external,
        get_sync_debug_mode,
        set_stream,
        set_sync_debug_mode,
        spin,
        stream,
    )
    from cuassay.devices.cuda.driver.runtime import Properties
    from cuassay.devices.cuda.launch.userkernel import UserKernel

__all__ = [
    "CUDAGraph",
    "CUDAPluggableAllocator",
    "Event",
    "ExternalStream",
    "GraphedCallable",
    "MemPool",
    "Stream",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "change_current_allocator",
    "compile_kernel",
    "cublas_workspace_size",
    "cudart",
    "current_blas_handle",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "driver_version",
    "dump_snapshot",
    "empty_cache",
    "empty_host_cache",
    "empty_pinned",
    "get_allocator_backend",
    "get_allocator_settings",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "ipc_handle",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_pinned",
    "is_tf32_supported",
    "libraries",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "matmul",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_resource",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "open_ipc_handle",
    "pin",
    "pin_memory",
    "preferred_blas_library",
    "record_memory_history",
    "record_stream",
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
    "reserve_pinned",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_allocator_settings",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "spin",
    "stream",
    "synchronize",
    "unpin",
    "use_mem_pool",
    "use_with_cupy",
    "use_with_numba",
]

#: Modules whose names are also names of `cuassay.cuda`, and modules whose names stay in them, as in torch
#: (``cuda.tunable.enable()``). They are loaded at first use; importing them touches no driver either.
_MODULES = ("blas", "graphs", "history", "host", "memory", "random", "streams")
_SUBMODULES = ("_gpu_trace", "_sanitizer", "jiterator", "nvtx", "profiler", "tunable")


def __getattr__(name: str) -> Any:
    if name in (*_MODULES, *_SUBMODULES):  # ``cuda.memory.empty_cache()`` works without another import, as in torch
        return importlib.import_module(f"{__name__}.{name}")
    for home in _MODULES if name in __all__ else ():
        module = importlib.import_module(f"{__name__}.{home}")
        if name in module.__all__:
            found = globals()[name] = getattr(module, name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _runtime() -> Any:
    from cuassay.devices.cuda.driver import runtime

    return runtime


def is_available() -> bool:
    """Return whether at least one CUDA device can be used; safe before a fork."""
    return bool(_runtime().is_available())


def device_count() -> int:
    """Return the number of visible CUDA devices; safe before a fork."""
    return int(_runtime().device_count())


def init() -> None:
    """Initialise the driver now instead of at first use, without making a context.

    Raises
    ------
    ForkError
        In a child forked after its parent initialised CUDA.
    DeviceError
        If there is no device.
    LibraryNotFoundError
        If there is no driver.
    """
    _runtime().init()


def is_initialized() -> bool:
    """Return whether this process has initialised the driver."""
    return bool(_runtime().is_initialized())


def driver_version() -> str:
    """Return the newest CUDA version that the driver supports, such as ``13.0``; empty without a driver."""
    return str(_runtime().driver_version())


def current_device() -> int:
    """Return the index of this thread's current device."""
    return int(_runtime().current_device())


def set_device(device: DeviceLike) -> None:
    """Make `device` this thread's current device; a negative index does nothing, as in torch."""
    _runtime().set_device(index_of(device))


def device(device: DeviceLike) -> AbstractContextManager[None]:
    """Make `device` this thread's current device inside a ``with`` block; a negative index does nothing."""
    entered: AbstractContextManager[None] = _runtime().device(index_of(device))
    return entered


def synchronize(device: DeviceLike = None) -> None:
    """Block the host until all work submitted to `device` is done."""
    _runtime().synchronize(index_of(device))


def get_device_properties(device: DeviceLike = None) -> Properties:
    """Return name, compute capability, sizes, UUID and other properties of `device`, without making a context."""
    properties: Properties = _runtime().get_device_properties(index_of(device))
    return properties


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of `device`, such as ``NVIDIA H200``."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return the compute capability of `device` as (major, minor)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Return whether `device` can read and write the memory of `peer_device` directly."""
    return bool(_runtime().can_device_access_peer(index_of(device), index_of(peer_device)))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return free and total memory of `device` in bytes."""
    free, total = _runtime().mem_get_info(index_of(device))
    return int(free), int(total)


def is_bf16_supported(*, including_emulation: bool = True) -> bool:
    """Return whether the current device computes in bfloat16; without emulation this needs compute capability 8.0."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Return whether the current device's tensor cores support TF32: compute capability 8.0 or higher."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """Return the architectures that the kernels are tested to compile for; each device compiles for its own."""
    from cuassay.devices.cuda.launch.source import ARCHITECTURES

    return list(ARCHITECTURES)


def cudart() -> Any:
    """Return the CUDA runtime functions that torch exposes, and ``cudaError``; each returns its status first.

    A name that the installed CUDA version lacks, such as ``cudaProfilerInitialize`` from CUDA 12 on, is an
    `AttributeError` that says which versions have it.
    """
    from cuassay.devices.cuda.driver.cudart import cudart as names

    return names()


def libraries() -> list[tuple[str, str, str, str]]:
    """Return (name, path, version, reason for absence) for each CUDA library."""
    from cuassay.devices.cuda.driver import libraries as module

    return [*module.libraries(), *module.other_libraries()]


def compile_kernel(
    source: str,
    name: str,
    *,
    signature: Sequence[str] | None = None,
    arch: str | None = None,
    options: Sequence[str] = (),
    include: Sequence[str | Path] = (),
    shared_memory: int = 0,
) -> UserKernel:
    """Compile a CUDA C++ kernel and return a callable, ``kernel(grid, block, (arguments...), stream=None, shared=0)``.

    Parameters
    ----------
    source : str
        CUDA C++; ``#include <cuda_fp16.h>`` and ``<cuda_bf16.h>`` are found.
    name : str
        The kernel's name as C++ spells it: ``"scale"``, or ``"scale<float, 4>"`` for a template.
    signature : sequence of str, optional
        ``"float32"`` for a value, ``"float32*"`` for an array, ``"?"`` and ``"?*"`` for unchecked ones; read from the
        source by default.
    arch : str, optional
        The architecture to compile for now, such as ``"sm_90"``; needs no device. None compiles at each device's first
        launch.
    options : sequence of str
        Additional options for NVRTC.
    include : sequence of path
        Directories of header files.
    shared_memory : int
        The dynamic shared memory per block in bytes, for launches that do not name it.

    Raises
    ------
    ArgumentError
        If the text neither names the kernel nor includes a header that may define it.
    CompileError
        If the kernel does not compile: now if `arch` is given, else at the first launch. ``log`` has the compiler's
        text.
    """
    from cuassay.devices.cuda.launch import userkernel

    return userkernel.compile_kernel(
        source, name, signature=signature, arch=arch, options=options, include=include, shared_memory=shared_memory
    )
