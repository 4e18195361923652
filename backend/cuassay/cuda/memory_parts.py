"""The modules of `cuassay.devices.cuda.memory` that `memory` and `memory_figures` use, loaded at first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cuassay.core.device import Device
from cuassay.cuda.naming import DeviceLike, index_of
from cuassay.memory import CachingAllocator

if TYPE_CHECKING:
    from cuassay.memory.host import HostAllocator

__all__ = ["allocator", "allocators", "host", "module", "opened", "pinned"]


@cache
def module(name: str) -> Any:
    """Return the module of this name in `cuassay.devices.cuda.memory`; without CuPy, the error says what to install."""
    from cuassay.devices.cuda.driver.check import guarded

    with guarded("CuPy"):
        return import_module(f"cuassay.devices.cuda.memory.{name}")


def host() -> HostAllocator | None:
    """Return the allocator of pinned memory, or None if there is none yet."""
    from cuassay.devices.cuda.memory import pinned

    return pinned.opened()


def allocators() -> Any:
    """Return the module of all allocators."""
    return module("allocator")


def allocator(device: DeviceLike) -> CachingAllocator:
    """Return the allocator of `device`, creating it at first use."""
    found: CachingAllocator = allocators().allocator(index_of(device))
    return found


def opened(device: DeviceLike) -> CachingAllocator | None:
    """Return the allocator of `device`, or None before the first allocation; initialises nothing."""
    from cuassay import cuda

    if isinstance(device, str | Device):
        index_of(device)  # another kind's device is an error, even before initialisation
    if not cuda.is_initialized():
        return None
    found: CachingAllocator | None = allocators().existing(index_of(device))
    return found


def pinned() -> HostAllocator | None:
    """Return the allocator of pinned memory, or None before the first use; initialises nothing."""
    from cuassay import cuda

    if not cuda.is_initialized():
        return None
    return host()
