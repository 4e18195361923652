"""The caching allocator over a device's memory: the same behaviour on every kind that has one."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cuassay import Device
from cuassay.core.protocols import DeviceMemory
from cuassay.errors import ArgumentError, OutOfMemoryError, SettingError
from cuassay.memory import CachingAllocator
from cuassay.testing import devices as on
from cuassay.testing import exclusive

MIB = 2**20
TOTAL = 256 * MIB

pytestmark = on("sim:*", "cuda:*")


@pytest.fixture(params=["", "expandable_segments:False"], ids=["pages", "segments"])
def allocator(device: Device, backend: Any, request: pytest.FixtureRequest) -> Iterator[CachingAllocator]:
    """An allocator of the test's own, that may take 256 MiB of the device, in pages or in segments."""
    make, _ = backend.replay_target(device.index)
    allocator = CachingAllocator(make(), total=TOTAL, config=request.param, name=str(device))
    yield allocator
    backend.synchronize(device.index)
    gc.collect()
    allocator.empty_cache()


@pytest.fixture
def streams(device: Device, backend: Any) -> Iterator[tuple[Any, Any]]:
    """Two streams of their own."""
    pair = backend.new_stream(device.index), backend.new_stream(device.index)
    yield pair
    for stream in pair:
        stream.synchronize()


def test_the_backend_is_what_the_protocol_says(backend: Any, device: Device) -> None:
    assert isinstance(backend, DeviceMemory)
    assert isinstance(backend.allocator(device.index), CachingAllocator)


