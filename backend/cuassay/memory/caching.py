"""The caching allocator: serves requests from what its parts keep, and takes more memory when they have none.

It is pure policy, over integers: memory comes from a `cuassay.core.protocols.MemorySource`, and streams are numbers. A
miss takes the allocator's lock. A source is never called while the lock is held, so anything that may have changed
meanwhile is read again. The package's docstring shows the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from cuassay.core import settings
from cuassay.core.protocols import MemorySource
from cuassay.errors import ArgumentError, OutOfMemoryError, SettingError
from cuassay.memory import watched
from cuassay.memory.block_cutter import BlockCutter
from cuassay.memory.blocks import Block, Segment
from cuassay.memory.config import SMALL_REQUEST, AllocatorConfig, checked_nbytes, parse_config
from cuassay.memory.counters import Counters
from cuassay.memory.fit import BEST_FIT, FitPolicy
from cuassay.memory.heap import Heap, try_each
from cuassay.memory.history import History
from cuassay.memory.oom import DEVICE_LADDER, OomLadder, Request, give_up
from cuassay.memory.page_store import PageStore
from cuassay.memory.reclaimer import Reclaimer
from cuassay.memory.segment_store import SegmentStore
from cuassay.memory.snapshot import take_snapshot
from cuassay.memory.statistics import MemoryStatistics
from cuassay.memory.stream_pool import Pool, StreamPool, free

__all__ = ["CachingAllocator"]

#: No device has so much memory: a larger request is an arithmetic error of the caller.
_ABSURD = 2**60


class CachingAllocator:
    """Memory of one device, kept for reuse by stream.

    Parameters
    ----------
    source : MemorySource
        Provides memory, and records events.
    total : int, optional
        The device's memory in bytes, of which `per_process_memory_fraction` is a fraction.
    config : AllocatorConfig or str, optional
        How it rounds, splits and collects; None reads ``CUASSAY_ALLOC_CONF``.
    name : str
        The device, for messages.
    fit : FitPolicy
        Chooses the free block that serves a request.
    oom_ladder : tuple of callable
        Steps that make room when memory is out (`cuassay.memory.oom`).
    may_wait : bool
        Whether a request may make its stream wait for others that use freed blocks.
    lock : context manager, optional
        Guards every change; None makes a `threading.Lock`.

    Attributes
    ----------
    heap, counters, cutter, reclaimer, segment_store, page_store
        Its parts; `page_store` is None while no pool's source has pages.
    free_memory_callbacks : list of callable
        Called when memory is out, with the bytes of the request; each returns whether it freed something.
    oom_observers : list of callable
        Called with each `OutOfMemoryError` before it is raised.

    Examples
    --------
    >>> from cuassay.memory import CachingAllocator, IntegerSource
    >>> allocator = CachingAllocator(IntegerSource())
    >>> block = allocator.malloc(1000)
    >>> allocator.free(block)
    >>> allocator.statistics().flat()["allocated_bytes.all.peak"]
    1024
    """

    def __init__(
        self,
        source: MemorySource,
        *,
        total: int | None = None,
        config: AllocatorConfig | str | None = None,
        name: str = "the device",
        fit: FitPolicy = BEST_FIT,
        oom_ladder: OomLadder = DEVICE_LADDER,
        may_wait: bool = True,
        lock: Any = None,
    ) -> None:
        text = settings.get("CUASSAY_ALLOC_CONF") if config is None else config
        parsed = parse_config(text) if isinstance(text, str) else text
        self.name = name
        self.fit = fit
        self.oom_ladder = oom_ladder
        self.free_memory_callbacks: list[Callable[[int], bool]] = []
        self.oom_observers: list[Callable[[OutOfMemoryError], None]] = []
        self.counters = Counters()
        self.heap = Heap(source, parsed, total=total, counters=self.counters, lock=lock)
        self.cutter = BlockCutter(self.heap)
        self.reclaimer = Reclaimer(self.heap, self.cutter, may_wait=may_wait)
        self.segment_store = SegmentStore(self.heap, self.cutter)
        self.page_store: PageStore | None = None
        self._use_pages_of(source)
        self._stream_pools = self.heap.default.stream_pools
        self._routes: dict[int, list[Pool]] = {}
        watched.join(self)

    def _use_pages_of(self, source: MemorySource) -> None:
        """Make the page store, if `source` is the first that has pages."""
        if self.page_store is None and source.granularity:
            self.page_store = PageStore(self.heap, self.cutter, self.reclaimer, self.segment_store)

    # ------------------------------------------------------------------------------------------- malloc and free

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """Return a block of at least `nbytes`, in the order of `stream`'s work.

        Raises
        ------
        ArgumentError
            If `nbytes` is negative or not an integer.
        OutOfMemoryError
            If there is no room even after everything free was released; the allocator stays usable.
        """
        if self._routes or (stream_pool := self._stream_pools.get(stream)) is None:
            stream_pool = self.stream_pool(stream)
        try:  # StreamPool.malloc, inlined to save a call on every hit
            quick_list = stream_pool.quick.get(nbytes)
            if quick_list:
                block = quick_list.pop()
                block.home = quick_list
                block.uses += 1
                return block
        except (IndexError, TypeError):
            pass
        return self._miss(stream_pool, nbytes)

    free = staticmethod(free)

    def find(self, address: int) -> Block:
        """Return the live block that begins at `address`. Raises `ArgumentError`."""
        block = self.heap.cut.get(address)
        if block is None or not block.is_live:
            raise ArgumentError(f"no live block begins at {address:#x}; give the address of a block from `malloc`")
        return block

    def record_stream(self, block: Block, stream: int) -> None:
        """Keep `block`, after it is freed, from being reused before the work that `stream` has been given until then.

        Raises
        ------
        ArgumentError
            If the block is not live.
        """
        if not block.is_live:
            raise ArgumentError(f"{block!r} is not live; record a stream before the block is freed")
        if stream != block.stream and stream not in block.users:
            block.users, block.home = (*block.users, stream), block.stream_pool.deferred
            watched.tell_recorded(self.name, block, stream)

    def stream_pool(self, stream: int = 0, pool: Pool | None = None) -> StreamPool:
        """Return the memory of `stream` in `pool` (None: this thread's). Callers may keep it, to save the look-up."""
        pool, heap = pool or self._routed_pool(), self.heap
        found = pool.stream_pools.get(stream)
        if found is not None:
            return found
        with heap.lock:  # others iterate over all stream pools under it
            found = pool.stream_pools.get(stream)
            if found is None:
                found = StreamPool(pool, stream, self._miss, heap.is_capturing, self.fit)
                if heap.history is not None and heap.history.is_on:
                    found.record_to(heap.history)
                pool.stream_pools[stream] = found
            return found

    def _routed_pool(self) -> Pool:
        return (self._routes.get(threading.get_ident()) or [self.heap.default])[-1]

    # ------------------------------------------------------------------------------------------------------- misses

    def _miss(self, stream_pool: StreamPool, nbytes: int) -> Block:
        """Return a block for a request that no quick list can serve."""
        if nbytes.__class__ is not int or nbytes < 0:
            nbytes = checked_nbytes(nbytes)
        heap, pages = self.heap, self.page_store
        if heap.history is not None and (block := heap.history.serve(stream_pool, nbytes)) is not None:
            return block
        with heap.lock:
            if pages is not None and stream_pool.detector is not None:
                pages.end_iteration(stream_pool)
            heap.clock += 1
            size = heap.config.round_size(nbytes)
            block = None if heap.history is None else heap.history.hit(stream_pool, nbytes)
            block = block or self.cutter.take_free(stream_pool, size, nbytes)
            if block is not None and stream_pool.detector is not None and size > SMALL_REQUEST:
                stream_pool.detector.add(block)
        if block is None:
            block = self._search(stream_pool, size, nbytes)
            if pages is not None and stream_pool.detector is not None:
                pages.note_taken(stream_pool, block)
        if heap.history is not None:
            heap.history.note_malloc(block)
        return block

    def _search(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block:
        """Return a block when no free one is large enough. Raises `OutOfMemoryError`."""
        if nbytes < _ABSURD:
            deferred = stream_pool.deferred
            block = self.cutter.find_flushed(stream_pool, size, nbytes) if stream_pool.lists else None
            if block is None and (deferred.queue or deferred.held):
                block = self.reclaimer.reclaim(stream_pool, size, nbytes)
            block = block or self.grow(stream_pool, size, nbytes)
            if block is not None:
                return block
            for step in self.oom_ladder:
                block = step(self, Request(stream_pool, size, nbytes))
                if block is not None:
                    return block
        return give_up(self, stream_pool, nbytes)

    def grow(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Return a block in new memory, or None when there is no room."""
        config, pages = self.heap.config, self.page_store
        collects = config.garbage_collection_threshold
        if collects and self.segment_store.release_old(config.segment_size(size)) and pages is not None:
            pages.release_old()
        return (pages or self.segment_store).grow(stream_pool, size, nbytes)  # pages fall back to segments

    # ------------------------------------------------------------------------------------------------- giving back

    def free_lock(self) -> threading.RLock:
        """Return a lock that keeps all memory from being released to the device while it is held (``with``)."""
        return self.heap.releasing

    def empty_cache(self, pool: Pool | None = None) -> int:
        """Release every free segment (of `pool` only, if given) to the source.

        The device waits for other streams. Segments of private pools stay while the pool has owners; during a capture
        nothing is released.

        Returns
        -------
        int
            The bytes released.

        Raises
        ------
        Exception
            The first of the source's errors, after the rest was released; what could not be released stays here, free.
        """
        unfinished = self.reclaimer.take_back()
        heap, store, pages = self.heap, self.segment_store, self.page_store
        of_pages: list[Callable[[], int]] = []
        with heap.lock:
            stream_pools = [one for one in heap.stream_pools() if one.pool.may_shrink and pool in (None, one.pool)]
            if pages is not None:
                for stream_pool in stream_pools:  # a segment may back a small one
                    pages.coalesce(stream_pool)
                of_pages = [partial(pages.release, stream_pool) for stream_pool in stream_pools]
            segments = [segment for segment in store.whole_free() if pool in (None, segment.stream_pool.pool)]
        of_segments = [partial(store.release, segment) for segment in segments]
        with heap.releasing:  # a release by another thread is complete when this returns
            released, failure = try_each([*of_segments, *of_pages])
        if (error := unfinished or failure) is not None:
            raise error
        return released

    # ------------------------------------------------------------------------------------------------ private pools

    def create_pool(
        self,
        *,
        source: MemorySource | None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        one_handle: bool = False,
    ) -> Pool:
        """Make a private pool with one owner; its memory comes from `source` (None: the allocator's)."""
        if source is not None:
            self._use_pages_of(source)
        return self.heap.new_pool(source, use_on_oom=use_on_oom, no_split=no_split, one_handle=one_handle)

    def retain_pool(self, pool: Pool) -> None:
        """Add an owner."""
        with self.heap.lock:
            self.heap.checked(pool).use_count += 1

    def release_pool(self, pool: Pool) -> None:
        """Remove an owner; without any, free segments go with the next `empty_cache`, and live blocks stay."""
        with self.heap.lock:
            self.heap.checked(pool).use_count -= 1
            if pool.use_count == 0:
                pool.use_on_oom = False
                self.heap.forget(pool)

    @contextmanager
    def use_pool(self, pool: Pool) -> Iterator[Pool]:
        """Take this thread's allocations from `pool` inside the block; the innermost block wins."""
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

    # ----------------------------------------------------------------------------------------------- configuration

    @property
    def config(self) -> AllocatorConfig:
        """How it rounds, splits and collects."""
        return self.heap.config

    def configure(self, text: str) -> None:
        """Change the options that `text` mentions. Raises `SettingError`, and then changes nothing."""
        config = parse_config(text, self.config)
        if config.backend != self.config.backend:
            raise SettingError(
                f"backend is fixed when the allocator is made, as {self.config.backend!r}; got {config.backend!r}; set "
                "it in CUASSAY_ALLOC_CONF before the first allocation"
            )
        self.heap.config = config

    def capturing(self) -> AbstractContextManager[None]:
        """Mark the block as a capture: no event is recorded, queried or waited for, and no memory is released.

        It first waits until all memory that is being released has arrived at the device.
        """
        return self.heap.capturing()

    # ------------------------------------------------------------------------------------------------------ figures

    @property
    def history(self) -> History | None:
        """Where events are recorded, or None."""
        return self.heap.history

    @property
    def driver_calls(self) -> int:
        """The number of source calls so far, not counting those about events."""
        return self.heap.driver_calls

    def peaks(self) -> tuple[int, int]:
        """Return the most bytes that were requested, and reserved, at the same time."""
        figures = self.statistics()
        return figures.requested_bytes.all.peak, figures.reserved_bytes.all.peak

    def statistics(self) -> MemoryStatistics:
        """Return all current figures as a frozen record."""
        with self.heap.lock:
            return self.heap.statistics()

    def reset_peak_stats(self) -> None:
        """Start new peaks."""
        with self.heap.lock:
            self.cutter.flush_all()
            self.counters.reset_peaks(self.heap.pending())

    def reset_accumulated_stats(self) -> None:
        """Start new totals (``allocated``, ``freed``) and counters."""
        with self.heap.lock:
            self.counters.reset_totals(self.heap.cut.values())

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments by address."""
        with self.heap.lock:
            return tuple(self.heap.every_segment())

    def snapshot(self) -> dict[str, Any]:
        """Return every segment and block as plain data, in the schema of ``torch.cuda.memory._snapshot``."""
        return take_snapshot(self.heap)

    def record_history(self, enabled: str | None = "all", *, clear_history: bool = False, **options: Any) -> None:
        """Record events with their stacks from now on, for `snapshot`; see `cuassay.memory.history.History`.

        Parameters
        ----------
        enabled : str or None
            ``"all"``, ``"state"``, or None to stop; recorded events stay until they are cleared.
        clear_history : bool
            Whether to drop what was recorded before.
        **options
            ``context``, ``stacks``, ``max_entries`` and ``skip_actions`` of `History`.

        Raises
        ------
        ArgumentError
            If a value is not allowed; nothing is changed then.
        """
        made = watched.silent_history() if enabled is None else History(enabled, **options)
        with self.heap.lock:
            self.cutter.flush_all()
            self.heap.record_to(made, keep=not clear_history)
