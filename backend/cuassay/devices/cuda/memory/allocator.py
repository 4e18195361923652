"""One caching allocator a device, made at its first use; and which it is now.

``CUASSAY_ALLOC_CONF`` configures those that are made; `change_allocator` puts another in the place of one. Blocks of
the former stay its own: each is freed by the allocator that made it, and counted until then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.core.protocols import MemorySource
from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.memory.sources import make_source
from cuassay.memory import CachingAllocator, parse_config

__all__ = ["allocator", "cached", "change_allocator", "every_allocator", "live", "make_allocator", "opened"]

_lock = threading.Lock()
_current: dict[int, CachingAllocator] = {}
_former: dict[int, list[CachingAllocator]] = {}


def allocator(index: int) -> CachingAllocator:
    """The allocator of device `index`, made now if there was none.

    Raises
    ------
    DeviceError
        If there is no such device, or this process was forked from one that used CUDA.
    """
    return _current.get(index) or _opened(index)


def _opened(index: int) -> CachingAllocator:
    with _lock:
        return _current.get(index) or _current.setdefault(index, make_allocator(index))


def make_allocator(index: int, source: MemorySource | None = None) -> CachingAllocator:
    """An allocator of device `index` over `source`; None is what the option ``backend`` names."""
    runtime.init()
    config = parse_config(settings.get("CUASSAY_ALLOC_CONF"))
    return CachingAllocator(
        source or make_source(config.backend, index),
        total=runtime.get_device_properties(index).total_memory,
        config=config,
        name=str(Device("cuda", index)),
    )


def opened(index: int) -> CachingAllocator | None:
    """The allocator of device `index`, or None where nothing has asked for one."""
    return _current.get(index)


def change_allocator(index: int, other: CachingAllocator) -> CachingAllocator | None:
    """From here `other` serves device `index`; gives the former one, if there was one.

    What the former holds free goes back to the device; its live blocks stay its own.
    """
    with _lock:
        former = _current.get(index)
        _current[index] = other
        if former is not None and former is not other:
            _former.setdefault(index, []).append(former)
    if former is not None and former is not other:
        former.empty_cache()
    return former


def every_allocator(index: int) -> Iterator[CachingAllocator]:
    """The allocators of device `index` that may hold live blocks: the one now, and those before it."""
    with _lock:
        found = [*_former.get(index, ()), *filter(None, [_current.get(index)])]
    yield from dict.fromkeys(found)


def live(index: int) -> int:
    """Bytes of all live blocks of device `index`; 0 where nothing has asked for an allocator."""
    return sum(found.statistics().allocated_bytes.all.current for found in every_allocator(index))


def cached(index: int) -> int:
    """Bytes taken from device `index` that no block uses."""
    figures = [found.statistics() for found in every_allocator(index)]
    return sum(figure.reserved_bytes.all.current - figure.active_bytes.all.current for figure in figures)


def _in_child() -> None:
    """A forked child can use none of it; kept, because blocks that it inherited are still freed into them."""
    _former.setdefault(-1, []).extend(_current.values())
    _current.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
