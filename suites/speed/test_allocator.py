"""Host time of the caching allocator over integers: a hit, a miss, mixed sizes, whole traces.

No device takes part, so these are the policy's own cost; `test_replay` notes reserved over live memory too.
`test_memory_device` measures it and its peers on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from cuassay.memory import Block, CachingAllocator, IntegerSource
from cuassay.memory.trace import load_trace, replay

TRACES = Path(__file__).parents[1] / "data" / "traces"
PAIRS = 1000
MIB = 2**20
#: What one layer of GPT-2 small asks for, forward and backward, in the order of a step.
MIXED = (12 * MIB, 36 * MIB, 4096, 48 * MIB, 768 * 4, 12 * MIB, 512, 3 * MIB, 3072, 24 * MIB)


@pytest.fixture
def allocator() -> CachingAllocator:
    return CachingAllocator(IntegerSource())


def pairs(malloc: Callable[[int], Block], free: Callable[[Block], None], nbytes: int) -> None:
    """A thousand times: take, and give back."""
    for _ in range(PAIRS):
        free(malloc(nbytes))


@pytest.mark.benchmark(group=f"{PAIRS} pairs of malloc and free")
@pytest.mark.parametrize("nbytes", [512, 4096, MIB, 32 * MIB])
@pytest.mark.parametrize("way", ["stream_pool", "allocator"])
def test_hit(benchmark: Callable[..., Any], allocator: CachingAllocator, way: str, nbytes: int) -> None:
    malloc = allocator.stream_pool(0).malloc if way == "stream_pool" else allocator.malloc

    benchmark(pairs, malloc, allocator.free, nbytes)

    assert allocator.statistics().num_device_alloc == 1


@pytest.mark.benchmark(group=f"{PAIRS} pairs of malloc and free, each of another size")
@pytest.mark.parametrize("least", [1, 3 * MIB], ids=["small", "large"])
@pytest.mark.parametrize("live", [1, 2 * PAIRS], ids=["at its peak", "below its peak"])
def test_miss_without_the_source(
    benchmark: Callable[..., Any], allocator: CachingAllocator, least: int, live: int
) -> None:
    """Below its peak nothing is merged until it must be; at its peak every freed block is merged at once."""
    for block in [allocator.malloc(64 * MIB + least) for _ in range(live)]:
        allocator.free(block)
    sizes = cycle(range(least, least + 512 * 1900, 512))

    def new_sizes() -> None:
        for nbytes in islice(sizes, PAIRS):
            allocator.free(allocator.malloc(nbytes))

    benchmark(new_sizes)


@pytest.mark.benchmark(group="ten mixed sizes, a hundred times")
def test_mixed_sizes(benchmark: Callable[..., Any], allocator: CachingAllocator) -> None:
    def steps() -> None:
        for _ in range(100):
            for block in [allocator.malloc(nbytes) for nbytes in MIXED]:
                allocator.free(block)

    benchmark(steps)

    assert allocator.statistics().allocated_bytes.all.current == 0


@pytest.mark.benchmark(group="trace")
@pytest.mark.parametrize("name", [path.name.removesuffix(".csv.gz") for path in sorted(TRACES.glob("*.gz"))])
def test_replay(benchmark: Any, name: str) -> None:
    events, source = load_trace(TRACES / f"{name}.csv.gz"), IntegerSource()
    allocator = CachingAllocator(source)

    replay(events, allocator, passes=1)
    found = benchmark.pedantic(replay, args=(events, allocator), kwargs={"passes": 1}, rounds=3)

    benchmark.extra_info.update(ratio=found.ratio, events=len(events), ns_per_op=found.ns_per_op)
    assert found.reserved_peak >= found.live_peak
