"""The simulated device finds accesses that no wait orders, and leaves ordered ones alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from judged import ENGINES, Judged, judged

from cuassay import ops
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError, DeviceError, RaceError
from cuassay.ops import registry
from cuassay.testing import opspec


@pytest.fixture(autouse=True, params=ENGINES)
def judge(request: pytest.FixtureRequest) -> Iterator[Judged]:
    with judged(request.param, devices=2, memory=2**20) as judge:
        yield judge


def ones(*shape: int, index: int = 0) -> Any:
    """An array that the host has seen finished."""
    array = BACKEND.from_host(np.ones(shape, np.float32), index)
    BACKEND.synchronize(index)
    return array


@pytest.fixture
def bump(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An op that adds one to every array of a list, declared for one test."""
    for table in ("_ops", "_implementations"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    signature = "test_bump_(some!: arrays) ->"
    declared = ops.declare(signature, shape=lambda bound: (), dtypes=("float32",), op_class="elementwise")

    @registry.implement("test_bump_", kind="cpu", dtypes=("float32",))
    def run(some: Any) -> None:
        for one in some:
            one[...] += 1

    return declared


def streams(count: int = 2) -> list[Any]:
    return [BACKEND.new_stream(0) for _ in range(count)]


def write_on(stream: Any, array: Any) -> None:
    with BACKEND.use_stream(stream):
        array.fill(2.0)


def read_on(stream: Any, array: Any) -> Any:
    with BACKEND.use_stream(stream):
        return ops.add(array, 1.0)


class TestTextbookBug:
    def test_a_read_on_another_stream_without_a_wait_is_a_race(self) -> None:
        array, (first, second) = ones(4), streams()
        write_on(first, array)

        with pytest.raises(RaceError):
            read_on(second, array)

    def test_the_message_names_both_accesses_streams_sites_and_the_missing_wait(self) -> None:
        before, array, (first, second) = ones(4), ones(4), streams()
        write_on(first, array)

        with pytest.raises(RaceError) as caught:
            read_on(second, array)

        message = str(caught.value)
        assert array.span.low > before.span.low
        one, two = first.queue.label, second.queue.label
        assert f"read by add of a float32 array of shape (4,) (16 B at offset {array.span.low}) on {two}" in message
        assert f"write by fill of a float32 array of shape (4,) (16 B at offset {array.span.low}) on {one}" in message
        assert message.count(__file__) == 2
        assert f"insert {two}.wait_stream({one}) before the read".replace("stream ", "stream") in message

    @pytest.mark.parametrize("waits", [True, False], ids=["the host waits", "in order"])
    def test_accesses_that_nothing_can_race_with_are_forgotten(self, judge: Judged, waits: bool) -> None:
        array, (stream,) = ones(4), streams(1)

        for _ in range(4):
            write_on(stream, array)
            if waits:
                stream.synchronize()

        assert judge.accesses() == 1

    @pytest.mark.parametrize(
        "wait",
        [
            pytest.param(lambda one, two: two.wait_stream(one), id="wait_stream"),
            pytest.param(lambda one, two: two.wait_event(one.record_event()), id="wait_event"),
            pytest.param(lambda one, two: one.record_event().wait(two), id="event-wait"),
            pytest.param(lambda one, two: one.record_event().synchronize(), id="event-synchronize"),
            pytest.param(lambda one, two: one.synchronize(), id="stream-synchronize"),
            pytest.param(lambda one, two: BACKEND.synchronize(0), id="device-synchronize"),
            pytest.param(lambda one, two: _poll(one), id="query-until-true"),
        ],
    )
    def test_with_a_wait_it_is_clean(self, wait: Callable[[Any, Any], object]) -> None:
        array, (first, second) = ones(4), streams()
        write_on(first, array)

        wait(first, second)
        result = read_on(second, array)

        second.synchronize()
        with BACKEND.use_stream(second):
            np.testing.assert_array_equal(result.get(), np.full(4, 3.0, np.float32))

    def test_a_wait_placed_before_the_write_does_not_help(self) -> None:
        array, (first, second) = ones(4), streams()
        second.wait_stream(first)
        write_on(first, array)

        with pytest.raises(RaceError):
            read_on(second, array)

    def test_a_wait_through_a_third_stream_orders_too(self) -> None:
        array, (first, second, third) = ones(4), streams(3)
        write_on(first, array)

        third.wait_stream(first)
        second.wait_stream(third)
        read_on(second, array)

        BACKEND.synchronize(0)

    def test_reading_on_the_host_in_another_stream_is_a_race(self) -> None:
        array, (first, _) = ones(4), streams()
        write_on(first, array)

        with pytest.raises(RaceError, match="read by get"):
            array.get()

    def test_the_default_stream_is_not_ordered_with_ours(self) -> None:
        array, (first, _) = ones(4), streams()
        array.fill(2.0)

        with pytest.raises(RaceError, match="stream 0"):
            read_on(first, array)

    def test_a_blocking_stream_is_ordered_with_the_default_one(self) -> None:
        array, stream = ones(4), BACKEND.new_stream(0, blocking=True)
        array.fill(2.0)

        read_on(stream, array)
        array.fill(3.0)

        BACKEND.synchronize(0)

    def test_after_the_report_the_machine_goes_on(self) -> None:
        array, (first, second) = ones(4), streams()
        write_on(first, array)
        with pytest.raises(RaceError):
            read_on(second, array)

        read_on(second, array)

        BACKEND.synchronize(0)


def _poll(stream: Any) -> None:
    while not stream.query():
        pass


class TestKindsOfConflict:
    def test_two_reads_do_not_conflict(self) -> None:
        array, (first, second) = ones(4), streams()

        read_on(first, array)
        read_on(second, array)

        BACKEND.synchronize(0)

    def test_a_write_after_an_unordered_read_is_a_race(self) -> None:
        array, (first, second) = ones(4), streams()
        read_on(first, array)

        with pytest.raises(RaceError, match=r"write by fill .* not ordered after the read by add"):
            write_on(second, array)

    def test_a_write_after_an_unordered_write_is_a_race(self) -> None:
        array, (first, second) = ones(4), streams()
        write_on(first, array)

        with pytest.raises(RaceError, match=r"write by fill .* not ordered after the write by fill"):
            write_on(second, array)

    def test_a_later_read_does_not_hide_an_earlier_one(self) -> None:
        array, (first, second, third) = ones(4), streams(3)
        read_on(first, array)
        read_on(second, array)
        third.wait_stream(second)

        with pytest.raises(RaceError, match=f"read by add .* on {first.queue.label}"):
            write_on(third, array)

    def test_out_is_a_write(self) -> None:
        array, out, (first, second) = ones(4), ones(4), streams()
        read_on(first, out)

        with BACKEND.use_stream(second), pytest.raises(RaceError, match="write by mul"):
            ops.mul(array, 2.0, out=out)

    @pytest.mark.parametrize("make", [lambda a: np.exp(a), lambda a: ops.exp(a), lambda a: a.copy()])
    def test_a_new_array_is_written_on_the_stream_that_made_it(self, make: Callable[[Any], Any]) -> None:
        array, (first, second) = ones(4), streams()
        with BACKEND.use_stream(first):
            made = make(array)

        with pytest.raises(RaceError, match=f"after the write by .* on {first.queue.label} at"):
            read_on(second, made)

    def test_a_parameter_read_and_written_counts_as_a_write(self, bump: Any) -> None:
        other, array, (first, second) = ones(4), ones(4), streams()
        read_on(first, array)

        with BACKEND.use_stream(second), pytest.raises(RaceError, match="write by test_bump_"):
            bump([other, array])

    def test_a_value_given_to_the_host_is_waited_for(self) -> None:
        array, (first, second) = ones(4), streams()
        with BACKEND.use_stream(first):
            array.fill(1.0)
            assert np.allclose(array, 1.0)

        read_on(second, array)

        BACKEND.synchronize(0)

    def test_another_threads_current_stream_is_its_own(self) -> None:
        seen: list[Any] = []
        with BACKEND.use_stream(BACKEND.new_stream(0)) as stream:
            thread = threading.Thread(target=lambda: seen.append(BACKEND.current_stream(0)))
            thread.start()
            thread.join()

            assert BACKEND.current_stream(0) == stream
        assert seen[0] != stream


class TestViews:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(np.s_[:4], np.s_[4:], id="halves"),
            pytest.param(np.s_[::2], np.s_[1::2], id="even-odd-rows"),
            pytest.param(np.s_[:, ::2], np.s_[:, 1::2], id="even-odd-columns"),
            pytest.param(np.s_[::-2], np.s_[::2], id="reversed"),
        ],
    )
    def test_disjoint_views_do_not_race(self, one: Any, other: Any) -> None:
        array, (first, second) = ones(8, 8), streams()

        write_on(first, array[one])
        write_on(second, array[other])

        BACKEND.synchronize(0)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(np.s_[:5], np.s_[4:], id="one-row"),
            pytest.param(np.s_[:, 3], np.s_[2], id="one-element"),
            pytest.param(np.s_[::2], np.s_[::3], id="strides"),
            pytest.param(np.s_[...], np.s_[7, 7], id="inside"),
        ],
    )
    def test_views_that_share_an_element_race(self, one: Any, other: Any) -> None:
        array, (first, second) = ones(8, 8), streams()
        write_on(first, array[one])

        with pytest.raises(RaceError):
            write_on(second, array[other])

    def test_a_view_keeps_the_memory(self) -> None:
        free, _ = BACKEND.memory_info(0)
        view = ones(8, 8)[2:4]

        held = free - BACKEND.memory_info(0)[0]

        assert held == 256
        np.testing.assert_array_equal(view.get(), np.ones((2, 8), np.float32))

    def test_making_a_view_is_no_access(self) -> None:
        array, (first, second) = ones(8, 8), streams()
        write_on(first, array)

        with BACKEND.use_stream(second):
            views = array.T, array[1:], array.reshape(-1), np.broadcast_to(array, (2, 8, 8)), array.real

        assert all(view.size for view in views)


