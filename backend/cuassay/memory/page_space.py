"""Decides how pages form ranges: ranges that grow, and views that make one range of scattered pages.

The large blocks of a stream are in *arenas*: address ranges of which only a part has memory. When no free range is
large enough, free pages from several places are mapped next to each other at a second address, a *view*. Only what is
then still missing is taken from the device. An arena lends a view its pages. Memory that becomes free in a view returns
to its arena before the next search, so the arenas know all free memory. An unused view is kept: when the same ranges
are free again, the view serves again without a driver call. The first and the last page of a view may be shared with
other ranges, so a range takes no more than its own bytes. Small segments are ranges of arenas too, preferably parts of
pages, so memory moves between small and large requests.

Stitching on a miss is GMLake's idea (Guo et al., ASPLOS 2024, doi:10.1145/3620665.3640423). Here pages never leave
their address in an arena, so nothing is unmapped when they are stitched. Everything here runs under the allocator's
lock and calls no source; `cuassay.memory.page_store` carries out a `StitchPlan`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from cuassay.memory.blocks import HOLE, LENT, Arena, Block, Segment, SmallSegment, View, merge, run_of, split, withhold
from cuassay.memory.free_list import FreeList
from cuassay.memory.page_parts import Part, best_pair, best_single, block_at, part_nbytes
from cuassay.memory.stitch_plan import StitchPlan

if TYPE_CHECKING:
    from cuassay.memory.iteration import IterationDetector

__all__ = ["PageSpace"]

#: The smallest part of a page that a view begins or ends with, in bytes.
_LEAST_PART = 2**13

#: The most views of one stream that are kept; when there are more, half of the unused ones are released.
_MOST_VIEWS = 1024

#: The most pages that all views of one stream may map; each takes an entry of the driver's tables.
_MOST_PAGES = 2**16


class PageSpace:
    """The arenas of one stream pool, and the views of their pages.

    Parameters
    ----------
    granularity : int
        Page sizes are multiples of this many bytes.
    free_blocks : FreeList
        The stream pool's free large blocks; some may be in segments that are not arenas.

    Attributes
    ----------
    arenas : list of Arena
        The arenas, in the order in which they were added.
    small_segments : dict of int to SmallSegment
        The small segments, by address.
    views : list of View
        The views, in the order in which they were added.
    detector : IterationDetector or None
        Observes requests after something was stitched; None before the first time.
    """

    def __init__(self, granularity: int, free_blocks: FreeList) -> None:
        self.granularity = granularity
        self.arenas: list[Arena] = []
        self.small_segments: dict[int, SmallSegment] = {}
        self.views: list[View] = []
        self.detector: IterationDetector | None = None
        self._used: list[View] = []
        self._of_size: dict[int, list[View]] = {}
        self._holes: list[Block] = []  # holes of the arenas, by address
        self._shown = 0
        self._free = free_blocks

    def whole(self, nbytes: int) -> int:
        """Round `nbytes` up to whole pages."""
        return -(-nbytes // self.granularity) * self.granularity

    def may_begin(self, address: int, nbytes: int) -> bool:
        """Whether a range may begin at `address`: whole pages must begin at a page, other sizes may begin anywhere."""
        return nbytes % self.granularity != 0 or address % self.granularity == 0

    # -------------------------------------------------------------------------------------------------- free ranges

    def take(self, nbytes: int, *, anywhere: bool = False) -> Block | None:
        """Take exactly `nbytes` from the free block that the fit policy chooses; the new block is in no list.

        Whole pages begin at a page boundary, so that they are whole pages again when they are freed, unless `anywhere`
        is set.
        """
        block = self._free.peek(nbytes) if self._free.keys else None
        if block is None:
            return None
        low = block.address
        if not self.may_begin(low, nbytes):
            page = self.whole(low)
            if page + nbytes <= low + block.nbytes:
                low = page
            elif not anywhere:
                return None
        return self._lend(block, low, low + nbytes)

    # ------------------------------------------------------------------------------------------------------- plans

    def has_hole(self, nbytes: int) -> bool:
        """Whether a hole has room for that many bytes of pages."""
        return any(hole.nbytes >= nbytes for hole in self._holes)

    def add_arena(self, arena: Arena) -> None:
        """Add an arena without memory."""
        self.arenas.append(arena)
        insort(self._holes, arena.first, key=_address)

    def shortage(self, nbytes: int) -> int:
        """Return the bytes to take from the device for a range of `nbytes`, when no free block can serve it."""
        return self.whole(max(nbytes - sum(high - low for _, low, high in self._chosen(nbytes)), 0))

    def plan(self, nbytes: int, spare: int = 0) -> StitchPlan | None:
        """Return how to make a range of `nbytes` that no free block can serve; what it needs is lent from here on.

        The range consists of free pages and new ones. A free range is grown instead if that takes no more from the
        device, or at most `spare` bytes. The result is None if no hole has room for the range.
        or at most `spare` bytes. None if no hole has room for it.
        """
        if not self.has_hole(self.whole(nbytes)):
            return None
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
        # a last piece that begins at a page boundary and does not fill the page stays last
        position = len(pieces) - 1 if chosen and chosen[-1][2] % self.granularity else len(pieces)
        return StitchPlan(pieces, self._open_hole(hole, missing), position, rest, is_contiguous=not pieces)

    def _plan_growth(self, low: Block | None, hole: Block, grown: int, nbytes: int) -> StitchPlan:
        """Plan a free block, if any, followed by `grown` bytes of new pages."""
        pieces = [] if low is None else [self._lend(low, low.address, low.address + low.nbytes)]
        needed = nbytes - sum(piece.nbytes for piece in pieces)
        return StitchPlan(pieces, self._open_hole(hole, grown), len(pieces), needed, is_contiguous=True)

    def _chosen(self, nbytes: int) -> list[Part]:
        """Return free ranges for a view, in order: whole pages of the largest blocks between two partial pages."""
        if not self._free.keys:
            return []
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
        """Return the end of a page for a view to begin with, and the beginning of another page for it to end with.

        Either both together have one page and the odd bytes of the request, or one or both have just the odd bytes.
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
        """Yield free ranges of at least `least` bytes in pages that are only partly free."""
        page = self.granularity
        for block in self._free.at_least(least):
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
        """Lend the largest free part of a partly used page, if it has `nbytes`; else return None."""
        part = max(self._parts(nbytes), key=part_nbytes, default=None)
        return None if part is None else self._lend(*part)

    def _edge(self, nbytes: int) -> tuple[Block | None, Block | None]:
        """Return the largest free block that can grow into the hole behind it, and the hole; or just a hole."""
        best: tuple[Block | None, Block | None] = (None, None)
        for hole in self._holes:
            low = hole.before if hole.before is not None and hole.before.quick_list is None else None
            length = 0 if low is None else low.nbytes
            fits = hole.nbytes >= self.whole(nbytes - length)
            if fits and (best[1] is None or length > (best[0].nbytes if best[0] else 0)):
                best = (low, hole)
        return best

    def _open_hole(self, hole: Block, nbytes: int) -> Block:
        """Lend the first `nbytes` of a hole."""
        self._holes.remove(hole)
        if hole.nbytes > nbytes:
            insort(self._holes, split(hole, nbytes), key=_address)
        return withhold(hole, LENT)

    def _lend(self, block: Block, low: int, high: int) -> Block:
        """Lend ``[low, high)`` of a free block; the rest stays free."""
        self._free.remove(block)
        if low > block.address:
            front, block = block, split(block, low - block.address)
            self._free.add(front)
            block.stamp = front.stamp
        if high < block.address + block.nbytes:
            rest = split(block, high - block.address)
            rest.stamp = block.stamp
            self._free.add(rest)
        return withhold(block, LENT)

    # ------------------------------------------------------------------------------------------------------- views

    def coalesce(self) -> tuple[list[SmallSegment], list[Block]]:
        """Take back what was lent for free parts of views, and for small segments without a block in use.

        Return these small segments, which are dropped, and the lent blocks, which the caller must set free.
        """
        given: list[Block] = []
        done = [
            found for found in self.small_segments.values() if found.first.quick_list is None and found.first.is_whole
        ]
        for segment in done:
            segment.stream_pool.small.remove(segment.first)
            del self.small_segments[segment.address]
            given.append(segment.backing)
        for view in self._used:
            if view.first.quick_list is not None and view.first.after is None:
                continue  # as in most views, all of it is in use
            for block in [block for block in view if block.quick_list is None]:
                self._free.remove(block)
                given += view.surrender(block)
                _hollow(block)
        self._used = [view for view in self._used if view.pieces]
        return done, given

    def recall(self, nbytes: int) -> Block | None:
        """Return the block of an unused view of the ranges that `plan` would choose for `nbytes` now, or None."""
        unused = [view for view in self._of_size.get(nbytes, ()) if view.is_unused]
        if not unused:
            return None
        chosen = self._chosen(nbytes)
        runs = tuple((block.segment, low, high) for block, low, high in chosen)
        view = next((view for view in unused if view.runs == runs), None)
        if view is None:
            return None
        pieces = [self._lend(block_at(block, low), low, high) for block, low, high in chosen]
        view.pieces = list(zip(view.starts, pieces, strict=True))
        self._used.append(view)
        return withhold(view.first, LENT)

    def add_view(self, view: View) -> None:
        """Add a view that is in use."""
        self.keep(view)
        self._used.append(view)

    def keep(self, view: View) -> None:
        """Let `recall` find the view."""
        self.views.append(view)
        self._of_size.setdefault(view.nbytes, []).append(view)
        self._shown += len(view.pages)

    def is_crowded(self, page_count: int) -> bool:
        """Whether one more view, of `page_count` pages, would be too many."""
        return len(self.views) >= _MOST_VIEWS or self._shown + page_count > _MOST_PAGES

    def take_crowded(self, page_count: int) -> list[View]:
        """Take the half of the unused views that was unused for longest, if one more view would be too many.

        Many are taken at a time, because the host waits for the stream before they are released.
        """
        if not self.is_crowded(page_count):
            return []
        unused = sum(view.is_unused for view in self.views)
        return self.take_unused(unused - unused // 2)

    def take_unused(self, count: int | None = None) -> list[View]:
        """Take unused views, those unused for longest first; the page space drops them."""
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
        """Lend whole free pages (with `before`, free since then) to be released; none that a view in use maps."""
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
        """Take the arenas without any page; the page space drops them."""
        empty = [arena for arena in self.arenas if arena.first.home is HOLE and arena.first.is_whole]
        self.arenas = [arena for arena in self.arenas if arena not in empty]
        self._holes = [hole for hole in self._holes if hole.segment not in empty]
        return empty

    def empty(self, block: Block) -> int:
        """Make a lent block, whose pages were unmapped, a hole; return its bytes."""
        gone = block.nbytes
        run_of(block)[0].mapped -= gone
        self.close(block)
        return gone

    def close(self, block: Block) -> None:
        """Make a block of an arena, which is in no list, a hole, and merge it with neighbouring holes."""
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.home is HOLE:
                self._holes.remove(neighbour)
        insort(self._holes, _hollow(block), key=_address)

    def segments(self) -> Iterator[Segment]:
        """Yield the small segments and the views in use."""
        yield from self.small_segments.values()
        yield from (view for view in self.views if not view.is_unused)

    def __repr__(self) -> str:
        return f"PageSpace({len(self.arenas)} arenas, {len(self.views)} views)"


def _address(block: Block) -> int:
    return block.address


def _hollow(block: Block) -> Block:
    """Make a block, which is in no list, a hole; return it merged with neighbouring holes."""
    withhold(block, HOLE)
    if block.after is not None and block.after.home is HOLE:
        merge(block, block.after)
    low = block.before
    if low is None or low.home is not HOLE:
        return block
    merge(low, block)
    return low
