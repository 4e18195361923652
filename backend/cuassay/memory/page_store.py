"""Grows and shrinks memory page by page: makes the source calls that `cuassay.memory.page_space` plans.

The source is called without the lock. Memory that a plan uses is lent meanwhile, so that no other request takes it, and
is set free again if a call fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from cuassay.core.interrupts import is_marked_late, took_effect
from cuassay.errors import OutOfMemoryError
from cuassay.memory.block_cutter import BlockCutter
from cuassay.memory.blocks import Arena, Block, SmallSegment, View, merge, split
from cuassay.memory.config import SMALL_REQUEST, SMALL_SEGMENT
from cuassay.memory.heap import Heap
from cuassay.memory.iteration import IterationDetector
from cuassay.memory.page_space import PageSpace
from cuassay.memory.reclaimer import Reclaimer
from cuassay.memory.segment_store import SegmentStore
from cuassay.memory.stitch_plan import StitchPlan
from cuassay.memory.stream_pool import StreamPool

__all__ = ["PageStore"]

#: Free pages are stitched, even if a free range could grow, once this multiple of the peak of live bytes is reserved.
#: It is a little more than 1, because then fewer views are made again in every iteration.
_SPARE = 1.01

#: The smallest part of a page that becomes a small segment, bytes.
_LEAST_BACKING = 2**16

#: Addresses set aside for a stream, as a share of the device's memory; torch's default.
_SPAN_SHARE = 9 / 8

#: Addresses set aside for a stream where the device's size is not known, bytes.
_SPAN = 2**40


class PageStore:
    """The pages of one heap, for every pool whose source has pages."""

    def __init__(self, heap: Heap, cutter: BlockCutter, reclaimer: Reclaimer, segment_store: SegmentStore) -> None:
        self._heap = heap
        self._cutter = cutter
        self._reclaimer = reclaimer
        self._segment_store = segment_store

    def _page_space(self, stream_pool: StreamPool) -> PageSpace | None:
        """Return the page space of `stream_pool`, or None if it takes segments."""
        pool, granularity = stream_pool.pool, stream_pool.pool.source.granularity
        if not granularity or pool.no_split or pool.one_handle or not self._heap.config.expandable_segments:
            return None
        with self._heap.lock:  # two threads must not make one each
            if stream_pool.page_space is None:
                stream_pool.page_space = PageSpace(granularity, stream_pool.large)
            return stream_pool.page_space

    # ------------------------------------------------------------------------------------------------------ growing

    def grow(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Return a block in pages, or in a segment if the pool uses segments; None when there is no room."""
        page_space = self._page_space(stream_pool)
        if page_space is None:
            return self._segment_store.grow(stream_pool, size, nbytes)
        if size > SMALL_REQUEST:
            return self._stitch(stream_pool, page_space, size, nbytes)
        return self._grow_small(stream_pool, page_space, size, nbytes)

    def _grow_small(self, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int) -> Block | None:
        """Return a block in a new small segment."""
        with self._heap.lock:
            block = self._cutter.take_flushed(stream_pool, size, nbytes) if stream_pool.lists else None
            if block is not None:
                return block
            backing = page_space.lend_backing(max(size, _LEAST_BACKING)) if stream_pool.large.keys else None
        if backing is None and stream_pool.large.keys:
            backing = self._cutter.find(stream_pool, SMALL_SEGMENT, None)
        backing = backing or self._stitch(stream_pool, page_space, SMALL_SEGMENT, None)
        if backing is None:
            return None
        with self._heap.lock:
            segment = SmallSegment(backing)
            page_space.small_segments[segment.address] = segment
            self._heap.counters.move_to_small(segment.nbytes)
            return self._cutter.cut_out(segment.first, size, nbytes)

    def _stitch(self, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None) -> Block | None:
        """Return a block of at least `size`, made of free ranges and, if these are not enough, of new pages."""
        with self._heap.lock:
            block = self._repack(stream_pool, page_space, size, nbytes) if page_space.arenas else None
            is_short = block is None and bool(stream_pool.deferred.queue) and page_space.shortage(size) > 0
        if is_short:
            self._reclaimer.await_users(stream_pool)
            with self._heap.lock:
                block = self._repack(stream_pool, page_space, size, nbytes)
        if block is not None:
            return block
        if size > self._heap.allowed:
            self._heap.count("num_oom_rejections")
            return None
        plan = self._make_plan(stream_pool, page_space, size)
        return None if plan is None else self._carry_out(plan, stream_pool, page_space, size, nbytes)

    def _make_plan(self, stream_pool: StreamPool, page_space: PageSpace, size: int) -> StitchPlan | None:
        """Return a plan for a block; None when the source has too few addresses."""
        heap, counters = self._heap, self._heap.counters
        while True:  # another thread can take the hole that this one has made
            with heap.lock:
                spare = int(counters.both_accounts.peak_live.nbytes * _SPARE) - counters.reserved.current - heap.moving
                plan = page_space.plan(size, spare)
            if plan is not None or not self._make_hole(stream_pool, page_space, size):
                return plan

    def _repack(self, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None) -> Block | None:
        """Merge everything free in its arena, then return a free block, or an existing view that fits."""
        if page_space.views:
            self._observe(stream_pool, page_space)
        self.coalesce(stream_pool)
        block = self._cutter.take_free(stream_pool, size, nbytes)
        if block is None and (part := page_space.recall(size)) is not None:
            block = self._cut_from_view(part, size, nbytes)
        return block

    def _observe(self, stream_pool: StreamPool, page_space: PageSpace) -> None:
        """Let the detector see every request from now on, until the end of an iteration."""
        if stream_pool.detector is not None:
            return
        if page_space.detector is None:
            page_space.detector = IterationDetector()
        cut = self._heap.cut.values()
        blocks = (block for block in cut if block.stream_pool is stream_pool and block.nbytes > SMALL_REQUEST)
        page_space.detector.watch(block for block in blocks if block.is_live)
        stream_pool.observe(page_space.detector)

    def note_taken(self, stream_pool: StreamPool, block: Block) -> None:
        """Show a large `block`, which now serves a request, to the detector, if there is one."""
        if stream_pool.detector is not None and block.nbytes > SMALL_REQUEST:
            with self._heap.lock:
                if stream_pool.detector is not None:
                    stream_pool.detector.add(block)

    def end_iteration(self, stream_pool: StreamPool) -> None:
        """Merge everything free, and stop observing requests, if the detector saw an iteration end; under the lock."""
        if stream_pool.detector is not None and stream_pool.detector.is_over:
            stream_pool.observe(None)
            self.coalesce(stream_pool)

    def _cut_from_view(self, part: Block, size: int, nbytes: int | None) -> Block:
        """Cut out a part of a view."""
        view = part.segment
        if isinstance(view, View):
            view.stamp = self._heap.clock
        return self._cutter.cut_out(part, size, nbytes)

    def coalesce(self, stream_pool: StreamPool) -> None:
        """Merge everything free in its arena; the caller holds the lock."""
        self._cutter.flush(stream_pool)
        while stream_pool.page_space is not None:
            done, given = stream_pool.page_space.coalesce()
            for segment in done:
                self._heap.counters.move_to_small(-segment.nbytes)
            for block in given:
                self._cutter.set_free(block)
            if not done:
                return  # otherwise a backing may be in a view, where it became free only now

    def _make_hole(self, stream_pool: StreamPool, page_space: PageSpace, nbytes: int) -> bool:
        """Reserve addresses for an arena with a hole for `nbytes`; return False when the source has too few."""
        page = page_space.granularity
        least = _whole(nbytes, page)
        span = max(_whole(self._span(), page), least)
        while True:
            try:
                with self._heap.lock:
                    self._heap.driver_calls += 1
                address = stream_pool.pool.source.span(span, stream_pool.stream)
            except OutOfMemoryError:
                if span == least:
                    return False
                span = max(_whole(span // 2, page), least)
                continue
            arena = Arena(address, span, stream_pool, page)
            with self._heap.lock:
                self._enter_arena(arena, page_space)
            return True

    def _enter_arena(self, arena: Arena, page_space: PageSpace) -> None:
        page_space.add_arena(arena)
        self._heap.enter(arena)
        self._heap.counters.move_span(1)

    def _span(self) -> int:
        """The bytes of addresses to reserve for a stream."""
        wanted, total = self._heap.config.expandable_segments_reserve, self._heap.total
        if isinstance(wanted, int):
            return wanted
        return _SPAN if total is None else int(total * (_SPAN_SHARE if wanted is None else wanted))

    def _carry_out(
        self, plan: StitchPlan, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None
    ) -> Block | None:
        """Return the block of a plan; None, with everything as before, when there is no room."""
        try:
            self._fill(plan, stream_pool)
            pages = [] if plan.is_contiguous else plan.pages()
            address = 0 if plan.is_contiguous else self._map_view(pages, stream_pool)
        except BaseException as error:
            with self._heap.lock:
                self._undo(plan, page_space)
            if isinstance(error, OutOfMemoryError):
                return None
            raise
        with self._heap.lock:
            if not plan.is_contiguous:
                view = View(address, pages, plan.pieces)
                page_space.add_view(view)
                self._observe(stream_pool, page_space)
                return self._cut_from_view(view.first, size, nbytes)
            block, *others = plan.pieces
            for other in others:
                merge(block, other)
            if nbytes is None and block.nbytes == size:
                return block  # the block is lent already
            return self._cutter.cut_out(block, size, nbytes)

    def _fill(self, plan: StitchPlan, stream_pool: StreamPool) -> None:
        """Map pages into the growth of a plan. Raises `OutOfMemoryError`."""
        growth, heap, source = plan.growth, self._heap, stream_pool.pool.source
        if growth is None:
            return
        missing, page = growth.nbytes, source.granularity
        with heap.lock:
            if not heap.admit(missing):
                raise OutOfMemoryError("the limit does not allow more pages; free something")
        try:
            source.map(growth.address, [page] * (missing // page))
        except BaseException:
            with heap.lock:
                heap.moving -= missing
            raise
        with heap.lock:
            heap.moving -= missing
            heap.counters.move_pages(missing)
            if heap.history is not None:
                heap.history.note_range("segment_map", growth.address, missing, stream_pool)
            self._settle(plan, growth)

    def _settle(self, plan: StitchPlan, growth: Block) -> None:
        """Make the growth, which has pages now, one of the pieces, and set the excess free."""
        if isinstance(growth.segment, Arena):
            growth.segment.mapped += growth.nbytes
        rest = split(growth, plan.needed) if plan.needed < growth.nbytes else None
        plan.pieces.insert(plan.position, growth)
        plan.growth = None
        if rest is not None:
            self._cutter.set_free(rest)

    def _map_view(self, pages: Sequence[int], stream_pool: StreamPool) -> int:
        """Return the address of a view of the pages. Raises `OutOfMemoryError`."""
        self._forget_views(stream_pool, room_for=len(pages))
        with self._heap.lock:
            self._heap.driver_calls += 1
        return stream_pool.pool.source.alias(pages)

    def _undo(self, plan: StitchPlan, page_space: PageSpace) -> None:
        """Set free what was lent; memory becomes free again, and addresses without memory become a hole."""
        if plan.growth is not None:
            page_space.close(plan.growth)
        for block in plan.pieces:
            self._cutter.set_free(block)

    # ------------------------------------------------------------------------------------------------- giving back

    def release_old(self) -> None:
        """Release free pages of at least average age; errors of sources are left to `empty_cache`."""
        stream_pools = self._heap.shrinkable()
        with self._heap.lock:
            stamps = [block.stamp for found in stream_pools if found.page_space is not None for block in found.large]
        mean = sum(stamps) // max(len(stamps), 1)
        for stream_pool in stream_pools:
            with suppress(Exception):
                self.release(stream_pool, before=mean)

    def release(self, stream_pool: StreamPool, *, before: int | None = None) -> int:
        """Release the free pages (with `before`, those free since then) to the device; return their bytes.

        Unused views of these pages go first. Pages in a view that is in use stay. The host waits for the stream.
        """
        page_space = stream_pool.page_space
        if page_space is None:
            return 0
        with self._heap.releasing:
            with self._heap.lock:
                if self._heap.captures:
                    return 0
                self.coalesce(stream_pool)
                lent = page_space.lend_free_pages(before=before)
                views = page_space.take_unused() if lent else []
            released = self._unmap(stream_pool, page_space, lent, views) if lent else 0
            self._drop_arenas(stream_pool, page_space)  # also those of failed requests, which never had a page
            return released

    def _forget_views(self, stream_pool: StreamPool, *, room_for: int) -> None:
        """Release the views that were unused for longest, if all views together map too many pages."""
        page_space, pool = stream_pool.page_space, stream_pool.pool
        if page_space is None or not page_space.is_crowded(room_for) or (pool.is_private and pool.use_count):
            return
        with self._heap.releasing:
            with self._heap.lock:
                views = [] if self._heap.captures else page_space.take_crowded(room_for)
            if views:
                self._release_views(stream_pool, page_space, views)

    def _release_views(self, stream_pool: StreamPool, page_space: PageSpace, views: Sequence[View]) -> None:
        """Release views that the page space has dropped, once the stream is done with them."""
        undo: dict[int, Callable[[], None]] = {view.alias: partial(page_space.keep, view) for view in views}
        try:
            stream_pool.pool.source.synchronize((stream_pool.stream,))
        except BaseException:
            self._undo_all(undo)
            raise
        self._release_ranges(stream_pool, undo)

    def _release_ranges(self, stream_pool: StreamPool, undo: dict[int, Callable[[], None]]) -> None:
        """Release the ranges at these addresses; if one fails, undo the removal of all that are left."""
        for address in tuple(undo):
            try:
                with self._heap.lock:
                    self._heap.driver_calls += 1
                stream_pool.pool.source.release(address)
            except BaseException as error:
                if took_effect(error):
                    del undo[address]
                self._undo_all(undo)
                raise
            del undo[address]

    def _undo_all(self, undo: dict[int, Callable[[], None]]) -> None:
        with self._heap.lock:
            for step in undo.values():
                step()

    def _unmap(
        self,
        stream_pool: StreamPool,
        page_space: PageSpace,
        lent: list[tuple[Block, list[int]]],
        views: list[View],
    ) -> int:
        try:
            self._release_views(stream_pool, page_space, views)
        except BaseException:
            self._set_all_free(lent)
            raise
        interrupt = None
        try:
            with self._heap.lock:
                self._heap.driver_calls += 1
            stream_pool.pool.source.unmap([page for _, pages in lent for page in pages])
        except BaseException as error:
            is_certain = is_marked_late(error)
            if not took_effect(error):
                self._set_all_free(lent)
            if not is_certain:  # if unknown, the pages stay lent, so that neither they nor their addresses are used
                raise
            interrupt = error
        with self._heap.lock:
            released = sum(page_space.empty(block) for block, _ in lent)
            self._heap.counters.move_pages(-released)
            if self._heap.history is not None:
                self._heap.history.note_range("segment_unmap", lent[0][0].address, released, stream_pool)
        if interrupt is not None:
            raise interrupt
        return released

    def _set_all_free(self, lent: list[tuple[Block, list[int]]]) -> None:
        with self._heap.lock:
            for block, _ in lent:
                self._cutter.set_free(block)

    def _drop_arenas(self, stream_pool: StreamPool, page_space: PageSpace) -> None:
        """Release the addresses of arenas without pages."""
        with self._heap.lock:
            spans = page_space.take_empty_arenas()
            for arena in spans:
                self._heap.leave(arena)
                self._heap.counters.move_span(-1)
        self._release_ranges(
            stream_pool, {arena.address: partial(self._enter_arena, arena, page_space) for arena in spans}
        )


def _whole(nbytes: int, page: int) -> int:
    """Round `nbytes` up to whole pages."""
    return -(-nbytes // page) * page
