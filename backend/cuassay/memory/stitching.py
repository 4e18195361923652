"""Pages: ranges that grow, and views that make one range out of scattered pages.

One stream's large blocks lie in *arenas*: spans of addresses of which only part has memory. When no free range is
large enough, pages that lie free in several are shown side by side at a second address, a *view*; only what is missing
then is taken from the device. What a view uses is lent by its home in an arena, and what is free in a view returns
there before anything is searched again, so that all free memory is known at home alone. A view stays when nothing uses
it: whenever a long enough part of it is free at home, it serves again without a driver call. The first and the last
page of a view may be shared with others, so a range takes no more than its own bytes. The small pool's segments are
ranges of arenas too, parts of pages for choice, and memory moves between the two pools.

The idea of stitching on a miss is GMLake's (Guo et al., ASPLOS 2024, doi:10.1145/3620665.3640423); here pages never
leave their home address, so nothing is unmapped on the way. Everything here happens under the allocator's lock, and
calls no source: `cuassay.memory.caching` does what a `Plan` says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from cuassay.memory.blocks import HOLE, LENT, Block, FreeBlocks, Segment, merge, split, withhold

if TYPE_CHECKING:
    from cuassay.memory.lane import Lane

__all__ = ["Arena", "Nested", "Plan", "Run", "Territory", "View"]

#: Part of an arena: the arena, where it begins, and the address behind its end.
Run = tuple["Arena", int, int]

#: The smallest part of a page that a view begins or ends with, bytes.
_LEAST_PART = 2**13

#: Views of one stream that are looked at for a request, and that are kept; half of them go when there are more.
_LOOKS, _MOST_VIEWS = 16, 1024

#: Pages that the views of one stream show, all together: each takes an entry of the driver's.
_MOST_PAGES = 2**16

#: Part of a free block: the block, where it begins, and the address behind its end.
Part = tuple[Block, int, int]


class Arena(Segment):
    """A span of addresses; its blocks cover it, and those without memory are holes.

    Attributes
    ----------
    page : int
        Bytes of each page; each begins at a multiple of it.
    mapped : int
        Bytes of all its pages.
    """

    __slots__ = ("mapped", "page")

    def __init__(self, address: int, nbytes: int, lane: Lane, page: int) -> None:
        super().__init__(address, nbytes, lane, is_small=False)
        self.page = page
        self.mapped = 0
        withhold(self.first, HOLE)

    @property
    def held(self) -> int:
        """Bytes of its pages."""
        return self.mapped

    def whole_pages(self, low: int, high: int) -> range:
        """The pages that lie in ``[low, high)`` as a whole."""
        return range(-(-low // self.page) * self.page, high // self.page * self.page, self.page)

    def touched_pages(self, low: int, high: int) -> range:
        """The pages that ``[low, high)`` touches."""
        return range(low // self.page * self.page, high, self.page)


class Nested(Segment):
    """A lent range of an arena as a segment of the small pool."""

    __slots__ = ("ground",)

    def __init__(self, ground: Block) -> None:
        super().__init__(ground.address, ground.nbytes, ground.lane, is_small=True)
        self.ground = ground

    @property
    def held(self) -> int:
        """None of its own: the arena holds the memory."""
        return 0


class View(Segment):
    """Ranges of arenas, shown side by side by an alias.

    Attributes
    ----------
    alias : int
        The alias's address; the view begins in its first page.
    pages : tuple of int
        What the alias shows: pages at home, in order.
    runs : tuple of Run
        Where all of it is at home.
    starts : tuple of int
        Where each run begins here.
    pieces : list of (int, Block)
        What is lent to it, each with its address here.
    stamp : int
        When it last served a request.
    """

    __slots__ = ("alias", "pages", "pieces", "runs", "stamp", "starts")

    def __init__(self, alias: int, pages: Sequence[int], blocks: Sequence[Block]) -> None:
        begin = alias + blocks[0].address - pages[0]
        super().__init__(begin, sum(block.nbytes for block in blocks), blocks[0].lane, is_small=False)
        self.alias = alias
        self.pages = tuple(pages)
        self.runs = tuple(map(_run, blocks))
        self.starts = tuple(accumulate((block.nbytes for block in blocks[:-1]), initial=begin))
        self.pieces = list(zip(self.starts, blocks, strict=True))
        self.stamp = 0

    @property
    def held(self) -> int:
        """None of its own: arenas hold the memory."""
        return 0

    @property
    def is_asleep(self) -> bool:
        """True when nothing of it is in use."""
        return self.first.home is HOLE and self.first.is_whole

    def parts(self, low: int, high: int) -> Iterator[tuple[int, Run]]:
        """What ``[low, high)`` shows: the address here, and the part of a run at home."""
        position = bisect_right(self.starts, low) - 1
        while position < len(self.starts) and self.starts[position] < high:
            start, (arena, begin, end) = self.starts[position], self.runs[position]
            skipped = max(low - start, 0)
            yield start + skipped, (arena, begin + skipped, min(end, begin + high - start))
            position += 1

    def surrender(self, block: Block) -> list[Block]:
        """What was lent for a block of it: it is no longer, and is to be set free."""
        low, high, kept, given = block.address, block.address + block.nbytes, [], []
        for at, piece in self.pieces:
            begin, end, behind = max(at, low), min(at + piece.nbytes, high), at + piece.nbytes
            if begin >= end:
                kept.append((at, piece))
                continue
            middle = piece
            if begin > at:
                middle = _lent(split(piece, begin - at))
                kept.append((at, piece))
            if end < behind:
                kept.append((end, _lent(split(middle, end - begin))))
            given.append(middle)
        self.pieces = kept
        return given


def _lent(block: Block) -> Block:
    withhold(block, LENT)
    return block


def _run(block: Block) -> Run:
    """Where a lent block is."""
    arena = block.segment
    if not isinstance(arena, Arena):
        raise TypeError(f"{block!r} is in no arena")
    return arena, block.address, block.address + block.nbytes


@dataclass(slots=True)
class Plan:
    """How a range is made.

    Attributes
    ----------
    pieces : list of Block
        Lent ranges with memory, in order.
    growth : Block or None
        A lent range without memory, to be given pages.
    position : int
        Where among the pieces the growth comes.
    sizes : sequence of int
        Its pages.
    needed : int
        Bytes of the growth that the range takes.
    is_contiguous : bool
        Whether all lies side by side at home: no alias is needed.
    """

    pieces: list[Block]
    growth: Block | None = None
    position: int = 0
    sizes: Sequence[int] = ()
    needed: int = 0
    is_contiguous: bool = False

    @property
    def missing(self) -> int:
        """Bytes to be taken from the device."""
        return sum(self.sizes)

    def pages(self) -> list[int]:
        """The pages that the pieces touch, in order."""
        return [page for arena, low, high in map(_run, self.pieces) for page in arena.touched_pages(low, high)]

    def settle(self) -> Block | None:
        """The growth has its pages now, and is a piece like the others; gives what is not needed, to be set free."""
        growth, rest = self.growth, None
        if growth is not None:
            _run(growth)[0].mapped += self.missing
            if self.needed < growth.nbytes:
                rest = split(growth, self.needed)
            self.pieces.insert(self.position, growth)
            self.growth = None
        return rest


class Territory:
    """The arenas of one stream and pool, and what is stitched out of them.

    Parameters
    ----------
    granularity : int
        Bytes that pages are multiples of.
    free_blocks : FreeBlocks
        The free ranges among its large blocks; others than arenas' may be there too.

    Attributes
    ----------
    arenas : list of Arena
        In the order they came.
    nested : dict of int to Nested
        Segments of the small pool, by address.
    views : list of View
        In the order they came.
    """

    def __init__(self, granularity: int, free_blocks: FreeBlocks) -> None:
        self.granularity = granularity
        self.arenas: list[Arena] = []
        self.nested: dict[int, Nested] = {}
        self.views: list[View] = []
        self._shown = 0
        self._free = free_blocks

    def whole(self, nbytes: int) -> int:
        """`nbytes`, rounded up to pages."""
        return -(-nbytes // self.granularity) * self.granularity

    # ----------------------------------------------------------------------------------------------------- best fit

    def take(self, nbytes: int, *, anywhere: bool = False) -> Block | None:
        """Out of the free blocks one of exactly `nbytes`, in no list: of the smallest that has them.

        Whole pages begin at a page, unless they may be `anywhere`: freed, they are whole pages again.
        """
        for block in self._free.candidates(nbytes, 1):
            low = block.address
            if nbytes % self.granularity == 0:
                low = self.whole(low)
                if low + nbytes > block.address + block.nbytes:
                    if not anywhere:
                        return None
                    low = block.address
            return self._lend(block, low, low + nbytes)
        return None

    # ------------------------------------------------------------------------------------------------------- plans

    def has_room(self, nbytes: int) -> bool:
        """True when a hole could take pages for `nbytes`."""
        whole = self.whole(nbytes)
        return any(hole.nbytes >= whole for hole in self._holes())

    def _holes(self) -> Iterator[Block]:
        return (block for arena in self.arenas for block in arena if block.home is HOLE)

    def shortage(self, nbytes: int) -> int:
        """Bytes that a range of `nbytes` takes from the device, when no free block can serve it."""
        return self.whole(max(nbytes - sum(high - low for _, low, high in self._chosen(nbytes)), 0))

    def plan(self, nbytes: int, spare: int = 0) -> Plan:
        """How to make a range of `nbytes` that no free block can serve; what it needs is lent from here on.

        Free memory and what is missing; or a free range that is grown, where that takes no more, or no more than
        `spare` bytes. There is room.
        """
        low_block, hole = self._edge(nbytes)
        grown = self.whole(nbytes - (low_block.nbytes if low_block is not None else 0))
        if hole is not None and 0 < grown <= spare:
            return self._growing(low_block, hole, grown, nbytes)
        chosen = self._chosen(nbytes)
        rest = nbytes - sum(map(_length, chosen))
        missing = self.whole(rest)
        if missing and (block := self.take(nbytes, anywhere=True)) is not None:
            return Plan([block], is_contiguous=True)
        if hole is not None and 0 < grown <= missing:
            return self._growing(low_block, hole, grown, nbytes)
        pieces = [self._lend(self._part(block, low), low, high) for block, low, high in chosen]
        if not missing:
            return Plan(pieces, is_contiguous=len(pieces) == 1)
        hole = next(hole for hole in self._holes() if hole.nbytes >= missing)
        # a last piece that begins a page and does not fill it stays the last
        position = len(pieces) - 1 if chosen and chosen[-1][2] % self.granularity else len(pieces)
        return Plan(pieces, self._opened(hole, missing), position, self._sizes(missing), rest, is_contiguous=not pieces)

    def _growing(self, low: Block | None, hole: Block, grown: int, nbytes: int) -> Plan:
        """A free block, or none, with pages for `grown` bytes behind it."""
        pieces = [] if low is None else [self._whole_lent(low)]
        needed = nbytes - sum(piece.nbytes for piece in pieces)
        return Plan(pieces, self._opened(hole, grown), len(pieces), self._sizes(grown), needed, is_contiguous=True)

    def _sizes(self, nbytes: int) -> list[int]:
        return [self.granularity] * (nbytes // self.granularity)

    def _chosen(self, nbytes: int) -> list[Part]:
        """Free ranges in an order that a view can show: whole pages, of the largest blocks, between two ends."""
        first, last = self._ends(nbytes)
        chosen, left = [], nbytes - sum(_length(part) for part in (first, last) if part is not None)
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
        ends.sort(key=_length)
        begins.sort(key=_length)
        odd = nbytes % self.granularity
        page = self.granularity
        more = _pair(ends, begins, odd + page, page) if odd + page <= nbytes else None
        if more is None and odd:
            return _single(ends, begins, odd) or _pair(ends, begins, odd, page) or (None, None)
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

    def lend_ground(self, nbytes: int) -> Block | None:
        """The largest part of a page that is not free as a whole, lent, if it has so many bytes."""
        part = max(self._parts(nbytes), key=_length, default=None)
        return None if part is None else self._lend(*part)

    def _edge(self, nbytes: int) -> tuple[Block | None, Block | None]:
        """The largest free block with a hole behind it that it could grow into, and the hole; or a hole alone."""
        best: tuple[Block | None, Block | None] = (None, None)
        for hole in self._holes():
            low = hole.before if hole.before is not None and hole.before.idle is None else None
            length = 0 if low is None else low.nbytes
            fits = hole.nbytes >= self.whole(nbytes - length)
            if fits and (best[1] is None or length > (best[0].nbytes if best[0] else 0)):
                best = (low, hole)
        return best

    def _opened(self, hole: Block, nbytes: int) -> Block:
        """The first `nbytes` of a hole, lent."""
        if hole.nbytes > nbytes:
            withhold(split(hole, nbytes), HOLE)
        return _lent(hole)

    @staticmethod
    def _part(block: Block, low: int) -> Block:
        """The block at `low` now: parts of the free one that begins below may have been lent meanwhile."""
        while block.address + block.nbytes <= low:
            if block.after is None:
                raise LookupError(f"{low:#x} is behind {block!r}")
            block = block.after
        return block

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
        return _lent(block)

    def _whole_lent(self, block: Block) -> Block:
        self._free.remove(block)
        return _lent(block)

    # ------------------------------------------------------------------------------------------------------- views

    def go_home(self) -> tuple[list[Nested], list[Block]]:
        """What is free in views, and in segments of the small pool that are free as a whole, returns to its home.

        Gives the segments of the small pool that are no longer, and what was lent, to be set free.
        """
        given: list[Block] = []
        done = [found for found in self.nested.values() if found.first.idle is None and found.first.is_whole]
        for segment in done:
            segment.lane.small.remove(segment.first)
            del self.nested[segment.address]
            given.append(segment.ground)
        for view in [view for view in self.views if view.pieces]:
            for block in [block for block in view if block.idle is None]:
                self._free.remove(block)
                given += view.surrender(block)
                self.close(block)
        return done, given

    def wake(self, nbytes: int) -> Block | None:
        """A part of a view, of `nbytes`, that is free at home: it is lent to the view; the block is in no list."""
        fitting = [view for view in self.views if nbytes <= view.nbytes <= 2 * nbytes]
        if not fitting:
            return None
        index = _FreeIndex(self._free)
        for view in sorted(fitting, key=lambda view: -view.stamp)[:_LOOKS]:
            for hole in [block for block in view if block.home is HOLE and block.nbytes >= nbytes]:
                low = index.first_free(view, hole, nbytes)
                if low is not None:
                    return self._woken(view, hole, low, low + nbytes, index)
        return None

    def _woken(self, view: View, hole: Block, low: int, high: int, index: _FreeIndex) -> Block:
        for at, (_, begin, end) in view.parts(low, high):
            view.pieces.append((at, self._lend(self._part(index.at(begin), begin), begin, end)))
        if high < hole.address + hole.nbytes:
            withhold(split(hole, high - hole.address), HOLE)
        block = hole
        if low > hole.address:
            block = _lent(split(hole, low - hole.address))
        return _lent(block)

    def add_view(self, view: View) -> None:
        """It is one more."""
        self.views.append(view)
        self._shown += len(view.pages)

    def take_crowded(self, page_count: int) -> list[View]:
        """The half of the sleeping views that has not served for longest, if with one more there are too many.

        Many at a time, because the host waits for the stream before they go.
        """
        if len(self.views) < _MOST_VIEWS and self._shown + page_count <= _MOST_PAGES:
            return []
        asleep = sum(view.is_asleep for view in self.views)
        return self.take_asleep(asleep - asleep // 2)

    def take_asleep(self, count: int | None = None) -> list[View]:
        """Sleeping views, those that have not served for longest first; they are forgotten."""
        taken = sorted((view for view in self.views if view.is_asleep), key=lambda view: view.stamp)[:count]
        gone = set(map(id, taken))
        self.views = [view for view in self.views if id(view) not in gone]
        self._shown -= sum(len(view.pages) for view in taken)
        return taken

    # ------------------------------------------------------------------------------------------------- giving back

    def lend_free_pages(self, *, before: int | None = None) -> list[tuple[Block, list[int]]]:
        """Whole pages in free blocks (free by that time), lent, to be given back; none that a view in use shows."""
        shown = {page for view in self.views if not view.is_asleep for page in view.pages}
        found = []
        for block in tuple(self._free):
            arena = block.segment
            if isinstance(arena, Arena) and (before is None or block.stamp <= before):
                pages = arena.whole_pages(block.address, block.address + block.nbytes)
                for _, group in groupby(pages, key=shown.__contains__):
                    run = list(group)
                    if run[0] not in shown:
                        part = self._part(block, run[0])
                        found.append((self._lend(part, run[0], run[-1] + arena.page), run))
        return found

    def take_empty_arenas(self) -> list[Arena]:
        """Arenas without any page; they are forgotten."""
        empty = [arena for arena in self.arenas if arena.first.home is HOLE and arena.first.is_whole]
        self.arenas = [arena for arena in self.arenas if arena not in empty]
        return empty

    @staticmethod
    def empty(block: Block) -> int:
        """The pages that are a lent block are gone: it is a hole, one with its neighbours; gives their bytes."""
        gone = block.nbytes
        _run(block)[0].mapped -= gone
        Territory.close(block)
        return gone

    @staticmethod
    def close(block: Block) -> None:
        """A block that is in no list is a hole, one with its neighbours."""
        withhold(block, HOLE)
        if block.after is not None and block.after.home is HOLE:
            merge(block, block.after)
        if block.before is not None and block.before.home is HOLE:
            merge(block.before, block)

    def segments(self) -> Iterator[Segment]:
        """What lies over the arenas and is in use."""
        yield from self.nested.values()
        yield from (view for view in self.views if not view.is_asleep)

    def __repr__(self) -> str:
        return f"Territory({len(self.arenas)} arenas, {len(self.views)} views)"


def _length(part: Part) -> int:
    return part[2] - part[1]


def _single(ends: list[Part], begins: list[Part], nbytes: int) -> tuple[Part | None, Part | None] | None:
    """The smallest that has so many bytes, of either, cut to them; both are sorted."""
    end = next((part for part in ends if _length(part) >= nbytes), None)
    begin = next((part for part in begins if _length(part) >= nbytes), None)
    if end is not None and (begin is None or _length(end) <= _length(begin)):
        return (end[0], end[2] - nbytes, end[2]), None
    return None if begin is None else (None, (begin[0], begin[1], begin[1] + nbytes))


def _pair(ends: list[Part], begins: list[Part], nbytes: int, page: int) -> tuple[Part, Part] | None:
    """Of each one, that have so many bytes together and leave the least, cut to them; both are sorted."""
    lengths = list(map(_length, begins))
    best: tuple[int, Part, Part] | None = None
    for end in ends:
        left = nbytes - _length(end)
        position = bisect_left(lengths, left)
        if position < len(begins) and begins[position][1] + page == end[2]:  # a view shows a page once
            position += 1
        if left > 0 and position < len(begins) and (best is None or lengths[position] - left < best[0]):
            best = lengths[position] - left, end, begins[position]
    if best is None:
        return None
    excess, end, (block, low, high) = best
    return end, (block, low, high - excess)


class _FreeIndex:
    """Free blocks by address."""

    def __init__(self, free_blocks: FreeBlocks) -> None:
        self._blocks = {block.address: block for block in free_blocks}
        self._starts = sorted(self._blocks)
        self._ends = [start + self._blocks[start].nbytes for start in self._starts]

    def at(self, low: int) -> Block:
        """The block that was free at `low`."""
        return self._blocks[self._starts[bisect_right(self._starts, low) - 1]]

    def first_free(self, view: View, hole: Block, nbytes: int) -> int | None:
        """Where in a hole of `view` so many bytes begin that are all free at home."""
        begin = end = hole.address
        for at, (_, low, high) in view.parts(hole.address, hole.address + hole.nbytes):
            for free_low, free_high in self._free_in(low, high):
                if at + free_low - low != end:
                    begin = at + free_low - low
                end = at + free_high - low
                if end - begin >= nbytes:
                    return begin
        return None

    def _free_in(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The free parts of ``[low, high)``, ascending."""
        position = bisect_right(self._ends, low)
        while position < len(self._starts) and self._starts[position] < high:
            yield max(self._starts[position], low), min(self._ends[position], high)
            position += 1
