"""The memory of captured graphs: separate from all other memory, and shared by graphs that request the same pool.

A pool lives as long as one of its graphs. Memory that a capture frees is reused by the next capture of the pool, so the
graphs of one model together take what the largest takes. Arrays that outlive their graph keep their part.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cuassay.core.graph_pools import PoolId
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.allocator import allocator
from cuassay.devices.cuda.memory.pools import find_pool
from cuassay.errors import ArgumentError

__all__ = ["GraphPool", "acquire", "release"]


class GraphPool:
    """The memory that some graphs of one device share.

    Parameters
    ----------
    identity : tuple of int
        The token that requests the pool: one of `cuassay.core.graph_pools.graph_pool_handle`, or the id of a `MemPool`.
    device : int
        The device's index.
    """

    def __init__(self, identity: PoolId, device: int) -> None:
        self.id = identity
        self.device = device
        self.owners = 0
        self._allocator = allocator(device)
        self._users = find_pool(identity, device) if identity[0] == 0 else None  # graph_pool_handle gives no 0
        self._own = None if self._users else self._allocator.create_pool()

    def __repr__(self) -> str:
        return f"GraphPool({self.id[0]}_{self.id[1]} of cuda:{self.device}, {self.owners} graphs)"

    @property
    def nbytes(self) -> int:
        """The bytes taken from the device."""
        identity = self._users.id if self._users else self._own.id if self._own else (0, 0)
        return self._allocator.statistics().reserved_bytes_by_private_pools.get(identity, 0)

    @contextmanager
    def routing(self) -> Iterator[None]:
        """Take this thread's arrays, including CuPy's, from the pool inside the block.

        Nothing is released to the driver.
        """
        if allocator(self.device) is not self._allocator:
            raise ArgumentError(f"{self!r} was made before change_current_allocator; capture into a pool made since")
        with ExitStack() as stack:
            stack.enter_context(self._allocator.capturing())
            stack.enter_context(hook.using())
            if self._users is not None:
                stack.enter_context(self._users.routed())
            elif self._own is not None:
                stack.enter_context(self._allocator.use_pool(self._own))
            yield

    def give_up(self) -> None:
        """Release the memory that no array holds; a user's `MemPool` keeps its memory."""
        own, self._own, self._users = self._own, None, None
        if own is not None:
            self._allocator.release_pool(own)
            self._allocator.empty_cache(own)


_pools: dict[tuple[int, PoolId], GraphPool] = {}
_lock = threading.RLock()  # a graph may be collected, and release its pool, while this thread asks for another


def acquire(identity: PoolId, device: int) -> GraphPool:
    """Return the pool of that token, which is made now if no graph uses it, and add an owner."""
    with _lock:
        pool = _pools.get((device, identity))
        if pool is None:
            pool = _pools[device, identity] = GraphPool(identity, device)
        pool.owners += 1
    return pool


def release(pool: GraphPool) -> None:
    """Remove an owner; the last one releases the pool's memory."""
    with _lock:
        pool.owners -= 1
        is_last = pool.owners == 0
        if is_last:
            del _pools[pool.device, pool.id]
    if is_last:
        pool.give_up()
