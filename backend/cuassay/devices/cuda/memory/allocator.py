"""The caching allocator of each device, which is made at first use and can be replaced.

``CUASSAY_ALLOC_CONF`` and `configure` set its options; `change_allocator` replaces it. A block is freed by the
allocator that made it, which also counts it until then, even if it was replaced meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.core.protocols import MemorySource
from cuassay.core.units import format_bytes
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory import perthread
from cuassay.devices.cuda.memory.order import keep, kept, number
from cuassay.devices.cuda.memory.sources import make_source
from cuassay.devices.cuda.memory.uncached import UncachedAllocator
from cuassay.errors import ArgumentError
from cuassay.memory import AllocatorConfig, Block, CachingAllocator, Pool, StreamPool, parse_config

__all__ = [
    "DeviceAllocator",
    "allocator",
    "cached",
    "change_allocator",
    "config",
    "configure",
    "enable_caching",
    "every_allocator",
    "existing",
    "find_malloc",
    "indices",
    "is_caching",
    "is_changed",
    "live",
    "malloc_by_stream",
    "release_cached",
]

_lock = threading.Lock()
_current: dict[int, DeviceAllocator] = {}
_former: dict[int, list[DeviceAllocator]] = {}
_uncached: dict[CachingAllocator, UncachedAllocator] = {}

#: Maps a stream to the function that serves its allocations: by the stream's address, or by `-index` for the default
#: stream of device `index`. A device has entries only while no allocation of it is routed to a pool, so one look-up is
#: enough.
malloc_by_stream: dict[int, Callable[[int], Block]] = {}


class DeviceAllocator(Handle, CachingAllocator):
    """The allocator of one device, which keeps alive the streams that it serves.

    Attributes
    ----------
    index : int
        The device.
    source : MemorySource
        The source of its memory.
    """

    def __init__(self, index: int, source: MemorySource, config: AllocatorConfig) -> None:
        total = runtime.get_device_properties(index).total_memory
        lock = threading.RLock()  # unlike a Lock, an RLock knows whether this thread holds it
        super().__init__(source, total=total, config=config, name=str(Device("cuda", index)), lock=lock)
        self.index = index
        self.source = source
        self.routings = 0
        self._leaving: deque[Pool] = deque()

    def __repr__(self) -> str:
        figures = self.statistics()
        live, reserved = figures.allocated_bytes.all.current, figures.reserved_bytes.all.current
        return f"DeviceAllocator({self.name}, {format_bytes(live)} live of {format_bytes(reserved)} reserved)"

    def stream_pool(self, stream: int = 0, pool: Pool | None = None) -> StreamPool:
        """See `CachingAllocator`; called once for each stream, except with private pools."""
        if stream and stream not in kept and not perthread.is_number(stream):
            keep(self.index, stream)
        return super().stream_pool(stream, pool)

    def release_pool(self, pool: Pool) -> None:
        """See `CachingAllocator`.

        A finaliser that runs during a call of this allocator defers the release to `empty_cache`.
        """
        if self._is_within():
            self._leaving.append(pool)
        else:
            super().release_pool(pool)

    def empty_cache(self, pool: Pool | None = None) -> int:
        """See `CachingAllocator`; in such a finaliser it releases nothing."""
        if self._is_within():
            return 0
        while self._leaving:
            super().release_pool(self._leaving.popleft())
        if self in _uncached:
            _uncached[self].release_freed()
        return super().empty_cache(pool)

    @contextmanager
    def releasing(self) -> Iterator[bool]:
        """Keep captures from starting inside the block.

        Yield whether none is active, so that memory may be released.
        """
        with self.heap.releasing:
            yield not self.heap.captures

    def is_routed(self) -> bool:
        """Whether this thread's allocations currently come from a private pool."""
        return threading.get_ident() in self._routes

    def _is_within(self) -> bool:
        """Whether this thread already holds the allocator's lock."""
        return bool(self.heap.lock._is_owned())  # noqa: SLF001  as threading.Condition does

    @contextmanager
    def use_pool(self, pool: Pool) -> Iterator[Pool]:
        """See `CachingAllocator`; inside the block no allocation uses `malloc_by_stream`."""
        with _lock:
            self.routings += 1
            malloc_by_stream.clear()
        try:
            with super().use_pool(pool):
                yield pool
        finally:
            with _lock:
                self.routings -= 1


class _State:
    """How allocators are made from now on."""

    source: Callable[[int], MemorySource] | None = None
    caching = True
    #: The options set by calls, each with its device (None: every device).
    texts: tuple[tuple[int | None, str], ...] = ()


# ------------------------------------------------------------------------------------------------ which it is


def allocator(index: int) -> DeviceAllocator:
    """Return the allocator of device `index`, which is made now if there is none.

    Raises
    ------
    DeviceError
        If there is no such device, or this process was forked from one that used CUDA.
    """
    found = _current.get(index)
    if found is None:
        runtime.init()
        with _lock:
            found = _current.get(index) or _current.setdefault(index, _make(index))
    return found


