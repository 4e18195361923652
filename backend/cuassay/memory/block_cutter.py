"""Cuts blocks out for requests, keeps them in quick lists, and merges them; all of it under the allocator's lock.

A block is *cut out* for one requested size from its first use for a request until it is merged with its free
neighbours. Meanwhile it is live, or it waits in the quick list of that size, where the next equal request finds it.
"""

from __future__ import annotations

from cuassay.memory.blocks import FREED, GONE, LENT, Block, QuickList, merge, split, withhold
from cuassay.memory.config import MIN_BLOCK, SMALL_REQUEST
from cuassay.memory.free_list import FreeList
from cuassay.memory.heap import Heap
from cuassay.memory.stream_pool import StreamPool

__all__ = ["BlockCutter"]

#: The stamp of a block that has just become free and is in no list yet; clocks begin at 0.
_FRESH = -1


class BlockCutter:
    """Cuts and merges the blocks of one heap. Callers hold the lock; only the two `find` methods take it."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._counters = heap.counters
        self._cut = heap.cut

    # ------------------------------------------------------------------------------------------------------ cutting

    def find(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """Return a block made of free ones, including those in quick lists; None if no free block is large enough."""
        with self._heap.lock:
            return self.take_free(stream_pool, size, nbytes) or self.take_flushed(stream_pool, size, nbytes)

    def find_flushed(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Take the lock and call `take_flushed`."""
        with self._heap.lock:
            return self.take_flushed(stream_pool, size, nbytes)

    def take_flushed(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """Flush the quick lists, then return a block made of free ones; None if the lists were empty."""
        return self.take_free(stream_pool, size, nbytes) if self.flush(stream_pool) else None

    def take_free(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """Return a block of `size` made of a free one; None if no free block is large enough.

        With `nbytes` it is cut out for a request of that many bytes; without, it is lent.
        """
        is_small, page_space, counters = size <= SMALL_REQUEST, stream_pool.page_space, self._counters
        own, both = counters.small if is_small else counters.large, counters.both
        is_full = own.count <= 0 or both.count <= 0 or own.nbytes < size or both.nbytes < size
        if is_full and nbytes is not None and self._refit_last(stream_pool, size, nbytes):
            return stream_pool.last
        free_list = stream_pool.small if is_small else stream_pool.large
        if not free_list.keys:
            return None
        config = self._heap.config
        if stream_pool.pool.no_split or (page_space is None and not is_small):
            block = free_list.take(size, config.may_serve)
        # a large block without pages is taken above; the test for None here is only for the type checker
        elif is_small or page_space is None or size % page_space.granularity:
            block = free_list.cut(size)
        else:
            block = free_list.cut(size, page_space.granularity) or page_space.take(size)
        if block is None:
            return None
        if nbytes is None or block.nbytes != size or config.max_split_size is not None:
            return self.cut_out(block, size, nbytes)
        return self._issue(block, nbytes)

    def cut_out(self, block: Block, size: int, nbytes: int | None) -> Block:
        """Make `block`, which is in no list, live, or lend it (`nbytes` None); the rest above `size` becomes free."""
        if block.nbytes > size and self._should_split(block, size):
            rest = split(block, size)
            rest.stamp = block.stamp
            stream_pool = block.stream_pool
            (stream_pool.small if block.segment.is_small else stream_pool.large).add(rest)
        if nbytes is None:
            return withhold(block, LENT)
        config = self._heap.config
        if config.max_split_size is not None:
            block.is_oversize = config.is_oversize(block.nbytes)
        return self._issue(block, nbytes)

    def _issue(self, block: Block, nbytes: int) -> Block:
        """Make `block` live for a request of `nbytes`, and count it."""
        stream_pool = block.stream_pool
        lists = stream_pool.lists
        quick_list = lists.get(nbytes)  # inlined to save a call on every miss
        if quick_list is None:
            quick_list = lists.setdefault(nbytes, QuickList())
        quick_list.cut += 1
        block.requested = nbytes
        block.uses = 1
        block.quick_list = block.home = quick_list
        stream_pool.last = block
        self._cut[block.address] = block
        if self._counters.cut(block, is_small=block.segment.is_small):
            self._mark_peaks(block)
        return block

    def _mark_peaks(self, block: Block) -> None:
        """Find out what is live when more is cut out than a peak, and raise the peaks to that."""
        pending: list[Block] = []
        for stream_pool in self._heap.stream_pools():
            self.flush(stream_pool)
            if stream_pool.deferred.queue or stream_pool.deferred.held:
                pending += stream_pool.deferred
        self._counters.mark_if_above(pending, is_certain=block.is_oversize)

    def _refit_last(self, stream_pool: StreamPool, size: int, nbytes: int) -> bool:
        """Let the block that was cut out last, if it is in its quick list, grow or shrink to serve this request.

        Return whether it did. This is cheaper than merging the block and cutting it again.
        """
        last, is_small, heap = stream_pool.last, size <= SMALL_REQUEST, self._heap
        if last is None or last.home is not FREED or last.segment.is_small != is_small:
            return False
        quick_list, former, page_space = last.quick_list, last.nbytes, stream_pool.page_space
        is_heard = heap.history is None or heap.history.hears(quick_list)
        is_plain = not (stream_pool.pool.no_split or last.is_oversize or heap.config.max_split_size is not None)
        if not quick_list or not is_heard or not is_plain:
            return False
        if not is_small and (page_space is None or not page_space.may_begin(last.address, size)):
            return False
        try:
            block = quick_list.pop()
        except IndexError:  # another thread took it
            return False
        if block is not last or not (stream_pool.small if is_small else stream_pool.large).refit(last, size):
            list.append(quick_list, block)  # a list that records has recorded this free already
            return False
        is_above = self._counters.refit(last, former, nbytes)
        stream_pool.reassign(last, nbytes)
        if is_above:
            self._mark_peaks(last)
        return True

    def _should_split(self, block: Block, size: int) -> bool:
        rest = block.nbytes - size
        if block.stream_pool.pool.no_split:
            return False
        if block.segment.is_small or block.stream_pool.page_space is not None:
            return rest >= MIN_BLOCK
        return rest > SMALL_REQUEST and not self._heap.config.is_oversize(size)

    # ------------------------------------------------------------------------------------------------------ merging

    def flush(self, stream_pool: StreamPool) -> bool:
        """Make every block in the quick lists free for any request; return whether there was one."""
        if not any(stream_pool.lists.values()):
            return False
        blocks = stream_pool.drain()
        history = self._heap.history
        if history is not None and history.is_on:
            for block in blocks:
                history.note_return(block)
        self._counters.uncut(blocks)
        cut, lists = self._cut, stream_pool.lists
        for block in blocks:
            del cut[block.address]
            quick_list = block.quick_list
            if quick_list is not None:  # StreamPool.unassign, inlined to save a call on every block
                quick_list.cut -= 1
                if not quick_list.cut and lists.get(block.requested) is quick_list:
                    del lists[block.requested]
            block.quick_list, block.stamp = None, _FRESH
        clock, small, large = self._heap.clock, stream_pool.small, stream_pool.large
        for block in blocks:
            if block.stamp == _FRESH:  # otherwise it was already merged with a neighbour
                free_list = small if block.segment.is_small else large
                free_list.add(_merge_neighbours(block, free_list)).stamp = clock
        return bool(blocks)

    def flush_all(self) -> None:
        """Flush the quick lists of every stream pool."""
        for stream_pool in self._heap.stream_pools():
            self.flush(stream_pool)

    def return_block(self, block: Block) -> None:
        """Make a block that is not live free for any request."""
        history = self._heap.history
        if history is not None and history.is_on:
            history.note_return(block)
        self._counters.uncut((block,))
        del self._cut[block.address]
        block.stream_pool.unassign(block)
        block.users, block.events = (), ()
        self.set_free(block)

    def set_free(self, block: Block) -> None:
        """Make `block`, which is in no list, free for any request, and merge it with free neighbours."""
        stream_pool = block.stream_pool
        free_list = stream_pool.small if block.segment.is_small else stream_pool.large
        block.home, block.quick_list = FREED, None
        low, high = block.before, block.after
        if high is not None and high.quick_list is None:
            free_list.remove(high)
            merge(block, high)
        if low is not None and low.quick_list is None:
            free_list.remove(low)
            merge(low, block)
            block = low
        block.stamp = self._heap.clock
        free_list.add(block)


def _merge_neighbours(block: Block, free_list: FreeList) -> Block:
    """Merge a free block, which is in no list, with its free neighbours; they may be in `free_list` or fresh."""
    low, high, nbytes = block, block.after, block.nbytes
    block.stamp = 0
    while (before := low.before) is not None and before.quick_list is None:
        low.home = GONE
        low = before
        nbytes += low.nbytes
        if low.stamp == _FRESH:
            low.stamp = 0
        else:
            free_list.remove(low)
    while high is not None and high.quick_list is None:
        high.home = GONE
        nbytes += high.nbytes
        if high.stamp == _FRESH:
            high.stamp = 0
        else:
            free_list.remove(high)
        high = high.after
    if high is not block.after or low is not block:
        low.after = high
        if high is not None:
            high.before = low
        low.nbytes = nbytes
    return low
