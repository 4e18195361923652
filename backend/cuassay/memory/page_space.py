"""Pages: ranges that grow, and views that make one range out of scattered pages.

One stream's large blocks lie in *arenas*: spans of addresses of which only part has memory. When no free range is
large enough, pages that lie free in several are shown side by side at a second address, a *view*; only what is missing
then is taken from the device. What a view uses is lent by its home in an arena, and what is free in a view returns
there before anything is searched again, so that all free memory is known at home alone. A view stays when nothing uses
it: the same ranges, free again, find the view that was made of them, without a driver call. The first and the last page
of a view may be shared with others, so a range takes no more than its own bytes. The small pool's segments are ranges
of arenas too, parts of pages for choice, and memory moves between the two pools.

The idea of stitching on a miss is GMLake's (Guo et al., ASPLOS 2024, doi:10.1145/3620665.3640423); here pages never
leave their home address, so nothing is unmapped on the way. Everything here happens under the allocator's lock, and
calls no source: `cuassay.memory.page_store` does what a `StitchPlan` says.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import groupby

from cuassay.memory.blocks import HOLE, Block, FreeList, Segment, merge, split, withhold
from cuassay.memory.iteration import IterationDetector
from cuassay.memory.page_segments import (
    Arena,
    Part,
    SmallSegment,
    View,
    best_pair,
    best_single,
    block_at,
    lend_out,
    part_nbytes,
    run_of,
)
from cuassay.memory.stitch_plan import StitchPlan

__all__ = ["PageSpace"]

#: The smallest part of a page that a view begins or ends with, bytes.
_LEAST_PART = 2**13

#: Views of one stream that are kept; half of them go when there are more.
_MOST_VIEWS = 1024

#: Pages that the views of one stream show, all together: each takes an entry of the driver's.
_MOST_PAGES = 2**16


class PageSpace:
    """The arenas of one stream and pool, and what is stitched out of them.

    Parameters
    ----------
    granularity : int
        Bytes that pages are multiples of.
    free_blocks : FreeList
        The free ranges among its large blocks; others than arenas' may be there too.

    Attributes
    ----------
    arenas : list of Arena
        In the order they came.
    nested : dict of int to SmallSegment
        Segments of the small pool, by address.
    views : list of View
        In the order they came.
    detector : IterationDetector
        Watches what is in use, from a stitch on.
    """

    def __init__(self, granularity: int, free_blocks: FreeList) -> None:
        self.granularity = granularity
        self.arenas: list[Arena] = []
        self.small_segments: dict[int, SmallSegment] = {}
        self.views: list[View] = []
        self.detector = IterationDetector()
        self._awake: list[View] = []
        self._of_size: dict[int, list[View]] = {}
        self._holes: list[Block] = []  # of the arenas, by address
        self._shown = 0
        self._free = free_blocks

    def whole(self, nbytes: int) -> int:
        """`nbytes`, rounded up to pages."""
        return -(-nbytes // self.granularity) * self.granularity

    def may_begin(self, address: int, nbytes: int) -> bool:
        """Whole pages begin at a page, anything else anywhere."""
        return nbytes % self.granularity != 0 or address % self.granularity == 0

    # ----------------------------------------------------------------------------------------------------- best fit

    def take(self, nbytes: int, *, anywhere: bool = False) -> Block | None:
        """Out of the free blocks one of exactly `nbytes`, in no list: of the smallest that has them.

        Whole pages begin at a page, unless they may be `anywhere`: freed, they are whole pages again.
        """
        for block in self._free.candidates(nbytes, 1):
            low = block.address
            if not self.may_begin(low, nbytes):
                page = self.whole(low)
                if page + nbytes <= low + block.nbytes:
                    low = page
                elif not anywhere:
                    return None
            return self._lend(block, low, low + nbytes)
        return None

    # ------------------------------------------------------------------------------------------------------- plans

    def has_room(self, nbytes: int) -> bool:
        """True when a hole could take pages for `nbytes`."""
        return any(hole.nbytes >= self.whole(nbytes) for hole in self._holes)

    def add_arena(self, arena: Arena) -> None:
        """It is one more, without memory."""
        self.arenas.append(arena)
        self._add_hole(arena.first)

    def _add_hole(self, hole: Block) -> None:
        withhold(hole, HOLE)
        insort(self._holes, hole, key=_address)

    def shortage(self, nbytes: int) -> int:
        """Bytes that a range of `nbytes` takes from the device, when no free block can serve it."""
        return self.whole(max(nbytes - sum(high - low for _, low, high in self._chosen(nbytes)), 0))

    def plan(self, nbytes: int, spare: int = 0) -> StitchPlan:
        """How to make a range of `nbytes` that no free block can serve; what it needs is lent from here on.

        Free memory and what is missing; or a free range that is grown, where that takes no more, or no more than
        `spare` bytes. There is room.
        """
        low_block, hole = self._edge(nbytes)
        grown = self.whole(nbytes - (low_block.nbytes if low_block is not None else 0))
        if hole is not None and 0 < grown <= spare:
            return self._plan_growth(low_block, hole, grown, nbytes)
        chosen = self._chosen(nbytes)
        rest = nbytes - sum(map(part_nbytes, chosen))
        missing = self.whole(rest)
        if missing and (block := self.take(nbytes, anywhere=True)) is not None:
            return StitchPlan([block], is_contiguous=True)
        if hole is not None and 0 < grown <= missing:
            return self._plan_growth(low_block, hole, grown, nbytes)
        pieces = [self._lend(block_at(block, low), low, high) for block, low, high in chosen]
        if not missing:
            return StitchPlan(pieces, is_contiguous=len(pieces) == 1)
        hole = next(hole for hole in self._holes if hole.nbytes >= missing)
        # a last piece that begins a page and does not fill it stays the last
        position = len(pieces) - 1 if chosen and chosen[-1][2] % self.granularity else len(pieces)
        return StitchPlan(pieces, self._open_hole(hole, missing), position, rest, is_contiguous=not pieces)

    def _plan_growth(self, low: Block | None, hole: Block, grown: int, nbytes: int) -> StitchPlan:
        """A free block, or none, with pages for `grown` bytes behind it."""
        pieces = [] if low is None else [self._lend(low, low.address, low.address + low.nbytes)]
        needed = nbytes - sum(piece.nbytes for piece in pieces)
        return StitchPlan(pieces, self._open_hole(hole, grown), len(pieces), needed, is_contiguous=True)

    def _chosen(self, nbytes: int) -> list[Part]:
        """Free ranges in an order that a view can show: whole pages, of the largest blocks, between two ends."""
        first, last = self._ends(nbytes)
        chosen, left = [], nbytes - sum(part_nbytes(part) for part in (first, last) if part is not None)
        for block in reversed(self._free):
            if left <= 0 or block.nbytes < self.granularity:
                break
            arena = block.segment
            if not isinstance(arena, Arena):
                continue
            pages = arena.whole_pages(block.address, block.address + block.nbytes)
            if pages:
                high = min(pages.stop, pages.start + left)
                chosen.append((block, pages.start, high))
                left -= high - pages.start
        return [*([] if first is None else [first]), *chosen, *([] if last is None else [last])]

    def _ends(self, nbytes: int) -> tuple[Part | None, Part | None]:
        """The end of one page to begin with, and the beginning of another to end with, instead of whole pages.

        Two that have the odd bytes of the request and a page more; or one, or two, that have the odd bytes.
        """
        ends: list[Part] = []
        begins: list[Part] = []
        for part in self._parts(_LEAST_PART):
            if part[2] % self.granularity == 0:
                ends.append(part)
            elif part[1] % self.granularity == 0:
                begins.append(part)
        ends.sort(key=part_nbytes)
        begins.sort(key=part_nbytes)
        odd = nbytes % self.granularity
        page = self.granularity
        more = best_pair(ends, begins, odd + page, page) if odd + page <= nbytes else None
        if more is None and odd:
            return best_single(ends, begins, odd) or best_pair(ends, begins, odd, page) or (None, None)
        return more or (None, None)

    def _parts(self, least: int) -> Iterator[Part]:
        """Free ranges of at least so many bytes in pages that are not free as a whole."""
        page = self.granularity
        for block in self._free.candidates(least):
            low, high = block.address, block.address + block.nbytes
            first, last = -(-low // page) * page, high // page * page
            if not isinstance(block.segment, Arena):
                continue
            if first > high:
                yield block, low, high
                continue
            if first - low >= least:
                yield block, low, first
            if high - last >= least:
                yield block, last, high

    def lend_backing(self, nbytes: int) -> Block | None:
        """The largest part of a page that is not free as a whole, lent, if it has so many bytes."""
        part = max(self._parts(nbytes), key=part_nbytes, default=None)
        return None if part is None else self._lend(*part)

    def _edge(self, nbytes: int) -> tuple[Block | None, Block | None]:
        """The largest free block with a hole behind it that it could grow into, and the hole; or a hole alone."""
        best: tuple[Block | None, Block | None] = (None, None)
        for hole in self._holes:
            low = hole.before if hole.before is not None and hole.before.quick_list is None else None
            length = 0 if low is None else low.nbytes
            fits = hole.nbytes >= self.whole(nbytes - length)
            if fits and (best[1] is None or length > (best[0].nbytes if best[0] else 0)):
                best = (low, hole)
        return best

    def _open_hole(self, hole: Block, nbytes: int) -> Block:
        """The first `nbytes` of a hole, lent."""
        self._holes.remove(hole)
        if hole.nbytes > nbytes:
            self._add_hole(split(hole, nbytes))
        return lend_out(hole)

    def _lend(self, block: Block, low: int, high: int) -> Block:
        """``[low, high)`` of a free block, lent; the rests stay free."""
        self._free.remove(block)
        if low > block.address:
            front, block = block, split(block, low - block.address)
            self._free.add(front)
            block.stamp = front.stamp
        if high < block.address + block.nbytes:
            rest = split(block, high - block.address)
            rest.stamp = block.stamp
            self._free.add(rest)
        return lend_out(block)

    # ------------------------------------------------------------------------------------------------------- views

    def coalesce(self) -> tuple[list[SmallSegment], list[Block]]:
        """What is free in views, and in segments of the small pool that are free as a whole, returns to its home.

        Gives the segments of the small pool that are no longer, and what was lent, to be set free.
        """
        given: list[Block] = []
        done = [
            found for found in self.small_segments.values() if found.first.quick_list is None and found.first.is_whole
        ]
        for segment in done:
            segment.stream_pool.small.remove(segment.first)
            del self.small_segments[segment.address]
            given.append(segment.backing)
        for view in self._awake:
            if view.first.quick_list is not None and view.first.after is None:
                continue  # as most: in use as a whole
            for block in [block for block in view if block.quick_list is None]:
                self._free.remove(block)
                given += view.surrender(block)
                _hollow(block)
        self._awake = [view for view in self._awake if view.pieces]
        return done, given

    def recall(self, nbytes: int) -> Block | None:
        """The view, of `nbytes`, that was made of the ranges that `plan` would choose now; the block is in no list."""
        asleep = [view for view in self._of_size.get(nbytes, ()) if view.is_unused]
        if not asleep:
            return None
        chosen = self._chosen(nbytes)
        runs = tuple((block.segment, low, high) for block, low, high in chosen)
        view = next((view for view in asleep if view.runs == runs), None)
        if view is None:
            return None
        pieces = [self._lend(block_at(block, low), low, high) for block, low, high in chosen]
        view.pieces = list(zip(view.starts, pieces, strict=True))
        self._awake.append(view)
        return lend_out(view.first)

    def add_view(self, view: View) -> None:
        """It is one more, and in use."""
        self.keep(view)
        self._awake.append(view)

    def keep(self, view: View) -> None:
        """Let the view be found by those that ask for its ranges."""
        self.views.append(view)
        self._of_size.setdefault(view.nbytes, []).append(view)
        self._shown += len(view.pages)

    def is_crowded(self, page_count: int) -> bool:
        """Whether with one more view, of so many pages, there are too many."""
        return len(self.views) >= _MOST_VIEWS or self._shown + page_count > _MOST_PAGES

    def take_crowded(self, page_count: int) -> list[View]:
        """The half of the sleeping views that has not served for longest, if with one more there are too many.

        Many at a time, because the host waits for the stream before they go.
        """
        if not self.is_crowded(page_count):
            return []
        asleep = sum(view.is_unused for view in self.views)
        return self.take_unused(asleep - asleep // 2)

    def take_unused(self, count: int | None = None) -> list[View]:
        """Sleeping views, those that have not served for longest first; they are forgotten."""
        taken = sorted((view for view in self.views if view.is_unused), key=lambda view: view.stamp)[:count]
        gone = set(map(id, taken))
        self.views = [view for view in self.views if id(view) not in gone]
        self._of_size = {}
        for view in self.views:
            self._of_size.setdefault(view.nbytes, []).append(view)
        self._shown -= sum(len(view.pages) for view in taken)
        return taken

    # ------------------------------------------------------------------------------------------------- giving back

    def lend_free_pages(self, *, before: int | None = None) -> list[tuple[Block, list[int]]]:
        """Whole pages in free blocks (free by that time), lent, to be given back; none that a view in use shows."""
        shown = {page for view in self.views if not view.is_unused for page in view.pages}
        found = []
        for block in tuple(self._free):
            arena = block.segment
            if isinstance(arena, Arena) and (before is None or block.stamp <= before):
                pages = arena.whole_pages(block.address, block.address + block.nbytes)
                for _, group in groupby(pages, key=shown.__contains__):
                    run = list(group)
                    if run[0] not in shown:
                        part = block_at(block, run[0])
                        found.append((self._lend(part, run[0], run[-1] + arena.page), run))
        return found

    def take_empty_arenas(self) -> list[Arena]:
        """Arenas without any page; they are forgotten."""
        empty = [arena for arena in self.arenas if arena.first.home is HOLE and arena.first.is_whole]
        self.arenas = [arena for arena in self.arenas if arena not in empty]
        self._holes = [hole for hole in self._holes if hole.segment not in empty]
        return empty

    def empty(self, block: Block) -> int:
        """The pages that are a lent block are gone: it is a hole, one with its neighbours; gives their bytes."""
        gone = block.nbytes
        run_of(block)[0].mapped -= gone
        self.close(block)
        return gone

    def close(self, block: Block) -> None:
        """A block of an arena that is in no list is a hole, one with its neighbours."""
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.home is HOLE:
                self._holes.remove(neighbour)
        self._add_hole(_hollow(block))

    def segments(self) -> Iterator[Segment]:
        """What lies over the arenas and is in use."""
        yield from self.small_segments.values()
        yield from (view for view in self.views if not view.is_unused)

    def __repr__(self) -> str:
        return f"PageSpace({len(self.arenas)} arenas, {len(self.views)} views)"


def _address(block: Block) -> int:
    return block.address


def _hollow(block: Block) -> Block:
    """A block that is in no list is without memory, one with such neighbours; gives all of it."""
    withhold(block, HOLE)
    if block.after is not None and block.after.home is HOLE:
        merge(block, block.after)
    low = block.before
    if low is None or low.home is not HOLE:
        return block
    merge(low, block)
    return low
