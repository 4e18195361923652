"""Statistics bear torch's names, count as torch does, and are frozen; a snapshot is plain data in torch's schema."""

from __future__ import annotations

import dataclasses

import pytest

from cuassay.errors import ArgumentError
from cuassay.memory import CachingAllocator, IntegerSource
from cuassay.memory.summary import summary
from cuassay.memory.workloads import dynamic_batch

KIB, MIB = 2**10, 2**20

#: Of torch.cuda.memory_stats: nine quantities by pool, two without, seven counters.
BY_POOL = (
    "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes "
    "requested_bytes"
).split()
SCALARS = (
    "num_alloc_retries num_ooms max_split_size num_sync_all_streams num_device_alloc num_device_free num_oom_rejections"
).split()


def figure(allocator: CachingAllocator, key: str) -> int:
    return allocator.statistics().flat()[key]


def test_the_keys_are_torchs(allocator: CachingAllocator) -> None:
    metrics = ("current", "peak", "allocated", "freed")
    expected = {f"{q}.{pool}.{m}" for q in BY_POOL for pool in ("all", "small_pool", "large_pool") for m in metrics}
    expected |= {f"oversize_{what}.{m}" for what in ("allocations", "segments") for m in metrics}

    assert set(allocator.statistics().flat()) == expected | set(SCALARS)
    assert allocator.statistics().flat()["max_split_size"] == -1


def test_private_pools_are_told_by_their_id(allocator: CachingAllocator) -> None:
    pool = allocator.create_pool()
    allocator.stream_pool(0, pool).malloc(1)

    assert figure(allocator, f"reserved_bytes_by_private_pools.0_{pool.id[1]}") == 2 * MIB


