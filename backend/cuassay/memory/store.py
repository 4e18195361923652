"""What an allocator holds: segments, their blocks, the lanes they are in, and the books.

Everything here happens under one lock, and the source is never called with it held. In which order to try what is
`cuassay.memory.caching`'s business.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from cuassay.core import settings
from cuassay.core.protocols import MemorySource
from cuassay.errors import ArgumentError, OutOfMemoryError
from cuassay.memory.blocks import FREED, LENT, Block, FreeBlocks, Segment, merge, split, withhold
from cuassay.memory.config import MIN_BLOCK, SMALL_REQUEST, AllocatorConfig, parse_config
from cuassay.memory.history import History
from cuassay.memory.lane import Lane, Pool
from cuassay.memory.pages import Arena
from cuassay.memory.snapshot import describe_segment, describe_traces
from cuassay.memory.statistics import Books, MemoryStatistics

__all__ = ["Store"]

#: The stamp of a block that became free just now, and is in no list yet; clocks begin at 0.
_FRESH = -1

#: What may be reserved where the device's size is not known.
_UNLIMITED = 2**44


class Store(ABC):
    """Segments and blocks of one device; `CachingAllocator` is what callers use."""

    def __init__(
        self,
        source: MemorySource,
        *,
        total: int | None = None,
        config: AllocatorConfig | str | None = None,
        name: str = "the device",
    ) -> None:
        self.name = name
        self.total = total
        text = settings.get("CUASSAY_ALLOC_CONF") if config is None else config
        self.config = parse_config(text) if isinstance(text, str) else text
        self.free_memory_callbacks: list[Callable[[int], bool]] = []
        self.oom_observers: list[Callable[[OutOfMemoryError], None]] = []
        self._lock = threading.Lock()
        self._releasing = threading.RLock()
        self.history: History | None = None
        self._books = Books()
        self._cut: dict[int, Block] = {}
        self._segments: dict[int, Segment] = {}
        self._numbers = count(1)
        self._clock = 0
        self._coming = 0
        self.driver_calls = 0
        self._captures = 0
        self._default = Pool(0, source)
        self._lanes = self._default.lanes
        self._pools = {self._default.id: self._default}
        self._routes: dict[int, list[Pool]] = {}

    def lane(self, stream: int = 0, pool: Pool | None = None) -> Lane:
        """What serves `stream` in `pool` (None: the one in use in this thread); keep it to save the look-up."""
        pool = pool or self._route()
        try:
            return pool.lanes[stream]
        except KeyError:
            lane = Lane(pool, stream, self._miss, self._is_capturing)
            if self.history is not None and self.history.is_on:
                lane.tell(self.history)
            return pool.lanes.setdefault(stream, lane)

    def _route(self) -> Pool:
        route = self._routes.get(threading.get_ident())
        return route[-1] if route else self._default

    @property
    def allowed(self) -> int:
        """Bytes that may be reserved."""
        return _UNLIMITED if self.total is None else int(self.total * self.config.per_process_memory_fraction)

    def _find(self, lane: Lane, size: int, nbytes: int | None) -> Block | None:
        """Best fit among free blocks; when none fits, the quick lists are emptied, so that neighbours merge."""
        with self._lock:
            return self._taken(lane, size, nbytes) or (self._unpark(lane) and self._taken(lane, size, nbytes)) or None

    def _taken(self, lane: Lane, size: int, nbytes: int | None) -> Block | None:
        is_small, territory = size <= SMALL_REQUEST, lane.territory
        if lane.pool.no_split or (territory is None and not is_small):
            block = lane.free_blocks(is_small=is_small).take_best(size, self.config.may_serve)
        elif is_small or territory is None:  # the latter is for the eyes of the type checker
            block = lane.small.cut(size)
        elif size % territory.granularity:
            block = lane.large.cut(size)
        else:
            block = lane.large.cut(size, territory.granularity) or territory.take(size)
        if block is None:
            return None
        if nbytes is None or block.nbytes != size or self.config.max_split_size is not None:
            return self._cut_out(block, size, nbytes)
        return self._issued(block, nbytes)

    def _cut_out(self, block: Block, size: int, nbytes: int | None) -> Block:
        """Make `block`, which is in no list, live, or lend it (`nbytes` None); what it does not need becomes free."""
        if block.nbytes > size and self._should_split(block, size):
            rest = split(block, size)
            rest.stamp = block.stamp
            block.lane.free_blocks(is_small=block.segment.is_small).add(rest)
        if nbytes is None:
            withhold(block, LENT)
            return block
        if self.config.max_split_size is not None:
            block.is_oversize = self.config.is_oversize(block.nbytes)
        return self._issued(block, nbytes)

    def _issued(self, block: Block, nbytes: int) -> Block:
        """Count and enlist a block that is live from here."""
        block.lane.enlist(block, nbytes)
        self._cut[block.address] = block
        if self._books.cut(block, is_small=block.segment.is_small):
            self._unpark_all()
            if block.is_oversize or self._books.is_above():
                self._books.mark(self._pending())
        return block

    def _should_split(self, block: Block, size: int) -> bool:
        rest = block.nbytes - size
        if block.lane.pool.no_split:
            return False
        if block.segment.is_small or block.lane.territory is not None:
            return rest >= MIN_BLOCK
        return rest > SMALL_REQUEST and not self.config.is_oversize(size)

    def _unpark(self, lane: Lane) -> bool:
        """Make every block in the quick lists free for any request."""
        blocks = lane.take_parked()
        if not blocks:
            return False
        if self.history is not None and self.history.is_on:
            for block in blocks:
                self.history.returned(block)
        self._books.merged(blocks)
        cut = self._cut
        for block in blocks:
            del cut[block.address]
            lane.delist(block)
            block.stamp = _FRESH
        clock, small, large = self._clock, lane.small, lane.large
        for block in blocks:
            if block.stamp == _FRESH:  # else a neighbour has taken it in
                free_blocks = small if block.segment.is_small else large
                free_blocks.add(_joined(block, free_blocks)).stamp = clock
        return True

    def _unpark_all(self) -> None:
        for pool in self._pools.values():
            for lane in tuple(pool.lanes.values()):
                self._unpark(lane)

    def _return(self, block: Block) -> None:
        """Make a block that is not live free for any request."""
        if self.history is not None and self.history.is_on:
            self.history.returned(block)
        self._books.merged((block,))
        del self._cut[block.address]
        block.lane.delist(block)
        block.users, block.events = (), ()
        self._set_free(block)

    def _set_free(self, block: Block) -> None:
        """Let any request have `block`, which is in no list; it is merged with free neighbours."""
        free_blocks = block.lane.free_blocks(is_small=block.segment.is_small)
        block.home, block.idle = FREED, None
        low, high = block.before, block.after
        if high is not None and high.idle is None:
            free_blocks.remove(high)
            merge(block, high)
        if low is not None and low.idle is None:
            free_blocks.remove(low)
            merge(low, block)
            block = low
        block.stamp = self._clock
        free_blocks.add(block)

    def _pending(self) -> Iterator[Block]:
        for pool in self._pools.values():
            for lane in tuple(pool.lanes.values()):
                yield from lane.deferred

    def _grown_by(self, lane: Lane, whole: int, size: int, nbytes: int) -> Block | None:
        with self._lock:
            if self._books.reserved + self._coming + whole > self.allowed:
                self._books.count("num_oom_rejections")
                return None
            self._coming += whole
        try:
            self.driver_calls += 1
            address = lane.pool.source.reserve(whole, lane.stream)
        except OutOfMemoryError:
            return None
        finally:
            with self._lock:
                self._coming -= whole
        with self._lock:
            segment = Segment(address, whole, lane, is_small=size <= SMALL_REQUEST)
            self._segments[address] = segment
            self._moved(segment, 1)
            return self._cut_out(segment.first, size, nbytes)

    def _moved(self, segment: Segment, sign: int) -> None:
        if self.history is not None:
            self.history.moved(segment, sign)
        is_oversize = self.config.is_oversize(segment.nbytes)
        self._books.move_segment(segment.nbytes, sign=sign, is_small=segment.is_small, is_oversize=is_oversize)

    def _whole_free(self) -> list[Block]:
        """Free blocks that are all of their segment, of pools whose memory may go; no block is parked afterwards."""
        self._unpark_all()
        return [
            segment.first
            for segment in self._segments.values()
            if segment.first.idle is None
            and segment.first.is_whole
            and not isinstance(segment, Arena)
            and segment.lane.pool.may_shrink
        ]

    def _release(self, block: Block) -> int:
        """Give the segment of `block` back, if it is still free as a whole; its bytes, or 0."""
        segment = block.segment
        with self._releasing:
            with self._lock:
                if self._captures or block.idle is not None or not block.is_whole:
                    return 0
                if self._segments.pop(segment.address, None) is None:
                    return 0
                segment.lane.free_blocks(is_small=segment.is_small).remove(block)
                self._moved(segment, -1)
                self._forget(segment.lane.pool)
                self.driver_calls += 1
            segment.lane.pool.source.release(segment.address)
        return segment.nbytes

    def _known(self, pool: Pool) -> Pool:
        if not pool.is_private or pool.use_count == 0 or self._pools.get(pool.id) is not pool:
            raise ArgumentError(f"{pool!r} is no private pool in use; give one that `create_pool` gave")
        return pool

    def _forget(self, pool: Pool) -> None:
        if pool.is_private and pool.use_count == 0 and not any(s.lane.pool is pool for s in self._segments.values()):
            self._pools.pop(pool.id, None)

    @abstractmethod
    def _miss(self, lane: Lane, nbytes: int) -> Block:
        """A block when no quick list has one."""

    def _is_capturing(self) -> bool:
        return self._captures > 0

    # ------------------------------------------------------------------------------------------------------ figures

    def peaks(self) -> tuple[int, int]:
        """The most bytes that were asked for, and reserved, at once."""
        figures = self.statistics()
        return figures.requested_bytes.all.peak, figures.reserved_bytes.all.peak

    def statistics(self) -> MemoryStatistics:
        """Every figure as of now, as a frozen record."""
        with self._lock:
            return self._statistics()

    def _statistics(self) -> MemoryStatistics:
        private: dict[tuple[int, int], int] = {pool.id: 0 for pool in self._pools.values() if pool.is_private}
        for segment in self._segments.values():
            if segment.lane.pool.is_private:
                private[segment.lane.pool.id] += segment.held
        plain = (s for s in self._every_segment() if not isinstance(s, Arena))  # as torch: what grows is not split
        split_blocks = (b for s in plain if not s.first.is_whole for b in s)
        return self._books.statistics(
            tuple(self._cut.values()),
            (block for block in split_blocks if block.state == "inactive"),
            max_split_size=-1 if self.config.max_split_size is None else self.config.max_split_size,
            private=private,
        )

    def reset_peak_stats(self) -> None:
        """From here every peak is a new one."""
        with self._lock:
            self._unpark_all()
            self._books.reset_peaks(self._pending())

    def reset_accumulated_stats(self) -> None:
        """From here ``allocated``, ``freed`` and the counters are new ones."""
        with self._lock:
            self._books.reset_totals(self._cut.values())

    def snapshot(self) -> dict[str, Any]:
        """Every segment and block as plain data, in the schema of ``torch.cuda.memory._snapshot``."""
        with self._lock:
            history = self.history
            every = self._every_segment()
            segments = [entry for segment in every for entry in describe_segment(segment, history)]
            settings = {"CUASSAY_ALLOC_CONF": str(self.config)}
        return {
            "segments": segments,
            "device_traces": [] if history is None else [describe_traces(history)],
            "allocator_settings": settings,
            "external_annotations": [],
        }

    def record_history(self, enabled: str | None = "all", *, clear_history: bool = False, **options: Any) -> None:
        """Keep what happens from here, with stacks, for `snapshot`; see `cuassay.memory.history.History`.

        Parameters
        ----------
        enabled : str or None
            ``"all"``, ``"state"``, or None to stop: what was kept stays until it is cleared.
        clear_history : bool
            Forget what was kept before.
        **options
            ``context``, ``stacks``, ``max_entries`` and ``skip_actions`` of `History`.

        Raises
        ------
        ArgumentError
            If a value is not one of those there are; nothing is changed then.
        """
        made = None if enabled is None else History(enabled, **options)
        with self._lock:
            self._unpark_all()
            former, self.history = self.history, made
            if former is not None:
                former.stop()
                if not clear_history:
                    self.history = former if made is None else made
                    if made is not None:
                        made.continue_(former)
            for pool in self._pools.values():
                for lane in tuple(pool.lanes.values()):
                    lane.tell(made)

    def segments(self) -> tuple[Segment, ...]:
        """The segments held, by address."""
        with self._lock:
            return tuple(self._every_segment())

    def _every_segment(self) -> list[Segment]:
        lanes = (lane for pool in self._pools.values() for lane in pool.lanes.values())
        over = (segment for lane in lanes if lane.territory is not None for segment in lane.territory.segments())
        return sorted((*self._segments.values(), *over), key=lambda segment: segment.address)


def _joined(block: Block, free_blocks: FreeBlocks) -> Block:
    """A free block that is in no list, one with its free neighbours, whether they are in one or not."""
    low, high, nbytes = block, block.after, block.nbytes
    block.stamp = 0
    while (before := low.before) is not None and before.idle is None:
        low = before
        nbytes += low.nbytes
        if low.stamp == _FRESH:
            low.stamp = 0
        else:
            free_blocks.remove(low)
    while high is not None and high.idle is None:
        nbytes += high.nbytes
        if high.stamp == _FRESH:
            high.stamp = 0
        else:
            free_blocks.remove(high)
        high = high.after
    if high is not block.after or low is not block:
        low.after = high
        if high is not None:
            high.before = low
        low.nbytes = nbytes
    return low
