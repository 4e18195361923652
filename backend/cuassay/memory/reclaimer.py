"""Takes back blocks that other streams used: when those are done, or by making the block's own stream wait for them.

The source is called without the lock; a block whose events are being queried is in no queue meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from cuassay.memory.block_cutter import BlockCutter
from cuassay.memory.blocks import Block
from cuassay.memory.heap import Heap, try_each
from cuassay.memory.stream_pool import StreamPool

__all__ = ["Reclaimer"]


class Reclaimer:
    """Takes back the deferred blocks of one heap.

    Parameters
    ----------
    heap : Heap
        The shared state.
    cutter : BlockCutter
        Makes blocks that were taken back free.
    may_wait : bool
        Whether a stream may be made to wait for others. If not, a request takes back only blocks that are done.
    """

    def __init__(self, heap: Heap, cutter: BlockCutter, *, may_wait: bool = True) -> None:
        self._heap = heap
        self._cutter = cutter
        self._may_wait = may_wait

    def reclaim(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """Return a block for a request: one that other streams are done with, or one that its stream will wait for."""
        deferred = stream_pool.deferred
        if self._heap.captures or not (deferred.queue or deferred.held):
            return None
        self.poll(stream_pool)
        found = self._cutter.find(stream_pool, size, nbytes)
        if found is None and self._may_wait and self._await_smallest(stream_pool, size):
            found = self._cutter.find(stream_pool, size, nbytes)
        return found

    def poll(self, stream_pool: StreamPool) -> None:
        """Take back the blocks that other streams are done with, up to the first that is still in use."""
        _record_held(stream_pool)
        while (block := _pop_deferred(stream_pool)) is not None:
            is_done = False
            try:
                is_done = all(map(stream_pool.pool.source.query, block.events))
            finally:
                if not is_done:
                    stream_pool.deferred.queue.appendleft(block)
            if not is_done:
                return
            with self._heap.lock:
                self._cutter.return_block(block)

    def await_users(self, stream_pool: StreamPool) -> None:
        """Make the stream wait, on the device, for the users of all its freed blocks, unless work is being captured."""
        if self._heap.captures:
            return
        _record_held(stream_pool)
        while (block := _pop_deferred(stream_pool)) is not None:
            self._wait(block)

    def await_all(self) -> Exception | None:
        """Make every stream wait, on the device, for the users of all its freed blocks; return the first error."""
        if self._heap.captures:
            return None
        self._heap.count("num_sync_all_streams")
        return try_each(partial(self.await_users, found) for found in self._heap.stream_pools())[1]

    def take_back(self) -> Exception | None:
        """Call `await_all`, or only `poll` for every stream pool if no stream may wait; return the first error."""
        if self._may_wait:
            return self.await_all()
        if self._heap.captures:
            return None
        return try_each(partial(self.poll, found) for found in self._heap.stream_pools())[1]

    def _await_smallest(self, stream_pool: StreamPool, size: int) -> bool:
        """Make the stream wait, on the device, for the users of the smallest block that is large enough."""
        queue = stream_pool.deferred.queue
        with self._heap.lock:
            fitting = [block for block in tuple(queue) if block.nbytes >= size]
            block = min(fitting, key=lambda b: (b.nbytes, b.address), default=None)
            if block is None:
                return False
            try:
                queue.remove(block)
            except ValueError:  # another thread is returning it, as taking the first needs no lock
                return False
        self._wait(block)
        return True

    def _wait(self, block: Block) -> None:
        source, stream = block.stream_pool.pool.source, block.stream
        try:
            for event in block.events:
                source.wait(stream, event)
        except BaseException:
            block.stream_pool.deferred.queue.append(block)
            raise
        with self._heap.lock:
            self._cutter.return_block(block)


def _record_held(stream_pool: StreamPool) -> None:
    """Record events for blocks that were held back; the callers that freed them were told why that failed."""
    for _ in range(len(stream_pool.deferred.held)):
        with suppress(Exception):
            stream_pool.deferred.unhold()


def _pop_deferred(stream_pool: StreamPool) -> Block | None:
    try:
        return stream_pool.deferred.queue.popleft()
    except IndexError:
        return None
