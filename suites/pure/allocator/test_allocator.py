"""What the caching allocator reuses, splits, merges and gives back; bad input changes nothing."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from cuassay.errors import ArgumentError, CapabilityError, OutOfMemoryError
from cuassay.memory import CachingAllocator, IntegerSource
from cuassay.memory.host import HostSource

KIB, MIB = 2**10, 2**20


@pytest.fixture
def source() -> IntegerSource:
    return IntegerSource(1024 * MIB, is_lazy=True, granularity=0)


class TestReuse:
    @pytest.mark.parametrize("nbytes", [0, 1, 4096, MIB, MIB + 1, 30 * MIB])
    def test_the_same_size_gives_the_same_block(self, allocator: CachingAllocator, nbytes: int) -> None:
        block = allocator.malloc(nbytes)
        address = block.address
        allocator.free(block)

        assert allocator.malloc(nbytes).address == address

    def test_another_size_takes_the_smallest_that_fits(self, allocator: CachingAllocator) -> None:
        sizes = (40 * MIB, 12 * MIB, 20 * MIB)
        blocks = [allocator.malloc(nbytes) for nbytes in sizes]
        for block in blocks:
            allocator.free(block)

        assert allocator.malloc(11 * MIB).segment is blocks[1].segment

    def test_memory_stays_with_its_stream(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        allocator.free(allocator.malloc(12 * MIB, stream=1))

        assert allocator.malloc(12 * MIB, stream=2).stream == 2
        assert source.reserves == 2

    def test_freed_neighbours_serve_a_larger_request(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        blocks = [allocator.malloc(512 * KIB) for _ in range(4)]
        for block in blocks:
            allocator.free(block)

        allocator.malloc(MIB)
        allocator.malloc(900 * KIB)

        assert source.reserves == 1

    @pytest.mark.parametrize(
        ("nbytes", "reserved"),
        [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (11 * MIB, 12)],
    )
    def test_segments_are_as_large_as_torchs(self, allocator: CachingAllocator, nbytes: int, reserved: int) -> None:
        allocator.malloc(nbytes)

        assert allocator.statistics().reserved_bytes.all.current == reserved * MIB

    def test_a_small_segment_is_used_to_its_last_512_bytes(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        for nbytes in (MIB, MIB - 512, 512):
            allocator.malloc(nbytes)

        assert source.reserves == 1

    @pytest.mark.parametrize(("rest", "pieces"), [(MIB, 1), (MIB + 512, 2)])
    def test_a_large_block_keeps_a_rest_of_up_to_1_mib(
        self, allocator: CachingAllocator, rest: int, pieces: int
    ) -> None:
        segment = allocator.malloc(20 * MIB - rest).segment

        assert (segment.nbytes, len(list(segment))) == (20 * MIB, pieces)

    @pytest.mark.parametrize("users", [(), (7,)], ids=["one stream", "used by another"])
    def test_sizes_that_no_block_serves_are_forgotten(
        self, allocator: CachingAllocator, users: tuple[int, ...]
    ) -> None:
        kept = allocator.malloc(4096)
        for nbytes in range(1, 100_000, 100):
            block = allocator.malloc(nbytes)
            for user in users:
                allocator.record_stream(block, user)
            allocator.free(block)
        allocator.empty_cache()

        assert list(kept.stream_pool.quick) == [4096]

    @pytest.mark.parametrize(("first", "second"), [(3000, 9000), (9000, 3000)], ids=["longer", "shorter"])
    def test_at_the_peak_a_parked_block_is_made_longer_or_shorter(
        self, allocator: CachingAllocator, first: int, second: int
    ) -> None:
        block = allocator.malloc(first)
        address = block.address
        allocator.free(block)

        again = allocator.malloc(second)
        figures = allocator.statistics()

        assert (again.address, again.requested) == (address, second)
        assert again.nbytes == -(-second // 512) * 512
        assert figures.allocation.all.allocated == 2
        assert figures.allocation.all.freed == figures.allocation.all.peak == 1
        assert figures.requested_bytes.all.peak == max(first, second)
        assert figures.requested_bytes.all.allocated == first + second
        assert sum(one.nbytes for one in again.segment) == again.segment.nbytes
        assert list(again.stream_pool.quick) == [second]

    @pytest.mark.parametrize(
        ("former", "kept", "is_longer"),
        [
            ([[1000, 9000]], (), False),
            ([[9000], [3 * MIB] * 2], (), True),
            ([[1000] * 2, [3 * MIB] * 2], (), True),
            ([[1000, 9000], [6 * MIB]], (3 * MIB,), True),
            ([[512] * 3, [1000, 9000]], (3 * MIB,), True),
        ],
        ids=["below the peak", "most small blocks", "most small bytes", "most blocks", "most bytes"],
    )
    def test_a_parked_block_is_made_longer_only_at_a_peak(
        self, allocator: CachingAllocator, former: list[list[int]], kept: tuple[int, ...], is_longer: bool
    ) -> None:
        for sizes in former:  # live at once: they set the peaks
            for block in [allocator.malloc(nbytes) for nbytes in sizes]:
                allocator.free(block)
            allocator.empty_cache()
        live = [allocator.malloc(nbytes) for nbytes in kept]
        parked = allocator.malloc(1000)
        allocator.free(parked)

        assert (allocator.malloc(2000) is parked) is is_longer
        assert all(block.is_live for block in live)

    def test_a_parked_block_stays_where_another_range_fits_better(self, allocator: CachingAllocator) -> None:
        hole, kept = allocator.malloc(8192), allocator.malloc(512)
        address = hole.address
        allocator.free(hole)
        last = allocator.malloc(512)  # above the peak of two: what is parked is free for any request
        allocator.free(last)

        assert allocator.malloc(6000).address == address
        assert kept.is_live

    def test_a_finaliser_may_free_while_a_miss_is_under_way(self, source: IntegerSource) -> None:
        allocator = CachingAllocator(source)

        class Owner:
            def __init__(self, nbytes: int) -> None:
                self.block, self.cycle = allocator.malloc(nbytes), self

            def __del__(self) -> None:
                allocator.free(self.block)

        for nbytes in range(512, 512 * 3000, 512):
            Owner(nbytes)
        gc.collect()

        assert allocator.statistics().allocated_bytes.all.current == 0


class Segmented(HostSource):
    """A source that declares no granularity, and leaves everything about pages to its base."""

    def __init__(self) -> None:
        self.inside = IntegerSource()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)


class TestSourcesWithoutPages:
    def test_they_are_asked_for_segments(self) -> None:
        source: Any = Segmented()
        allocator = CachingAllocator(source, config="expandable_segments:True")

        blocks = [allocator.malloc(nbytes) for nbytes in (1000, 4 * MIB, 30 * MIB)]
        for block in blocks:
            allocator.free(block)

        assert (source.reserves, allocator.empty_cache()) == (3, 52 * MIB)

    @pytest.mark.parametrize(
        ("call", "given"), [("span", (1, 0)), ("map", (0, [1])), ("unmap", ([1],)), ("alias", ([1],))]
    )
    def test_what_asks_them_for_pages_is_told_what_to_do(self, call: str, given: tuple[Any, ...]) -> None:
        with pytest.raises(CapabilityError, match="has no pages; host memory is pinned in one piece: reserve segments"):
            getattr(Segmented(), call)(*given)


class TestOtherStreams:
    def test_a_block_in_use_elsewhere_is_not_reused_at_once(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        block = allocator.malloc(4096)
        allocator.record_stream(block, 7)
        allocator.free(block)
        source.complete(source.pending()[0])

        assert allocator.malloc(4096).segment is block.segment
        assert source.waits == []

    def test_the_stream_waits_on_the_device_rather_than_take_more(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        block = allocator.malloc(30 * MIB)
        allocator.record_stream(block, 7)
        allocator.free(block)
        (event,) = source.pending()

        allocator.malloc(30 * MIB)

        assert (source.waits, source.reserves) == ([(0, event)], 1)

    def test_its_own_stream_needs_no_event(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        block = allocator.malloc(4096, stream=3)
        allocator.record_stream(block, 3)
        allocator.free(block)

        assert source.pending() == ()

    def test_while_it_waits_it_is_active_but_not_allocated(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(4096)
        allocator.record_stream(block, 7)
        allocator.free(block)

        figures = allocator.statistics()

        assert (figures.allocation.all.current, figures.active.all.current) == (0, 1)
        assert allocator.snapshot()["segments"][0]["blocks"][0]["state"] == "active_pending_free"

    def test_the_most_that_was_active_outlasts_later_peaks_of_what_is_live(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        waiting = [allocator.malloc(4096) for _ in range(3)]
        for block in waiting:
            allocator.record_stream(block, 7)
            allocator.free(block)
        live = [allocator.malloc(4096), allocator.malloc(4096)]
        active = allocator.statistics().active.all.peak
        for event in source.pending():
            source.complete(event)
        allocator.empty_cache()  # looks at the events
        live += [allocator.malloc(4096), allocator.malloc(4096)]

        figures = allocator.statistics()

        assert (active, figures.active.all.peak, figures.active_bytes.all.peak) == (5, 5, 5 * 4096)
        assert (figures.allocation.all.peak, figures.allocated_bytes.all.peak) == (len(live), len(live) * 4096)

    def test_a_capture_records_no_event_until_it_ends(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        block = allocator.malloc(4096)
        allocator.record_stream(block, 7)

        with allocator.capturing():
            allocator.free(block)
            assert source.pending() == ()

        assert len(source.pending()) == 1

    def test_a_block_whose_users_cannot_be_marked_is_freed_and_marked_later(
        self, allocator: CachingAllocator, source: IntegerSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        block = allocator.malloc(4096)
        allocator.record_stream(block, 7)
        monkeypatch.setattr(source, "record", lambda stream: [][stream])

        with pytest.raises(IndexError):
            allocator.free(block)
        assert (block.is_live, block.state) == (False, "active_pending_free")
        monkeypatch.undo()

        assert allocator.empty_cache() > 0
        assert allocator.statistics().active_bytes.all.current == 0

    def test_a_block_whose_users_could_not_be_marked_serves_the_next_request(
        self, allocator: CachingAllocator, source: IntegerSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        block = allocator.malloc(30 * MIB)
        allocator.record_stream(block, 7)
        with monkeypatch.context() as failing:
            failing.setattr(source, "record", lambda stream: [][stream])
            with pytest.raises(IndexError):
                allocator.free(block)

        again = allocator.malloc(30 * MIB)

        assert (again.address, source.reserves) == (block.address, 1)
        assert [stream for stream, _ in source.waits] == [0]

    @pytest.mark.parametrize("call", ["query", "wait"])
    def test_a_source_that_fails_at_an_event_loses_no_block(
        self, allocator: CachingAllocator, source: IntegerSource, call: str
    ) -> None:
        block = allocator.malloc(30 * MIB)
        allocator.record_stream(block, 7)
        allocator.free(block)

        with pytest.MonkeyPatch.context() as failing:
            failing.setattr(source, call, lambda *given: {}[given])
            with pytest.raises(KeyError):
                allocator.malloc(30 * MIB)
        assert block.is_pending
        source.complete(*source.pending())

        assert allocator.malloc(30 * MIB).address == block.address

    @pytest.mark.parametrize("reached", [0, 1])
    def test_every_stream_that_used_it_is_waited_for(
        self, allocator: CachingAllocator, source: IntegerSource, reached: int
    ) -> None:
        block = allocator.malloc(30 * MIB, stream=3)
        for stream in (7, 8):
            allocator.record_stream(block, stream)
        allocator.free(block)
        events = source.pending()
        source.complete(events[reached])

        allocator.malloc(30 * MIB, stream=3)

        assert source.waits == [(3, event) for event in events]
        assert len(events) == 2

    def test_its_next_owner_has_users_of_its_own(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        block = allocator.malloc(30 * MIB)
        allocator.record_stream(block, 7)
        allocator.free(block)
        source.complete(*source.pending())
        again = allocator.malloc(30 * MIB)

        allocator.record_stream(again, 7)
        allocator.free(again)

        assert again.segment is block.segment
        assert len(source.pending()) == 1

    def test_without_users_the_next_owner_leaves_it_free(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        block = allocator.malloc(30 * MIB)
        allocator.record_stream(block, 7)
        allocator.free(block)
        source.complete(*source.pending())
        again = allocator.malloc(30 * MIB)

        allocator.free(again)

        assert again.segment is block.segment
        assert (again.state, again.events) == ("inactive", ())

    @pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
    def test_a_capture_waits_for_no_other_stream(self, granularity: int) -> None:
        source = IntegerSource(1024 * MIB, is_lazy=True, granularity=granularity)
        allocator = CachingAllocator(source, total=1024 * MIB, config="")
        block = allocator.malloc(30 * MIB)
        allocator.record_stream(block, 7)
        allocator.free(block)

        with allocator.capturing():
            taken = allocator.malloc(30 * MIB)
            allocator.empty_cache()

        assert taken.address != block.address
        assert (source.waits, allocator.statistics().num_sync_all_streams) == ([], 0)

    def test_of_nested_captures_the_outermost_ends_it(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        block = allocator.malloc(4096)
        allocator.record_stream(block, 7)

        with allocator.capturing():
            with allocator.capturing():
                allocator.free(block)
            within = source.pending()

        assert (within, len(source.pending())) == ((), 1)

    def test_a_capture_that_fails_is_over(self, allocator: CachingAllocator) -> None:
        allocator.free(allocator.malloc(30 * MIB))

        with pytest.raises(KeyError), allocator.capturing():
            raise KeyError

        assert allocator.empty_cache() == 30 * MIB


class TestGivingBack:
    def test_empty_cache_releases_free_segments_alone(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        kept = allocator.malloc(4096)
        allocator.free(allocator.malloc(30 * MIB))

        assert allocator.empty_cache() == 30 * MIB
        assert list(source.ranges) == [kept.segment.address]

    def test_nothing_goes_back_during_a_capture(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        allocator.free(allocator.malloc(30 * MIB))

        with allocator.capturing():
            assert allocator.empty_cache() == 0

        assert allocator.empty_cache() == 30 * MIB
        assert source.releases == 1

    def test_the_free_lock_holds_releases_off(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        allocator.free(allocator.malloc(30 * MIB))
        thread = threading.Thread(target=allocator.empty_cache)

        with allocator.free_lock():
            thread.start()
            thread.join(0.05)
            held = source.releases
        thread.join()

        assert (held, source.releases) == (0, 1)

    @pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
    def test_each_segment_that_comes_or_goes_is_one_change(self, granularity: int) -> None:
        allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
        blocks = [allocator.malloc(4 * MIB, stream) for stream in range(2)]
        come = allocator.heap.changes
        for block in blocks:
            allocator.free(block)
        allocator.empty_cache()

        assert (come, allocator.heap.changes) == (2, 4)

    def test_old_segments_go_above_the_threshold(self, source: IntegerSource) -> None:
        config = "garbage_collection_threshold:0.5"
        allocator = CachingAllocator(source, total=100 * MIB, config=config)
        old = allocator.malloc(20 * MIB, stream=1)
        allocator.free(old)
        for stream in range(2, 5):
            allocator.malloc(12 * MIB, stream=stream)

        assert allocator.statistics().reserved_bytes.all.current == 36 * MIB

    @pytest.mark.parametrize(("nbytes", "stays"), [(30 * MIB, True), (32 * MIB, False)], ids=["at it", "above it"])
    def test_free_segments_stay_up_to_the_threshold_itself(
        self, source: IntegerSource, nbytes: int, stays: bool
    ) -> None:
        allocator = CachingAllocator(source, total=100 * MIB, config="garbage_collection_threshold:0.5")
        free = allocator.malloc(20 * MIB, stream=1)
        allocator.free(free)
        allocator.reset_peak_stats()  # free segments are known as such from here

        allocator.malloc(nbytes, stream=2)

        assert (free.segment in allocator.segments()) is stays

    @pytest.mark.parametrize("users", [(), (7,)], ids=["one stream", "used by another"])
    def test_of_free_segments_the_young_ones_stay(self, source: IntegerSource, users: tuple[int, ...]) -> None:
        allocator = CachingAllocator(source, total=100 * MIB, config="garbage_collection_threshold:0.5")
        old, young = allocator.malloc(20 * MIB, stream=1), allocator.malloc(20 * MIB, stream=2)
        for user in users:
            allocator.record_stream(young, user)
        allocator.free(old)
        allocator.reset_peak_stats()  # free segments are known as such from here
        for nbytes in range(512, 4096, 512):
            allocator.malloc(nbytes, stream=3)
        allocator.free(young)
        for event in source.pending():
            source.complete(event)

        allocator.malloc(22 * MIB, stream=2)

        assert old.segment not in allocator.segments()
        assert young.segment in allocator.segments()


class TestOversizeBlocks:
    @pytest.fixture
    def allocator(self, source: IntegerSource) -> CachingAllocator:
        return CachingAllocator(source, total=1024 * MIB, config="max_split_size_mb:32")

    def test_they_are_not_split(self, allocator: CachingAllocator) -> None:
        allocator.free(allocator.malloc(40 * MIB))

        block = allocator.malloc(36 * MIB)

        assert (block.nbytes, block.is_whole) == (40 * MIB, True)

    def test_a_smaller_request_splits_a_segment_as_large(self, source: IntegerSource) -> None:
        allocator = CachingAllocator(source, config="max_split_size_mb:20")

        blocks = [allocator.malloc(5 * MIB) for _ in range(4)]

        assert {block.segment.nbytes for block in blocks} == {20 * MIB}
        assert source.reserves == 1

    def test_they_serve_no_smaller_requests(self, allocator: CachingAllocator) -> None:
        large = allocator.malloc(40 * MIB)
        allocator.free(large)

        assert allocator.malloc(30 * MIB).segment is not large.segment


class TestPrivatePools:
    def test_a_pool_shares_nothing(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool()
        allocator.free(allocator.malloc(4096))

        with allocator.use_pool(pool):
            inside = allocator.malloc(4096)
        outside = allocator.malloc(4096)

        assert inside.segment is not outside.segment
        assert allocator.statistics().reserved_bytes_by_private_pools == {pool.id: 2 * MIB}

    def test_the_inner_of_two_pools_wins_and_the_outer_resumes(self, allocator: CachingAllocator) -> None:
        outer, inner = allocator.create_pool(), allocator.create_pool()

        with allocator.use_pool(outer):
            with allocator.use_pool(inner):
                first = allocator.malloc(512)
            second = allocator.malloc(512)

        assert (first.stream_pool.pool, second.stream_pool.pool) == (inner, outer)

    def test_after_an_error_the_former_pool_serves_again(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool()

        with pytest.raises(KeyError), allocator.use_pool(pool):
            raise KeyError

        assert not allocator.malloc(512).stream_pool.pool.is_private
        assert pool.use_count == 1

    def test_a_pool_serves_its_own_thread_alone(self, allocator: CachingAllocator) -> None:
        blocks: list[Any] = []
        pool = allocator.create_pool()

        with allocator.use_pool(pool):
            thread = threading.Thread(target=lambda: blocks.append(allocator.malloc(512)))
            thread.start()
            thread.join()

        assert not blocks[0].stream_pool.pool.is_private

    @pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
    def test_its_segments_go_once_it_has_no_owner(self, granularity: int) -> None:
        allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
        pool = allocator.create_pool()
        allocator.free(allocator.stream_pool(0, pool).malloc(4096))
        kept = allocator.empty_cache()

        allocator.release_pool(pool)

        assert (kept, allocator.empty_cache()) == (0, 2 * MIB)
        assert allocator.statistics().reserved_bytes_by_private_pools == {}

    @pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
    @pytest.mark.parametrize("place", [0, 1, 2], ids=["default", "first", "second"])
    def test_emptying_one_pool_keeps_the_memory_of_the_others(self, granularity: int, place: int) -> None:
        allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
        pools = [allocator.stream_pool(0).pool, allocator.create_pool(), allocator.create_pool()]
        sizes = [20 * MIB, 30 * MIB, 40 * MIB]
        for pool, nbytes in zip(pools, sizes, strict=True):
            allocator.free(allocator.stream_pool(0, pool).malloc(nbytes))
        for pool in pools[1:]:
            allocator.release_pool(pool)

        released = allocator.empty_cache(pool=pools[place])

        assert released == sizes[place]
        assert allocator.empty_cache() == sum(sizes) - sizes[place]

    def test_blocks_outlive_their_pool(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool()
        block = allocator.stream_pool(0, pool).malloc(4096)
        allocator.release_pool(pool)
        assert allocator.empty_cache() == 0

        allocator.free(block)

        assert allocator.empty_cache() == 2 * MIB

    def test_without_splitting_each_request_has_its_segment(self, allocator: CachingAllocator) -> None:
        stream_pool = allocator.stream_pool(0, allocator.create_pool(no_split=True))

        assert stream_pool.malloc(512).segment is not stream_pool.malloc(512).segment

    def test_its_memory_comes_from_its_own_source(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        own = IntegerSource(granularity=0)
        pool = allocator.create_pool(source=own)

        allocator.free(allocator.stream_pool(0, pool).malloc(4096))
        allocator.release_pool(pool)
        allocator.empty_cache()

        assert (own.reserves, own.releases, source.reserves) == (1, 1, 0)


class TestBadInput:
    @pytest.mark.parametrize("nbytes", [0, 1000])
    def test_a_size_may_be_of_another_type_of_integer(self, allocator: CachingAllocator, nbytes: int) -> None:
        block = allocator.malloc(np.int64(nbytes))  # type: ignore[arg-type]

        assert (block.requested, block.nbytes) == (nbytes, allocator.malloc(nbytes).nbytes)

    @pytest.mark.parametrize("nbytes", [-1, 1.5, "1", None, [1]], ids=repr)
    def test_a_size_is_no_less_than_0_and_an_int(self, allocator: CachingAllocator, nbytes: Any) -> None:
        with pytest.raises(ArgumentError, match="0 or more bytes"):
            allocator.malloc(nbytes)

        assert allocator.statistics().flat() == CachingAllocator(IntegerSource()).statistics().flat()

    def test_a_huge_size_asks_the_source_for_nothing(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        with pytest.raises(OutOfMemoryError, match="never fit"):
            allocator.malloc(2**70)

        assert source.reserves == 0

    def test_a_double_free_names_the_block(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(4096)
        allocator.free(block)

        with pytest.raises(ArgumentError, match=r"Block\(4 KiB at .* is freed twice"):
            allocator.free(block)

        assert allocator.malloc(4096) is not allocator.malloc(4096)

    @pytest.mark.parametrize("offset", [512, -(2**30)])
    def test_a_foreign_address_is_not_found(self, allocator: CachingAllocator, offset: int) -> None:
        block = allocator.malloc(4096)

        with pytest.raises(ArgumentError, match="no live block begins"):
            allocator.find(block.address + offset)

        assert allocator.find(block.address) is block

    def test_a_freed_block_is_not_found(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(4096)
        allocator.free(block)

        with pytest.raises(ArgumentError, match="no live block begins"):
            allocator.find(block.address)

    def test_a_freed_block_takes_no_stream(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(4096)
        allocator.free(block)

        with pytest.raises(ArgumentError, match="before the block is freed"):
            allocator.record_stream(block, 1)

    def test_a_pool_is_released_once(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool()
        allocator.release_pool(pool)

        with pytest.raises(ArgumentError, match="not a private pool in use"):
            allocator.release_pool(pool)


class TestThreads:
    def test_four_threads_on_two_streams_never_share_a_block(self) -> None:
        allocator, faults = CachingAllocator(IntegerSource()), []
        owners: dict[int, int] = {}

        def work(me: int) -> None:
            stream_pool = allocator.stream_pool(me % 2)
            for step in range(3000):
                block = stream_pool.malloc(512 * (1 + step * (me + 3) % 37))
                if owners.setdefault(block.address, me) != me:
                    faults.append(block)
                del owners[block.address]
                allocator.free(block)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (faults, allocator.statistics().allocation.all.current) == ([], 0)
        assert allocator.statistics().allocation.all.allocated == 12_000
