"""Growth and release in pages: what `cuassay.memory.page_space` plans, done with the source's calls.

The source is called without the lock. What a plan uses is lent meanwhile, so that nobody else takes it, and
goes back if a call fails.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from cuassay.core.interrupts import take_late
from cuassay.errors import OutOfMemoryError
from cuassay.memory.blocks import Block, merge
from cuassay.memory.config import SMALL_REQUEST, SMALL_SEGMENT
from cuassay.memory.page_segments import Arena, SmallSegment, View
from cuassay.memory.page_space import PageSpace
from cuassay.memory.segment_store import SegmentStore
from cuassay.memory.stitch_plan import StitchPlan
from cuassay.memory.stream_pool import StreamPool

__all__ = ["PageStore"]

#: What may be reserved, as a multiple of the most that was live, before free pages are stitched where they could be
#: left alone and others be taken: with a little room, fewer ranges are made anew in every iteration.
_SPARE = 1.01

#: The smallest part of a page that becomes a segment of the small pool, bytes.
_LEAST_BACKING = 2**16

#: Addresses set aside for a stream, as a share of the device's memory; torch's default.
_SPAN_SHARE = 9 / 8

#: The same where the device's size is not known, bytes.
_SPAN = 2**40


class PageStore(SegmentStore):
    """A store that takes pages where the source has them."""

    def _page_space(self, stream_pool: StreamPool) -> PageSpace | None:
        """Where `stream_pool` keeps pages, or None where it takes segments."""
        pool, granularity = stream_pool.pool, stream_pool.pool.source.granularity
        if not granularity or pool.no_split or pool.one_handle or not self.config.expandable_segments:
            return None
        with self._lock:  # of two, one would be forgotten, with all that it has
            if stream_pool.page_space is None:
                stream_pool.page_space = PageSpace(granularity, stream_pool.large)
            return stream_pool.page_space

    def _cut_from_pages(
        self, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None
    ) -> Block | None:
        """A block out of pages, or None when there is no room."""
        if size > SMALL_REQUEST:
            return self._stitch(stream_pool, page_space, size, nbytes)
        with self._lock:
            self._flush(stream_pool)
            block = self._take_free(stream_pool, size, nbytes)
            if block is not None:
                return block
            backing = page_space.lend_backing(max(size, _LEAST_BACKING))
        backing = (
            backing
            or self._find(stream_pool, SMALL_SEGMENT, None)
            or self._stitch(stream_pool, page_space, SMALL_SEGMENT, None)
        )
        if backing is None:
            return None
        with self._lock:
            segment = SmallSegment(backing)
            page_space.small_segments[segment.address] = segment
            self._counters.move_to_small(segment.nbytes)
            return self._cut_out(segment.first, size, nbytes)

    def _stitch(self, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None) -> Block | None:
        """A block of at least `size` out of what is free and, where that is not enough, new pages."""
        with self._lock:
            block = self._repack(stream_pool, page_space, size, nbytes)
            is_short = block is None and bool(stream_pool.deferred.queue) and page_space.shortage(size) > 0
        if is_short and self._await_stream_pool(stream_pool):
            with self._lock:
                block = self._repack(stream_pool, page_space, size, nbytes)
        if block is not None:
            return block
        if size > self.allowed:
            self._counters.count("num_oom_rejections")
            return None
        plan = self._make_plan(stream_pool, page_space, size)
        return None if plan is None else self._carry_out(plan, stream_pool, page_space, size, nbytes)

    def _make_plan(self, stream_pool: StreamPool, page_space: PageSpace, size: int) -> StitchPlan | None:
        """What a block is made of, or None when the source has not so many addresses."""
        while self._make_room(stream_pool, page_space, size):
            with self._lock:
                if page_space.has_room(size):  # no other thread has opened the hole meanwhile
                    spare = int(self._counters.peak_live * _SPARE) - self._counters.reserved - self._moving
                    return page_space.plan(size, spare)
        return None

    def _repack(self, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None) -> Block | None:
        """A block when everything free has merged at home, or a view that was made before."""
        if page_space.views:
            self._watch(stream_pool, page_space)
        self._coalesce(stream_pool)
        block = self._take_free(stream_pool, size, nbytes)
        if block is None and (part := page_space.recall(size)) is not None:
            block = self._cut_from_view(part, size, nbytes)
        return block

    def _watch(self, stream_pool: StreamPool, page_space: PageSpace) -> None:
        """From here every request is seen, until the memory in use is at its lowest."""
        if stream_pool.detector is not None:
            return
        detector = page_space.detector
        blocks = (
            block for block in self._cut.values() if block.stream_pool is stream_pool and block.nbytes > SMALL_REQUEST
        )
        detector.watch(block for block in blocks if block.is_live)
        stream_pool.watch(detector)

    def _note_in_detector(self, stream_pool: StreamPool, block: Block) -> None:
        """`block` was given out; it is noted while requests are watched, if it is large."""
        if stream_pool.detector is not None and block.nbytes > SMALL_REQUEST:
            with self._lock:
                if stream_pool.detector is not None:
                    stream_pool.detector.add(block)

    def _cut_from_view(self, part: Block, size: int, nbytes: int | None) -> Block:
        """Cut out a part of a view."""
        view = part.segment
        if isinstance(view, View):
            view.stamp = self._clock
        return self._cut_out(part, size, nbytes)

    def _coalesce(self, stream_pool: StreamPool) -> None:
        """Everything free merges, where it is at home."""
        self._flush(stream_pool)
        while stream_pool.page_space is not None:
            nested, given = stream_pool.page_space.coalesce()
            for segment in nested:
                self._counters.move_to_small(-segment.nbytes)
            for block in given:
                self._set_free(block)
            if not nested:
                return  # else the backing of one may lie in a view, where it is free only now

    def _make_room(self, stream_pool: StreamPool, page_space: PageSpace, nbytes: int) -> bool:
        """Set addresses aside until there is a hole for `nbytes`; False when the source has not so many."""
        least = page_space.whole(nbytes)
        span = max(self._span(page_space), least)
        while True:
            with self._lock:
                if page_space.has_room(nbytes):
                    return True
            try:
                self.driver_calls += 1
                arena = Arena(
                    stream_pool.pool.source.span(span, stream_pool.stream), span, stream_pool, page_space.granularity
                )
            except OutOfMemoryError:
                if span == least:
                    return False
                span = max(page_space.whole(span // 2), least)
                continue
            with self._lock:
                self._enter_arena(arena, page_space)

    def _enter_arena(self, arena: Arena, page_space: PageSpace) -> None:
        page_space.add_arena(arena)
        self._segments[arena] = None
        self._pools.setdefault(
            arena.stream_pool.pool.id, arena.stream_pool.pool
        )  # its last owner can have left meanwhile
        self._counters.move_span(1)

    def _span(self, page_space: PageSpace) -> int:
        wanted = self.config.expandable_segments_reserve
        if isinstance(wanted, int):
            return page_space.whole(wanted)
        if self.total is None:
            return _SPAN
        return page_space.whole(int(self.total * (_SPAN_SHARE if wanted is None else wanted)))

    def _carry_out(
        self, plan: StitchPlan, stream_pool: StreamPool, page_space: PageSpace, size: int, nbytes: int | None
    ) -> Block | None:
        """The block of a plan, or None, and everything as before, where there is no room."""
        try:
            self._fill(plan, stream_pool)
            pages = [] if plan.is_contiguous else plan.pages()
            address = 0 if plan.is_contiguous else self._map_view(pages, stream_pool)
        except BaseException as error:
            with self._lock:
                self._undo(plan, page_space)
            if isinstance(error, OutOfMemoryError):
                return None
            raise
        with self._lock:
            if not plan.is_contiguous:
                view = View(address, pages, plan.pieces)
                page_space.add_view(view)
                self._watch(stream_pool, page_space)
                return self._cut_from_view(view.first, size, nbytes)
            block, *others = plan.pieces
            for other in others:
                merge(block, other)
            return self._cut_out(block, size, nbytes)

    def _fill(self, plan: StitchPlan, stream_pool: StreamPool) -> None:
        """Give the growth its pages. Raises `OutOfMemoryError`."""
        if plan.growth is None:
            return
        missing, page = plan.missing, stream_pool.pool.source.granularity
        with self._lock:
            if not self._admit(missing):
                raise OutOfMemoryError("above what is allowed")
            self.driver_calls += 1
        try:
            stream_pool.pool.source.map(plan.growth.address, [page] * (missing // page))
        except BaseException:
            with self._lock:
                self._moving -= missing
            raise
        with self._lock:
            self._moving -= missing
            self._counters.move_pages(missing)
            if self.history is not None:
                self.history.note_range("segment_map", plan.growth.address, missing, stream_pool)
            rest = plan.settle()
            if rest is not None:
                self._set_free(rest)

    def _map_view(self, pages: Sequence[int], stream_pool: StreamPool) -> int:
        """The address of a view of the pages. Raises `OutOfMemoryError`."""
        self._forget_views(stream_pool, room_for=len(pages))
        self.driver_calls += 1
        return stream_pool.pool.source.alias(pages)

    def _undo(self, plan: StitchPlan, page_space: PageSpace) -> None:
        """What was lent is free again, or a hole."""
        if plan.growth is not None:
            page_space.close(plan.growth)
        for block in plan.pieces:
            self._set_free(block)

    # ------------------------------------------------------------------------------------------------- giving back

    def _forget_views(self, stream_pool: StreamPool, *, room_for: int) -> None:
        """Give up the views that have slept longest, where all of them would show too many pages."""
        page_space = stream_pool.page_space
        if (
            page_space is None
            or not page_space.is_crowded(room_for)
            or (stream_pool.pool.is_private and stream_pool.pool.use_count)
        ):
            return
        with self._releasing:
            with self._lock:
                views = [] if self._captures else page_space.take_crowded(room_for)
            if views:
                self._release_views(stream_pool, page_space, views)

    def _release_views(self, stream_pool: StreamPool, page_space: PageSpace, views: Sequence[View]) -> None:
        """Release views that the page_space has let go of, when the stream is done with them."""
        undo: dict[int, Callable[[], None]] = {view.alias: partial(page_space.keep, view) for view in views}
        try:
            stream_pool.pool.source.synchronize((stream_pool.stream,))
        except BaseException:
            self._undo_all(undo)
            raise
        self._release_ranges(stream_pool, undo)

    def _release_ranges(self, stream_pool: StreamPool, undo: dict[int, Callable[[], None]]) -> None:
        """Release the ranges at these addresses; what a failure leaves is undone as is given with each."""
        for address in tuple(undo):
            try:
                self.driver_calls += 1
                stream_pool.pool.source.release(address)
            except BaseException as error:
                if take_late(error):
                    del undo[address]
                self._undo_all(undo)
                raise
            del undo[address]

    def _undo_all(self, undo: dict[int, Callable[[], None]]) -> None:
        with self._lock:
            for step in undo.values():
                step()

    def _release_pages(self, stream_pool: StreamPool, *, before: int | None = None) -> int:
        """Give the free pages of `stream_pool` (those free since that time) back to the device; their bytes.

        Views that sleep go first: they show these pages; pages that a view in use shows stay. The host waits for the
        stream.
        """
        page_space = stream_pool.page_space
        if page_space is None:
            return 0
        with self._releasing:
            with self._lock:
                if self._captures:
                    return 0
                self._coalesce(stream_pool)
                lent = page_space.lend_free_pages(before=before)
                views = page_space.take_unused() if lent else []
            released = self._unmap(stream_pool, page_space, lent, views) if lent else 0
            self._drop_arenas(stream_pool, page_space)  # those of requests that failed have never had a page
            return released

    def _unmap(
        self, stream_pool: StreamPool, page_space: PageSpace, lent: list[tuple[Block, list[int]]], views: list[View]
    ) -> int:
        interrupt = None
        try:
            self._release_views(stream_pool, page_space, views)
            self.driver_calls += 1
            stream_pool.pool.source.unmap([page for _, pages in lent for page in pages])
        except BaseException as error:
            if not take_late(error):
                with self._lock:
                    for block, _ in lent:
                        self._set_free(block)
                raise
            interrupt = error
        with self._lock:
            released = sum(page_space.empty(block) for block, _ in lent)
            self._counters.move_pages(-released)
            if self.history is not None:
                self.history.note_range("segment_unmap", lent[0][0].address, released, stream_pool)
        if interrupt is not None:
            raise interrupt
        return released

    def _drop_arenas(self, stream_pool: StreamPool, page_space: PageSpace) -> None:
        """Give the addresses of arenas without pages back."""
        with self._lock:
            spans = page_space.take_empty_arenas()
            for arena in spans:
                del self._segments[arena]
                self._counters.move_span(-1)
            if spans:
                self._forget(stream_pool.pool)
        self._release_ranges(
            stream_pool, {arena.address: partial(self._enter_arena, arena, page_space) for arena in spans}
        )

    @abstractmethod
    def _await_stream_pool(self, stream_pool: StreamPool) -> bool:
        """Let the stream wait for the users of all its freed blocks; False when there is nothing to wait for."""
