"""The parts of the CUDA room that `memory` and `memory_figures` speak to, loaded when they are first asked."""

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
    """The module of this name in `cuassay.devices.cuda.memory`; without CuPy, the error says what to install."""
    from cuassay.devices.cuda.driver.check import guarded

    with guarded("CuPy"):
        return import_module(f"cuassay.devices.cuda.memory.{name}")


def host() -> HostAllocator | None:
    """The allocator of pinned memory, where there is one."""
    from cuassay.devices.cuda.memory import pinned

    return pinned.opened()


def allocators() -> Any:
    """The module of all allocators."""
    return module("allocator")


def allocator(device: DeviceLike) -> CachingAllocator:
    """The allocator of `device`, made at its first use."""
    found: CachingAllocator = allocators().allocator(index_of(device))
    return found


def opened(device: DeviceLike) -> CachingAllocator | None:
    """The allocator of `device`, or None where nothing was allocated yet; then nothing is initialised either."""
    from cuassay import cuda

    if isinstance(device, str | Device):
        index_of(device)  # another kind's device is refused, whatever is initialised
    if not cuda.is_initialized():
        return None
    found: CachingAllocator | None = allocators().existing(index_of(device))
    return found


def pinned() -> HostAllocator | None:
    """The allocator of pinned memory, or None where none was pinned yet; then nothing is initialised either."""
    from cuassay import cuda

    if not cuda.is_initialized():
        return None
    return host()
