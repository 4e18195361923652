"""Captures of the simulated device: nothing runs before the replay, order is kept, illegal calls say so."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from judged import ENGINES, Judged, judged

from cuassay import ops, precision
from cuassay.devices.sim import BACKEND, graph_pools
from cuassay.errors import CaptureError, RaceError


@pytest.fixture(autouse=True, params=ENGINES)
def judge(request: pytest.FixtureRequest) -> Iterator[Judged]:
    with judged(request.param, devices=1, memory=2**20) as judge:
        yield judge


@pytest.fixture
def array() -> Any:
    made = BACKEND.from_host(np.eye(4, dtype=np.float32) + 1, 0)
    BACKEND.synchronize(0)
    return made


def captured(work: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A capture of ``work(stream)``, and what that gave."""
    capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
    capture.begin(stream)
    with BACKEND.use_stream(stream):
        result = work(stream)
    capture.end()
    return capture, result


def test_a_capture_that_was_refused_forbids_nothing(array: Any) -> None:
    capture = BACKEND.new_capture(0)
    with pytest.raises(CaptureError, match="default stream"):
        capture.begin()

    ops.add(array, 1.0)
    BACKEND.current_stream(0).synchronize()
    assert capture.statistics().state == "empty"


@pytest.mark.parametrize("make", ["default_rng", "RandomState"])
def test_the_first_replay_draws_the_first_numbers(make: str) -> None:
    source = getattr(BACKEND.namespace(0).random, make)(5)
    capture, drawn = captured(lambda _: source.normal(size=3))

    capture.replay()
    BACKEND.synchronize(0)

    np.testing.assert_array_equal(drawn.get(), getattr(np.random, make)(5).normal(size=3))


def test_an_array_is_shuffled_by_each_replay() -> None:
    source, expected = BACKEND.namespace(0).random.RandomState(5), np.arange(8)
    array = BACKEND.from_host(expected, 0)
    BACKEND.synchronize(0)
    capture, _ = captured(lambda _: source.shuffle(array))
    host = np.random.RandomState(5)

    for _ in range(2):
        capture.replay()
        host.shuffle(expected)

    BACKEND.synchronize(0)
    np.testing.assert_array_equal(array.get(), expected)


