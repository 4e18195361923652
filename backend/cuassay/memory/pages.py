"""What pages are seen as: arenas, where they are at home; views, which show them once more; parts of free blocks.

How they are chosen is `cuassay.memory.stitching`'s business.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from cuassay.memory.blocks import HOLE, LENT, Block, FreeBlocks, Segment, split, withhold

if TYPE_CHECKING:
    from cuassay.memory.lane import Lane

__all__ = ["Arena", "FreeIndex", "Nested", "Part", "Run", "View", "at", "length", "lent", "pair", "run", "single"]

#: Part of an arena: the arena, where it begins, and the address behind its end.
Run = tuple["Arena", int, int]

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
        self.runs = tuple(map(run, blocks))
        self.starts = tuple(accumulate((block.nbytes for block in blocks[:-1]), initial=begin))
        self.pieces = list(zip(self.starts, blocks, strict=True))
        self.stamp = 0

    @property
    def held(self) -> int:
        """None of its own: arenas hold the memory."""
        return 0

    @property
    def name(self) -> tuple[tuple[int, int, int], ...]:
        """Where all of it is at home, each arena by its address."""
        return tuple((arena.address, low, high) for arena, low, high in self.runs)

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
                middle = lent(split(piece, begin - at))
                kept.append((at, piece))
            if end < behind:
                kept.append((end, lent(split(middle, end - begin))))
            given.append(middle)
        self.pieces = kept
        return given


def lent(block: Block) -> Block:
    """`block`, which is in no list, withheld because its memory is shown elsewhere."""
    withhold(block, LENT)
    return block


def at(block: Block, low: int) -> Block:
    """The block at `low` now: parts of the free one that begins below may have been lent meanwhile."""
    while block.address + block.nbytes <= low:
        if block.after is None:
            raise LookupError(f"{low:#x} is behind {block!r}")
        block = block.after
    return block


def run(block: Block) -> Run:
    """Where a lent block is."""
    arena = block.segment
    if not isinstance(arena, Arena):
        raise TypeError(f"{block!r} is in no arena")
    return arena, block.address, block.address + block.nbytes


def length(part: Part) -> int:
    """Its bytes."""
    return part[2] - part[1]


def single(ends: list[Part], begins: list[Part], nbytes: int) -> tuple[Part | None, Part | None] | None:
    """The smallest that has so many bytes, of either, cut to them; both are sorted."""
    end = next((part for part in ends if length(part) >= nbytes), None)
    begin = next((part for part in begins if length(part) >= nbytes), None)
    if end is not None and (begin is None or length(end) <= length(begin)):
        return (end[0], end[2] - nbytes, end[2]), None
    return None if begin is None else (None, (begin[0], begin[1], begin[1] + nbytes))


def pair(ends: list[Part], begins: list[Part], nbytes: int, page: int) -> tuple[Part, Part] | None:
    """Of each one, that have so many bytes together and leave the least, cut to them; both are sorted."""
    lengths = list(map(length, begins))
    best: tuple[int, Part, Part] | None = None
    for end in ends:
        left = nbytes - length(end)
        position = bisect_left(lengths, left)
        if position < len(begins) and begins[position][1] + page == end[2]:  # a view shows a page once
            position += 1
        if left > 0 and position < len(begins) and (best is None or lengths[position] - left < best[0]):
            best = lengths[position] - left, end, begins[position]
    if best is None:
        return None
    excess, end, (block, low, high) = best
    return end, (block, low, high - excess)


class FreeIndex:
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
