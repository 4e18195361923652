"""How the allocator's parts hang together: how far a first miss travels, and who holds whom."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import cuassay.memory
from cuassay.memory import CachingAllocator, IntegerSource

MIB = 2**20
ROOM = str(Path(cuassay.memory.__file__).parent)


@pytest.fixture(autouse=True, scope="module")
def watched() -> None:
    """Nobody demands locks here: that would be calls too."""


class Hops:
    """Counts calls from one file of the room into another."""

    def __init__(self) -> None:
        self.count = 0
        self._files: list[str] = []

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if not name.startswith(ROOM):
            return
        if event == "call":
            self.count += bool(self._files) and self._files[-1] != name
            self._files.append(name)
        elif event == "return" and self._files:
            self._files.pop()


@pytest.mark.parametrize("nbytes", [1000, 4 * MIB], ids=["small", "large"])
@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_a_first_miss_makes_fewer_than_30_hops_between_files(nbytes: int, granularity: int) -> None:
    allocator, hops = CachingAllocator(IntegerSource(granularity=granularity), config=""), Hops()
    former = sys.getprofile()

    sys.setprofile(hops.see)
    try:
        allocator.malloc(nbytes)
    finally:
        sys.setprofile(former)

    assert 10 < hops.count < 30


def test_no_part_holds_the_allocator() -> None:
    allocator = CachingAllocator(IntegerSource(), config="")
    parts = allocator.heap, allocator.counters, allocator.cutter, allocator.reclaimer
    stores = allocator.segment_store, allocator.page_store

    for part in (*parts, *stores):
        held = [getattr(value, "__self__", value) for value in vars(part).values()]
        assert not any(value is allocator for value in held)


@pytest.mark.parametrize(("granularity", "has_pages"), [(0, False), (2 * MIB, True)], ids=["segments", "pages"])
def test_pages_have_a_store_only_where_a_source_has_them(granularity: int, has_pages: bool) -> None:
    allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")

    assert (allocator.page_store is not None) == has_pages


def test_a_private_pool_brings_the_page_store_with_its_source() -> None:
    allocator = CachingAllocator(IntegerSource(granularity=0), config="")
    source = IntegerSource(granularity=2 * MIB)
    pool = allocator.create_pool(source=source)

    block = allocator.stream_pool(0, pool).malloc(4 * MIB)

    assert allocator.page_store is not None
    assert (source.maps, source.reserves) == (1, 0)
    assert source.physical(block.address, block.nbytes)


def test_an_allocator_can_be_given_its_own_steps() -> None:
    asked: list[int] = []
    allocator = CachingAllocator(
        IntegerSource(MIB), config="", oom_ladder=(lambda _, request: asked.append(request.nbytes),)
    )

    with pytest.raises(MemoryError):
        allocator.malloc(4 * MIB)

    assert asked == [4 * MIB]