class TestFreeing:
    @pytest.mark.parametrize("waits", ["device", "stream"])
    def test_dropping_an_array_that_another_stream_uses_is_an_early_free(self, waits: str) -> None:
        array, (first, second) = ones(4), streams()
        read_on(first, array)
        del array

        with pytest.raises(RaceError, match=r"early free at .*test_races.* read by add"):
            BACKEND.synchronize(0) if waits == "device" else second.synchronize()

    def test_what_a_function_drops_as_it_returns_names_its_access_and_no_line_of_the_harness(self) -> None:
        namespace: dict[str, Any] = {}
        exec(compile("def call(function): function()", opspec.__file__, "exec"), namespace)  # noqa: S102  as a spec does

        def function() -> None:
            array = ones(4)
            read_on(streams()[0], array)

        namespace["call"](function)

        with pytest.raises(RaceError, match=r"early free of .*read by add .*test_races") as caught:
            BACKEND.synchronize(0)
        assert "opspec" not in str(caught.value)

    def test_it_is_found_at_the_next_allocation_at_the_latest(self, judge: Judged) -> None:
        array, (first, _) = ones(4), streams()
        read_on(first, array)
        del array

        def make() -> None:
            made = BACKEND.empty((4,), "float32", 0)
            if judge.engine == "sanitizer":  # a watcher cannot refuse an allocation; the first use raises
                made.fill(0.0)

        with pytest.raises(RaceError, match="early free"):
            make()

    @pytest.mark.parametrize(
        "cure",
        [
            pytest.param(lambda array, stream: BACKEND.current_stream(0).wait_stream(stream), id="wait_stream"),
            pytest.param(lambda array, stream: array.record_stream(stream), id="record_stream"),
            pytest.param(lambda array, stream: stream.synchronize(), id="synchronize"),
        ],
    )
    def test_with_a_wait_or_record_stream_it_is_clean(self, cure: Callable[[Any, Any], object]) -> None:
        array, (first, _) = ones(4), streams()
        read_on(first, array)
        cure(array, first)
        del array

        BACKEND.synchronize(0)

        assert BACKEND.memory_info(0) == (2**20, 2**20)

    def test_memory_in_use_by_a_recorded_stream_is_not_taken_again(self) -> None:
        array, (first, _) = ones(4), streams()
        read_on(first, array)
        array.record_stream(first)
        offset = array.span.low
        del array

        assert BACKEND.empty((4,), "float32", 0).span.low != offset

    def test_the_stream_it_belongs_to_may_take_it_again_at_once(self) -> None:
        array = ones(4)
        array.fill(2.0)
        offset = array.span.low
        del array

        assert BACKEND.empty((4,), "float32", 0).span.low == offset

    def test_another_stream_may_not_before_it_has_waited(self) -> None:
        array, (first, _) = ones(4), streams()
        array.fill(2.0)
        offset = array.span.low
        del array

        default = BACKEND.current_stream(0)
        with BACKEND.use_stream(first):
            before = BACKEND.empty((4,), "float32", 0).span.low
            first.wait_stream(default)
            after = BACKEND.empty((4,), "float32", 0).span.low

        assert before != offset
        assert after == offset


