"""Free blocks in their order, and a block made longer or shorter at the cost of the one behind it."""

from __future__ import annotations

import pytest

from cuassay.memory import Block, CachingAllocator, IntegerSource
from cuassay.memory.blocks import split
from cuassay.memory.free_list import FreeList

KIB = 2**10


def cut(*sizes: int) -> list[Block]:
    """Blocks side by side, of these sizes, in no list."""
    whole = CachingAllocator(IntegerSource(granularity=0), config="").malloc(512)
    block = whole.segment.first
    block.nbytes = sum(sizes)
    block.after = None
    found = [block]
    for size in sizes[:-1]:
        found.append(split(found[-1], size))
    return found


@pytest.mark.parametrize("others", [[], [1], [1, 2]], ids=["alone", "with a small one", "with small ones"])
@pytest.mark.parametrize("wanted", [4, 12], ids=["shorter", "longer"])
def test_a_block_is_refitted_where_the_rest_is_the_best_fit(others: list[int], wanted: int) -> None:
    block, rest, *_ = cut(8 * KIB, 16 * KIB)
    free = FreeList()
    for size in others:
        free.add(cut(size * KIB)[0])
    free.add(rest)

    assert free.refit(block, wanted * KIB)

    assert (block.nbytes, rest.nbytes) == (wanted * KIB, (24 - wanted) * KIB)
    assert rest.address == block.address + block.nbytes
    assert [one.nbytes for one in free] == sorted(one.nbytes for one in free)


def test_a_block_is_not_refitted_where_another_fits_better() -> None:
    block, rest = cut(8 * KIB, 16 * KIB)
    free = FreeList()
    free.add(cut(13 * KIB)[0])
    free.add(rest)

    assert not free.refit(block, 12 * KIB)
    assert (block.nbytes, rest.nbytes) == (8 * KIB, 16 * KIB)
