"""What pages are seen as: arenas, where they are at home; views, which show them once more; parts of free blocks.

How they are chosen is `cuassay.memory.page_space`'s business.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from cuassay.memory.blocks import HOLE, LENT, Block, Segment, split, withhold

if TYPE_CHECKING:
    from cuassay.memory.stream_pool import StreamPool

__all__ = [
    "Arena",
    "Part",
    "Run",
    "SmallSegment",
    "View",
    "best_pair",
    "best_single",
    "block_at",
    "lend_out",
    "part_nbytes",
    "run_of",
]

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

    def __init__(self, address: int, nbytes: int, stream_pool: StreamPool, page: int) -> None:
        super().__init__(address, nbytes, stream_pool, is_small=False)
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


class SmallSegment(Segment):
    """A lent range of an arena as a segment of the small pool."""

    __slots__ = ("backing",)

    def __init__(self, backing: Block) -> None:
        super().__init__(backing.address, backing.nbytes, backing.stream_pool, is_small=True)
        self.backing = backing

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
        super().__init__(begin, sum(block.nbytes for block in blocks), blocks[0].stream_pool, is_small=False)
        self.alias = alias
        self.pages = tuple(pages)
        self.runs = tuple(map(run_of, blocks))
        self.starts = tuple(accumulate((block.nbytes for block in blocks[:-1]), initial=begin))
        self.pieces = list(zip(self.starts, blocks, strict=True))
        self.stamp = 0

    @property
    def held(self) -> int:
        """None of its own: arenas hold the memory."""
        return 0

    @property
    def is_unused(self) -> bool:
        """True when nothing of it is in use."""
        return self.first.home is HOLE and self.first.is_whole

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
                middle = lend_out(split(piece, begin - at))
                kept.append((at, piece))
            if end < behind:
                kept.append((end, lend_out(split(middle, end - begin))))
            given.append(middle)
        self.pieces = kept
        return given


def lend_out(block: Block) -> Block:
    """Withhold `block`, which is in no list, because its memory is shown elsewhere; gives it."""
    withhold(block, LENT)
    return block


def block_at(block: Block, low: int) -> Block:
    """The block at `low` now: parts of the free one that begins below may have been lent meanwhile."""
    while block.address + block.nbytes <= low:
        if block.after is None:
            raise LookupError(f"{low:#x} is behind {block!r}")
        block = block.after
    return block


def run_of(block: Block) -> Run:
    """Where a lent block is."""
    arena = block.segment
    if not isinstance(arena, Arena):
        raise TypeError(f"{block!r} is in no arena")
    return arena, block.address, block.address + block.nbytes


def part_nbytes(part: Part) -> int:
    """Its bytes."""
    return part[2] - part[1]


def best_single(ends: list[Part], begins: list[Part], nbytes: int) -> tuple[Part | None, Part | None] | None:
    """The smallest that has so many bytes, of either, cut to them; both are sorted."""
    end = next((part for part in ends if part_nbytes(part) >= nbytes), None)
    begin = next((part for part in begins if part_nbytes(part) >= nbytes), None)
    if end is not None and (begin is None or part_nbytes(end) <= part_nbytes(begin)):
        return (end[0], end[2] - nbytes, end[2]), None
    return None if begin is None else (None, (begin[0], begin[1], begin[1] + nbytes))


def best_pair(ends: list[Part], begins: list[Part], nbytes: int, page: int) -> tuple[Part, Part] | None:
    """Of each one, that have so many bytes together and leave the least, cut to them; both are sorted."""
    lengths = list(map(part_nbytes, begins))
    best: tuple[int, Part, Part] | None = None
    for end in ends:
        left = nbytes - part_nbytes(end)
        position = bisect_left(lengths, left)
        if position < len(begins) and begins[position][1] + page == end[2]:  # a view shows a page once
            position += 1
        if left > 0 and position < len(begins) and (best is None or lengths[position] - left < best[0]):
            best = lengths[position] - left, end, begins[position]
    if best is None:
        return None
    excess, end, (block, low, high) = best
    return end, (block, low, high - excess)
