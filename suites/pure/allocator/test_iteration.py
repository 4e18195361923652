"""When memory in use is at its lowest: what the watch sees, learns and ends with, and that iterations repeat then."""

from __future__ import annotations

import random

import pytest

from cuassay.memory import Block, CachingAllocator, IntegerSource
from cuassay.memory import iteration as module
from cuassay.memory.iteration import IterationDetector

MIB = 2**20


@pytest.fixture
def detector() -> IterationDetector:
    return IterationDetector()


def given(allocator: CachingAllocator, detector: IterationDetector, *sizes: int) -> list[Block]:
    """Blocks of these sizes in MiB, seen by the detector."""
    blocks = [allocator.malloc(size * MIB) for size in sizes]
    for block in blocks:
        detector.add(block)
    return blocks


def test_the_level_falls_when_what_was_given_last_goes(
    allocator: CachingAllocator, detector: IterationDetector
) -> None:
    first, second = given(allocator, detector, 4, 6)

    allocator.free(second)
    assert not detector.drop_gone()
    assert detector.level == 4 * MIB

    allocator.free(first)
    assert detector.drop_gone()
    assert detector.level == 0


def test_a_block_below_one_that_is_live_counts_until_both_are_gone(
    allocator: CachingAllocator, detector: IterationDetector
) -> None:
    first, second = given(allocator, detector, 4, 6)

    allocator.free(first)
    assert not detector.drop_gone()
    assert detector.level == 10 * MIB

    allocator.free(second)
    assert detector.drop_gone()


def test_a_block_that_was_given_out_again_is_another(allocator: CachingAllocator, detector: IterationDetector) -> None:
    (block,) = given(allocator, detector, 4)

    allocator.free(block)
    assert allocator.malloc(4 * MIB) is block
    detector.add(block)

    assert not detector.drop_gone()
    allocator.free(block)
    assert detector.drop_gone()
    assert detector.level == 0


def test_a_block_that_other_streams_use_is_live_until_it_is_freed(
    allocator: CachingAllocator, detector: IterationDetector
) -> None:
    (block,) = given(allocator, detector, 4)
    allocator.record_stream(block, 7)

    assert not detector.drop_gone()
    allocator.free(block)
    assert detector.drop_gone()


@pytest.mark.parametrize(("nbytes", "noted"), [(4 * MIB, 4 * MIB), (4096, 0)], ids=["large", "small"])
def test_a_hit_is_noted_if_it_is_large(
    allocator: CachingAllocator, detector: IterationDetector, nbytes: int, noted: int
) -> None:
    detector.low = -1  # nothing is so low
    allocator.free(allocator.malloc(nbytes))
    detector.lists = allocator.stream_pool(0).lists

    found = detector.get(nbytes)
    block = allocator.malloc(nbytes)

    assert found is block.quick_list
    assert detector.level == noted
    assert detector.get(nbytes) == []
    assert detector.level == noted
    allocator.free(block)
    assert not detector.drop_gone()
    assert detector.level == 0


def test_a_level_that_hardly_fell_is_no_low(allocator: CachingAllocator, detector: IterationDetector) -> None:
    detector.low = 100 * MIB
    *_, last = given(allocator, detector, 64, 2)

    allocator.free(last)

    assert detector.level == 66 * MIB
    assert not detector.drop_gone()


def test_what_stays_for_ever_is_learned(
    allocator: CachingAllocator, detector: IterationDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 4)
    detector = IterationDetector()
    given(allocator, detector, 10)

    lows = []
    for _ in range(6):
        (block,) = given(allocator, detector, 20)
        allocator.free(block)
        lows.append(detector.drop_gone())

    assert lows == [False, False, False, True, True, True]
    assert detector.low == 10 * MIB


def test_what_stays_later_is_learned_after_twice_as_many_falls(
    allocator: CachingAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 4)
    detector = IterationDetector()

    def fall() -> int:
        (block,) = given(allocator, detector, 5)
        allocator.free(block)
        detector.drop_gone()
        return detector.low // MIB

    given(allocator, detector, 10)
    lows = [fall()]
    given(allocator, detector, 20)
    lows += [fall() for _ in range(3 + 8)]

    assert lows == [0] * 3 + [10] * 8 + [30]