WORK: dict[str, Callable[[Any], Any]] = {
    "op": lambda a: ops.softmax(a),
    "composite-op": lambda a: ops.linear(a, a, a[0]),
    "ops-in-a-row": lambda a: ops.mul(ops.add(a, 1.0), a),
    "ufunc": lambda a: np.exp(a) + a,
    "function": lambda a: np.concatenate([a, a.T]),
    "fancy-index": lambda a: a[[1, 0]],
    "copying-reshape": lambda a: a.T.reshape(-1),
    "linalg": lambda a: np.linalg.inv(a),
    "several-results": lambda a: np.linalg.qr(a)[1],
    "nested-results": lambda a: np.unravel_index(np.argmax(a), (4, 4))[1],
    "one-out-of-two": lambda a: np.modf(a, out=(a.copy(), None))[1],
    "out": lambda a: np.add(a, 1, out=a.copy()),
    "creation": lambda a: BACKEND.namespace(0).arange(4.0) + a[0],
    "reduction": lambda a: a.sum(axis=0),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_a_replay_computes_what_the_work_does_eagerly(array: Any, work: Callable[[Any], Any]) -> None:
    expected = work(array).get()

    capture, result = captured(lambda stream: work(array))
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    capture.replay()

    np.testing.assert_array_equal(result.get(), expected)


def test_nothing_runs_while_capturing(array: Any) -> None:
    before = array.get()

    def work(stream: Any) -> Any:
        array.fill(7.0)
        return ops.add(array, 1.0)

    capture, result = captured(work)

    np.testing.assert_array_equal(array.get(), before)
    assert np.isnan(result.get()).all()
    capture.replay()
    assert (result.get() == 8.0).all()


def test_each_replay_reads_the_inputs_of_now(array: Any) -> None:
    capture, result = captured(lambda stream: ops.mul(array, 2.0))

    for value in (3.0, 5.0):
        array.fill(value)
        capture.replay()
        assert (result.get() == 2 * value).all()


def test_a_replay_keeps_the_precision_of_the_capture(array: Any) -> None:
    third = ops.mul(array, 1 / 3)

    with precision("tf32"):
        expected = ops.matmul(third, third).get()
        capture, result = captured(lambda stream: ops.matmul(third, third))
    capture.replay()

    np.testing.assert_array_equal(result.get(), expected)
    assert (expected != ops.matmul(third, third).get()).any()


def test_views_made_inside_are_views(array: Any) -> None:
    capture, row = captured(lambda stream: array[1])

    array.fill(9.0)

    capture.replay()
    assert (row.get() == 9.0).all()


ILLEGAL: dict[str, Callable[[Any, Any], object]] = {
    "get": lambda array, stream: array.get(),
    "float": lambda array, stream: float(array[0, 0]),
    "bool": lambda array, stream: bool(array[0, 0]),
    "str": lambda array, stream: str(array),
    "allclose": lambda array, stream: np.allclose(array, array),
    "nonzero": lambda array, stream: np.nonzero(array),
    "where-one": lambda array, stream: np.where(array),
    "bincount": lambda array, stream: np.bincount(array.ravel().astype("int32"), minlength=9),
    "delete": lambda array, stream: np.delete(array, array[0].astype("int64"), axis=0),
    "repeat": lambda array, stream: np.repeat(array[0], array[0].astype("int64")),
    "repeat-named": lambda array, stream: np.repeat(array[0], repeats=array[0].astype("int64")),
    "repeat-method": lambda array, stream: array[0].repeat(array[0].astype("int64")),
    "mask": lambda array, stream: array[array > 0],
    "from_host": lambda array, stream: BACKEND.from_host(np.ones(3), 0),
    "stream-synchronize": lambda array, stream: stream.synchronize(),
    "stream-query": lambda array, stream: stream.query(),
    "device-synchronize": lambda array, stream: BACKEND.synchronize(0),
    "event-query": lambda array, stream: stream.record_event().query(),
    "event-synchronize": lambda array, stream: stream.record_event().synchronize(),
    "capture-again": lambda array, stream: BACKEND.new_capture(0).begin(stream),
}


@pytest.mark.parametrize("call", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_what_needs_a_result_raises_while_capturing(array: Any, call: Callable[[Any, Any], object]) -> None:
    capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
    capture.begin(stream)

    with BACKEND.use_stream(stream), pytest.raises(CaptureError, match=";"):
        call(array, stream)

    capture.reset()
    BACKEND.synchronize(0)


def test_replay_whose_result_has_another_shape_than_the_capture_is_an_error(array: Any) -> None:
    row, mask = array[0], array[0] > 0
    capture, _ = captured(lambda stream: np.insert(row, mask, 0.0))

    with pytest.raises(CaptureError, match="its shape depends on values; call it outside"):
        capture.replay()


def test_other_streams_run_while_one_is_captured(array: Any) -> None:
    capture, stream, other = BACKEND.new_capture(0), BACKEND.new_stream(0), BACKEND.new_stream(0)
    capture.begin(stream, capture_error_mode="relaxed")

    with BACKEND.use_stream(other):
        assert float(array.sum()) == 20.0

    capture.end()


class TestOrder:
    def test_a_fork_that_is_joined_replays(self, array: Any) -> None:
        side = BACKEND.new_stream(0)

        def work(stream: Any) -> Any:
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                doubled = ops.mul(array, 2.0)
            stream.wait_stream(side)
            return ops.add(doubled, 1.0)

        capture, result = captured(work)
        capture.replay()

        np.testing.assert_array_equal(result.get(), (np.eye(4, dtype=np.float32) + 1) * 2 + 1)

    def test_a_missing_join_inside_is_a_race(self, array: Any) -> None:
        side = BACKEND.new_stream(0)

        def work(stream: Any) -> None:
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                array.fill(1.0)
            ops.add(array, 1.0)
            stream.wait_stream(side)

        capture, _ = captured(work)

        with pytest.raises(RaceError, match=r"stream \d+\.branch1"):
            capture.replay()

    def test_a_fork_never_joined_cannot_end(self, array: Any) -> None:
        capture, stream, side = BACKEND.new_capture(0), BACKEND.new_stream(0), BACKEND.new_stream(0)
        capture.begin(stream)
        side.wait_stream(stream)
        with BACKEND.use_stream(side):
            array.fill(1.0)

        with pytest.raises(CaptureError, match=r"ended with work of stream \d+ that it does not wait for"):
            capture.end()

        assert not side.capturing

    @pytest.mark.parametrize(("count", "advice"), [(1, "wait for it before"), (2, "wait for them before")])
    def test_streams_that_are_not_joined_are_all_named(self, array: Any, count: int, advice: str) -> None:
        capture, stream, *sides = BACKEND.new_capture(0), *(BACKEND.new_stream(0) for _ in range(count + 1))
        capture.begin(stream)
        for side in sides:
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                ops.add(array, 1.0)

        with pytest.raises(CaptureError, match=advice) as caught:
            capture.end()

        assert ", ".join(side.queue.label for side in sides) in str(caught.value)

    def test_a_replay_races_with_unordered_work_outside(self, array: Any) -> None:
        capture, _ = captured(lambda stream: ops.add(array, 1.0))
        with BACKEND.use_stream(BACKEND.new_stream(0)):
            array.fill(2.0)

        with pytest.raises(RaceError, match="read by add"):
            capture.replay()

    def test_replays_on_two_streams_follow_each_other(self, array: Any) -> None:
        capture, _ = captured(lambda stream: array.fill(1.0))

        for stream in (BACKEND.new_stream(0), BACKEND.new_stream(0)):
            with BACKEND.use_stream(stream):
                capture.replay()

        BACKEND.synchronize(0)

    def test_a_replay_follows_the_former_one_not_what_its_stream_did_since(self, array: Any) -> None:
        capture, _ = captured(lambda stream: array.fill(1.0))
        other = BACKEND.from_host(np.zeros(4, np.float32), 0)
        BACKEND.synchronize(0)
        with BACKEND.use_stream(BACKEND.new_stream(0)):
            capture.replay()
            other.fill(1.0)

        with BACKEND.use_stream(BACKEND.new_stream(0)):
            capture.replay()
            with pytest.raises(RaceError, match="write by fill"):
                other.fill(2.0)

    def test_work_after_the_event_that_is_waited_for_is_not_joined(self, array: Any) -> None:
        side, stream, capture = BACKEND.new_stream(0), BACKEND.new_stream(0), BACKEND.new_capture(0)
        capture.begin(stream)
        side.wait_stream(stream)
        with BACKEND.use_stream(side):
            ops.add(array, 1.0)
            event = side.record_event()
            ops.add(array, 1.0)
        stream.wait_event(event)

        with pytest.raises(CaptureError, match="that it does not wait for"):
            capture.end()

    def test_a_replay_waits_for_an_event_not_for_what_came_after_it(self, array: Any) -> None:
        side, result = BACKEND.new_stream(0), BACKEND.from_host(np.zeros((4, 4), np.float32), 0)
        BACKEND.synchronize(0)

        def work(stream: Any) -> None:
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                ops.add(array, 1.0, out=result)
                event = side.record_event()
                ops.add(array, 2.0, out=result)
            stream.wait_event(event)
            ops.add(result, 1.0)
            stream.wait_stream(side)

        capture, _ = captured(work)

        with pytest.raises(RaceError, match="read by add"):
            capture.replay()

    def test_an_event_of_a_capture_may_be_recorded_again_outside(self, array: Any) -> None:
        events = []
        captured(lambda stream: (ops.add(array, 1.0), events.append(stream.record_event())))
        (event,) = events

        event.record(BACKEND.new_stream(0))

        assert event.query()

    def test_an_event_from_outside_cannot_be_waited_for(self) -> None:
        event = BACKEND.new_event(0)
        event.record()
        capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
        capture.begin(stream)

        with pytest.raises(CaptureError, match="outside the capture"):
            stream.wait_event(event)

        capture.reset()


class TestLife:
    def test_the_default_stream_cannot_be_captured(self) -> None:
        with pytest.raises(CaptureError, match="default stream"):
            BACKEND.new_capture(0).begin()

    def test_nothing_can_be_replayed_before_the_end(self) -> None:
        with pytest.raises(CaptureError, match="nothing to replay"):
            BACKEND.new_capture(0).replay()

    def test_end_needs_a_begin(self) -> None:
        with pytest.raises(CaptureError, match="not capturing"):
            BACKEND.new_capture(0).end()

    def test_a_capture_that_holds_work_is_not_begun_again(self, array: Any) -> None:
        capture, _ = captured(lambda stream: ops.add(array, 1.0))

        with pytest.raises(CaptureError, match="reset"):
            capture.begin(BACKEND.new_stream(0))

    def test_reset_twice_frees_what_it_held(self, array: Any) -> None:
        before = BACKEND.memory_info(0)
        capture, result = captured(lambda stream: ops.add(ops.add(array, 1.0), 1.0))
        capture.replay()
        del result

        capture.reset()
        capture.reset()

        BACKEND.synchronize(0)
        assert BACKEND.memory_info(0) == before

    def test_after_a_broken_one_it_can_capture_again(self, array: Any) -> None:
        capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
        capture.begin(stream)
        with pytest.raises(CaptureError):
            stream.query()
        with pytest.raises(CaptureError, match="was rejected"):
            capture.end()

        capture.begin(stream)
        capture.end()

        assert not stream.capturing

    def test_a_stream_that_is_captured_in_relaxed_mode_is_not_asked_either(self) -> None:
        capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
        capture.begin(stream, capture_error_mode="relaxed")

        with pytest.raises(CaptureError, match=r"Stream\.query"):
            stream.query()
        capture.reset()

    def test_behind_it_the_former_stream_is_current(self) -> None:
        capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
        former = BACKEND.current_stream(0)

        capture.begin(stream)
        inside = BACKEND.current_stream(0)
        capture.end()

        assert (inside, BACKEND.current_stream(0)) == (stream, former)

    def test_streams_that_are_captured_are_not_handed_out(self) -> None:
        capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
        capture.begin(stream)

        others = [BACKEND.new_stream(0) for _ in range(64)]
        capture.end()

        assert stream not in others

    @pytest.mark.parametrize(("op", "is_same"), [(ops.add, True), (ops.mul, False)], ids=["add", "mul"])
    def test_it_is_updated_in_place_by_the_same_work_alone(self, array: Any, op: Any, is_same: bool) -> None:
        capture, _ = captured(lambda stream: ops.add(array, 1.0))
        other, stream = BACKEND.new_capture(0, keep_graph=True), BACKEND.new_stream(0)
        other.begin(stream)
        with BACKEND.use_stream(stream):
            result = op(array, 3.0)
        other.end()

        assert capture.update(other) is is_same
        capture.replay()
        np.testing.assert_array_equal(result.get(), op(array, 3.0).get())

    @pytest.mark.parametrize("ends", ["reset", "update"])
    def test_what_it_replays_branches_on_goes_with_it(self, array: Any, ends: str) -> None:
        side, stream, device = BACKEND.new_stream(0), BACKEND.new_stream(0), BACKEND.machine.devices[0]
        kept = BACKEND.new_capture(0)

        def capture(graph: Any) -> None:
            graph.begin(stream)
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                ops.add(array, 1.0)
            stream.wait_stream(side)
            graph.end()

        capture(kept)
        BACKEND.synchronize(0)
        before = len(device.queues)
        for _ in range(3):
            graph = BACKEND.new_capture(0, keep_graph=True)
            capture(graph)
            graph.reset() if ends == "reset" else kept.update(graph)
        BACKEND.synchronize(0)

        assert len(device.queues) == before

    def test_an_error_in_a_body_ends_the_body(self, array: Any) -> None:
        never = BACKEND.from_host(np.zeros(1, bool), 0)
        BACKEND.synchronize(0)
        capture, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
        with BACKEND.use_stream(stream):
            capture.begin()
            with pytest.raises(KeyError), capture.if_node(never):
                raise KeyError
            ops.add(array, 1.0, out=array)
            capture.end()
            capture.replay()

        BACKEND.synchronize(0)
        assert (array.get() == np.eye(4) + 2).all()

    def test_after_reset_it_can_capture_again(self, array: Any) -> None:
        capture, _ = captured(lambda stream: ops.add(array, 1.0))
        capture.reset()
        stream = BACKEND.new_stream(0)

        capture.begin(stream)
        capture.end()
        capture.replay()

        assert "0 launches" in repr(capture)


class TestPools:
    def test_memory_dropped_within_a_capture_is_used_again(self, array: Any) -> None:
        def work(stream: Any) -> Any:
            for _ in range(5):
                result = ops.add(array, 1.0)
            return result

        capture, result = captured(work)
        capture.replay()

        assert capture.statistics().pool_nbytes == 512  # the result of now, and that of before
        assert (result.get() == np.eye(4) + 2).all()

    def test_memory_is_not_shared_by_two_streams_of_a_capture_that_do_not_wait(self, array: Any) -> None:
        side = BACKEND.new_stream(0)

        def work(stream: Any) -> Any:
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                ops.add(array, 1.0)
            result = ops.add(array, 2.0)
            stream.wait_stream(side)
            return result

        capture, result = captured(work)
        capture.replay()

        assert capture.statistics().pool_nbytes == 512
        assert (result.get() == np.eye(4) + 3).all()

    def test_memory_passes_to_the_stream_that_waits(self, array: Any) -> None:
        side = BACKEND.new_stream(0)

        def work(stream: Any) -> Any:
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                ops.add(array, 1.0)
            stream.wait_stream(side)
            return ops.add(array, 2.0)

        capture, result = captured(work)
        capture.replay()

        assert capture.statistics().pool_nbytes == 256
        assert (result.get() == np.eye(4) + 3).all()

    @pytest.mark.parametrize("is_recorded", [True, False])
    def test_memory_that_another_stream_reads_is_safe_where_that_was_recorded(
        self, array: Any, is_recorded: bool
    ) -> None:
        side = BACKEND.new_stream(0)

        def work(stream: Any) -> Any:
            temporary = ops.add(array, 1.0)
            side.wait_stream(stream)
            with BACKEND.use_stream(side):
                read = ops.add(temporary, 1.0)
            if is_recorded:
                temporary.record_stream(side)
            del temporary
            ops.mul(array, 9.0)
            stream.wait_stream(side)
            return read

        capture, read = captured(work)

        if is_recorded:
            capture.replay()
            assert (read.get() == np.eye(4) + 3).all()
        else:
            with pytest.raises(RaceError, match="write by mul"):
                capture.replay()

    def test_two_graphs_of_one_pool_at_the_same_time_are_a_race(self, array: Any) -> None:
        first, second, stream = BACKEND.new_capture(0), BACKEND.new_capture(0), BACKEND.new_stream(0)
        for capture in (first, second):
            capture.begin(stream, pool=first.pool() if capture is second else None)
            ops.add(ops.add(array, 1.0), 1.0)
            capture.end()
        first.replay()

        with BACKEND.use_stream(BACKEND.new_stream(0)), pytest.raises(RaceError, match="write by add"):
            second.replay()

    def test_two_graphs_of_one_pool_in_turn_are_none(self, array: Any) -> None:
        first, second, stream = BACKEND.new_capture(0), BACKEND.new_capture(0), BACKEND.new_stream(0)
        for capture in (first, second):
            capture.begin(stream, pool=first.pool() if capture is second else None)
            ops.add(ops.add(array, 1.0), 1.0)
            capture.end()

        for _ in range(2):
            first.replay()
            second.replay()

        assert first.statistics().pool_nbytes == 512

    @pytest.mark.parametrize(
        ("steps", "taken"),
        [
            ([[512], [256, 256], [512]], 512),  # halves are one again
            ([[256, 256], [512]], 1024),  # what came in two pieces stays two: they go back one by one
            ([[1024], [256, 512]], 1024),  # a rest serves too
            ([[1024, 256], [256, 1024]], 1280),  # the smallest that is large enough
        ],
    )
    def test_captures_of_one_pool_take_what_the_former_ones_left(self, steps: list[list[int]], taken: int) -> None:
        graphs, stream = [BACKEND.new_capture(0) for _ in steps], BACKEND.new_stream(0)
        for graph, sizes in zip(graphs, steps, strict=True):
            graph.begin(stream, pool=graphs[0].pool() if graph is not graphs[0] else None)
            made = [BACKEND.empty((nbytes,), "uint8", 0) for nbytes in sizes]
            del made
            graph.end()

        assert graphs[-1].statistics().pool_nbytes == taken

    def test_memory_held_for_another_stream_serves_the_next_capture(self, array: Any) -> None:
        side, stream, graphs = BACKEND.new_stream(0), BACKEND.new_stream(0), [BACKEND.new_capture(0) for _ in range(2)]
        for graph in graphs:
            graph.begin(stream, pool=graphs[0].pool() if graph is graphs[1] else None)
            made = BACKEND.empty((256,), "uint8", 0)
            made.record_stream(side)
            del made
            later = BACKEND.empty((256,), "uint8", 0)
            del later
            graph.end()

        assert graphs[1].statistics().pool_nbytes == 512

    def test_recording_the_stream_that_a_block_was_made_on_does_not_hold_it(self) -> None:
        def work(stream: Any) -> None:
            for _ in range(2):
                made = BACKEND.empty((256,), "uint8", 0)
                made.record_stream(stream)
                del made

        capture, _ = captured(work)

        assert capture.statistics().pool_nbytes == 256

    def test_an_input_dropped_behind_a_replay_stays_until_that_is_done(self, judge: Judged) -> None:
        arrays = [BACKEND.from_host(np.ones(4, np.float32), 0)]
        BACKEND.synchronize(0)
        capture, _ = captured(lambda stream: ops.add(arrays[0], 1.0))
        with BACKEND.use_stream(BACKEND.new_stream(0)):
            BACKEND.spin(0, 10**9)
            capture.replay()

        low = arrays[0].span.low
        arrays.clear()
        again = BACKEND.empty((4,), "float32", 0)

        assert again.span.low != low
        # An allocator of a real device knows nothing of what a graph reads, and gives the memory out again.
        with nullcontext() if judge.engine == "sim" else pytest.raises(RaceError, match="early free"):
            again.fill(1.0)
        BACKEND.synchronize(0)

    def test_the_arena_gets_the_memory_back_after_the_replay_that_uses_it(self, array: Any) -> None:
        before = BACKEND.memory_info(0)
        capture, result = captured(lambda stream: ops.add(array, 1.0))
        with BACKEND.use_stream(BACKEND.new_stream(0)):
            capture.replay()

        capture.reset()
        assert BACKEND.memory_info(0) != before  # the result is held
        del result
        BACKEND.synchronize(0)

        assert BACKEND.memory_info(0) == before

    def test_an_input_that_was_dropped_is_found_at_the_replay(self, judge: Judged) -> None:
        arrays = [BACKEND.from_host(np.ones(4, np.float32), 0)]
        BACKEND.synchronize(0)
        capture, _ = captured(lambda stream: ops.add(arrays[0], 1.0))
        arrays.clear()

        what = {
            "sim": r"add, captured at .*, reads an array of \(4,\) float32 that was dropped",
            "sanitizer": r"early free: a replay of add, captured at .*, reads a float32 array of shape \(4,\)",
        }
        with pytest.raises((CaptureError, RaceError), match=what[judge.engine]):
            capture.replay()


class TestModes:
    @pytest.mark.parametrize("wait", ["synchronize", "query"])
    def test_global_mode_forbids_to_wait_for_other_streams(self, wait: str) -> None:
        capture, other = BACKEND.new_capture(0), BACKEND.new_stream(0)
        event = other.record_event()
        capture.begin(BACKEND.new_stream(0))

        for target in (other, event):
            with pytest.raises(CaptureError, match="for other streams too"):
                getattr(target, wait)()

        with pytest.raises(CaptureError, match=rf"Stream\.{wait} was rejected"):
            capture.end()
        getattr(other, wait)()

    def test_an_abandoned_capture_forbids_nothing(self) -> None:
        capture, other = BACKEND.new_capture(0), BACKEND.new_stream(0)
        capture.begin(BACKEND.new_stream(0))

        del capture

        assert other.query() is True


class _Anything:
    """A capture in which all work comes after all other."""

    def clock_of(self, queue: Any) -> dict[int, int]:
        return {}

    def comes_after(self, queue: Any, clock: Any) -> bool:
        return True


@pytest.mark.parametrize("taken_between", [0, 1], ids=["dropped last", "dropped before"])
def test_memory_of_a_pool_that_other_streams_used_is_free_once(taken_between: int) -> None:
    device = BACKEND._device(0)
    pool, capture = graph_pools.Pool((7, 7), device.reserve), _Anything()
    held = pool.take(1024, device.default, capture)
    held.used_by(device.new_queue())
    del held  # other streams were recorded for it: free when the capture is over
    taken = [pool.take(1024, device.default, capture) for _ in range(taken_between)]

    for _ in range(2):
        pool.tidy()
        taken.append(pool.take(1024, device.default, capture))

    ranges = sorted((block.low, block.high) for block in taken)
    assert all(low[1] <= high[0] for low, high in pairwise(ranges))


class _Dying(deque[Any]):
    """Blocks that were dropped; one more is dropped, by another thread, while somebody looks at them."""

    late: Any = None

    def _drop(self) -> None:
        self.late = None

    def __iter__(self) -> Iterator[Any]:
        yield from tuple(super().__iter__())
        self._drop()

    def popleft(self) -> Any:
        found = super().popleft()
        self._drop()
        return found


def test_a_block_that_dies_while_a_pool_is_tidied_is_free_afterwards() -> None:
    device = BACKEND._device(0)
    pool, capture = graph_pools.Pool((7, 8), device.reserve), _Anything()
    first, late = (pool.take(1024, device.default, capture) for _ in range(2))
    pool._dropped = dropped = _Dying()
    dropped.late = late
    del first, late

    pool.tidy()
    pool.tidy()

    assert sum(piece.high - piece.low for piece in pool._free) == pool.nbytes


@pytest.mark.parametrize("seed", range(3))
def test_a_pool_loses_no_memory_and_gives_none_twice(seed: int) -> None:
    device, chance = BACKEND.machine.devices[0], random.Random(seed)  # noqa: S311  a program, no secret
    pool, capture = graph_pools.Pool((7, 9), device.reserve), _Anything()
    live: list[Any] = []
    for _ in range(40):
        if live and chance.random() < 0.5:
            del live[chance.randrange(len(live))]
        else:
            live.append(pool.take(chance.choice([256, 1024, 4096]), device.default, capture))
        if chance.random() < 0.3:
            pool.tidy()
            ranges = sorted((one.low, one.high) for one in (*live, *pool._free))
            assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
            assert sum(high - low for low, high in ranges) == pool.nbytes
