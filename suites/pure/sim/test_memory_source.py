"""The simulated device as a source of memory: pages at several addresses, order by clocks, all or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.devices.sim import BACKEND
from cuassay.devices.sim.memory_source import SimSource
from cuassay.errors import ArgumentError, CapabilityError, OutOfMemoryError

PAGE = 4096
TOTAL = 64 * PAGE


@pytest.fixture
def source() -> Iterator[SimSource]:
    with BACKEND.simulated(memory=TOTAL, devices=1) as sim:
        yield SimSource(sim.machine.devices[0], PAGE)


def test_an_alias_shows_what_is_written_to_its_pages_and_the_other_way_round(source: SimSource) -> None:
    span = source.span(8 * PAGE, 0)
    source.map(span, [PAGE, 2 * PAGE])
    alias = source.alias([span + PAGE, span])

    source.write(span, b"first")
    source.write(alias, b"second")

    assert source.read(alias + 2 * PAGE, 5) == b"first"
    assert source.read(span + PAGE, 6) == b"second"


def test_what_lies_across_two_pages_is_read_as_one(source: SimSource) -> None:
    span = source.span(8 * PAGE, 0)
    source.map(span, [PAGE, PAGE])
    alias = source.alias([span + PAGE, span])

    source.write(alias + PAGE - 2, b"abcd")

    assert source.read(span + 2 * PAGE - 2, 2) == b"ab"
    assert source.read(span, 2) == b"cd"


@pytest.mark.parametrize("offset", [-1, PAGE, 5 * PAGE])
def test_an_address_that_leads_nowhere_is_a_fault(source: SimSource, offset: int) -> None:
    span = source.span(8 * PAGE, 0)
    source.map(span, [PAGE])

    with pytest.raises(ArgumentError, match="has no memory"):
        source.read(span + offset, 1)


def test_pages_come_all_or_not_at_all(source: SimSource) -> None:
    span = source.span(200 * PAGE, 0)

    with pytest.raises(OutOfMemoryError):
        source.map(span, [40 * PAGE, 40 * PAGE])

    assert source.device.arena.free == TOTAL
    source.map(span, [40 * PAGE])
    assert source.device.arena.free == 24 * PAGE


def test_what_is_released_is_free_again(source: SimSource) -> None:
    before = source.device.arena.free

    source.release(source.reserve(3 * PAGE, 0))

    assert source.device.arena.free == before
    source.release(source.reserve(TOTAL, 0))


def test_a_piece_that_is_released_gives_back_its_own_bytes(source: SimSource) -> None:
    first, second, third = (source.reserve(3 * PAGE, 0) for _ in range(3))
    before = source.device.arena.free

    source.release(second)

    assert source.device.arena.free == before + 3 * PAGE
    source.release(first)
    source.release(third)
    source.release(source.reserve(TOTAL, 0))


def test_a_second_release_is_refused(source: SimSource) -> None:
    address = source.reserve(PAGE, 0)
    source.release(address)

    with pytest.raises(ArgumentError, match="is not in use here"):
        source.release(address)


def test_without_granularity_there_are_no_pages(source: SimSource) -> None:
    with pytest.raises(CapabilityError, match="has no pages"):
        SimSource(source.device, 0).span(PAGE, 0)


def test_a_marker_is_reached_when_its_stream_was_waited_for(source: SimSource) -> None:
    stream = BACKEND.new_stream(0)
    with BACKEND.use_stream(stream):
        BACKEND.spin(0, 10**9)
    number = BACKEND.stream_number(stream)

    marker = source.record(number)
    before = source.query(marker)
    source.synchronize([number])

    assert (before, source.query(marker)) == (False, True)


@pytest.fixture
def busy() -> tuple[Any, int]:
    """A stream that takes a second, and its number."""
    stream = BACKEND.new_stream(0)
    with BACKEND.use_stream(stream):
        BACKEND.spin(0, 10**9)
    return stream, BACKEND.stream_number(stream)


def test_the_host_waits_for_the_device_before_a_segment_goes(source: SimSource, busy: tuple[Any, ...]) -> None:
    address, (stream, _) = source.reserve(PAGE, 0), busy

    source.release(address)

    assert stream.query()


def test_a_marker_stays_where_it_was_set(source: SimSource, busy: tuple[Any, ...]) -> None:
    stream, number = busy
    marker = source.record(number)
    clock = dict(marker[0])

    with BACKEND.use_stream(stream):
        BACKEND.spin(0, 10**9)

    assert marker[0] == clock != source.record(number)[0]


def test_between_two_events_lie_milliseconds_of_virtual_time(source: SimSource) -> None:
    host, stream = source.device.machine.host, BACKEND.new_stream(0)
    first, second = (BACKEND.new_event(0, timing=True) for _ in range(2))
    first.record(stream)
    begin = host.now
    with BACKEND.use_stream(stream):
        BACKEND.spin(0, 10**9)
    second.record(stream)
    stream.synchronize()

    assert first.elapsed_time(second) == pytest.approx((host.now - begin) * 1e3, rel=0.01)


def test_a_stream_that_waits_is_done_after_what_it_waits_for(source: SimSource, busy: tuple[Any, ...]) -> None:
    other = BACKEND.new_stream(0)

    source.wait(BACKEND.stream_number(other), source.record(busy[1]))

    assert not other.query()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_everything_that_was_taken_goes_back(sizes: list[int], chance: Any) -> None:
    with BACKEND.simulated(memory=128 * PAGE, devices=1) as sim:
        source = SimSource(sim.machine.devices[0], PAGE)
        total = source.device.arena.free
        span = source.span(sum(sizes) * PAGE, 0)
        source.map(span, [size * PAGE for size in sizes])
        starts = [span + sum(sizes[:position]) * PAGE for position in range(len(sizes))]
        shown = chance.sample(starts, chance.randint(1, len(starts)))
        aliases = [source.alias(shown), source.alias(shown[::-1])]

        for alias in aliases:
            source.release(alias)
        source.unmap(chance.sample(starts, len(starts)))
        source.release(span)

        assert source.device.arena.free == total