def test_a_watch_begins_again(allocator: CachingAllocator, detector: IterationDetector) -> None:
    _, second, gone = given(allocator, detector, 64, 16, 2)
    allocator.free(gone)
    detector.drop_gone()
    detector.low = 16 * MIB

    detector.watch([second])
    (last,) = given(allocator, detector, 2)
    allocator.free(last)

    assert (detector.drop_gone(), detector.level) == (False, 16 * MIB)  # 18 MiB was the highest since
    allocator.free(second)
    assert (detector.drop_gone(), detector.level) == (True, 0)


def test_the_watch_does_not_last_for_ever(
    allocator: CachingAllocator, detector: IterationDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ENOUGH", 3)
    given(allocator, detector, 4)

    assert [detector.get(4096) or detector.is_over for _ in range(4)] == [False, False, False, True]


class TestIterations:
    """Every iteration of a program asks for the same, and frees it in another order than it came."""

    SIZES = (5, 3, 9, 2, 13, 7, 4, 11)

    def iterate(self, allocator: CachingAllocator, seed: int = 1) -> None:
        chance = random.Random(seed)  # noqa: S311  # a program, no secret
        live: list[Block] = []
        for _ in range(400):
            live.append(allocator.malloc(chance.choice(self.SIZES) * MIB + 1024 * chance.randrange(1, 100)))
            while len(live) > 24 or (live and chance.random() < 0.4):
                allocator.free(live.pop(chance.randrange(len(live))))
        for block in live:
            allocator.free(block)

    @pytest.mark.parametrize("kept", [0, 20], ids=["alone", "with what stays"])
    def test_later_ones_call_no_driver(self, kept: int) -> None:
        source = IntegerSource()
        allocator = CachingAllocator(source, config="")
        stays = [allocator.malloc(3 * MIB + 512) for _ in range(kept)]
        for _ in range(4):
            self.iterate(allocator)
        calls = source.driver_calls

        for _ in range(3):
            self.iterate(allocator)

        figures = allocator.statistics().allocation.all
        assert (figures.allocated, figures.freed) == (7 * 400 + kept, 7 * 400)
        assert source.aliased > 10, "nothing was stitched: the program shows nothing"
        assert source.driver_calls == calls
        assert all(block.is_live for block in stays)

    def test_hits_are_hits_where_nothing_was_stitched(self, allocator: CachingAllocator) -> None:
        for nbytes in (4096, 3 * MIB, 40 * MIB):
            allocator.free(allocator.malloc(nbytes))
        stream_pool = allocator.stream_pool(0)

        assert stream_pool.detector is None
        assert stream_pool.quick is stream_pool.lists

    @pytest.mark.parametrize(
        "stays", [(), ((40 * MIB, 1),), ((4096, 0),)], ids=["nothing stays", "another stream's stays", "small stays"]
    )
    def test_hits_are_hits_again_when_the_watch_is_over(self, stays: tuple[tuple[int, int], ...]) -> None:
        allocator = CachingAllocator(IntegerSource(), config="")
        kept = [allocator.malloc(nbytes, stream) for nbytes, stream in stays]
        self.iterate(allocator)
        assert all(block.is_live for block in kept)
        stream_pool = allocator.stream_pool(0)
        assert stream_pool.quick is stream_pool.detector is not None

        block = allocator.malloc(4096)

        assert stream_pool.quick is stream_pool.lists
        assert stream_pool.quick == {4096: []}
        assert block.is_live

    def test_small_blocks_in_use_do_not_delay_the_end_of_an_iteration(self) -> None:
        allocator = CachingAllocator(IntegerSource(), config="")
        kept = allocator.malloc(4096)
        large = [allocator.malloc(4 * MIB) for _ in range(6)]
        for block in large[1::2]:
            allocator.free(block)
        stitched = allocator.malloc(12 * MIB)
        stream_pool = allocator.stream_pool(0)
        assert stream_pool.detector is not None

        for block in (*large[::2], stitched):
            allocator.free(block)
        allocator.malloc(8192)

        assert kept.is_live
        assert stream_pool.detector is None

    def test_what_is_watched_is_recorded_too(self) -> None:
        allocator = CachingAllocator(IntegerSource(), config="")
        self.iterate(allocator)
        allocator.record_history()

        self.iterate(allocator)
        events = allocator.snapshot()["device_traces"][0]
        allocator.record_history(None)

        assert sum(event["action"] == "alloc" for event in events) == 400
        assert sum(event["action"] == "free_completed" for event in events) == 400
