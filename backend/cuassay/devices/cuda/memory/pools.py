"""Private pools of a device: by object (`MemPool`) or by id, for this thread's allocations or for those of a capture.

A pool is held by its owners: a `MemPool` while it lives, and whoever is inside `use_mem_pool` or `capturing`. What it
holds is kept from everybody else until the last owner is gone; arrays in it may outlive it.
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

#: As torch's: a pair of integers; ``(0, 0)`` is the default pool.
PoolId = tuple[int, int]


class MemPool(Handle):
    """Memory of the current device apart from the rest, for as long as this object lives.

    Parameters
    ----------
    allocator : CUDAPluggableAllocator or MemorySource, optional
        Where its memory comes from; None is where the device's comes from.
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
            source = DeviceSource(self._index)  # it has no pages that segments could be made out of
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
        """What was given for its memory to come from."""
        return self._given

    @property
    def index(self) -> int:
        """The index of its device."""
        return self._index

    def use_count(self) -> int:
        """Owners: this object, and each block of code that allocates from it now."""
        return self._pool.use_count

    def snapshot(self) -> list[dict[str, Any]]:
        """Its segments and blocks, as in `cuassay.cuda.memory_snapshot`."""
        segments: list[dict[str, Any]] = self._owner.snapshot()["segments"]
        return [segment for segment in segments if tuple(segment["segment_pool_id"]) == self.id]

    @contextmanager
    def routed(self) -> Iterator[MemPool]:
        """Allocations of this thread on the pool's device come from it inside the block; the inner of two wins."""
        if _of_device(self._index) is not self._owner:
            raise ArgumentError(f"{self!r} was made before change_current_allocator; make another pool")
        with self._owner.use_pool(self._pool):
            yield self


#: `MemPool` has a property of the function's name.
_of_device = allocator


#: Pools by device and id, for those who hold an id only.
_known: weakref.WeakValueDictionary[tuple[int, PoolId], MemPool] = weakref.WeakValueDictionary()


def find_pool(pool: MemPool | PoolId, index: int | None = None) -> MemPool:
    """The pool itself, by its id where only that is known. Raises `ArgumentError`."""
    if isinstance(pool, MemPool):
        return pool
    number = runtime.current_device() if index is None else index
    found = _known.get((number, tuple(pool)))  # type: ignore[arg-type] # a list is as good
    if found is None:
        raise ArgumentError(f"cuda:{number} has no pool {pool!r}; give a MemPool, or the id of one that lives")
    return found


@contextmanager
def use_mem_pool(pool: MemPool | PoolId, device: int | None = None) -> Iterator[None]:
    """Allocations of this thread, CuPy's among them, come from `pool` inside the block; the inner of two wins.

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
    """Like `use_mem_pool`, and nothing goes back to the driver meanwhile: enter it around a capture of this thread."""
    found = find_pool(pool)
    with allocator(found.index).capturing(), use_mem_pool(found):
        yield


def _hook() -> Any:
    """The module that needs CuPy at import."""
    from cuassay.devices.cuda.memory import hook

    return hook