class TestReuse:
    def test_a_hit_gives_the_same_memory_without_the_driver(self, allocator: CachingAllocator) -> None:
        first = allocator.malloc(3 * MIB)
        address = first.address
        allocator.free(first)
        calls = allocator.driver_calls

        again = allocator.malloc(3 * MIB)

        assert again.address == address
        assert allocator.driver_calls == calls
        allocator.free(again)

    def test_small_blocks_lie_side_by_side_in_one_segment(self, allocator: CachingAllocator) -> None:
        low, high = allocator.malloc(512), allocator.malloc(512)

        assert high.address == low.address + 512
        assert high.segment is low.segment
        allocator.free(low)
        allocator.free(high)

    def test_neighbours_merge_into_a_larger_block(self, allocator: CachingAllocator) -> None:
        pair = [allocator.malloc(6 * MIB), allocator.malloc(6 * MIB)]
        lowest = min(block.address for block in pair)
        for block in pair:
            allocator.free(block)
        calls = allocator.driver_calls

        whole = allocator.malloc(12 * MIB)

        assert (whole.address, allocator.driver_calls) == (lowest, calls)
        allocator.free(whole)

    def test_what_is_emptied_is_the_devices_again(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(64 * MIB)
        taken = allocator.statistics().reserved_bytes.all.current
        allocator.free(block)

        given = allocator.empty_cache()

        assert taken == given == 64 * MIB
        assert allocator.statistics().reserved_bytes.all.current == 0

    @pytest.mark.parametrize("nbytes", [0, 1, 511, 512, 513, MIB, MIB + 1, 10 * MIB, 33 * MIB + 7])
    def test_a_block_is_aligned_and_large_enough(self, allocator: CachingAllocator, nbytes: int) -> None:
        block = allocator.malloc(nbytes)

        assert block.address % 512 == 0
        assert block.nbytes >= nbytes
        allocator.free(block)


class TestStreams:
    def test_memory_of_one_stream_is_not_given_to_another(
        self, allocator: CachingAllocator, backend: Any, streams: tuple[Any, ...]
    ) -> None:
        one, other = map(backend.stream_number, streams)
        block = allocator.malloc(4 * MIB, one)
        address = block.address
        allocator.free(block)

        elsewhere, here = allocator.malloc(4 * MIB, other), allocator.malloc(4 * MIB, one)

        assert elsewhere.address != address
        assert here.address == address
        allocator.free(elsewhere)
        allocator.free(here)

    @exclusive
    def test_a_block_waits_for_the_streams_that_used_it(
        self, allocator: CachingAllocator, backend: Any, device: Device, streams: tuple[Any, ...]
    ) -> None:
        one, other = map(backend.stream_number, streams)
        block = allocator.malloc(4 * MIB, one)
        with backend.use_stream(streams[1]):
            backend.spin(device.index, 20_000_000)
        allocator.record_stream(block, other)

        allocator.free(block)

        assert block.is_pending
        streams[1].synchronize()
        again = allocator.malloc(4 * MIB, one)
        assert not again.is_pending
        allocator.free(again)
        allocator.empty_cache()
        assert allocator.statistics().active_bytes.all.current == 0

    def test_the_stream_of_the_block_itself_needs_no_wait(
        self, allocator: CachingAllocator, backend: Any, streams: tuple[Any, ...]
    ) -> None:
        one = backend.stream_number(streams[0])
        block = allocator.malloc(4 * MIB, one)
        allocator.record_stream(block, one)

        allocator.free(block)

        assert not block.is_pending


class TestPools:
    def test_a_pool_is_for_this_thread_alone(self, allocator: CachingAllocator) -> None:
        pool, seen = allocator.create_pool(), []

        def elsewhere() -> None:
            block = allocator.malloc(MIB)
            seen.append(block.stream_pool.pool.id)
            allocator.free(block)

        with allocator.use_pool(pool):
            block = allocator.malloc(MIB)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()

        assert block.stream_pool.pool is pool
        assert seen == [(0, 0)]
        allocator.free(block)
        allocator.release_pool(pool)

    def test_what_it_holds_stays_until_its_owner_is_gone(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool()
        with allocator.use_pool(pool):
            allocator.free(allocator.malloc(4 * MIB))

        kept = allocator.empty_cache()
        held = allocator.statistics().reserved_bytes.all.current
        allocator.release_pool(pool)

        assert kept == 0
        assert allocator.empty_cache() == held > 0

    def test_it_lends_when_nothing_else_is_left_if_it_may(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool(use_on_oom=True)
        with allocator.use_pool(pool):
            allocator.free(allocator.malloc(200 * MIB))

        block = allocator.malloc(180 * MIB)

        assert block.stream_pool.pool is pool
        allocator.free(block)
        allocator.release_pool(pool)

    def test_without_splitting_each_segment_serves_one(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool(no_split=True)
        with allocator.use_pool(pool):
            blocks = [allocator.malloc(MIB) for _ in range(3)]

        assert len({id(block.segment) for block in blocks}) == 3
        for block in blocks:
            allocator.free(block)
        allocator.release_pool(pool)

    def test_while_work_is_captured_nothing_goes_back(self, allocator: CachingAllocator) -> None:
        allocator.free(allocator.malloc(8 * MIB))

        with allocator.capturing():
            assert allocator.empty_cache() == 0

        assert allocator.empty_cache() > 0


class TestOutOfMemory:
    def test_the_error_says_what_was_asked_and_life_goes_on(self, allocator: CachingAllocator, device: Device) -> None:
        held = allocator.malloc(200 * MIB)

        with pytest.raises(
            OutOfMemoryError, match=rf"{device} has no room for 104,857,600 bytes \(100 MiB\)"
        ) as caught:
            allocator.malloc(100 * MIB)

        assert isinstance(caught.value, MemoryError)
        allocator.free(held)
        allocator.free(allocator.malloc(100 * MIB))
        assert allocator.statistics().num_ooms == 1

    def test_callbacks_come_first(self, allocator: CachingAllocator) -> None:
        held = [allocator.malloc(200 * MIB)]

        def let_go(nbytes: int) -> bool:
            allocator.free(held.pop())
            return True

        allocator.free_memory_callbacks.append(let_go)

        block = allocator.malloc(100 * MIB)

        assert not held
        allocator.free(block)

    def test_what_is_free_elsewhere_is_given_back_and_taken_again(
        self, allocator: CachingAllocator, backend: Any, streams: tuple[Any, ...]
    ) -> None:
        one, other = map(backend.stream_number, streams)
        allocator.free(allocator.malloc(200 * MIB, one))

        block = allocator.malloc(100 * MIB, other)

        assert block.stream == other
        allocator.free(block)

    def test_the_fraction_is_the_limit(self, allocator: CachingAllocator) -> None:
        allocator.configure("per_process_memory_fraction:0.25")

        with pytest.raises(OutOfMemoryError, match="raise per_process_memory_fraction"):
            allocator.malloc(65 * MIB)

        allocator.configure("per_process_memory_fraction:1")
        allocator.free(allocator.malloc(65 * MIB))

    def test_observers_are_told(self, allocator: CachingAllocator) -> None:
        told: list[OutOfMemoryError] = []
        allocator.oom_observers.append(told.append)

        with pytest.raises(OutOfMemoryError) as caught:
            allocator.malloc(2 * TOTAL)

        assert told == [caught.value]


class TestBadInput:
    @pytest.mark.parametrize("nbytes", [-1, 1.5, "1", None], ids=repr)
    def test_what_is_no_size_is_refused(self, allocator: CachingAllocator, nbytes: float | str | None) -> None:
        with pytest.raises(ArgumentError, match="the size of a block must be an int"):
            allocator.malloc(nbytes)

        assert allocator.statistics().allocation.all.allocated == 0

    def test_an_absurd_size_is_out_of_memory(self, allocator: CachingAllocator) -> None:
        with pytest.raises(OutOfMemoryError, match="it can never fit"):
            allocator.malloc(2**62)

        assert allocator.statistics().reserved_bytes.all.current == 0

    def test_a_second_free_is_refused_and_changes_nothing(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(MIB)
        allocator.free(block)
        before = allocator.statistics()

        with pytest.raises(ArgumentError, match="freed twice"):
            allocator.free(block)

        assert allocator.statistics() == before

    def test_a_foreign_address_is_refused(self, allocator: CachingAllocator) -> None:
        with pytest.raises(ArgumentError, match="no live block begins at 0x1234"):
            allocator.find(0x1234)

    def test_a_bad_option_is_refused_and_the_others_stay(self, allocator: CachingAllocator) -> None:
        allocator.configure("max_split_size_mb:64")

        with pytest.raises(SettingError, match="per_process_memory_fraction must be a share"):
            allocator.configure("max_split_size_mb:32,per_process_memory_fraction:2")

        assert allocator.config.max_split_size == 64 * MIB


class TestFinalisers:
    def test_a_block_freed_by_a_finaliser_within_malloc_is_safe(self, allocator: CachingAllocator) -> None:
        class Owner:
            def __init__(self) -> None:
                self.block, self.me = allocator.malloc(3 * MIB), self

            def __del__(self) -> None:
                allocator.free(self.block)

        def collect(nbytes: int) -> bool:
            return gc.collect() > 0

        allocator.free_memory_callbacks.append(collect)
        for _ in range(60):
            Owner()

        block = allocator.malloc(200 * MIB)

        assert block.is_live
        allocator.free(block)
        gc.collect()
        assert allocator.statistics().allocated_bytes.all.current == 0


class TestStatistics:
    def test_they_agree_with_the_snapshot(self, allocator: CachingAllocator) -> None:
        blocks = [allocator.malloc(size) for size in (100, MIB, 3 * MIB, 40 * MIB)]
        allocator.free(blocks.pop(2))

        flat, segments = allocator.statistics().flat(), allocator.snapshot()["segments"]

        assert flat["allocation.all.current"] == 3
        assert flat["requested_bytes.all.current"] == 100 + 41 * MIB
        assert flat["allocated_bytes.all.current"] == sum(segment["allocated_size"] for segment in segments)
        assert flat["reserved_bytes.all.current"] >= flat["active_bytes.all.current"]
        for block in blocks:
            allocator.free(block)

    def test_peaks_and_totals_start_again_when_reset(self, allocator: CachingAllocator) -> None:
        allocator.free(allocator.malloc(8 * MIB))

        allocator.reset_peak_stats()
        allocator.reset_accumulated_stats()

        flat = allocator.statistics().flat()
        assert flat["allocated_bytes.all.peak"] == flat["allocated_bytes.all.allocated"] == 0
