"""When memory is out: what is tried, in which order, what the error says, and that life goes on."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from cuassay.errors import OutOfMemoryError
from cuassay.memory import CachingAllocator, IntegerSource

MIB = 2**20
TOTAL = 64 * MIB


@pytest.fixture(params=[0, 2 * MIB], ids=["segments", "pages"])
def source(request: pytest.FixtureRequest) -> IntegerSource:
    return IntegerSource(TOTAL, is_lazy=True, granularity=request.param)


@pytest.fixture
def of_segments() -> CachingAllocator:
    return CachingAllocator(IntegerSource(TOTAL, granularity=0), total=TOTAL)


def failure(allocator: CachingAllocator, nbytes: int, stream: int = 0) -> str:
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.malloc(nbytes, stream)
    assert caught.value.__context__ is None
    return str(caught.value)


class TestWhatIsTried:
    def test_callbacks_come_first_and_the_freed_block_is_taken(self, allocator: CachingAllocator) -> None:
        held = [allocator.malloc(40 * MIB)]
        asked: list[int] = []

        def let_go(nbytes: int) -> bool:
            asked.append(nbytes)
            allocator.free(held.pop())
            return True

        allocator.free_memory_callbacks.append(let_go)

        assert allocator.malloc(38 * MIB).is_live
        assert asked == [38 * MIB]
        assert allocator.statistics().num_alloc_retries == 0

    def test_dead_cycles_are_collected(self, allocator: CachingAllocator) -> None:
        class Owner:
            def __init__(self) -> None:
                self.block, self.me = allocator.malloc(40 * MIB), self

            def __del__(self) -> None:
                allocator.free(self.block)

        gc.collect()
        Owner()

        assert allocator.malloc(40 * MIB).is_live

    def test_free_segments_of_other_streams_go_back(self, allocator: CachingAllocator) -> None:
        allocator.free(allocator.malloc(40 * MIB, stream=1))

        assert allocator.malloc(40 * MIB, stream=2).is_live
        assert allocator.statistics().num_alloc_retries == 1

    def test_blocks_in_use_elsewhere_are_waited_for_on_the_device(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        parts = [allocator.malloc(512 * 1024) for _ in range(4)] + [allocator.malloc(60 * MIB)]
        for block in parts:
            allocator.record_stream(block, 7)
            allocator.free(block)

        assert allocator.malloc(50 * MIB, stream=3).is_live
        assert len(source.waits) == 5
        assert allocator.statistics().num_sync_all_streams == 1

    def test_a_pool_that_lends_is_asked_before_anything_is_released(
        self, allocator: CachingAllocator, source: IntegerSource
    ) -> None:
        pool = allocator.create_pool(use_on_oom=True)
        allocator.free(allocator.stream_pool(0, pool).malloc(40 * MIB))

        block = allocator.malloc(30 * MIB)

        assert (block.stream_pool.pool, source.releases) == (pool, 0)

    @pytest.mark.parametrize("is_released", [False, True], ids=["private", "released"])
    def test_other_pools_lend_nothing(self, allocator: CachingAllocator, is_released: bool) -> None:
        pool = allocator.create_pool(use_on_oom=is_released)
        kept = allocator.stream_pool(0, pool).malloc(512)
        allocator.free(allocator.stream_pool(0, pool).malloc(40 * MIB))
        if is_released:
            allocator.release_pool(pool)

        if is_released:
            assert allocator.malloc(40 * MIB).stream_pool.pool is not kept.stream_pool.pool
        else:
            assert "private pools" in failure(allocator, 40 * MIB)

    def test_oversize_segments_go_before_the_rest(self, of_segments: CachingAllocator) -> None:
        allocator = of_segments
        allocator.configure("max_split_size_mb:20")
        allocator.free(allocator.malloc(40 * MIB, stream=1))
        allocator.free(allocator.malloc(4 * MIB, stream=2))

        allocator.malloc(38 * MIB, stream=3)

        assert allocator.statistics().segment.all.current == 2
        assert allocator.statistics().num_alloc_retries == 0

    @pytest.mark.parametrize(
        ("nbytes", "left", "retries"),
        [(30, [10, 22, 30], 0), (50, [10, 50], 0), (60, [60], 1)],
        ids=["one is enough", "two are needed", "all that is free is needed"],
    )
    def test_the_largest_oversize_segments_go_first_until_there_is_enough(
        self, of_segments: CachingAllocator, nbytes: int, left: list[int], retries: int
    ) -> None:
        allocator = of_segments
        allocator.configure("max_split_size_mb:20")
        for stream, freed in enumerate((10, 22, 32), start=1):
            allocator.free(allocator.malloc(freed * MIB, stream))

        allocator.malloc(nbytes * MIB, stream=4)

        assert sorted(segment.nbytes // MIB for segment in allocator.segments()) == left
        assert allocator.statistics().num_alloc_retries == retries

    def test_the_last_bytes_are_used_although_a_whole_segment_does_not_fit(self, of_segments: CachingAllocator) -> None:
        allocator = of_segments
        allocator.malloc(60 * MIB)

        assert allocator.malloc(3 * MIB).segment.nbytes == 4 * MIB


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_what_the_source_refuses_is_not_counted_as_on_its_way(granularity: int) -> None:
    source = IntegerSource(TOTAL, granularity=granularity)  # somebody else has the other half of the device
    allocator = CachingAllocator(source, total=2 * TOTAL)
    for _ in range(4):
        failure(allocator, TOTAL + 2 * MIB)

    assert allocator.malloc(TOTAL).is_live


class TestWhatIsSaid:
    def test_asked_free_holders_and_advice(self, allocator: CachingAllocator) -> None:
        allocator.malloc(20 * MIB, stream=1)
        allocator.malloc(30 * MIB, stream=2)

        assert failure(allocator, 25 * MIB, stream=3) == (
            "cuda:0 has no room for 26,214,400 bytes (25 MiB) on stream 3; reserved: 50 MiB of 64 MiB, 50 MiB of it "
            "live; largest free range of this stream: 0 B; held by stream 2 (30 MiB), stream 1 (20 MiB); drop arrays, "
            "or work in smaller parts"
        )

    def test_a_holding_pool_is_named_by_both_of_its_numbers(self, allocator: CachingAllocator) -> None:
        pool = allocator.create_pool()
        with allocator.use_pool(pool):
            allocator.malloc(40 * MIB, 3)

        assert pool.id[0] != pool.id[1]
        assert f"held by stream 3 of pool {pool.id[0]}_{pool.id[1]} (40 MiB)" in failure(allocator, 30 * MIB)

    def test_more_than_there_is_can_never_fit(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        assert "can never fit" in failure(allocator, TOTAL + 1)
        assert source.ranges == {}

    def test_a_fraction_is_named(self, allocator: CachingAllocator, source: IntegerSource) -> None:
        allocator.configure("per_process_memory_fraction:0.5")

        message = failure(allocator, 40 * MIB)

        assert "(32 MiB allowed)" in message
        assert "raise per_process_memory_fraction" in message
        assert source.reserves == 0
        assert allocator.statistics().num_oom_rejections > 0

    @pytest.mark.parametrize("nbytes", [1000, 40 * MIB], ids=["small", "large"])
    def test_a_request_above_the_limit_is_counted_once(self, source: IntegerSource, nbytes: int) -> None:
        config = "per_process_memory_fraction:0.02"
        allocator = CachingAllocator(source, total=TOTAL, config=config, oom_ladder=())

        failure(allocator, nbytes)

        assert allocator.statistics().num_oom_rejections == 1

    def test_pieces_are_told_from_a_full_device(self, allocator: CachingAllocator) -> None:
        blocks = [allocator.malloc(2 * MIB - 512) for _ in range(30)]
        for block in blocks[::2]:
            allocator.free(block)

        assert "in pieces" in failure(allocator, 20 * MIB)

    def test_blocks_that_a_capture_holds_back_are_named(self, allocator: CachingAllocator) -> None:
        block = allocator.malloc(40 * MIB)
        allocator.record_stream(block, 7)

        with allocator.capturing():
            allocator.free(block)
            message = failure(allocator, 40 * MIB)

        assert "40 MiB freed but in use by other streams" in message
        assert "end the capture" in message

    @pytest.mark.parametrize(
        ("private", "advice"),
        [(30, "drop arrays, or work in smaller parts"), (32, "release the private pools")],
        ids=["half", "more than half"],
    )
    def test_private_pools_are_blamed_if_they_hold_more_than_half(
        self, allocator: CachingAllocator, private: int, advice: str
    ) -> None:
        with allocator.use_pool(allocator.create_pool()):
            allocator.malloc(private * MIB)
        allocator.malloc((60 - private) * MIB)

        assert advice in failure(allocator, 10 * MIB)

    def test_the_three_largest_holders_are_named(self, allocator: CachingAllocator) -> None:
        for stream, size in enumerate((10, 16, 12, 14), start=1):
            allocator.malloc(size * MIB, stream)

        message = failure(allocator, 20 * MIB, stream=5)

        assert "held by stream 2 (16 MiB), stream 4 (14 MiB), stream 3 (12 MiB); " in message

    @pytest.mark.parametrize("nbytes", [2**60, 2**70])
    def test_requests_larger_than_any_device_do_not_call_the_callbacks(
        self, allocator: CachingAllocator, nbytes: int
    ) -> None:
        asked: list[int] = []
        allocator.free_memory_callbacks.append(asked.append)

        failure(allocator, nbytes)

        assert asked == []

    def test_others_memory_is_not_called_ours(self, source: IntegerSource) -> None:
        source.reserve(60 * MIB, 0)

        assert "held by nobody here" in failure(CachingAllocator(source, total=TOTAL), 40 * MIB)

    def test_observers_are_told(self, allocator: CachingAllocator) -> None:
        told: list[Any] = []
        allocator.oom_observers.append(told.append)

        message = failure(allocator, 2 * TOTAL)

        assert [str(error) for error in told] == [message]
        assert allocator.statistics().num_ooms == 1


@pytest.mark.parametrize("nbytes", [65 * MIB, 2**50, 2**70])
def test_afterwards_everything_fits_that_fitted_before(allocator: CachingAllocator, nbytes: int) -> None:
    allocator.free(allocator.malloc(4096))
    failure(allocator, nbytes)

    block = allocator.malloc(TOTAL)
    allocator.free(block)

    assert allocator.empty_cache() == TOTAL


class TestWhatIsLeftBehind:
    def test_a_private_pool_whose_requests_failed_leaves_nothing(self) -> None:
        source = IntegerSource(TOTAL, granularity=2 * MIB)
        allocator = CachingAllocator(source, total=TOTAL)
        for _ in range(3):
            pool = allocator.create_pool()
            with allocator.use_pool(pool), pytest.raises(OutOfMemoryError):
                allocator.malloc(2 * TOTAL)
            allocator.release_pool(pool)
        allocator.empty_cache()

        assert allocator.segments() == ()
        assert source.ranges == {}
        assert allocator.statistics().reserved_bytes_by_private_pools == {}


def test_the_error_shows_the_options_that_were_set() -> None:
    text = "garbage_collection_threshold:0.8,max_split_size_mb:128"
    allocator = CachingAllocator(IntegerSource(TOTAL), total=TOTAL, config=text)

    assert f"set: {allocator.config}; " in failure(allocator, 2 * TOTAL)
    assert "garbage_collection_threshold:0.8" in str(allocator.config)
    assert "set:" not in failure(CachingAllocator(IntegerSource(TOTAL), total=TOTAL, config=""), 2 * TOTAL)


@pytest.mark.parametrize(
    ("config", "remedy"),
    [("", "or work in smaller parts"), ("expandable_segments:False", "or set expandable_segments:True")],
    ids=["pages", "segments"],
)
def test_fragments_are_blamed_on_what_can_be_changed(config: str, remedy: str) -> None:
    allocator = CachingAllocator(IntegerSource(TOTAL, granularity=0), total=TOTAL, config=config)
    for block in [allocator.malloc(2 * MIB - 512) for _ in range(30)][::2]:
        allocator.free(block)

    assert f"allocate the largest arrays first, {remedy}" in failure(allocator, 20 * MIB)
