"""Parts of free blocks in arenas: which of them begin and end a view, for `cuassay.memory.page_space`."""

from __future__ import annotations

from bisect import bisect_left

from cuassay.memory.blocks import Block

__all__ = ["Part", "best_pair", "best_single", "block_at", "part_nbytes"]

#: A part of a free block: the block, the beginning of the part, and the address after its end.
Part = tuple[Block, int, int]


def part_nbytes(part: Part) -> int:
    """Return the bytes of a part."""
    return part[2] - part[1]


def block_at(block: Block, low: int) -> Block:
    """Return the block at `low`, given a block at or below it, from which parts may have been split off meanwhile.

    Raises
    ------
    LookupError
        If `low` is behind the segment.
    """
    while block.address + block.nbytes <= low:
        if block.after is None:
            raise LookupError(f"{low:#x} is behind {block!r}, the last of its segment; give an address in the segment")
        block = block.after
    return block


def best_single(ends: list[Part], begins: list[Part], nbytes: int) -> tuple[Part | None, Part | None] | None:
    """Return the smallest part of either list that has `nbytes`, cut to them; both lists are sorted by size."""
    end = next((part for part in ends if part_nbytes(part) >= nbytes), None)
    begin = next((part for part in begins if part_nbytes(part) >= nbytes), None)
    if end is not None and (begin is None or part_nbytes(end) <= part_nbytes(begin)):
        return (end[0], end[2] - nbytes, end[2]), None
    return None if begin is None else (None, (begin[0], begin[1], begin[1] + nbytes))


def best_pair(ends: list[Part], begins: list[Part], nbytes: int, page: int) -> tuple[Part, Part] | None:
    """Return a part of each list that together have `nbytes` with the least excess, cut to them; both are sorted."""
    lengths = list(map(part_nbytes, begins))
    best: tuple[int, Part, Part] | None = None
    for end in ends:
        left = nbytes - part_nbytes(end)
        position = bisect_left(lengths, left)
        if position < len(begins) and begins[position][1] + page == end[2]:  # a view can show a page only once
            position += 1
        if left > 0 and position < len(begins) and (best is None or lengths[position] - left < best[0]):
            best = lengths[position] - left, end, begins[position]
    if best is None:
        return None
    excess, end, (block, low, high) = best
    return end, (block, low, high - excess)
