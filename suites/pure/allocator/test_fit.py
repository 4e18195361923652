"""Fit policies other than best fit: each is one class here, and the allocator keeps its promises with all of them."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence

import pytest

from cuassay.errors import OutOfMemoryError
from cuassay.memory import BestFit, Block, CachingAllocator, IntegerSource
from cuassay.memory.trace import ShadowModel

MIB = 2**20
TOTAL = 200 * MIB


class WorstFit:
    """The largest block."""

    @property
    def find(self) -> Callable[[Sequence[int], int], int]:
        return lambda keys, least: len(keys) - 1 if keys and keys[-1] >= least else len(keys)

    def prefers(self, nbytes: int, other: int) -> bool:
        return nbytes >= other


class FirstFit:
    """The block at the lowest address."""

    @property
    def find(self) -> Callable[[Sequence[int], int], int]:
        return self._find

    @staticmethod
    def _find(keys: Sequence[int], least: int) -> int:
        large_enough = range(bisect_left(keys, least), len(keys))
        return min(large_enough, key=lambda position: keys[position] % 2**64, default=len(keys))

    def prefers(self, nbytes: int, other: int) -> bool:
        del nbytes, other
        return False  # the sizes alone do not say


POLICIES = {"best": BestFit(), "worst": WorstFit(), "first": FirstFit()}


@pytest.fixture(params=[0, 2 * MIB], ids=["segments", "pages"])
def source(request: pytest.FixtureRequest) -> IntegerSource:
    return IntegerSource(granularity=request.param)


@pytest.mark.parametrize(("policy", "taken"), [("best", 1), ("worst", 2), ("first", 0)])
def test_the_policy_chooses_the_block(source: IntegerSource, policy: str, taken: int) -> None:
    allocator = CachingAllocator(source, config="large_segment_size_mb:64", fit=POLICIES[policy])
    sizes = (6, 4, 8) if source.granularity else (16, 12, 18)  # from 10 MiB on each is a segment of its own
    blocks = [allocator.malloc(nbytes * MIB) for size in sizes for nbytes in (size, 2)][::2]
    addresses = [block.address for block in blocks]
    fill(allocator)
    for block in blocks:
        allocator.free(block)
    allocator.reset_peak_stats()  # the quick lists are empty from here

    assert allocator.malloc(3 * MIB).address == addresses[taken]


@pytest.mark.parametrize(("nbytes", "is_preferred"), [(4095, True), (4096, True), (4097, False)])
def test_best_fit_prefers_a_block_that_is_not_larger(nbytes: int, is_preferred: bool) -> None:
    assert BestFit().prefers(nbytes, 4096) is is_preferred


def fill(allocator: CachingAllocator) -> None:
    """Let no block but live ones remain."""
    allocator.reset_peak_stats()
    while free := [b.nbytes for s in allocator.segments() for b in s if b.quick_list is None and not s.is_small]:
        allocator.malloc(max(free))


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", ["", "max_split_size_mb:20"], ids=["plain", "oversize"])
def test_a_random_program_holds_against_the_shadow_model(policy: str, granularity: int, config: str) -> None:
    source = IntegerSource(TOTAL, granularity=granularity)
    allocator = CachingAllocator(source, total=TOTAL, config=config, fit=POLICIES[policy])
    shadow, chance, live = ShadowModel(source), random.Random(7), list[Block]()  # noqa: S311  # a program, no secret

    for step in range(3000):
        if live and chance.random() < 0.5:
            block = live.pop(chance.randrange(len(live)))
            shadow.gave(block)
            allocator.free(block)
        else:
            nbytes, stream = int(2 ** chance.uniform(4, 24.5)), chance.randrange(2)
            try:
                block = allocator.malloc(nbytes, stream)
            except OutOfMemoryError:
                continue
            shadow.took(block, nbytes, stream)
            live.append(block)
        if step % 100 == 0:
            shadow.check(allocator)

    assert shadow.given > 1000
    shadow.check(allocator)
