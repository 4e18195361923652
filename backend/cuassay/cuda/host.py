"""Pinned host memory under torch's names: arrays are plain `numpy.ndarray`, from one allocator for all devices.

Differences from torch: sizes are not rounded to powers of two; existing memory can be pinned in place; `is_pinned`
touches no driver if nothing has been pinned. Statistics are in `cuassay.cuda.memory`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cuassay.devices.cuda.memory.pins import Pin
    from cuassay.memory.host import HostAllocator

__all__ = [
    "empty_host_cache",
    "empty_pinned",
    "is_pinned",
    "pin",
    "pin_memory",
    "reserve_pinned",
    "unpin",
]

HostArray = np.ndarray[Any, Any]


def _opened() -> HostAllocator | None:
    """Return the allocator if it exists, without importing CuPy."""
    module = sys.modules.get("cuassay.devices.cuda.memory.pinned")
    return module.opened() if module is not None else None


def _pinned() -> Any:
    from cuassay.devices.cuda.driver import runtime

    runtime.init()
    from cuassay.devices.cuda.memory import pinned

    return pinned


def empty_pinned(shape: int | tuple[int, ...], dtype: Any = np.float32) -> HostArray:
    """Return an uninitialised C-contiguous array in pinned memory, as ``torch.empty(..., pin_memory=True)``.

    Raises
    ------
    OutOfMemoryError
        If the host has no more memory to pin.
    """
    made: HostArray = _empty()(shape, dtype)
    return made


@cache
def _empty() -> Callable[..., HostArray]:
    """Look up the function once, because that takes as long as an allocation; it raises by itself in a forked child."""
    found: Callable[..., HostArray] = _pinned().empty
    return found


def pin_memory(array: HostArray) -> HostArray:
    """Return `array` itself if it is pinned, else a copy in pinned memory, as ``Tensor.pin_memory``."""
    if is_pinned(array):
        return array
    copied = empty_pinned(array.shape, array.dtype)
    copied[...] = array
    return copied


def is_pinned(array: HostArray) -> bool:
    """Return whether `array` is in pinned memory, whoever pinned it; safe before a fork: no driver is initialised."""
    from cuassay import devices

    return devices.backend("cuda").is_pinned(array)  # type: ignore[attr-defined, no-any-return] # PinnedMemory's


def pin(array: HostArray) -> Pin:
    """Pin existing memory in place, for every device: ``with pin(array):``, or until `unpin`.

    Raises
    ------
    ArgumentError
        If it is already pinned, has no elements, is read-only, or is not dense.
    """
    made: Pin = _pinned().pin(array)
    return made


def unpin(array: HostArray) -> None:
    """Undo `pin`, after pending copies are done.

    Raises
    ------
    ArgumentError
        If `pin` did not pin this memory.
    """
    _pinned().unpin(array)


def reserve_pinned(nbytes: int) -> None:
    """Pin `nbytes` now for later arrays, slab by slab, with several threads.

    Raises
    ------
    OutOfMemoryError
        If the host has no more memory to pin.
    """
    _pinned().reserve(nbytes)


def empty_host_cache() -> None:
    """Unpin free memory, except for pending copies; does nothing if nothing was pinned."""
    allocator = _opened()
    if allocator is not None:
        allocator.empty_cache()
