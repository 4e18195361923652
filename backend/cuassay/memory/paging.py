"""Growth and release in pages: what `cuassay.memory.stitching` plans, done with the source's calls.

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
from cuassay.memory.lane import Lane
from cuassay.memory.pages import Arena, Nested, View
from cuassay.memory.plan import Plan
from cuassay.memory.stitching import Territory
from cuassay.memory.store import Store

__all__ = ["PagedStore"]

#: What may be reserved, as a multiple of the most that was live, before free pages are stitched where they could be
#: left alone and others be taken: with a little room, fewer ranges are made anew in every iteration.
_SPARE = 1.01

#: The smallest part of a page that becomes a segment of the small pool, bytes.
_LEAST_GROUND = 2**16

#: Addresses set aside for a stream, as a share of the device's memory; torch's default.
_SPAN_SHARE = 9 / 8

#: The same where the device's size is not known, bytes.
_SPAN = 2**40


class PagedStore(Store):
    """A store that takes pages where the source has them."""

    def _territory(self, lane: Lane) -> Territory | None:
        """Where `lane` keeps pages, or None where it takes segments."""
        pool, granularity = lane.pool, lane.pool.source.granularity
        if not granularity or pool.no_split or pool.one_handle or not self.config.expandable_segments:
            return None
        with self._lock:  # of two, one would be forgotten, with all that it has
            if lane.territory is None:
                lane.territory = Territory(granularity, lane.large)
            return lane.territory

    def _cut_from_pages(self, lane: Lane, territory: Territory, size: int, nbytes: int | None) -> Block | None:
        """A block out of pages, or None when there is no room."""
        if size > SMALL_REQUEST:
            return self._stitch(lane, territory, size, nbytes)
        with self._lock:
            self._unpark(lane)
            block = self._take_free(lane, size, nbytes)
            if block is not None:
                return block
            ground = territory.lend_ground(max(size, _LEAST_GROUND))
        ground = ground or self._find(lane, SMALL_SEGMENT, None) or self._stitch(lane, territory, SMALL_SEGMENT, None)
        if ground is None:
            return None
        with self._lock:
            segment = Nested(ground)
            territory.nested[segment.address] = segment
            self._books.move_to_small(segment.nbytes)
            return self._cut_out(segment.first, size, nbytes)

    def _stitch(self, lane: Lane, territory: Territory, size: int, nbytes: int | None) -> Block | None:
        """A block of at least `size` out of what is free and, where that is not enough, new pages."""
        with self._lock:
            block = self._repack(lane, territory, size, nbytes)
            is_short = block is None and bool(lane.deferred.queue) and territory.shortage(size) > 0
        if is_short and self._await_lane(lane):
            with self._lock:
                block = self._repack(lane, territory, size, nbytes)
        if block is not None:
            return block
        if size > self.allowed:
            self._books.count("num_oom_rejections")
            return None
        plan = self._make_plan(lane, territory, size)
        return None if plan is None else self._carry_out(plan, lane, territory, size, nbytes)

    def _make_plan(self, lane: Lane, territory: Territory, size: int) -> Plan | None:
        """What a block is made of, or None when the source has not so many addresses."""
        while self._make_room(lane, territory, size):
            with self._lock:
                if territory.has_room(size):  # no other thread has opened the hole meanwhile
                    spare = int(self._books.peak_live * _SPARE) - self._books.reserved - self._moving
                    return territory.plan(size, spare)
        return None

    def _repack(self, lane: Lane, territory: Territory, size: int, nbytes: int | None) -> Block | None:
        """A block when everything free has merged at home, or a view that was made before."""
        if territory.views:
            self._watch(lane, territory)
        self._go_home(lane)
        block = self._take_free(lane, size, nbytes)
        if block is None and (part := territory.recall(size)) is not None:
            block = self._cut_from_view(part, size, nbytes)
        return block

    def _watch(self, lane: Lane, territory: Territory) -> None:
        """From here every request is seen, until the memory in use is at its lowest."""
        if lane.tide is not None:
            return
        tide = territory.tide
        blocks = (block for block in self._cut.values() if block.lane is lane and block.nbytes > SMALL_REQUEST)
        tide.watch(block for block in blocks if block.is_live)
        lane.watch(tide)

    def _note_in_tide(self, lane: Lane, block: Block) -> None:
        """`block` was given out; it is noted while requests are watched, if it is large."""
        if lane.tide is not None and block.nbytes > SMALL_REQUEST:
            with self._lock:
                if lane.tide is not None:
                    lane.tide.add(block)

    def _cut_from_view(self, part: Block, size: int, nbytes: int | None) -> Block:
        """Cut out a part of a view."""
        view = part.segment
        if isinstance(view, View):
            view.stamp = self._clock
        return self._cut_out(part, size, nbytes)

    def _go_home(self, lane: Lane) -> None:
        """Everything free merges, where it is at home."""
        self._unpark(lane)
        while lane.territory is not None:
            nested, given = lane.territory.go_home()
            for segment in nested:
                self._books.move_to_small(-segment.nbytes)
            for block in given:
                self._set_free(block)
            if not nested:
                return  # else the ground of one may lie in a view, where it is free only now

    def _make_room(self, lane: Lane, territory: Territory, nbytes: int) -> bool:
        """Set addresses aside until there is a hole for `nbytes`; False when the source has not so many."""
        least = territory.whole(nbytes)
        span = max(self._span(territory), least)
        while True:
            with self._lock:
                if territory.has_room(nbytes):
                    return True
            try:
                self.driver_calls += 1
                arena = Arena(lane.pool.source.span(span, lane.stream), span, lane, territory.granularity)
            except OutOfMemoryError:
                if span == least:
                    return False
                span = max(territory.whole(span // 2), least)
                continue
            with self._lock:
                self._enter_arena(arena, territory)

    def _enter_arena(self, arena: Arena, territory: Territory) -> None:
        territory.add_arena(arena)
        self._segments[arena] = None
        self._pools.setdefault(arena.lane.pool.id, arena.lane.pool)  # its last owner can have left meanwhile
        self._books.move_span(1)

    def _span(self, territory: Territory) -> int:
        wanted = self.config.expandable_segments_reserve
        if isinstance(wanted, int):
            return territory.whole(wanted)
        if self.total is None:
            return _SPAN
        return territory.whole(int(self.total * (_SPAN_SHARE if wanted is None else wanted)))

    def _carry_out(self, plan: Plan, lane: Lane, territory: Territory, size: int, nbytes: int | None) -> Block | None:
        """The block of a plan, or None, and everything as before, where there is no room."""
        try:
            self._fill(plan, lane)
            pages = [] if plan.is_contiguous else plan.pages()
            address = 0 if plan.is_contiguous else self._map_view(pages, lane)
        except BaseException as error:
            with self._lock:
                self._undo(plan, territory)
            if isinstance(error, OutOfMemoryError):
                return None
            raise
        with self._lock:
            if not plan.is_contiguous:
                view = View(address, pages, plan.pieces)
                territory.add_view(view)
                self._watch(lane, territory)
                return self._cut_from_view(view.first, size, nbytes)
            block, *others = plan.pieces
            for other in others:
                merge(block, other)
            return self._cut_out(block, size, nbytes)

    def _fill(self, plan: Plan, lane: Lane) -> None:
        """Give the growth its pages. Raises `OutOfMemoryError`."""
        if plan.growth is None:
            return
        missing, page = plan.missing, lane.pool.source.granularity
        with self._lock:
            if not self._admit(missing):
                raise OutOfMemoryError("above what is allowed")
            self.driver_calls += 1
        try:
            lane.pool.source.map(plan.growth.address, [page] * (missing // page))
        except BaseException:
            with self._lock:
                self._moving -= missing
            raise
        with self._lock:
            self._moving -= missing
            self._books.move_pages(missing)
            if self.history is not None:
                self.history.note_range("segment_map", plan.growth.address, missing, lane)
            rest = plan.settle()
            if rest is not None:
                self._set_free(rest)

    def _map_view(self, pages: Sequence[int], lane: Lane) -> int:
        """The address of a view of the pages. Raises `OutOfMemoryError`."""
        self._forget_views(lane, room_for=len(pages))
        self.driver_calls += 1
        return lane.pool.source.alias(pages)

    def _undo(self, plan: Plan, territory: Territory) -> None:
        """What was lent is free again, or a hole."""
        if plan.growth is not None:
            territory.close(plan.growth)
        for block in plan.pieces:
            self._set_free(block)

    # ------------------------------------------------------------------------------------------------- giving back

    def _forget_views(self, lane: Lane, *, room_for: int) -> None:
        """Give up the views that have slept longest, where all of them would show too many pages."""
        territory = lane.territory
        if territory is None or not territory.is_crowded(room_for) or (lane.pool.is_private and lane.pool.use_count):
            return
        with self._releasing:
            with self._lock:
                views = [] if self._captures else territory.take_crowded(room_for)
            if views:
                self._release_views(lane, territory, views)

    def _release_views(self, lane: Lane, territory: Territory, views: Sequence[View]) -> None:
        """Release views that the territory has let go of, when the stream is done with them."""
        undo: dict[int, Callable[[], None]] = {view.alias: partial(territory.keep, view) for view in views}
        try:
            lane.pool.source.synchronize((lane.stream,))
        except BaseException:
            self._undo_all(undo)
            raise
        self._release_ranges(lane, undo)

    def _release_ranges(self, lane: Lane, undo: dict[int, Callable[[], None]]) -> None:
        """Release the ranges at these addresses; what a failure leaves is undone as is given with each."""
        for address in tuple(undo):
            try:
                self.driver_calls += 1
                lane.pool.source.release(address)
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

    def _release_pages(self, lane: Lane, *, before: int | None = None) -> int:
        """Give the free pages of `lane` (those free since that time) back to the device; their bytes.

        Views that sleep go first: they show these pages; pages that a view in use shows stay. The host waits for the
        stream.
        """
        territory = lane.territory
        if territory is None:
            return 0
        with self._releasing:
            with self._lock:
                if self._captures:
                    return 0
                self._go_home(lane)
                lent = territory.lend_free_pages(before=before)
                views = territory.take_asleep() if lent else []
            released = self._unmap(lane, territory, lent, views) if lent else 0
            self._drop_arenas(lane, territory)  # those of requests that failed have never had a page
            return released

    def _unmap(self, lane: Lane, territory: Territory, lent: list[tuple[Block, list[int]]], views: list[View]) -> int:
        interrupt = None
        try:
            self._release_views(lane, territory, views)
            self.driver_calls += 1
            lane.pool.source.unmap([page for _, pages in lent for page in pages])
        except BaseException as error:
            if not take_late(error):
                with self._lock:
                    for block, _ in lent:
                        self._set_free(block)
                raise
            interrupt = error
        with self._lock:
            released = sum(territory.empty(block) for block, _ in lent)
            self._books.move_pages(-released)
            if self.history is not None:
                self.history.note_range("segment_unmap", lent[0][0].address, released, lane)
        if interrupt is not None:
            raise interrupt
        return released

    def _drop_arenas(self, lane: Lane, territory: Territory) -> None:
        """Give the addresses of arenas without pages back."""
        with self._lock:
            spans = territory.take_empty_arenas()
            for arena in spans:
                del self._segments[arena]
                self._books.move_span(-1)
            if spans:
                self._forget(lane.pool)
        self._release_ranges(lane, {arena.address: partial(self._enter_arena, arena, territory) for arena in spans})

    @abstractmethod
    def _await_lane(self, lane: Lane) -> bool:
        """Let the stream wait for the users of all its freed blocks; False when there is nothing to wait for."""
