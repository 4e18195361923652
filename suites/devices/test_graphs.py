"""Graphs as torch's users know them, on every kind that captures; see `suites/nvidia/test_graphs.py` for CUDA's own."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, devices, from_host, ops, to_host
from cuassay.core.graphs import Graph
from cuassay.core.protocols import Backend
from cuassay.errors import ArgumentError, CaptureError, DTypeError, OutOfMemoryError, ShapeError
from cuassay.testing import exclusive, requires

pytestmark = requires("graphs")

EVENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end", "destroy")


@pytest.fixture
def backend(device: Device) -> Backend:
    return devices.backend(device.kind)


@pytest.fixture
def made(device: Device, backend: Any) -> Iterator[Callable[..., Graph]]:
    """Makes graphs; they are reset whatever the test leaves."""
    graphs: list[Graph] = []

    def make(**options: Any) -> Graph:
        graphs.append(backend.new_capture(device.index, **options))
        return graphs[-1]

    yield make
    for graph in graphs:
        graph.reset()


@pytest.fixture
def full(device: Device) -> Callable[..., Any]:
    return lambda value, size=8: from_host(np.full(size, value, np.float32), device)


@pytest.fixture(autouse=True)
def warm(device: Device, backend: Any) -> None:
    """Kernels are compiled outside of captures; what ran is done."""
    a = from_host(np.ones(8, np.float32), device)
    ops.add(a, 1.0, out=a)
    ops.mul(a, a)
    ops.copy(a)
    backend.synchronize(device.index)


def values(array: Any) -> list[float]:
    return [float(value) for value in to_host(array).ravel()]


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

    with pytest.raises(CaptureError, match="error was not let out"), cuda.graph(made()):
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


def test_an_update_of_another_shape_makes_it_anew(made: Any, full: Any) -> None:
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


# ------------------------------------------------------------------------------------------------ hooks


@pytest.fixture
def events() -> Iterator[list[tuple[str, str]]]:
    """What happens to graphs, with their state by then."""
    seen: list[tuple[str, str]] = []
    register = {event: getattr(cuda, f"register_graph_{event}_hook") for event in EVENTS}
    handles = [
        register[event](lambda graph, event=event: seen.append((event, graph.statistics().state))) for event in EVENTS
    ]
    yield seen
    for handle in handles:
        handle.remove()
        handle.remove()


def test_hooks_see_a_graphs_life_in_order(made: Any, full: Any, events: Any) -> None:
    a, graph = full(1), made()
    with cuda.graph(graph):
        ops.add(a, a)
    graph.replay()
    graph.reset()

    assert [event for event, _ in events] == list(EVENTS)
    assert events[0] == ("capture_start", "capturing")


def test_a_removed_hook_is_not_called_and_one_added_late_is(made: Any, full: Any) -> None:
    a, graph, seen = full(1), made(), []
    with cuda.graph(graph):
        ops.add(a, a, out=a)
    graph.replay()

    with cuda.register_graph_replay_start_hook(seen.append) as handle:
        graph.replay()
        assert "registered" in repr(handle)
    graph.replay()

    assert seen == [graph]
    assert "removed" in repr(handle)
    assert values(a) == [8.0] * 8


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ArgumentError, match="function of one argument"):
        cuda.register_graph_destroy_hook(3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ conditional nodes


@requires("conditional_graphs")
def test_an_if_node_runs_where_its_predicate_holds(device: Device, made: Any, full: Any) -> None:
    total, graph = full(0), made()
    predicate = from_host(np.array([True]), device)
    with cuda.graph(graph):
        ops.add(total, 1.0, out=total)
        with graph.if_node(predicate):
            ops.add(total, 10.0, out=total)

    for value in (True, False, True):
        ops.copy(from_host(np.array([value]), device), out=predicate)
        graph.replay()

    assert values(total) == [23.0] * 8


@requires("conditional_graphs")
def test_a_while_node_runs_until_its_predicate_fails(device: Device, made: Any, full: Any) -> None:
    left, steps, graph = full(3, 1), full(0, 1), made()
    more = from_host(np.array([True]), device)
    xp = devices.namespace(device)
    xp.greater(left, steps, out=more)
    with cuda.graph(graph):
        xp.greater(left, steps, out=more)
        with graph.while_node(more):
            ops.add(steps, 1.0, out=steps)
            xp.greater(left, steps, out=more)

    for limit, expected in ((3.0, 3.0), (50.0, 50.0), (7.0, 50.0)):
        ops.copy(full(limit, 1), out=left)
        graph.replay()
        assert values(steps) == [expected]


@requires("conditional_graphs")
def test_conditional_nodes_nest(device: Device, made: Any, full: Any) -> None:
    total, graph = full(0), made()
    outer, inner = (from_host(np.array([True]), device) for _ in range(2))
    with cuda.graph(graph), graph.if_node(outer):
        ops.add(total, 1.0, out=total)
        with graph.if_node(inner):
            ops.add(total, 10.0, out=total)

    for first, second in ((True, True), (True, False), (False, True)):
        ops.copy(from_host(np.array([first]), device), out=outer)
        ops.copy(from_host(np.array([second]), device), out=inner)
        graph.replay()

    assert values(total) == [12.0] * 8


@requires("conditional_graphs")
def test_a_conditional_node_belongs_inside_a_capture_and_reads_one_bool(device: Device, made: Any, full: Any) -> None:
    eight, graph = full(1), made()
    with pytest.raises(CaptureError, match="between begin and end"), graph.if_node(eight):
        pass
    with pytest.raises(ArgumentError, match="one bool"), cuda.graph(graph), graph.while_node(eight):
        pass


# ------------------------------------------------------------------------------------------------ graphed callables


def test_a_graphed_function_is_called_on_what_it_is_given(full: Any) -> None:
    weight = full(3)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.add(ops.mul(a, weight), b), (full(1), full(2)))

    assert values(graphed(full(2), full(5))) == [11.0] * 8
    assert values(graphed(full(4), full(0))) == [12.0] * 8


def test_a_static_input_is_not_copied(made: Any, full: Any) -> None:
    a = full(1)
    graphed = cuda.make_graphed_callables(lambda a: ops.add(a, 1.0), (a,))

    ops.copy(full(6), out=a)

    assert values(graphed(a)) == [7.0] * 8


def test_a_replay_on_other_inputs_reads_these_and_leaves_the_static_ones(full: Any) -> None:
    a, b = full(1), full(2)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.mul(ops.add(a, b), b), (a, b))

    assert values(graphed.replay((full(3), full(4)))) == [28.0] * 8
    assert values(graphed.replay((full(3), b))) == [10.0] * 8 or graphed.repointable == (False, False)
    assert values(graphed.replay()) is not None
    assert values(graphed(full(1), full(1))) == [2.0] * 8


def test_replays_follow_an_input_that_changes_in_place(full: Any) -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (full(1),))
    if not all(graphed.repointable):
        pytest.skip(f"{graphed.graph.device}: its kind copies inputs")
    mine = full(3)

    first = values(graphed.replay((mine,)))
    ops.copy(full(5), out=mine)

    assert first == [6.0] * 8
    assert values(graphed.replay()) == [10.0] * 8


def test_nested_arguments_keep_their_form(full: Any) -> None:
    graphed = cuda.make_graphed_callables(
        lambda pair, named: {"sum": ops.add(pair[0], pair[1]), "last": [ops.mul(named["x"], 2.0)]},
        ([full(1), full(2)], {"x": full(3)}),
    )

    result = graphed([full(4), full(5)], {"x": full(6)})

    assert values(result["sum"]) == [9.0] * 8
    assert values(result["last"][0]) == [12.0] * 8
    with pytest.raises(ArgumentError, match="nested alike"):
        graphed([full(1)], {"x": full(1)})


def test_an_argument_unlike_the_captured_one_is_refused(device: Device, full: Any) -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (full(1),))

    with pytest.raises(ShapeError, match=r"argument 0 was captured with shape \(8,\)"):
        graphed(full(1, 9))
    with pytest.raises(DTypeError, match="float32"):
        graphed(from_host(np.ones(8), device))
    with pytest.raises(ArgumentError, match="takes and gives arrays"):
        cuda.make_graphed_callables(lambda a: a, (3,))
    with pytest.raises(ArgumentError, match="sample_args is a tuple of arguments"):
        cuda.make_graphed_callables(lambda a: a, full(1))
    with pytest.raises(ArgumentError, match="needs a function, or several; got 3"):
        cuda.make_graphed_callables(3, (full(1),))  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="captures into a CUDAGraph; got None"):
        cuda.graph(None)  # type: ignore[arg-type]


def test_several_functions_share_memory_and_keep_their_order(full: Any) -> None:
    sizes = (8, 1024, 64)
    graphed = cuda.make_graphed_callables(
        [lambda a, n=n: ops.add(ops.mul(a, float(n)), 1.0) for n in range(3)], [(full(1, size),) for size in sizes]
    )

    assert len({one.graph.pool() for one in graphed}) == 1
    for number, (one, size) in enumerate(zip(graphed, sizes, strict=True)):
        assert values(one(full(2, size))) == [2.0 * number + 1] * size


def test_an_input_changed_by_the_function_is_changed_in_its_place(full: Any) -> None:
    def step(state: Any, update: Any) -> Any:
        ops.add(state, update, out=state)
        return state

    state = full(0)
    graphed = cuda.make_graphed_callables(step, (state, full(1)), num_warmup_iters=0)

    graphed.replay((state, full(2)))
    graphed.replay((state, full(3)))

    assert values(state) == [5.0] * 8
    assert graphed.repointable[0] is False


def test_an_argument_given_twice_is_copied_not_pointed_at(full: Any) -> None:
    a = full(1)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.add(a, b), (a, a[:]))

    assert graphed.repointable == (False, False)