class TestSeveralDevices:
    def test_arrays_of_two_devices_do_not_mix(self) -> None:
        with pytest.raises(DeviceError, match=r"sim:0 and sim:1.*copy"):
            ones(4) + ones(4, index=1)

    def test_a_copy_between_devices_carries_the_values(self) -> None:
        source = ones(4) + 1

        copied = ops.copy(source, device="sim:1")

        assert str(copied.device) == "sim:1"
        np.testing.assert_array_equal(copied.get(), np.full(4, 2.0, np.float32))

    def test_a_copy_is_ordered_by_the_current_streams_of_both(self) -> None:
        source, target = ones(4), ones(4, index=1)
        target.fill(0.0)

        ops.copy(source, out=target)
        target.fill(1.0)
        source.fill(1.0)

        BACKEND.synchronize(0)
        BACKEND.synchronize(1)

    def test_a_copy_of_an_array_in_use_on_another_stream_is_a_race(self) -> None:
        source, (first, _) = ones(4), streams()
        write_on(first, source)

        with pytest.raises(RaceError, match="read by copy"):
            ops.copy(source, device="sim:1")

    def test_advice_names_the_device_of_each_stream_where_there_are_two(self) -> None:
        source, target, stream = ones(4), ones(4, index=1), BACKEND.new_stream(1)
        write_on(stream, target)

        with pytest.raises(RaceError, match=r"insert stream0@sim:0.wait_stream\(stream\d+@sim:1\)"):
            ops.copy(source, out=target)

    def test_an_event_of_another_device_can_be_waited_for(self) -> None:
        array, other = ones(4), BACKEND.new_stream(1)
        event = BACKEND.new_event(0)
        array.fill(2.0)
        event.record()

        other.wait_event(event)

        with pytest.raises(DeviceError, match="cannot be recorded"):
            event.record(other)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: BACKEND.empty((1,), "float32", 2),
            lambda: BACKEND.empty_pinned((1,), "float32", 2),
            lambda: BACKEND.new_stream(2),
            lambda: BACKEND.new_event(2),
            lambda: BACKEND.new_capture(2),
        ],
        ids=["empty", "empty_pinned", "new_stream", "new_event", "new_capture"],
    )
    def test_a_device_that_is_not_there_is_named(self, make: Callable[[], object]) -> None:
        with pytest.raises(DeviceError, match="sim:2 does not exist; 2 simulated devices"):
            make()


