"""Memory that is dropped at odd moments: while work of the machine runs, before its stream is done, or as a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from judged import ENGINES, Judged, judged

from cuassay.devices.sim import BACKEND
from cuassay.errors import RaceError

TOTAL = 2**23


@pytest.fixture(autouse=True, params=ENGINES)
def judge(request: pytest.FixtureRequest) -> Iterator[Judged]:
    with judged(request.param, devices=2, memory=TOTAL) as judge:
        yield judge


@pytest.fixture
def machine() -> Any:
    return BACKEND.machine


@pytest.fixture
def xp() -> Any:
    return BACKEND.namespace(0)


@pytest.fixture
def side() -> Any:
    return BACKEND.new_stream(0)


def written_on(stream: Any, array: Any) -> Any:
    BACKEND.synchronize(0)
    with BACKEND.use_stream(stream):
        array.fill(2)
    return array


def test_an_early_free_is_told_once_and_the_program_goes_on(xp: Any, side: Any) -> None:
    kept, dropped = xp.zeros(4), xp.zeros(4)
    written_on(side, kept)
    with BACKEND.use_stream(side):
        dropped.fill(2)
    del dropped

    with pytest.raises(RaceError, match="early free"):
        xp.zeros(4)

    assert kept.get().tolist() == [2] * 4
    BACKEND.synchronize(0)


def test_an_early_free_during_other_work_is_told_by_the_next_wait(machine: Any, xp: Any, side: Any) -> None:
    array = written_on(side, xp.zeros(4))
    with machine.working():
        del array

    with pytest.raises(RaceError, match="early free"):
        BACKEND.synchronize(0)


def test_memory_dropped_during_other_work_is_free_at_the_next_look(machine: Any, xp: Any) -> None:
    array = xp.zeros(4)
    with machine.working():
        del array

    assert BACKEND.memory_info(0) == (TOTAL, TOTAL)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("is_lower_first", [True, False])
def test_a_view_keeps_the_memory_of_its_own_array(xp: Any, which: int, is_lower_first: bool) -> None:
    arrays = [xp.ones((4, 1)), xp.full((1, 4), 7.0)]
    arrays.sort(key=lambda array: array.block.low, reverse=not is_lower_first)
    views = xp.broadcast_arrays(*arrays)
    view = views[which]
    expected = view.get().tolist()
    arrays.clear()
    del views

    others = [xp.zeros(4) for _ in range(4)]

    assert view.get().tolist() == expected
    assert all(one.block is not view.block for one in others)


def test_arrays_and_blocks_are_in_use_and_cached_segments_are_not(xp: Any) -> None:
    before = BACKEND.memory_in_use(0)
    allocator = BACKEND.allocator(0)
    array, block, cached = xp.zeros(1024, np.uint8), allocator.malloc(4096, 0), allocator.malloc(2048, 0)
    allocator.free(cached)

    assert BACKEND.memory_in_use(0) - before == array.nbytes + block.nbytes

    allocator.free(block)
    assert BACKEND.memory_in_use(0) - before == array.nbytes
    assert BACKEND.memory_info(0)[0] < TOTAL - array.nbytes
    BACKEND.release_cached(0)
    assert BACKEND.memory_info(0)[0] == TOTAL - array.nbytes


def low_of_half(xp: Any, stream: Any) -> int:
    """Where an array of half the memory lies that is made on `stream` now."""
    with BACKEND.use_stream(stream):
        made = xp.empty(TOTAL // 2, np.uint8)
    return int(made.span.low)


def test_memory_waits_for_the_last_of_a_streams_reads(machine: Any, xp: Any, side: Any) -> None:
    array, rest, third = xp.zeros(TOTAL // 2, np.uint8), xp.zeros(TOTAL // 2 - 4096, np.uint8), BACKEND.new_stream(0)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(side):
        (array[:8] + 1).fill(0)
        first_read = side.record_event()
        BACKEND.spin(0, 10**9)
        (array[8:16] + 1).fill(0)
    array.record_stream(side)
    del array
    third.wait_event(first_read)

    low_of_half(xp, third)

    assert machine.host.now >= side.queue.finished
    assert rest.get().any() == 0


@pytest.mark.parametrize("launches", [1, 2])
def test_untouched_memory_is_given_back_in_the_order_of_its_own_stream(xp: Any, side: Any, launches: int) -> None:
    with BACKEND.use_stream(side):
        array = xp.empty(4)
        for _ in range(launches):
            BACKEND.spin(0, 10**9)
    low = array.span.low
    del array

    other, own = xp.empty(4), BACKEND.empty((4,), "float64", 0, side)

    assert other.span.low != low
    assert own.span.low == low


def test_memory_of_a_stream_that_waits_is_not_given_to_one_that_does_not(xp: Any, side: Any) -> None:
    array = written_on(side, xp.zeros(4))
    BACKEND.current_stream(0).wait_stream(side)
    low = array.span.low
    del array

    with BACKEND.use_stream(BACKEND.new_stream(0)):
        other = xp.empty(4)

    assert other.span.low != low


def test_the_first_of_two_early_frees_is_told(xp: Any, side: Any) -> None:
    first, second = xp.zeros(3), xp.zeros(5)
    written_on(side, first)
    with BACKEND.use_stream(side):
        second.fill(1)
    del first
    del second

    with pytest.raises(RaceError, match=r"shape \(3,\)"):
        BACKEND.synchronize(0)


def test_accesses_of_dropped_memory_are_forgotten(judge: Judged, xp: Any) -> None:
    array = xp.zeros(4)
    assert judge.accesses() == 1
    del array

    assert judge.accesses() == 0


def test_an_array_without_elements_next_to_another_takes_none_of_its_memory(xp: Any) -> None:
    none, some = xp.atleast_2d(xp.ones(0), xp.ones(3))

    assert none.shape == (1, 0)
    assert some.get().tolist() == [[1, 1, 1]]
