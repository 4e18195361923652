"""What the parts of one allocator share: pools, segments, limits and locks.

The parts hold a `Heap`, and none of them holds the allocator. Everything in it changes under its lock, and a source is
never called while the lock is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from cuassay.core.protocols import MemorySource
from cuassay.errors import ArgumentError
from cuassay.memory.blocks import Arena, Block, Segment
from cuassay.memory.config import AllocatorConfig
from cuassay.memory.counters import Counters
from cuassay.memory.history import History
from cuassay.memory.statistics import MemoryStatistics
from cuassay.memory.stream_pool import Pool, StreamPool

__all__ = ["Heap", "try_each"]

#: The most bytes that may be reserved if the device's size is unknown.
_UNLIMITED = 2**44


class Heap:
    """The state of one allocator.

    Parameters
    ----------
    source : MemorySource
        The source of the default pool.
    config : AllocatorConfig
        How sizes are rounded, split and limited; it can be replaced at any time.
    total : int or None
        The device's memory in bytes, if known.
    counters : Counters
        Counts what happens.
    lock : context manager, optional
        The lock; None makes a `threading.Lock`.

    Attributes
    ----------
    name : str
        The allocator's name for watchers.
    history : History or None
        Where events are recorded.
    cut : dict of int to Block
        Every block that is cut out for a request, by address.
    segments : dict of Segment to None
        Every segment and arena, in the order in which they were added. Keys compare by identity, because an address can
        return.
    pools : dict of tuple to Pool
        Every pool by its id.
    releasing : threading.RLock
        Held while memory is released to a source, and to prevent that.
    clock : int
        The number of misses so far.
    moving : int
        Bytes that are being taken from a source or released to it: they count against the limit, and are in no segment.
    captures : int
        The number of active captures; while there is one, nothing is released to a source.
    driver_calls : int
        The number of source calls so far, not counting those about events.
    changes : int
        How often a segment was added or removed.
    """

    def __init__(
        self, source: MemorySource, config: AllocatorConfig, *, total: int | None, counters: Counters, lock: Any = None
    ) -> None:
        self.config = config
        self.total = total
        self.counters = counters
        self.name = ""
        self.history: History | None = None
        self.cut: dict[int, Block] = {}
        self.segments: dict[Segment, None] = {}
        self.default = Pool(0, source)
        self.pools = {self.default.id: self.default}
        self.lock: Any = threading.Lock() if lock is None else lock
        self.releasing = threading.RLock()
        self.clock = self.moving = self.captures = self.driver_calls = self.changes = 0
        self._numbers = count(1)

    # ------------------------------------------------------------------------------------------------------- limits

    @property
    def allowed(self) -> int:
        """The bytes that may be reserved."""
        return _UNLIMITED if self.total is None else int(self.total * self.config.per_process_memory_fraction)

    def admit(self, nbytes: int) -> bool:
        """Count `nbytes` as being taken, if that many more may be reserved."""
        is_allowed = self.counters.reserved.current + self.moving + nbytes <= self.allowed
        if is_allowed:
            self.moving += nbytes
            self.driver_calls += 1
        else:
            self.counters.count("num_oom_rejections")
        return is_allowed

    def count(self, scalar: str) -> None:
        """Increase `scalar` by one; takes the lock."""
        with self.lock:
            self.counters.count(scalar)

    def is_capturing(self) -> bool:
        """Whether work is being captured."""
        return self.captures > 0

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Mark the block as a capture, after waiting until memory that is being released has arrived at its source."""
        with self.releasing, self.lock:
            self.captures += 1
        try:
            yield
        finally:
            with self.lock:
                self.captures -= 1
                stream_pools = [] if self.captures else self.stream_pools()
            for stream_pool in stream_pools:
                stream_pool.deferred.unhold()

    # -------------------------------------------------------------------------------------------------------- pools

    def new_pool(self, source: MemorySource | None, **options: bool) -> Pool:
        """Make a private pool with one owner; its memory comes from `source` (None: the default pool's)."""
        pool = Pool(next(self._numbers), source or self.default.source, **options)
        with self.lock:
            self.pools[pool.id] = pool
        return pool

    def checked(self, pool: Pool) -> Pool:
        """Return `pool` if it is a private pool with owners. Raises `ArgumentError`."""
        if not pool.is_private or pool.use_count == 0 or self.pools.get(pool.id) is not pool:
            raise ArgumentError(f"{pool!r} is not a private pool in use; give one that `create_pool` returned")
        return pool

    def forget(self, pool: Pool) -> None:
        """Drop a private pool that has neither owners nor segments."""
        if pool.is_private and pool.use_count == 0 and not any(s.stream_pool.pool is pool for s in self.segments):
            self.pools.pop(pool.id, None)

    def stream_pools(self) -> list[StreamPool]:
        """Return the stream pools of every pool."""
        return [stream_pool for pool in tuple(self.pools.values()) for stream_pool in tuple(pool.stream_pools.values())]

    def shrinkable(self) -> list[StreamPool]:
        """Return the stream pools whose free memory may be released."""
        with self.lock:
            return [stream_pool for stream_pool in self.stream_pools() if stream_pool.pool.may_shrink]

    # ----------------------------------------------------------------------------------------------------- segments

    def enter(self, segment: Segment) -> None:
        """Add `segment`."""
        pool = segment.stream_pool.pool
        self.pools.setdefault(pool.id, pool)  # its last owner may have left meanwhile
        self.segments[segment] = None
        self.changes += 1

    def leave(self, segment: Segment) -> None:
        """Remove `segment`."""
        del self.segments[segment]
        self.changes += 1
        self.forget(segment.stream_pool.pool)

    def every_segment(self) -> list[Segment]:
        """Return all segments by address, including the views and small segments on top of arenas."""
        spaces = (found.page_space for found in self.stream_pools())
        over = (segment for space in spaces if space is not None for segment in space.segments())
        return sorted((*self.segments, *over), key=lambda segment: segment.address)

    def pending(self) -> Iterator[Block]:
        """Yield the freed blocks that other streams may still use."""
        for stream_pool in self.stream_pools():
            deferred = stream_pool.deferred
            if deferred.queue or deferred.held:
                yield from deferred

    def record_to(self, made: History | None, *, keep: bool) -> None:
        """Record events in `made` from now on (None: stop), and `keep` what was recorded; the caller holds the lock."""
        former, self.history = self.history, made
        if made is not None:
            made.device = self.name
        if former is not None:
            former.stop()
            if keep:
                self.history = former if made is None else made
                if made is not None:
                    made.continue_(former)
        for stream_pool in self.stream_pools():
            stream_pool.record_to(made)

    def statistics(self) -> MemoryStatistics:
        """Return all current figures; the caller holds the lock."""
        private: dict[tuple[int, int], int] = {pool.id: 0 for pool in self.pools.values() if pool.is_private}
        for segment in self.segments:
            if segment.stream_pool.pool.is_private:
                private[segment.stream_pool.pool.id] += segment.held
        plain = (s for s in self.every_segment() if not isinstance(s, Arena))  # like torch, count no arena as split
        split_blocks = (block for segment in plain if not segment.first.is_whole for block in segment)
        return self.counters.statistics(
            tuple(self.cut.values()),
            (block for block in split_blocks if block.state == "inactive"),
            max_split_size=-1 if self.config.max_split_size is None else self.config.max_split_size,
            private=private,
        )


def try_each(steps: Iterable[Callable[[], int | None]]) -> tuple[int, Exception | None]:
    """Take every step even if some raise; return the sum of their results, and the first error."""
    released = 0
    failure: Exception | None = None
    for step in steps:
        try:
            released += step() or 0
        except Exception as error:  # noqa: BLE001  # a source can raise anything
            failure = error if failure is None else failure
    return released, failure
