"""The memory of captured graphs: apart from all other, shared by those that ask for the same pool.

It lives as long as one of its graphs. What a capture frees is used again by the next one of the pool, so that graphs of
one model take what the largest takes; arrays that outlive their graph keep their own part.
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
    """Memory of the graphs of one device that share it.

    Parameters
    ----------
    identity : tuple of int
        The token it is asked for by: of `cuassay.core.graph_pools.graph_pool_handle`, or the id of a `MemPool`.
    device : int
        The device's index.
    """

    def __init__(self, identity: PoolId, device: int) -> None:
        self.id = identity
        self.device = device
        self.owners = 0
        self._allocator = allocator(device)
        self._users = find_pool(identity, device) if identity[0] == 0 else None  # tokens of ours never begin with 0
        self._own = None if self._users else self._allocator.create_pool()

    def __repr__(self) -> str:
        return f"GraphPool({self.id[0]}_{self.id[1]} of cuda:{self.device}, {self.owners} graphs)"

    @property
    def nbytes(self) -> int:
        """Bytes taken from the device."""
        identity = self._users.id if self._users else self._own.id if self._own else (0, 0)
        return self._allocator.statistics().reserved_bytes_by_private_pools.get(identity, 0)

    @contextmanager
    def routing(self) -> Iterator[None]:
        """Arrays of this thread, CuPy's too, come from here inside the block; nothing goes back to the driver."""
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
        """What no array holds goes back to the driver; a user's `MemPool` keeps what it has."""
        own, self._own, self._users = self._own, None, None
        if own is not None:
            self._allocator.release_pool(own)
            self._allocator.empty_cache(own)


_pools: dict[tuple[int, PoolId], GraphPool] = {}
_lock = threading.RLock()  # a graph may be collected, and release its pool, while this thread asks for another


def acquire(identity: PoolId, device: int) -> GraphPool:
    """The pool of that token, made now if no graph uses it; one owner more."""
    with _lock:
        pool = _pools.get((device, identity))
        if pool is None:
            pool = _pools[device, identity] = GraphPool(identity, device)
        pool.owners += 1
    return pool


def release(pool: GraphPool) -> None:
    """One owner less; with the last its memory goes."""
    with _lock:
        pool.owners -= 1
        is_last = pool.owners == 0
        if is_last:
            del _pools[pool.device, pool.id]
    if is_last:
        pool.give_up()
