"""Pinned host memory by torch's names: arrays are plain `numpy.ndarray`, from one allocator for all devices.

Where we differ from torch: sizes are not rounded to powers of two; memory that exists can be pinned where it is; asking
whether an array is pinned touches no driver where nothing has been pinned. Figures are `cuassay.cuda.memory`'s.
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
    """The allocator, where there is one: CuPy is not imported to find out."""
    module = sys.modules.get("cuassay.devices.cuda.memory.pinned")
    return module.opened() if module is not None else None


def _pinned() -> Any:
    from cuassay.devices.cuda.driver import runtime

    runtime.init()
    from cuassay.devices.cuda.memory import pinned

    return pinned


def empty_pinned(shape: int | tuple[int, ...], dtype: Any = np.float32) -> HostArray:
    """An uninitialised C-contiguous array in pinned memory, as ``torch.empty(..., pin_memory=True)``.

    Raises
    ------
    OutOfMemoryError
        If the host has no memory left to pin.
    """
    made: HostArray = _empty()(shape, dtype)
    return made


@cache
def _empty() -> Callable[..., HostArray]:
    """Looked for once: that takes as long as an array. In a forked child the function itself refuses."""
    found: Callable[..., HostArray] = _pinned().empty
    return found


def pin_memory(array: HostArray) -> HostArray:
    """`array` itself where it is pinned, else a copy in pinned memory, as ``Tensor.pin_memory``."""
    if is_pinned(array):
        return array
    copied = empty_pinned(array.shape, array.dtype)
    copied[...] = array
    return copied


def is_pinned(array: HostArray) -> bool:
    """Whether `array` is in pinned memory, whoever pinned it; brings no driver up, so it is safe before a fork."""
    from cuassay import devices

    return devices.backend("cuda").is_pinned(array)  # type: ignore[attr-defined, no-any-return] # PinnedMemory's


def pin(array: HostArray) -> Pin:
    """Pin memory that exists, where it is, for every device: ``with pin(array):``, or until `unpin`.

    Raises
    ------
    ArgumentError
        If it is pinned already, has no elements, cannot be written, or is not dense.
    """
    made: Pin = _pinned().pin(array)
    return made


def unpin(array: HostArray) -> None:
    """Undo `pin`, once copies under way are done.

    Raises
    ------
    ArgumentError
        If `pin` did not pin this memory.
    """
    _pinned().unpin(array)


def reserve_pinned(nbytes: int) -> None:
    """Pin `nbytes` now, for arrays made later: by slabs, several threads at once.

    Raises
    ------
    OutOfMemoryError
        If the host has no memory left to pin.
    """
    _pinned().reserve(nbytes)


def empty_host_cache() -> None:
    """Unpin what is free, copies under way excepted; nothing happens where nothing was pinned."""
    allocator = _opened()
    if allocator is not None:
        allocator.empty_cache()
