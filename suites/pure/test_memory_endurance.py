"""A long random program: several streams, pools, other streams' use, fractions, exhaustion, against the shadow model.

``python suites/pure/test_memory_endurance.py 10000000`` runs ten million operations; as a test, a hundred thousand.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from itertools import product

import pytest

from cuassay.errors import OutOfMemoryError
from cuassay.memory import Block, CachingAllocator, IntegerSource, Pool
from cuassay.memory.trace import ShadowModel

MIB = 2**20
TOTAL = 256 * MIB
CONFIGS = (
    "",
    "max_split_size_mb:20,garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4,per_process_memory_fraction:0.7",
)


class Program:
    """One random program; the same seed gives the same one."""

    def __init__(self, config: str, seed: int, granularity: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # a program, no secret
        self.source = IntegerSource(TOTAL, is_lazy=True, granularity=granularity)
        self.allocator = CachingAllocator(self.source, total=TOTAL, config=config)
        self.shadow = ShadowModel(self.source)
        self.live: list[Block] = []
        self.pools: list[Pool | None] = [None, self.allocator.create_pool(use_on_oom=True)]
        self.failures = 0
        self.sizes = [self.chance.choice((2000, MIB, 30 * MIB)) * k // 16 for k in range(1, 25)]

    def run(self, operations: int) -> None:
        """So many operations; the model looks at everything every five thousand."""
        steps = (self.take, self.give, self.lend, self.reach, self.empty, self.swap_pool)
        for number in range(operations):
            (step,) = self.chance.choices(steps, (500, 480, 30, 30, 1, 1))
            step()
            if number % 5000 == 0:
                self.shadow.check(self.allocator)
        self.shadow.check(self.allocator)

    def take(self) -> None:
        nbytes, stream = self.chance.choice(self.sizes), self.chance.randrange(3)
        try:
            block = self.allocator.lane(stream, self.chance.choice(self.pools)).malloc(nbytes)
        except OutOfMemoryError:
            self.failures += 1
            for _ in range(len(self.live) // 2):
                self.give()
            return
        self.shadow.took(block, nbytes, stream)
        self.live.append(block)

    def give(self) -> None:
        if self.live:
            position = self.chance.randrange(len(self.live))
            self.live[position], self.live[-1] = self.live[-1], self.live[position]
            block = self.live.pop()
            self.shadow.gave(block)
            self.allocator.free(block)

    def lend(self) -> None:
        if self.live:
            self.allocator.record_stream(self.chance.choice(self.live), self.chance.randrange(5))

    def reach(self) -> None:
        for event in self.source.pending()[: self.chance.randrange(8)]:
            self.source.complete(event)

    def empty(self) -> None:
        self.allocator.empty_cache()

    def swap_pool(self) -> None:
        pool = self.pools.pop()
        if pool is not None:
            self.allocator.release_pool(pool)
        self.pools.append(self.allocator.create_pool(use_on_oom=self.chance.random() < 0.5))


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Before it gives up the allocator collects garbage: the session's objects need not be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
@pytest.mark.parametrize("config", CONFIGS, ids=["plain", "unsplit", "rounded"])
def test_tens_of_thousands_of_operations_leave_no_fault(config: str, granularity: int) -> None:
    program = Program(config, 2026, granularity)

    program.run(17_000)

    assert program.failures > 0
    for _ in range(len(program.live)):
        program.give()
    program.swap_pool()
    program.allocator.empty_cache()
    assert program.allocator.statistics().allocated_bytes.all.current == 0
    assert program.allocator.statistics().active_bytes.all.current == 0


def main(operations: int) -> None:
    """Run every configuration for its share of `operations`."""
    gc.freeze()
    share = operations // (2 * len(CONFIGS))
    for seed, (config, granularity) in enumerate(product(CONFIGS, (0, 2 * MIB))):
        program = Program(config, seed, granularity)
        program.run(share)
        sys.stdout.write(
            f"{config or 'plain'}, {'pages' if granularity else 'segments'}: {share:,} operations, "
            f"{program.failures:,} refused, {program.source.aliased:,} ranges stitched\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
