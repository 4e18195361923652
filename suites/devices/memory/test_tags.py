"""Tags in both ends of every block: no two live blocks share memory, however the allocator cut, merged and stitched."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cuassay import Device, devices
from cuassay.errors import OutOfMemoryError
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Event, replay
from cuassay.testing import devices as on

MIB = 2**20
TOTAL = 256 * MIB
OPERATIONS = 1000

pytestmark = on("sim:*", "cuda:*")


@pytest.fixture
def target(device: Device) -> Iterator[tuple[CachingAllocator, Any]]:
    backend: Any = devices.backend(device.kind)
    make, tagger = backend.replay_target(device.index)
    allocator = CachingAllocator(make(), total=TOTAL, config="", name=str(device))
    yield allocator, tagger
    backend.synchronize(device.index)
    allocator.empty_cache()


def churn(seed: int, largest: int) -> list[Event]:
    """Random sizes up to `largest` on three streams, never more than half of the memory live."""
    chance, live, events, held = random.Random(seed), list[tuple[int, int]](), list[Event](), 0  # noqa: S311  no secret
    for name in range(OPERATIONS):
        nbytes = int(largest ** chance.uniform(0.3, 1.0))
        while live and held + nbytes > TOTAL // 2:
            gone, size = live.pop(chance.randrange(len(live)))
            held -= size
            events.append(Event(False, gone, 0, 0))
        events.append(Event(True, name, nbytes, chance.randrange(3)))
        live.append((name, nbytes))
        held += nbytes
    return events


@pytest.mark.parametrize("largest", [4096, MIB, 24 * MIB], ids=["small", "medium", "large"])
def test_no_two_blocks_share_memory(target: tuple[Any, ...], largest: int) -> None:
    allocator, tagger = target

    replay(churn(2026, largest), allocator, passes=2, tagger=tagger)

    assert allocator.statistics().allocated_bytes.all.current == 0


def test_growing_volumes_share_no_memory_where_they_nearly_fill_it(target: tuple[Any, ...]) -> None:
    """Two volumes that grow in turn: no contiguous range is free, although there is room."""
    allocator, tagger = target
    live, tag = [], 0
    for nbytes in [size * MIB for size in range(10, 100, 6)]:
        tag += 1
        try:
            block = allocator.malloc(nbytes)
        except OutOfMemoryError:
            break
        tagger.write(block, tag)
        live.append((block, tag))
        if len(live) > 2:
            tagger.check(*live[0])
            allocator.free(live.pop(0)[0])
    for block, number in live:
        tagger.check(block, number)
        allocator.free(block)
    tagger.finish()

    assert tag > 10


def test_a_tag_that_was_overwritten_is_told(target: tuple[Any, ...]) -> None:
    allocator, tagger = target
    block = allocator.malloc(4096)
    tagger.write(block, 7)

    def look() -> None:
        tagger.check(block, 8)
        tagger.finish()

    with pytest.raises(AssertionError, match="two blocks share memory"):
        look()

    allocator.free(block)