def test_a_record_does_not_change(allocator: CachingAllocator) -> None:
    before = allocator.statistics()
    allocator.malloc(4096)

    assert before.allocation.all.current == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.num_ooms = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("nbytes", "pool", "other"),
    [(1000, "small_pool", "large_pool"), (3 * MIB, "large_pool", "small_pool")],
)
def test_each_pool_has_its_own_figures(allocator: CachingAllocator, nbytes: int, pool: str, other: str) -> None:
    allocator.malloc(nbytes)

    assert figure(allocator, f"requested_bytes.{pool}.current") == nbytes
    assert figure(allocator, f"allocated_bytes.{pool}.current") == -(-nbytes // 512) * 512
    assert figure(allocator, f"allocation.{other}.allocated") == 0


def test_the_peak_is_one_that_was_reached(allocator: CachingAllocator) -> None:
    for _ in range(3):
        first = allocator.malloc(1024)
        allocator.free(first)
        second = allocator.malloc(2048)
        allocator.free(second)

    assert figure(allocator, "allocated_bytes.all.peak") == 2048
    assert figure(allocator, "allocation.all.peak") == 1


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_what_is_asked_for_has_its_peak_where_the_bytes_stay_the_same(granularity: int) -> None:
    allocator = CachingAllocator(IntegerSource(granularity=granularity))
    for nbytes in (1, 400, 300):
        allocator.free(allocator.malloc(nbytes))

    assert figure(allocator, "requested_bytes.all.peak") == 400
    assert figure(allocator, "allocated_bytes.all.peak") == 512


def test_totals_are_of_the_bytes_that_each_use_had(allocator: CachingAllocator) -> None:
    for nbytes in (1024, 4096, 2048, 4096):
        allocator.free(allocator.malloc(nbytes))

    assert figure(allocator, "allocated_bytes.all.allocated") == 1024 + 4096 + 2048 + 4096
    assert figure(allocator, "requested_bytes.all.freed") == 1024 + 4096 + 2048 + 4096


@pytest.mark.parametrize("is_recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("malloc", ["allocator", "stream_pool"])
def test_hits_are_counted(allocator: CachingAllocator, malloc: str, is_recorded: bool) -> None:
    if is_recorded:
        allocator.record_history()
    asked = allocator if malloc == "allocator" else allocator.stream_pool(0)
    for _ in range(10):
        allocator.free(asked.malloc(4096))

    assert figure(allocator, "allocation.all.allocated") == 10
    assert figure(allocator, "allocated_bytes.all.freed") == 10 * 4096
    assert figure(allocator, "num_device_alloc") == 1


def test_calls_that_take_and_release_pages_are_counted() -> None:
    allocator = CachingAllocator(IntegerSource(granularity=2 * MIB), config="")
    for _ in range(3):
        allocator.free(allocator.malloc(4 * MIB))
        allocator.empty_cache()

    assert (figure(allocator, "num_device_alloc"), figure(allocator, "num_device_free")) == (3, 3)


def test_totals_begin_again(allocator: CachingAllocator) -> None:
    kept = allocator.malloc(4096)
    allocator.reset_accumulated_stats()
    allocator.free(kept)

    assert figure(allocator, "allocation.all.allocated") == 0
    assert figure(allocator, "allocation.all.freed") == 1
    assert figure(allocator, "segment.all.allocated") == 0


def test_peaks_begin_again_at_what_is_live(allocator: CachingAllocator) -> None:
    kept, other = allocator.malloc(4096), allocator.malloc(8192)
    allocator.free(other)
    allocator.reset_peak_stats()

    assert figure(allocator, "allocated_bytes.all.peak") == kept.nbytes
    allocator.malloc(8192)
    assert figure(allocator, "allocated_bytes.all.peak") == 3 * 4096


def test_free_parts_of_split_segments_are_inactive_splits(allocator: CachingAllocator) -> None:
    allocator.malloc(512 * KIB)

    assert figure(allocator, "inactive_split.all.current") == 1
    assert figure(allocator, "inactive_split_bytes.small_pool.current") == 1536 * KIB


#: What is live at once, step after step. In the last step one figure alone is above its former peak.
PEAKS = {
    "small blocks": [[1024], [3 * MIB] * 2, [1, 1]],
    "small bytes": [[1024, 400], [3 * MIB] * 2, [513, 513]],
    "small bytes asked for": [[1], [3 * MIB], [400]],
    "blocks": [[1, 1], [3 * MIB] * 2, [1, 1, 3 * MIB]],
    "bytes": [[1024] * 2, [512, 512, 3 * MIB + 512], [513, 513, 3 * MIB + 1]],
    "bytes asked for": [[512], [3 * MIB + 512], [1, 3 * MIB + 1], [512, 3 * MIB + 512]],
}


@pytest.mark.parametrize("steps", PEAKS.values(), ids=PEAKS)
def test_each_peak_is_the_most_that_was_live_at_once(allocator: CachingAllocator, steps: list[list[int]]) -> None:
    for sizes in steps:
        for block in [allocator.malloc(nbytes) for nbytes in sizes]:
            allocator.free(block)
        allocator.empty_cache()

    for pool, low, high in (("small_pool", 0, MIB), ("large_pool", MIB, 4 * MIB), ("all", 0, 4 * MIB)):
        live = [[nbytes for nbytes in sizes if low < nbytes <= high] for sizes in steps]
        count, nbytes = max(map(len, live)), max(sum(-(-size // 512) * 512 for size in sizes) for sizes in live)
        assert {figure(allocator, f"{name}.{pool}.peak") for name in ("allocation", "active")} == {count}
        assert {figure(allocator, f"{name}_bytes.{pool}.peak") for name in ("allocated", "active")} == {nbytes}
        assert figure(allocator, f"requested_bytes.{pool}.peak") == max(map(sum, live))


def test_the_peak_of_oversize_blocks_is_the_most_that_were_live_at_once() -> None:
    allocator = CachingAllocator(IntegerSource(granularity=0), config="max_split_size_mb:20")
    for _ in range(3):
        allocator.free(allocator.malloc(40 * MIB))
        allocator.empty_cache()

    found = allocator.statistics().oversize_allocations
    assert (found.current, found.peak, found.allocated, found.freed) == (0, 1, 3, 3)


def test_oversize_blocks_and_segments_are_counted() -> None:
    allocator = CachingAllocator(IntegerSource(granularity=0), config="max_split_size_mb:20")
    blocks = [allocator.malloc(nbytes * MIB) for nbytes in (12, 20, 30)]
    allocator.free(blocks[2])

    figures = allocator.statistics()

    assert (figures.oversize_allocations.current, figures.oversize_allocations.peak) == (1, 2)
    assert figures.oversize_segments.current == 2


def test_a_segment_is_counted_out_as_it_was_counted_in() -> None:
    allocator = CachingAllocator(IntegerSource(granularity=0), config="")
    before = allocator.malloc(30 * MIB)
    allocator.configure("max_split_size_mb:20")
    after = allocator.malloc(40 * MIB)

    for block, left in ((before, 1), (after, 0)):
        allocator.free(block)
        allocator.empty_cache()
        assert allocator.statistics().oversize_segments.current == left


def test_a_block_is_oversize_by_the_bytes_that_it_has() -> None:
    allocator = CachingAllocator(IntegerSource(granularity=0), config="max_split_size_mb:20")

    block = allocator.malloc(20 * MIB - 512 * KIB)  # the rest is too little for another

    assert (block.nbytes, allocator.statistics().oversize_allocations.current) == (20 * MIB, 1)


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_a_block_is_oversize_by_the_limit_there_is_when_it_is_given_out(granularity: int) -> None:
    allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
    allocator.free(allocator.malloc(24 * MIB))
    allocator.reset_peak_stats()  # what is free may be had by any request from here
    allocator.configure("max_split_size_mb:20")

    allocator.malloc(24 * MIB)

    assert allocator.statistics().oversize_allocations.current == 1


def test_a_parked_block_that_is_made_longer_may_become_oversize() -> None:
    allocator = CachingAllocator(IntegerSource(), config="max_split_size_mb:20")
    allocator.free(allocator.malloc(64 * MIB))
    allocator.free(allocator.malloc(3 * MIB))

    allocator.malloc(30 * MIB)

    figures = allocator.statistics().oversize_allocations
    assert (figures.current, figures.allocated) == (1, 2)


def test_the_peak_of_what_is_reserved_begins_again_too(allocator: CachingAllocator) -> None:
    allocator.free(allocator.malloc(30 * MIB))
    allocator.empty_cache()
    assert figure(allocator, "reserved_bytes.all.peak") >= 30 * MIB

    allocator.reset_peak_stats()

    assert figure(allocator, "reserved_bytes.all.peak") == figure(allocator, "reserved_bytes.all.current") == 0
    assert figure(allocator, "segment.all.peak") == 0


@pytest.mark.parametrize("abbreviated", [False, True])
def test_a_summary_is_a_table_whose_lines_have_one_width(allocator: CachingAllocator, abbreviated: bool) -> None:
    block = allocator.malloc(3 * MIB)

    lines = summary(allocator.statistics(), "sim:0", abbreviated=abbreviated).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert ("large pool" in "".join(lines).lower()) != abbreviated
    assert any("3 MiB" in line for line in lines)
    allocator.free(block)


def test_a_part_of_a_span_that_has_no_page_is_nowhere() -> None:
    source = IntegerSource(granularity=2 * MIB)
    address = source.span(8 * MIB, 0)
    source.map(address, [2 * MIB])

    assert source.physical(address, 2 * MIB) == [(address, address + 2 * MIB)]
    with pytest.raises(ArgumentError, match="has memory in part only; map pages first"):
        source.physical(address, 4 * MIB)


def test_each_step_on_batches_of_any_size_gives_back_what_it_took() -> None:
    live: dict[int, int] = {}
    lows, last = [], 0
    for event in dynamic_batch(0, steps=6, layers=2):
        if event.is_malloc:
            live[event.id] = event.nbytes
        else:
            del live[event.id]
        if not event.is_malloc and sum(live.values()) <= last:
            lows.append(sum(live.values()))
        if len(live) == 2 * 3 * 3:
            last = sum(live.values())

    assert lows.count(last) == 6
