"""Graphs as torch's users know them, on every kind that captures; `suites/nvidia/graphs` has CUDA's own."""

from __future__ import annotations

import contextlib
import gc
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arrays_read import values

from cuassay import Device, cuda, devices, ops, random, to_host
from cuassay.core.round_robin import STREAMS_PER_PRIORITY
from cuassay.errors import ArgumentError, CaptureError, OutOfMemoryError
from cuassay.testing import devices as on
from cuassay.testing import exclusive, requires

pytestmark = [requires("graphs"), pytest.mark.usefixtures("warm_kernels")]


# ------------------------------------------------------------------------------------------------ capture and replay


def test_a_replay_computes_on_the_inputs_of_now(made: Any, full: Any) -> None:
    a, graph = full(1), made()
    with cuda.graph(graph):
        doubled = ops.add(a, a)

    for value in (3.0, 5.0):
        ops.copy(full(value), out=a)
        graph.replay()
        assert values(doubled) == [2 * value] * 8


def test_a_graph_may_be_replayed_on_any_stream_also_the_default_one(
    device: Device, backend: Any, made: Any, full: Any
) -> None:
    total, graph = full(0), made()
    with cuda.graph(graph):
        ops.add(total, 1.0, out=total)
    stream = backend.new_stream(device.index)

    graph.replay()
    stream.wait_stream(backend.current_stream(device.index))
    with backend.use_stream(stream):
        graph.replay()
    backend.current_stream(device.index).wait_stream(stream)
    graph.replay()

    assert values(total) == [3.0] * 8


