"""How blocks are cut out, counted, parked and merged, under the allocator's lock.

A block is *cut out* for one requested size from the moment it is first given out until it is merged with its free
neighbours: live, or *parked* in the quick list of that size, where the same request finds it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuassay.core.protocols import MemorySource
from cuassay.memory.blocks import FREED, GONE, LENT, Block, FreeBlocks, merge, split, withhold
from cuassay.memory.books import Books
from cuassay.memory.config import MIN_BLOCK, SMALL_REQUEST, AllocatorConfig
from cuassay.memory.history import History
from cuassay.memory.lane import Lane, Pool

__all__ = ["Parking"]

#: The stamp of a block that became free just now, and is in no list yet; clocks begin at 0.
_FRESH = -1


class Parking:
    """The blocks of one device, by pools and lanes."""

    def __init__(self, source: MemorySource, config: AllocatorConfig) -> None:
        self.config = config
        self.history: History | None = None
        self._books = Books()
        self._cut: dict[int, Block] = {}
        self._clock = 0
        self._default = Pool(0, source)
        self._lanes = self._default.lanes
        self._pools = {self._default.id: self._default}

    def _take_free(self, lane: Lane, size: int, nbytes: int | None) -> Block | None:
        is_small, territory, books = size <= SMALL_REQUEST, lane.territory, self._books
        own, both = books.small if is_small else books.large, books.both
        is_full = own.count <= 0 or both.count <= 0 or own.nbytes < size or both.nbytes < size
        if is_full and nbytes is not None and self._refit_last(lane, size, nbytes):
            return lane.last
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
        return self._issue(block, nbytes)

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
        return self._issue(block, nbytes)

    def _issue(self, block: Block, nbytes: int) -> Block:
        """Count and enlist a block that is live from here."""
        block.lane.enlist(block, nbytes)
        self._cut[block.address] = block
        if self._books.cut(block, is_small=block.segment.is_small):
            self._mark(block)
        return block

    def _mark(self, block: Block) -> None:
        """What is cut out is above a peak, with `block`: what is live may be, too."""
        self._unpark_all()
        if block.is_oversize or self._books.is_above():
            self._books.mark(self._pending())

    def _refit_last(self, lane: Lane, size: int, nbytes: int) -> bool:
        """Make what was cut out last, and is parked, longer or shorter to serve now, not merged; True where it does."""
        last, is_small = lane.last, size <= SMALL_REQUEST
        if last is None or last.home is not FREED or last.segment.is_small != is_small or self.history is not None:
            return False
        idle, former, territory = last.idle, last.nbytes, lane.territory
        if not idle or lane.pool.no_split or last.is_oversize or self.config.max_split_size is not None:
            return False
        if not is_small and (territory is None or not territory.may_begin(last.address, size)):
            return False
        try:
            block = idle.pop()
        except IndexError:  # another thread took it
            return False
        if block is not last or not lane.free_blocks(is_small=is_small).refit(last, size):
            idle.append(block)
            return False
        is_above = self._books.refit(last, former, nbytes)
        lane.delist(last)
        lane.enlist(last, nbytes)
        if is_above:
            self._mark(last)
        return True

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
                self.history.note_return(block)
        self._books.uncut(blocks)
        cut, lists = self._cut, lane.lists
        for block in blocks:
            del cut[block.address]
            idle = block.idle
            if idle is not None:  # Lane.delist, written out: a call less on every block
                idle.cut -= 1
                if not idle.cut and lists.get(block.requested) is idle:
                    del lists[block.requested]
            block.idle, block.stamp = None, _FRESH
        clock, small, large = self._clock, lane.small, lane.large
        for block in blocks:
            if block.stamp == _FRESH:  # else a neighbour has taken it in
                free_blocks = small if block.segment.is_small else large
                free_blocks.add(_join_neighbours(block, free_blocks)).stamp = clock
        return True

    def _unpark_all(self) -> None:
        for pool in self._pools.values():
            for lane in tuple(pool.lanes.values()):
                self._unpark(lane)

    def _return(self, block: Block) -> None:
        """Make a block that is not live free for any request."""
        if self.history is not None and self.history.is_on:
            self.history.note_return(block)
        self._books.uncut((block,))
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


def _join_neighbours(block: Block, free_blocks: FreeBlocks) -> Block:
    """A free block that is in no list, one with its free neighbours, whether they are in one or not."""
    low, high, nbytes = block, block.after, block.nbytes
    block.stamp = 0
    while (before := low.before) is not None and before.idle is None:
        low.home = GONE
        low = before
        nbytes += low.nbytes
        if low.stamp == _FRESH:
            low.stamp = 0
        else:
            free_blocks.remove(low)
    while high is not None and high.idle is None:
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
