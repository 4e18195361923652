"""The caching allocator: finds a block, asks the source for more, gives back, and says why it cannot.

Policy alone, over integers: memory comes from a `cuassay.core.protocols.MemorySource`, streams are numbers. A miss
takes the allocator's lock; the source is never called with it held, and what may have moved meanwhile is read again.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from cuassay.core.protocols import MemorySource
from cuassay.errors import ArgumentError, SettingError
from cuassay.memory.blocks import Block
from cuassay.memory.config import SMALL_REQUEST, parse_config
from cuassay.memory.oom import OomLadder
from cuassay.memory.stream_pool import Pool, StreamPool, free

__all__ = ["CachingAllocator", "checked_nbytes"]

#: No device has so much; a larger request is an error of the caller's arithmetic.
_ABSURD = 2**60


class CachingAllocator(OomLadder):
    """Memory of one device, kept for reuse by stream.

    Parameters
    ----------
    source : MemorySource
        Where memory comes from, and where events are recorded.
    total : int, optional
        Bytes of the device: what `per_process_memory_fraction` is a fraction of.
    config : AllocatorConfig or str, optional
        How it rounds, splits and collects.
    name : str
        The device, for messages.

    Examples
    --------
    >>> from cuassay.memory import CachingAllocator, IntegerSource
    >>> allocator = CachingAllocator(IntegerSource())
    >>> block = allocator.malloc(1000)
    >>> allocator.free(block)
    >>> allocator.statistics().flat()["allocated_bytes.all.peak"]
    1024
    """

    # ------------------------------------------------------------------------------------------- malloc and free

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """A block of at least `nbytes`, in the order of `stream`'s work.

        Raises
        ------
        ArgumentError
            If `nbytes` is negative or no integer.
        OutOfMemoryError
            If there is no room even after everything free was given back; the allocator stays usable.
        """
        if self._routes or (stream_pool := self._stream_pools.get(stream)) is None:
            return self.stream_pool(stream).malloc(nbytes)
        try:  # StreamPool.malloc, written out: a call less on every hit
            idle = stream_pool.quick.get(nbytes)
            if idle:
                block = idle.pop()
                block.home = idle
                block.uses += 1
                return block
        except (IndexError, TypeError):
            pass
        return self._miss(stream_pool, nbytes)

    free = staticmethod(free)

    def find(self, address: int) -> Block:
        """The live block that begins at `address`. Raises `ArgumentError`."""
        block = self._cut.get(address)
        if block is None or not block.is_live:
            raise ArgumentError(f"no live block begins at {address:#x}; give an address that `malloc` gave")
        return block

    def record_stream(self, block: Block, stream: int) -> None:
        """After `block` is freed, its reuse comes after what `stream` was given until then.

        Raises
        ------
        ArgumentError
            If the block is not live.
        """
        if not block.is_live:
            raise ArgumentError(f"{block!r} is not live; record a stream before the block is freed")
        if stream != block.stream and stream not in block.users:
            block.users = (*block.users, stream)
            block.home = block.stream_pool.deferred

    # ------------------------------------------------------------------------------------------------ private pools

    def create_pool(
        self,
        *,
        source: MemorySource | None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        one_handle: bool = False,
    ) -> Pool:
        """A pool of its own, with one owner; its memory comes from `source` (None: the allocator's)."""
        pool = Pool(
            next(self._numbers),
            source or self._default.source,
            use_on_oom=use_on_oom,
            no_split=no_split,
            one_handle=one_handle,
        )
        with self._lock:
            self._pools[pool.id] = pool
        return pool

    def retain_pool(self, pool: Pool) -> None:
        """One more owner."""
        with self._lock:
            self._known(pool).use_count += 1

    def release_pool(self, pool: Pool) -> None:
        """One owner less; without any, free segments go with the next `empty_cache`, live blocks stay."""
        with self._lock:
            self._known(pool).use_count -= 1
            if pool.use_count == 0:
                pool.use_on_oom = False
                self._forget(pool)

    @contextmanager
    def use_pool(self, pool: Pool) -> Iterator[Pool]:
        """Allocations of this thread come from `pool` inside the block; the inner one of two wins."""
        self.retain_pool(pool)
        thread = threading.get_ident()
        self._routes.setdefault(thread, []).append(pool)
        try:
            yield pool
        finally:
            self._routes[thread].pop()
            if not self._routes[thread]:
                del self._routes[thread]
            self.release_pool(pool)

    # ------------------------------------------------------------------------------------------------------- misses

    def _miss(self, stream_pool: StreamPool, nbytes: int) -> Block:
        if nbytes.__class__ is not int or nbytes < 0:
            nbytes = checked_nbytes(nbytes)
        with self._lock:
            if stream_pool.detector is not None and stream_pool.detector.is_over:
                stream_pool.watch(None)
                self._coalesce(stream_pool)
            self._clock += 1
            size = self.config.round_size(nbytes)
            block = self._take_free(stream_pool, size, nbytes)
            if block is not None and stream_pool.detector is not None and size > SMALL_REQUEST:
                stream_pool.detector.add(block)
        if block is None:
            block = self._search(stream_pool, size, nbytes)
            self._note_in_detector(stream_pool, block)
        if self.history is not None:
            self.history.note_malloc(block)
        return block

    def _search(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block:
        """A block when no free one fits as it is."""
        block = None
        if nbytes < _ABSURD:
            block = (
                self._find(stream_pool, size, nbytes)
                or self._reclaim_deferred(stream_pool, size, nbytes)
                or self._grow(stream_pool, size, nbytes)
                or self._make_room_and_retry(stream_pool, size, nbytes)
            )
        return block or self._give_up(stream_pool, nbytes)

    # ------------------------------------------------------------------------------------ blocks other streams use

    def _reclaim_deferred(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """A block that other streams used: one they are done with, or else one its stream will wait for."""
        if self._captures or not stream_pool.deferred:
            return None
        self._poll(stream_pool)
        found = self._find(stream_pool, size, nbytes)
        if found is None and self._await(stream_pool, size):
            found = self._find(stream_pool, size, nbytes)
        return found

    def _await_stream_pool(self, stream_pool: StreamPool) -> bool:
        """Let the stream wait, on the device, for the users of all its freed blocks."""
        if self._captures or not stream_pool.deferred:
            return False
        self._mark_held(stream_pool)
        while (block := self._pop_deferred(stream_pool)) is not None:
            self._wait(block)
        return True

    @staticmethod
    def _mark_held(stream_pool: StreamPool) -> None:
        """Mark the users of blocks that could not be marked when they were freed; whoever freed them was told."""
        for _ in range(len(stream_pool.deferred.held)):
            with suppress(Exception):
                stream_pool.deferred.unhold()

    def _poll(self, stream_pool: StreamPool) -> None:
        """Return the blocks whose users are done, up to the first that is not."""
        self._mark_held(stream_pool)
        while (block := self._pop_deferred(stream_pool)) is not None:
            is_done = False
            try:
                is_done = all(map(stream_pool.pool.source.query, block.events))
            finally:
                if not is_done:
                    stream_pool.deferred.queue.appendleft(block)
            if not is_done:
                return
            with self._lock:
                self._return(block)

    @staticmethod
    def _pop_deferred(stream_pool: StreamPool) -> Block | None:
        try:
            return stream_pool.deferred.queue.popleft()
        except IndexError:
            return None

    def _await(self, stream_pool: StreamPool, size: int) -> bool:
        """Let the stream wait, on the device, for the users of the smallest block that fits."""
        with self._lock:
            fitting = [block for block in tuple(stream_pool.deferred.queue) if block.nbytes >= size]
            block = min(fitting, key=lambda b: (b.nbytes, b.address), default=None)
            if block is None:
                return False
            try:
                stream_pool.deferred.queue.remove(block)
            except ValueError:  # another thread, which needs no lock to take the first one, is returning it
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
        with self._lock:
            self._return(block)

    def _await_all(self) -> Exception | None:
        """Every stream waits, on the device, for the users of all its freed blocks; gives the first error."""
        if self._captures:
            return None
        self._counters.count("num_sync_all_streams")
        stream_pools = [
            stream_pool for pool in tuple(self._pools.values()) for stream_pool in tuple(pool.stream_pools.values())
        ]
        return self._try_each(partial(self._await_stream_pool, stream_pool) for stream_pool in stream_pools)[1]

    # ---------------------------------------------------------------------------------------------- more and less

    def _grow(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """A block of a new segment, or None when there is no room for one."""
        whole, page_space = self.config.segment_size(size), self._page_space(stream_pool)
        if self.config.garbage_collection_threshold:
            self._collect_old(whole)
        if page_space is not None:
            return self._cut_from_pages(stream_pool, page_space, size, nbytes)
        return self._grow_by(stream_pool, whole, size, nbytes)

    def _collect_old(self, coming: int) -> None:
        """Release free segments of at least average age until `coming` stays below the threshold."""
        target = int(self.config.garbage_collection_threshold * self.allowed)
        while (excess := self._counters.reserved + coming - target) > 0:
            with self._lock:
                ages = {one: self._clock - one.first.stamp for one in self._whole_free() if not one.is_small}
            mean = sum(ages.values()) / max(len(ages), 1)
            old = [partial(self._release, segment) for segment, age in ages.items() if age >= mean]
            if not self._try_each(old)[0]:  # an error is for `empty_cache` to raise: there may be room without it
                break
        if excess > 0:
            self._collect_old_pages()

    def _collect_old_pages(self) -> None:
        """Release free pages of at least average age."""
        stream_pools = self._shrinkable()
        with self._lock:
            stamps = [
                block.stamp
                for stream_pool in stream_pools
                if stream_pool.page_space is not None
                for block in stream_pool.large
            ]
        mean = sum(stamps) // max(len(stamps), 1)
        self._try_each(partial(self._release_pages, stream_pool, before=mean) for stream_pool in stream_pools)

    def _shrinkable(self) -> list[StreamPool]:
        """Lanes whose free memory may go."""
        with self._lock:
            return [
                stream_pool
                for pool in self._pools.values()
                if pool.may_shrink
                for stream_pool in tuple(pool.stream_pools.values())
            ]

    def free_lock(self) -> threading.RLock:
        """Hold it (``with``) to keep any memory from going back to the device."""
        return self._releasing

    def empty_cache(self, pool: Pool | None = None) -> int:
        """Give every free segment (of `pool` alone, where one is named) back to the source.

        Other streams are waited for on the device. Segments of private pools stay while the pool has owners; during a
        capture nothing is given back.

        Returns
        -------
        int
            Bytes given back.

        Raises
        ------
        Exception
            The first of the source's errors, when the rest was given back; what could not go stays here, free.
        """
        unfinished = self._await_all()
        with self._lock:
            pools = [one for one in self._pools.values() if one.may_shrink and pool in (None, one)]
            stream_pools = [stream_pool for one in pools for stream_pool in one.stream_pools.values()]
            for stream_pool in stream_pools:  # a segment may hold what a small one was made of
                self._coalesce(stream_pool)
            segments = [segment for segment in self._whole_free() if pool in (None, segment.stream_pool.pool)]
        of_segments = [partial(self._release, segment) for segment in segments]
        of_pages = [partial(self._release_pages, stream_pool) for stream_pool in stream_pools]
        with self._releasing:  # what another thread gives back now is there when this returns
            released, failure = self._try_each([*of_segments, *of_pages])
        if (error := unfinished or failure) is not None:
            raise error
        return released

    # ----------------------------------------------------------------------------------------------- configuration

    def configure(self, text: str) -> None:
        """Change the options that `text` mentions. Raises `SettingError`, and changes nothing then."""
        config = parse_config(text, self.config)
        if config.backend != self.config.backend:
            raise SettingError(
                f"backend is {self.config.backend!r} from the allocator's beginning; got {config.backend!r}; set it in "
                "CUASSAY_ALLOC_CONF before the first allocation"
            )
        self.config = config

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Inside, work is captured: no event is recorded, asked or waited for, and nothing goes back to the device.

        It begins when what is on its way back to the device is there.
        """
        with self._releasing, self._lock:
            self._captures += 1
        try:
            yield
        finally:
            with self._lock:
                self._captures -= 1
                stream_pools = (
                    []
                    if self._captures
                    else [stream_pool for p in self._pools.values() for stream_pool in p.stream_pools.values()]
                )
            for stream_pool in stream_pools:
                stream_pool.deferred.unhold()


def checked_nbytes(nbytes: Any) -> int:
    """The bytes of a request as an int. Raises `ArgumentError` where they are none."""
    try:
        checked = operator.index(nbytes)
    except TypeError:
        checked = -1
    if checked < 0:
        raise ArgumentError(f"the size of a block is 0 or more bytes, as an int; got {nbytes!r}; correct it")
    return checked