def test_two_threads_capture_at_once(made: Any, full: Any) -> None:
    a, meeting, captured = full(1), threading.Barrier(2, timeout=60), {}

    def capture(value: float) -> None:
        graph = made()
        with cuda.graph(graph, capture_error_mode="thread_local"):
            meeting.wait()
            captured[value] = graph, ops.add(a, value)
            meeting.wait()

    threads = [threading.Thread(target=capture, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for graph, _ in captured.values():
        graph.replay()

    assert {value: values(result)[0] for value, (_, result) in captured.items()} == {1.0: 2.0, 2.0: 3.0}


def test_a_stream_that_is_captured_is_not_handed_out_again(device: Device, backend: Any, made: Any, full: Any) -> None:
    a = full(1)
    stream, *_ = (backend.new_stream(device.index) for _ in range(STREAMS_PER_PRIORITY))

    with cuda.graph(made(), stream=stream):
        ops.add(a, a)
        others = [backend.new_stream(device.index) for _ in range(2 * STREAMS_PER_PRIORITY)]

    assert stream not in others


def test_arrays_of_a_capture_are_used_again_within_it(made: Any, full: Any) -> None:
    a, graph = full(1, 1 << 16), made()

    with cuda.graph(graph):
        for _ in range(20):
            a_next = ops.add(a, 1.0)

    assert graph.statistics().nodes == 20
    assert graph.statistics().pool_nbytes <= 2 << 21
    graph.replay()
    assert values(a_next)[:2] == [2.0, 2.0]


def test_two_graphs_of_one_pool_compute_right_in_turn(made: Any, full: Any) -> None:
    a, first, second = full(1, 1 << 16), made(), made()
    with cuda.graph(first):
        once = ops.add(ops.add(a, 1.0), 1.0)
    before = first.statistics().pool_nbytes
    with cuda.graph(second, pool=first.pool()):
        twice = ops.add(ops.add(once, 1.0), 1.0)

    for _ in range(3):
        first.replay()
        second.replay()

    assert (values(once)[0], values(twice)[0]) == (3.0, 5.0)
    assert first.pool() == second.pool()
    assert second.statistics().pool_nbytes <= 2 * before


@pytest.mark.parametrize("order", ["rising", "falling"])
def test_graphs_of_many_sizes_take_what_the_largest_takes(made: Any, full: Any, order: str) -> None:
    sizes = sorted((1 << power for power in range(12, 19)), reverse=order == "falling")
    pool, taken = cuda.graph_pool_handle(), {}

    for size in sizes:
        a, graph = full(1, size), made()
        with cuda.graph(graph, pool=pool):
            for _ in range(4):
                ops.mul(ops.add(a, 1.0), 2.0)
        taken[size] = graph.statistics().pool_nbytes

    if order == "falling":
        assert len(set(taken.values())) == 1
    assert max(taken.values()) <= 2 * sum(size * 4 * 3 for size in sizes) + (8 << 20)


def test_a_result_outlives_its_graph(made: Any, full: Any) -> None:
    graph = made()
    a = full(2)
    with cuda.graph(graph):
        result = ops.mul(a, a)
    graph.replay()

    graph.reset()
    others = [full(9) for _ in range(10)]

    assert values(result) == [4.0] * 8
    assert len(others) == 10


@exclusive
def test_memory_goes_back_when_the_last_graph_and_the_last_array_are_gone(
    device: Device, backend: Any, made: Any, full: Any
) -> None:
    a = full(1, 1 << 20)
    backend.synchronize(device.index)
    before = backend.memory_info(device.index)[0]
    pool, graphs = cuda.graph_pool_handle(), [made(), made()]
    for graph in graphs:
        with cuda.graph(graph, pool=pool):
            result = ops.mul(ops.add(a, 1.0), 2.0)
        graph.replay()
    del result

    graphs[0].reset()
    assert graphs[1].statistics().pool_nbytes >= 4 << 20
    graphs[1].reset()
    backend.synchronize(device.index)

    assert abs(backend.memory_info(device.index)[0] - before) <= 2 << 20


def test_after_reset_it_captures_again(made: Any, full: Any) -> None:
    a, graph = full(3), made()
    for factor in (2.0, 4.0):
        with cuda.graph(graph):
            result = ops.mul(a, factor)
        graph.replay()
        assert values(result) == [3 * factor] * 8
        graph.reset()


def test_a_graph_that_holds_work_is_not_captured_into(made: Any, full: Any) -> None:
    a, graph = full(1), made()
    with cuda.graph(graph):
        ops.add(a, a)

    with pytest.raises(CaptureError, match="reset"), cuda.graph(graph):
        pass


def test_a_graph_without_work_warns(made: Any) -> None:
    graph = made()

    with pytest.warns(UserWarning, match="holds no work"), cuda.graph(graph):
        pass

    graph.replay()
    assert graph.statistics().nodes == 0


def test_a_side_stream_that_forks_and_joins_is_captured(device: Device, backend: Any, made: Any, full: Any) -> None:
    a, graph, side = full(1), made(), backend.new_stream(device.index)

    with cuda.graph(graph):
        main = backend.current_stream(device.index)
        side.wait_stream(main)
        with backend.use_stream(side):
            doubled = ops.add(a, a)
        tripled = ops.mul(a, 3.0)
        main.wait_stream(side)
        total = ops.add(doubled, tripled)

    for value in (1.0, 2.0):
        ops.copy(full(value), out=a)
        graph.replay()
        assert values(total) == [5 * value] * 8


def test_a_side_stream_never_joined_is_an_error_that_says_so(
    device: Device, backend: Any, made: Any, full: Any
) -> None:
    a, side = full(1), backend.new_stream(device.index)

    def fork() -> None:
        side.wait_stream(backend.current_stream(device.index))
        with backend.use_stream(side):
            ops.add(a, a)

    with pytest.raises(CaptureError, match=r"wait for|forked"), cuda.graph(made()):
        fork()

    assert values(ops.add(a, a)) == [2.0] * 8


# ------------------------------------------------------------------------------------------------ what breaks a capture


BREAKING: dict[str, Callable[[Any, Any, Any], object]] = {
    "host-read": lambda backend, index, array: to_host(array),
    "item": lambda backend, index, array: float(array[0]),
    "stream-synchronize": lambda backend, index, array: backend.current_stream(index).synchronize(),
    "event-synchronize": lambda backend, index, array: backend.current_stream(index).record_event().synchronize(),
    "device-synchronize": lambda backend, index, array: backend.synchronize(index),
}


@pytest.mark.parametrize("call", BREAKING.values(), ids=BREAKING)
def test_a_call_that_needs_results_names_itself(
    device: Device, backend: Any, made: Any, full: Any, call: Callable[[Any, Any, Any], object]
) -> None:
    a, graph = full(1), made()

    with pytest.raises(CaptureError, match=";"), cuda.graph(graph):
        call(backend, device.index, ops.add(a, a))

    with pytest.raises(CaptureError, match="nothing to replay"):
        graph.replay()
    assert values(ops.add(a, a)) == [2.0] * 8


def foreign() -> None:
    raise RuntimeError("operation not permitted when stream is capturing")


def test_the_call_of_another_library_that_breaks_a_capture_is_named(made: Any) -> None:
    with (
        pytest.raises(CaptureError, match=r"^`raise RuntimeError\(.*` at .*test_graphs\.py:\d+ cannot be captured"),
        cuda.graph(made()),
    ):
        foreign()


def test_an_error_that_was_not_let_out_is_told_at_the_end(device: Device, backend: Any, made: Any, full: Any) -> None:
    a = full(1)

    def swallow() -> None:
        ops.add(a, a)
        with contextlib.suppress(RuntimeError):
            backend.current_stream(device.index).synchronize()

    with pytest.raises(CaptureError, match="error was caught"), cuda.graph(made()):
        swallow()

    assert values(ops.add(a, a)) == [2.0] * 8


@pytest.mark.parametrize(("mode", "is_refused"), [("global", True), ("thread_local", False), ("relaxed", False)])
def test_the_mode_says_whose_waits_break_a_capture(
    device: Device, backend: Any, made: Any, full: Any, mode: str, is_refused: bool
) -> None:
    a, graph, other = full(1), made(), backend.new_stream(device.index)
    refused: list[BaseException] = []

    def wait() -> None:
        try:
            other.synchronize()
        except RuntimeError as error:
            refused.append(error)

    graph.begin(backend.new_stream(device.index), capture_error_mode=mode)
    ops.add(a, a)
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()

    assert bool(refused) == is_refused
    graph.reset()


def test_an_unknown_mode_lists_those_there_are(made: Any) -> None:
    with pytest.raises(ArgumentError, match="global, thread_local, relaxed"):
        made().begin(capture_error_mode="strict")


def test_the_garbage_collector_runs_after_a_capture_that_could_not_begin(made: Any, full: Any) -> None:
    a, graph = full(1), made()
    try:
        with pytest.raises(ArgumentError, match="capture_error_mode"), cuda.graph(graph, capture_error_mode="strict"):
            ops.add(a, a)

        assert gc.isenabled()
    finally:
        gc.enable()


def test_an_error_of_the_work_goes_through_and_ends_the_capture(made: Any, full: Any) -> None:
    a, graph = full(1), made()

    with pytest.raises(KeyError), cuda.graph(graph):
        ops.add(a, {}["ours"])

    assert values(ops.add(a, a)) == [2.0] * 8
    with cuda.graph(graph):
        result = ops.add(a, 2.0)
    graph.replay()
    assert values(result) == [3.0] * 8


@exclusive
def test_running_out_of_memory_in_a_capture_leaves_everything_usable(
    device: Device, backend: Any, made: Any, full: Any
) -> None:
    a, graph = full(1), made()
    free = backend.memory_info(device.index)[0]

    with pytest.raises(OutOfMemoryError), cuda.graph(graph):
        devices.empty((free,), "float32", device)

    with cuda.graph(graph):
        result = ops.add(a, a)
    graph.replay()
    assert values(result) == [2.0] * 8


def test_a_graph_is_not_replayed_into_a_capture(made: Any, full: Any) -> None:
    a, inner = full(1), made()
    with cuda.graph(inner):
        ops.add(a, a)

    with pytest.raises(CaptureError, match=r"replayed into a capture|cannot be captured"), cuda.graph(made()):
        inner.replay()


@on("sim")  # on cuda the driver refuses, and by then the new state is on its way
def test_a_refused_replay_draws_nothing(device: Device, made: Any, full: Any) -> None:
    generator, a, graph = random.Generator(device, seed=3), full(1), made()
    with cuda.graph(graph):
        random.dropout(a, generator=generator)
    graph.replay()
    before = generator.get_offset()

    with pytest.raises(CaptureError), cuda.graph(made()):
        graph.replay()

    assert generator.get_offset() == before


@pytest.mark.parametrize("pool", [5, "x", (1, 2, 3), (1, "2")], ids=str)
def test_a_pool_that_is_none_is_refused_before_anything_is_captured(made: Any, full: Any, pool: Any) -> None:
    graph, a = made(), full(1)

    with pytest.raises(ArgumentError, match="pool is a pair of integers; got"), cuda.graph(graph, pool=pool):
        ops.add(a, a)

    with cuda.graph(graph):
        ops.add(a, a)
    graph.replay()


@on("sim")  # nothing of it is a kind's own
def test_no_garbage_is_collected_while_any_thread_captures(made: Any) -> None:
    entered, leave, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with warnings.catch_warnings(), cuda.graph(made()):
            warnings.simplefilter("ignore")
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    gc.enable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it holds no work
        with cuda.graph(made()):
            thread.start()
            entered.wait()
        seen.append(gc.isenabled())
        leave.set()
        thread.join()
    seen.append(gc.isenabled())

    assert seen == [False, True]


def test_a_capture_waits_for_nothing(made: Any, full: Any) -> None:
    a, graph = full(1), made()
    cuda.set_sync_debug_mode("error")
    try:
        with cuda.graph(graph):
            result = ops.add(a, a)
        graph.replay()
        twice = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (result,))
        doubled = twice(result)
    finally:
        cuda.set_sync_debug_mode("default")

    assert (values(result), values(doubled)) == ([2.0] * 8, [4.0] * 8)


def test_the_collector_rests_during_a_capture_and_then_goes_on(made: Any, full: Any) -> None:
    a = full(1)
    with cuda.graph(made()):
        ops.add(a, a)
        assert not gc.isenabled()

    assert gc.isenabled()


# ------------------------------------------------------------------------------------------------ life


def test_graphs_dropped_and_reset_while_their_work_is_under_way(
    device: Device, backend: Any, made: Any, full: Any
) -> None:
    total = full(0, 1 << 16)
    for _ in range(5):
        graph = backend.new_capture(device.index)
        with cuda.graph(graph):
            ops.add(ops.mul(total, 1.0), 1.0, out=total)
        for _ in range(10):
            graph.replay()
        del graph
        gc.collect()

    assert values(total)[:3] == [50.0] * 3


def test_a_capture_dropped_while_open_is_over(device: Device, backend: Any, full: Any) -> None:
    stream, a = backend.new_stream(device.index), full(1)
    stream.wait_stream(backend.current_stream(device.index))
    graph = backend.new_capture(device.index)
    graph.begin(stream)

    del graph
    gc.collect()

    with backend.use_stream(stream):
        assert values(ops.add(a, a)) == [2.0] * 8


def test_reset_is_allowed_at_any_time(made: Any, full: Any) -> None:
    graph, a = made(), full(1)
    graph.reset()
    with cuda.graph(graph):
        ops.add(a, a)

    graph.reset()
    graph.reset()

    assert graph.statistics() == type(graph.statistics())("empty", 0, 0)


def test_each_thread_captures_its_own(device: Device, backend: Any, full: Any) -> None:
    results: dict[int, float] = {}

    def capture(number: int) -> None:
        with backend.activate(device.index):
            a, graph = full(number), backend.new_capture(device.index)
            stream = backend.new_stream(device.index)
            backend.synchronize(device.index)
            ready.wait()
            graph.begin(stream, capture_error_mode="thread_local")
            result = ops.mul(a, 10.0)
            graph.end()
            ready.wait()
            graph.replay()
            backend.synchronize(device.index)
            results[number] = values(result)[0]
            graph.reset()

    ready = threading.Barrier(3)
    threads = [threading.Thread(target=capture, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {0: 0.0, 1: 10.0, 2: 20.0}


# ------------------------------------------------------------------------------------------------ keep, dump, update


def test_a_kept_graph_is_made_executable_by_the_first_replay(made: Any, full: Any) -> None:
    a, graph = full(1), made(keep_graph=True)
    with cuda.graph(graph):
        result = ops.add(a, a)

    assert graph.statistics().state == "captured"
    graph.replay()
    graph.instantiate()
    graph.replay()

    assert graph.statistics().state == "ready"
    assert values(result) == [2.0] * 8


def test_a_graph_not_kept_is_not_instantiated_again(made: Any, full: Any) -> None:
    a, graph = full(1), made()
    with cuda.graph(graph):
        ops.add(a, a)

    with pytest.raises(CaptureError, match="keep_graph"):
        graph.instantiate()


def test_a_dump_shows_the_graph(made: Any, full: Any, tmp_path: Path) -> None:
    a, graph = full(1), made()
    with pytest.raises(CaptureError, match="capture something"):
        graph.debug_dump(tmp_path / "none.dot")
    graph.enable_debug_mode()
    with cuda.graph(graph):
        ops.mul(ops.add(a, a), 2.0)

    graph.debug_dump(tmp_path / "graph.dot")

    assert "digraph" in (tmp_path / "graph.dot").read_text(encoding="utf-8")


def test_a_pool_is_known_from_the_capture_on(made: Any, full: Any) -> None:
    a, graph = full(1), made()
    with pytest.raises(CaptureError, match="no memory yet"):
        graph.pool()
    handle = cuda.graph_pool_handle()

    with cuda.graph(graph, pool=handle):
        ops.add(a, a)

    assert graph.pool() == handle
    assert cuda.graph_pool_handle() != handle


def test_an_update_of_the_same_shape_is_in_place(made: Any, full: Any) -> None:
    a, b, graph, other = full(1), full(5), made(), made(keep_graph=True)
    with cuda.graph(graph):
        first = ops.add(ops.mul(a, 2.0), 1.0)
    graph.replay()
    with cuda.graph(other, pool=graph.pool()):
        second = ops.add(ops.mul(b, 3.0), 2.0)

    assert graph.update(other) is True
    graph.replay()

    assert values(first) == [3.0] * 8
    assert values(second) == [17.0] * 8
    assert other.statistics().state == "empty"
    graph.reset()
    assert values(second) == [17.0] * 8


def test_an_update_of_another_shape_makes_it_again(made: Any, full: Any) -> None:
    a, graph, other = full(1), made(), made(keep_graph=True)
    with cuda.graph(graph):
        ops.mul(a, 2.0)
    with cuda.graph(other):
        result = ops.add(ops.mul(ops.mul(a, 3.0), 2.0), 4.0)

    assert graph.update(other) is False
    graph.replay()
    graph.replay()

    assert values(result) == [10.0] * 8


def test_what_cannot_be_updated_is_told(made: Any, full: Any) -> None:
    a, ready, empty = full(1), made(), made()
    with cuda.graph(ready):
        ops.add(a, a)

    with pytest.raises(CaptureError, match="not executable yet"):
        empty.update(ready)
    with pytest.raises(CaptureError, match="keep_graph=True"):
        ready.update(empty)