class TestVirtualTime:
    def test_an_event_is_reached_only_after_virtual_time_has_passed(self) -> None:
        array = ones(256, 256)
        event = BACKEND.new_event(0)
        for _ in range(50):
            array += 1
        event.record()

        answers = [event.query() for _ in range(1000)]

        assert answers[0] is False
        assert answers[-1] is True
        assert answers == sorted(answers)

    def test_work_starts_no_earlier_than_the_host_gave_it(self) -> None:
        array, event = ones(4), BACKEND.new_event(0)
        for _ in range(1000):
            event.query()
        array += 1
        event.record()

        assert event.query() is False

    def test_more_bytes_take_longer(self) -> None:
        small, large = (_elapsed(ones(extent)) for extent in (16, 65536))

        assert 0 < small < large

    def test_the_same_program_takes_the_same_time(self) -> None:
        with BACKEND.simulated(devices=1, memory=2**20):
            first = _elapsed(ones(16))
        with BACKEND.simulated(devices=1, memory=2**20):
            second = _elapsed(ones(16))

        assert first == second

    @pytest.mark.parametrize(
        ("start", "end", "reason"),
        [
            pytest.param({"timing": False}, {"timing": True}, "timing=True", id="no-timing"),
            pytest.param({"timing": True}, {"timing": True}, "not recorded", id="not-recorded"),
        ],
    )
    def test_elapsed_time_says_why_it_cannot(self, start: Any, end: Any, reason: str) -> None:
        with pytest.raises(ArgumentError, match=reason):
            BACKEND.new_event(0, **start).elapsed_time(BACKEND.new_event(0, **end))

    def test_elapsed_time_of_an_event_not_reached_raises(self) -> None:
        array, (start, end) = ones(65536), (BACKEND.new_event(0, timing=True) for _ in range(2))
        start.record()
        array += 1
        end.record()

        with pytest.raises(ArgumentError, match="is not yet"):
            start.elapsed_time(end)

    def test_an_event_never_recorded_is_done_and_no_wait(self) -> None:
        event = BACKEND.new_event(0)
        event.wait()
        event.synchronize()

        assert event.query()


def _elapsed(array: Any) -> float:
    start, end = (BACKEND.new_event(0, timing=True) for _ in range(2))
    start.record()
    array += 1
    end.record()
    end.synchronize()
    elapsed: float = start.elapsed_time(end)
    return elapsed
