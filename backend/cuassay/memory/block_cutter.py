"""How blocks are cut out, counted, parked and merged, under the allocator's lock.

A block is *cut out* for one requested size from the moment it is first given out until it is merged with its free
neighbours: live, or *parked* in the quick list of that size, where the same request finds it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuassay.core.protocols import MemorySource
from cuassay.memory.blocks import FREED, GONE, LENT, Block, FreeList, merge, split, withhold
from cuassay.memory.config import MIN_BLOCK, SMALL_REQUEST, AllocatorConfig
from cuassay.memory.counters import Counters
from cuassay.memory.history import History
from cuassay.memory.stream_pool import Pool, StreamPool

__all__ = ["BlockCutter"]

#: The stamp of a block that became free just now, and is in no list yet; clocks begin at 0.
_FRESH = -1


class BlockCutter:
    """The blocks of one device, by private pool and stream."""

    def __init__(self, source: MemorySource, config: AllocatorConfig) -> None:
        self.config = config
        self.history: History | None = None
        self._counters = Counters()
        self._cut: dict[int, Block] = {}
        self._clock = 0
        self._default = Pool(0, source)
        self._stream_pools = self._default.stream_pools
        self._pools = {self._default.id: self._default}

    def _take_free(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        is_small, page_space, counters = size <= SMALL_REQUEST, stream_pool.page_space, self._counters
        own, both = counters.small if is_small else counters.large, counters.both
        is_full = own.count <= 0 or both.count <= 0 or own.nbytes < size or both.nbytes < size
        if is_full and nbytes is not None and self._refit_last(stream_pool, size, nbytes):
            return stream_pool.last
        if stream_pool.pool.no_split or (page_space is None and not is_small):
            block = stream_pool.free_blocks(is_small=is_small).take_best(size, self.config.may_serve)
        elif is_small or page_space is None:  # the latter is for the eyes of the type checker
            block = stream_pool.small.cut(size)
        elif size % page_space.granularity:
            block = stream_pool.large.cut(size)
        else:
            block = stream_pool.large.cut(size, page_space.granularity) or page_space.take(size)
        if block is None:
            return None
        if nbytes is None or block.nbytes != size or self.config.max_split_size is not None:
            return self._cut_out(block, size, nbytes)
        return self._issue(block, nbytes)

    def _cut_out(self, block: Block, size: int, nbytes: int | None) -> Block:
        """Make `block`, which is in no list, live, or lend it (`nbytes` None); what it does not need becomes free."""
        if block.nbytes > size and self._should_split(block, size):
            rest = split(block, size)
            rest.stamp = block.stamp
            block.stream_pool.free_blocks(is_small=block.segment.is_small).add(rest)
        if nbytes is None:
            withhold(block, LENT)
            return block
        if self.config.max_split_size is not None:
            block.is_oversize = self.config.is_oversize(block.nbytes)
        return self._issue(block, nbytes)

    def _issue(self, block: Block, nbytes: int) -> Block:
        """Count and assign a block that is live from here."""
        block.stream_pool.assign(block, nbytes)
        self._cut[block.address] = block
        if self._counters.cut(block, is_small=block.segment.is_small):
            self._mark(block)
        return block

    def _mark(self, block: Block) -> None:
        """What is cut out is above a peak, with `block`: what is live may be, too."""
        self._flush_all()
        if block.is_oversize or self._counters.is_above():
            self._counters.mark(self._pending())

    def _refit_last(self, stream_pool: StreamPool, size: int, nbytes: int) -> bool:
        """Make what was cut out last, and is parked, longer or shorter to serve now, not merged; True where it does."""
        last, is_small = stream_pool.last, size <= SMALL_REQUEST
        if last is None or last.home is not FREED or last.segment.is_small != is_small or self.history is not None:
            return False
        quick_list, former, page_space = last.quick_list, last.nbytes, stream_pool.page_space
        if not quick_list or stream_pool.pool.no_split or last.is_oversize or self.config.max_split_size is not None:
            return False
        if not is_small and (page_space is None or not page_space.may_begin(last.address, size)):
            return False
        try:
            block = quick_list.pop()
        except IndexError:  # another thread took it
            return False
        if block is not last or not stream_pool.free_blocks(is_small=is_small).refit(last, size):
            quick_list.append(block)
            return False
        is_above = self._counters.refit(last, former, nbytes)
        stream_pool.unassign(last)
        stream_pool.assign(last, nbytes)
        if is_above:
            self._mark(last)
        return True

    def _should_split(self, block: Block, size: int) -> bool:
        rest = block.nbytes - size
        if block.stream_pool.pool.no_split:
            return False
        if block.segment.is_small or block.stream_pool.page_space is not None:
            return rest >= MIN_BLOCK
        return rest > SMALL_REQUEST and not self.config.is_oversize(size)

    def _flush(self, stream_pool: StreamPool) -> bool:
        """Make every block in the quick lists free for any request."""
        blocks = stream_pool.drain()
        if not blocks:
            return False
        if self.history is not None and self.history.is_on:
            for block in blocks:
                self.history.note_return(block)
        self._counters.uncut(blocks)
        cut, lists = self._cut, stream_pool.lists
        for block in blocks:
            del cut[block.address]
            quick_list = block.quick_list
            if quick_list is not None:  # StreamPool.unassign, written out: a call less on every block
                quick_list.cut -= 1
                if not quick_list.cut and lists.get(block.requested) is quick_list:
                    del lists[block.requested]
            block.quick_list, block.stamp = None, _FRESH
        clock, small, large = self._clock, stream_pool.small, stream_pool.large
        for block in blocks:
            if block.stamp == _FRESH:  # else a neighbour has taken it in
                free_blocks = small if block.segment.is_small else large
                free_blocks.add(_join_neighbours(block, free_blocks)).stamp = clock
        return True

    def _flush_all(self) -> None:
        for pool in self._pools.values():
            for stream_pool in tuple(pool.stream_pools.values()):
                self._flush(stream_pool)

    def _return(self, block: Block) -> None:
        """Make a block that is not live free for any request."""
        if self.history is not None and self.history.is_on:
            self.history.note_return(block)
        self._counters.uncut((block,))
        del self._cut[block.address]
        block.stream_pool.unassign(block)
        block.users, block.events = (), ()
        self._set_free(block)

    def _set_free(self, block: Block) -> None:
        """Let any request have `block`, which is in no list; it is merged with free neighbours."""
        free_blocks = block.stream_pool.free_blocks(is_small=block.segment.is_small)
        block.home, block.quick_list = FREED, None
        low, high = block.before, block.after
        if high is not None and high.quick_list is None:
            free_blocks.remove(high)
            merge(block, high)
        if low is not None and low.quick_list is None:
            free_blocks.remove(low)
            merge(low, block)
            block = low
        block.stamp = self._clock
        free_blocks.add(block)

    def _pending(self) -> Iterator[Block]:
        for pool in self._pools.values():
            for stream_pool in tuple(pool.stream_pools.values()):
                yield from stream_pool.deferred


def _join_neighbours(block: Block, free_blocks: FreeList) -> Block:
    """A free block that is in no list, one with its free neighbours, whether they are in one or not."""
    low, high, nbytes = block, block.after, block.nbytes
    block.stamp = 0
    while (before := low.before) is not None and before.quick_list is None:
        low.home = GONE
        low = before
        nbytes += low.nbytes
        if low.stamp == _FRESH:
            low.stamp = 0
        else:
            free_blocks.remove(low)
    while high is not None and high.quick_list is None:
        high.home = GONE
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