def find_malloc(index: int, stream: int) -> Callable[[int], Block]:
    """Return the function that serves allocations on `stream`, and keep it in `malloc_by_stream` if possible."""
    if stream == perthread.PER_THREAD:  # each thread's stream has an entry by its number
        stream = number(index)
        if (known := malloc_by_stream.get(stream)) is not None:
            return known
    found = allocator(index)
    with _lock:
        found = _current.get(index, found)  # another thread may have replaced it
        if not _State.caching:
            uncached = _uncached.setdefault(found, UncachedAllocator(found.source, found.releasing, found.name))
            return lambda nbytes: (found if found.is_routed() else uncached).malloc(nbytes, stream)
        if found.routings:
            return lambda nbytes: found.malloc(nbytes, stream)
        serve = malloc_by_stream[stream or -index] = found.stream_pool(stream).malloc
        return serve


def _make(index: int) -> DeviceAllocator:
    made = config(index)
    source = make_source(made.backend, index) if _State.source is None else _State.source(index)
    return DeviceAllocator(index, source, made)


def existing(index: int) -> DeviceAllocator | None:
    """Return the allocator of device `index`, or None if nothing has requested one."""
    return _current.get(index)


def indices() -> list[int]:
    """Return the devices that something was allocated on."""
    with _lock:
        return sorted({*_former, *_current} - {-1})


def every_allocator(index: int | None = None) -> Iterator[DeviceAllocator]:
    """Yield allocators that may hold live blocks, replaced and current ones, of device `index` or of all."""
    with _lock:
        wanted = sorted({*_former, *_current} - {-1}) if index is None else [index]
        found = [one for i in wanted for one in (*_former.get(i, ()), _current.get(i)) if one is not None]
    yield from found


# ------------------------------------------------------------------------------------------------ another one


def change_allocator(source: Callable[[int], MemorySource] | None) -> None:
    """Take the memory of every device from ``source(index)`` from now on; None is the driver again.

    Live blocks stay where they are, and return to the source they came from; free memory is released now.
    """
    with _lock:
        _State.source = source
        for index, former in _current.items():
            _former.setdefault(index, []).append(former)
        left = list(_current.values())
        _current.clear()
        malloc_by_stream.clear()
    with ExitStack() as each:  # all of them run, even if one raises
        each.callback(_forget_empty)
        for former in left:
            each.callback(former.empty_cache)


def _forget_empty() -> None:
    """Forget replaced allocators that hold no memory."""
    with _lock:
        for index, formers in _former.items():
            _former[index] = [one for one in formers if one.segments() or one in _uncached]


def is_changed() -> bool:
    """Whether memory comes from a user's source."""
    return _State.source is not None


def enable_caching(*, enabled: bool = True) -> None:
    """Keep freed blocks for reuse, or else make each allocation a driver allocation, except in private pools.

    A capture allocates from a private pool, so its memory lasts as long as its graph. Live blocks stay as they are.
    """
    with _lock:
        _State.caching = enabled
        malloc_by_stream.clear()
        left = tuple(_uncached.values())
    for uncached in left:
        uncached.release_freed()


def is_caching() -> bool:
    """Whether freed blocks are kept for reuse."""
    return _State.caching


# ------------------------------------------------------------------------------------------------ configuration


def config(index: int | None = None) -> AllocatorConfig:
    """Return the options of the next allocator of device `index`: ``CUASSAY_ALLOC_CONF`` with `configure`'s changes."""
    made = parse_config(settings.get("CUASSAY_ALLOC_CONF"))
    for where, text in _State.texts:
        if where in (None, index):
            made = parse_config(text, made)
    return made


def configure(text: str, index: int | None = None) -> None:
    """Change the options that `text` mentions, for device `index` or for all current and future allocators.

    Raises
    ------
    SettingError
        If an option does not exist or has an invalid value; nothing is changed then.
    ArgumentError
        If `backend` would change for an allocator that exists.
    """
    with _lock:
        chosen = [_current[i] for i in _current if index in (None, i)]
    for found in chosen:
        if parse_config(text, found.config).backend != found.config.backend:
            raise ArgumentError(
                f"the backend of {found.name} is {found.config.backend!r} since its first allocation; "
                "set backend in CUASSAY_ALLOC_CONF before"
            )
    parse_config(text, config(index))
    _State.texts += ((index, text),)  # also for allocators made later, such as after a change of the source
    for found in chosen:
        found.configure(text)


# ------------------------------------------------------------------------------------------------ figures


def live(index: int) -> int:
    """Return the bytes of all live blocks of device `index`; 0 if nothing has requested an allocator."""
    every = tuple(every_allocator(index))
    return sum(found.statistics().allocated_bytes.all.current for found in every) + sum(
        _uncached[found].live for found in every if found in _uncached
    )


def cached(index: int) -> int:
    """Return the bytes taken from device `index` that no block uses."""
    figures = [found.statistics() for found in every_allocator(index)]
    return sum(figure.reserved_bytes.all.current - figure.active_bytes.all.current for figure in figures)


def release_cached(index: int) -> None:
    """Release memory of device `index` that no array uses, CuPy's as well, so that other processes can use it."""
    for found in every_allocator(index):
        found.empty_cache()
    if "cupy" in sys.modules:
        import cupy

        with cupy.cuda.Device(index):
            cupy.get_default_memory_pool().free_all_blocks()


def _in_child() -> None:
    """Set the allocators aside: a forked child cannot use them, but inherited blocks are still freed into them."""
    _former.setdefault(-1, []).extend(_current.values())
    _current.clear()
    malloc_by_stream.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
