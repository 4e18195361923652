"""Private pools of a device: by object (`MemPool`) or by id, for this thread's allocations or for those of a capture.

A pool is held by its owners: a `MemPool` while it lives, and each active `use_mem_pool` or `capturing`. Nobody else can
use its memory until the last owner is gone; arrays in it may outlive it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cuassay.core.handle import Handle
from cuassay.core.protocols import MemorySource
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory.allocator import allocator
from cuassay.devices.cuda.memory.pluggable import CUDAPluggableAllocator
from cuassay.devices.cuda.memory.sources import DeviceSource
from cuassay.errors import ArgumentError

__all__ = ["MemPool", "PoolId", "capturing", "use_mem_pool"]

#: A pair of integers, as in torch; ``(0, 0)`` is the default pool.
PoolId = tuple[int, int]


class MemPool(Handle):
    """Memory of the current device that is separate from the rest as long as this object lives.

    Parameters
    ----------
    allocator : CUDAPluggableAllocator or MemorySource, optional
        The source of its memory; None is the device's own source.
    use_on_oom : bool
        Whether others may take its free blocks when nothing else is left.
    no_split : bool
        Whether each segment serves one request at a time.
    one_handle : bool
        Whether each segment is one piece of memory, as other processes and network cards need it.
    """

    def __init__(
        self,
        allocator: CUDAPluggableAllocator | MemorySource | None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        one_handle: bool = False,
    ) -> None:
        self._index = runtime.current_device()
        self._given = allocator
        self._owner = _of_device(self._index)
        source = allocator.source(self._index) if isinstance(allocator, CUDAPluggableAllocator) else allocator
        if source is None and one_handle:
            source = DeviceSource(self._index)  # this source never makes segments of pages
        self._pool = self._owner.create_pool(
            source=source, use_on_oom=use_on_oom, no_split=no_split, one_handle=one_handle
        )
        _known[self._index, self._pool.id] = self
        weakref.finalize(self, self._owner.release_pool, self._pool).atexit = False

    def __repr__(self) -> str:
        return f"MemPool({self.id[0]}_{self.id[1]} of cuda:{self._index}, {self.use_count()} owners)"

    @property
    def id(self) -> PoolId:
        """The pool's id, a pair of integers."""
        return self._pool.id

    @property
    def allocator(self) -> CUDAPluggableAllocator | MemorySource | None:
        """The source that was given for its memory."""
        return self._given

    @property
    def index(self) -> int:
        """The index of its device."""
        return self._index

    def use_count(self) -> int:
        """The number of owners: this object, and each active block of code that allocates from it."""
        return self._pool.use_count

    def snapshot(self) -> list[dict[str, Any]]:
        """Return its segments and blocks, as `cuassay.cuda.memory_snapshot` does."""
        segments: list[dict[str, Any]] = self._owner.snapshot()["segments"]
        return [segment for segment in segments if tuple(segment["segment_pool_id"]) == self.id]

    @contextmanager
    def routed(self) -> Iterator[MemPool]:
        """Take this thread's allocations on the pool's device from the pool inside the block.

        The innermost block wins.
        """
        if _of_device(self._index) is not self._owner:
            raise ArgumentError(f"{self!r} was made before change_current_allocator; make another pool")
        with self._owner.use_pool(self._pool):
            yield self


#: `MemPool` has a property with the name of this function.
_of_device = allocator


#: Pools by device and id, for callers that have only an id.
_known: weakref.WeakValueDictionary[tuple[int, PoolId], MemPool] = weakref.WeakValueDictionary()


def find_pool(pool: MemPool | PoolId, index: int | None = None) -> MemPool:
    """Return the pool, given itself or its id. Raises `ArgumentError`."""
    if isinstance(pool, MemPool):
        return pool
    number = runtime.current_device() if index is None else index
    found = _known.get((number, tuple(pool)))  # type: ignore[arg-type] # a list is as good
    if found is None:
        raise ArgumentError(f"cuda:{number} has no pool {pool!r}; give a MemPool, or the id of an existing one")
    return found


@contextmanager
def use_mem_pool(pool: MemPool | PoolId, device: int | None = None) -> Iterator[None]:
    """Take this thread's allocations, including CuPy's, from `pool` inside the block; the innermost block wins.

    Raises
    ------
    ArgumentError
        If it is not a pool of `device` (None: the pool's own).
    """
    found = find_pool(pool, device)
    if device is not None and device != found.index:
        raise ArgumentError(f"{found!r} is of cuda:{found.index}, not of cuda:{device}; make a pool there")
    with ExitStack() as stack:
        stack.enter_context(found.routed())
        stack.enter_context(_hook().using())
        yield


@contextmanager
def capturing(pool: MemPool | PoolId) -> Iterator[None]:
    """Like `use_mem_pool`, but release nothing to the driver meanwhile: enter it around a capture of this thread."""
    found = find_pool(pool)
    with allocator(found.index).capturing(), use_mem_pool(found):
        yield


def _hook() -> Any:
    """Import the hook late, because it needs CuPy at import."""
    from cuassay.devices.cuda.memory import hook

    return hook
