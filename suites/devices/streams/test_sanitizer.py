"""Planted races and early frees, each next to its clean twin: the sanitizer finds the one and lets the other pass.

On sim the machine computes on, as a real device does: the sanitizer alone can find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bad_calls import offences, op_call, told

from cuassay import Device, devices, from_host, ops
from cuassay.core.graphs import Graph
from cuassay.errors import CuassayError, RaceError
from cuassay.observe.sanitizer import Sanitizer, sanitized
from cuassay.testing import devices as on
from cuassay.testing import racing, requires

SIZE = 1024


@dataclass
class Place:
    """A device, two streams of its own, and arrays that are done; `is_safe` asks for the wait that is missing."""

    device: Device
    backend: Any
    sanitizer: Sanitizer
    is_safe: bool
    x: Any
    y: Any
    z: Any
    one: Any
    two: Any
    graphs: list[Graph] = field(default_factory=list)

    def on(self, stream: Any) -> Any:
        return self.backend.use_stream(stream)

    def array(self, value: float = 1.0) -> Any:
        made = from_host(np.full(SIZE, value, np.float32), self.device)
        self.backend.synchronize(self.device.index)
        return made

    def pinned(self) -> Any:
        host = devices.empty_pinned((SIZE,), "float32", self.device)
        host[...] = 3.0
        return host

    def wait(self, waiter: Any = None, other: Any = None) -> None:
        """The wait that a race lacks."""
        if self.is_safe:
            (self.two if waiter is None else waiter).wait_stream(self.one if other is None else other)

    def captured(self, work: Callable[[], Any], **options: Any) -> Graph:
        graph = self.backend.new_capture(self.device.index)
        self.graphs.append(graph)
        with self.on(self.one):
            graph.begin(**options)
            work()
            graph.end()
        return graph


@pytest.fixture(params=[True, False], ids=["clean", "racing"])
def place(device: Device, backend: Any, request: pytest.FixtureRequest) -> Iterator[Place]:
    machine = backend.simulated(devices=device.index + 1, finds_races=False) if device.kind == "sim" else nullcontext()
    with machine:
        x, y, z = (from_host(np.full(SIZE, value, np.float32), device) for value in (1.0, 2.0, 3.0))
        for warm in (ops.add(x, 1.0), ops.mul(x, y), ops.copy(x)):  # kernels are compiled outside of captures
            del warm
        backend.synchronize(device.index)
        with sanitized() as sanitizer:
            x, y, z = (ops.copy(array) for array in (x, y, z))
            one, two = (backend.new_stream(device.index) for _ in range(2))
            backend.synchronize(device.index)
            made = Place(device, backend, sanitizer, request.param, x, y, z, one, two)
            yield made
            sanitizer.engine.is_quiet = True
            backend.synchronize(device.index)
            for graph in made.graphs:
                graph.reset()


def judge(place: Place, work: Callable[[Place], object], match: str) -> None:
    """`work` raises where it races, and nothing where it waits."""
    if place.is_safe:
        work(place)
        place.backend.synchronize(place.device.index)
        assert place.sanitizer.engine.found == []
        return
    with pytest.raises(RaceError, match=match):
        _finished(place, work)


def _finished(place: Place, work: Callable[[Place], object]) -> None:
    work(place)
    place.backend.synchronize(place.device.index)


# ------------------------------------------------------------------------------------------------ calls


def read_after_write(p: Place) -> None:
    with p.on(p.one):
        ops.mul(p.x, 2.0, out=p.y)
    p.wait()
    with p.on(p.two):
        ops.add(p.y, 1.0)


def write_after_write(p: Place) -> None:
    with p.on(p.one):
        ops.mul(p.x, 2.0, out=p.y)
    p.wait()
    with p.on(p.two):
        ops.add(p.x, 1.0, out=p.y)


def write_after_read(p: Place) -> None:
    with p.on(p.one):
        ops.mul(p.y, 2.0)
    p.wait()
    with p.on(p.two):
        ops.add(p.x, 1.0, out=p.y)


def a_new_array(p: Place) -> None:
    with p.on(p.one):
        made = ops.mul(p.x, 2.0)
    p.wait()
    with p.on(p.two):
        ops.add(made, 1.0)
    p.two.synchronize()
    p.one.synchronize()


def one_element_of_two_views(p: Place) -> None:
    end = SIZE // 2 if p.is_safe else SIZE // 2 + 1
    with p.on(p.one):
        ops.mul(p.x[:end], 2.0, out=p.y[:end])
    with p.on(p.two):
        ops.add(p.x[SIZE // 2 :], 1.0, out=p.y[SIZE // 2 :])


def a_plan(p: Place) -> None:
    plan = ops.add.prepare(p.x, p.y, out=p.z)
    p.backend.synchronize(p.device.index)
    with p.on(p.one):
        plan.run()
    p.wait()
    with p.on(p.two):
        plan.run()


def an_event_of_too_early(p: Place) -> None:
    early = p.one.record_event()
    with p.on(p.one):
        ops.mul(p.x, 2.0, out=p.y)
    p.two.wait_event(p.one.record_event() if p.is_safe else early)
    with p.on(p.two):
        ops.add(p.y, 1.0)


def the_default_stream(p: Place) -> None:
    ops.mul(p.x, 2.0, out=p.y)
    p.wait(p.one, p.backend.current_stream(p.device.index))
    with p.on(p.one):
        ops.add(p.y, 1.0)


def a_host_that_waits_for_another_stream(p: Place) -> None:
    with p.on(p.one):
        ops.mul(p.x, 2.0, out=p.y)
    (p.one if p.is_safe else p.two).synchronize()
    with p.on(p.two):
        ops.add(p.y, 1.0)


CALLS = [
    read_after_write,
    write_after_write,
    write_after_read,
    a_new_array,
    one_element_of_two_views,
    a_plan,
    an_event_of_too_early,
    the_default_stream,
    a_host_that_waits_for_another_stream,
]


@on("sim:*", "cuda:*")
@requires("streams")
@pytest.mark.parametrize("work", CALLS, ids=lambda work: work.__name__)
@racing
def test_calls_on_two_streams(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, r"is not ordered after the .*test_sanitizer\.py:\d+; insert ")


# ------------------------------------------------------------------------------------------------ frees


def an_array_that_another_stream_reads(p: Place) -> None:
    array = p.array()
    with p.on(p.one):
        ops.mul(array, 2.0, out=p.y)
    p.wait(p.backend.current_stream(p.device.index), p.one)
    del array


def a_part_that_another_stream_writes(p: Place) -> None:
    array = p.array()
    with p.on(p.one):
        ops.mul(p.x[:8], 2.0, out=array[8:16])
    p.wait(p.backend.current_stream(p.device.index), p.one)
    del array


def a_result_that_a_third_stream_reads(p: Place) -> None:
    with p.on(p.one):
        made = ops.mul(p.x, 2.0)
    p.two.wait_stream(p.one)
    with p.on(p.two):
        ops.add(made, 1.0, out=p.z)
    p.wait(p.one, p.two)
    del made


def memory_recorded_for_the_stream(p: Place) -> None:
    array = p.array()
    with p.on(p.one):
        ops.mul(array, 2.0, out=p.y)
    if p.is_safe:
        recorded(p, array, p.one)
    del array


def recorded(p: Place, array: Any, stream: Any) -> None:
    if p.device.kind == "cuda":
        from cuassay import cuda

        cuda.record_stream(array, stream)
    else:
        array.record_stream(stream)


FREES = [
    an_array_that_another_stream_reads,
    a_part_that_another_stream_writes,
    a_result_that_a_third_stream_reads,
    memory_recorded_for_the_stream,
]


@on("sim:*", "cuda:*")
@requires("streams")
@pytest.mark.parametrize("work", FREES, ids=lambda work: work.__name__)
@racing
def test_frees_of_memory_in_use(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, "early free .*not ordered after the (read|write) by ")


# ------------------------------------------------------------------------------------------------ graphs


def the_output_of_a_replay(p: Place) -> None:
    graph = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    with p.on(p.one):
        graph.replay()
    p.wait()
    with p.on(p.two):
        ops.add(p.y, 1.0)


def the_input_of_a_replay(p: Place) -> None:
    graph = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    with p.on(p.two):
        ops.add(p.z, 1.0, out=p.x)
    p.wait(p.one, p.two)
    with p.on(p.one):
        graph.replay()


def an_input_overwritten_behind_a_replay(p: Place) -> None:
    graph = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    with p.on(p.one):
        graph.replay()
    p.wait()
    with p.on(p.two):
        ops.copy(p.z, out=p.x)


def two_graphs_that_write_one_array(p: Place) -> None:
    first = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    second = p.captured(lambda: ops.add(p.z, 2.0, out=p.y))
    with p.on(p.one):
        first.replay()
    p.wait()
    with p.on(p.two):
        second.replay()


def two_graphs_of_one_pool(p: Place) -> None:
    first = p.captured(lambda: ops.add(ops.mul(p.x, 2.0), 1.0, out=p.y))
    second = p.captured(lambda: ops.add(ops.mul(p.x, 3.0), 1.0, out=p.z), pool=pool_of(first))
    with p.on(p.one):
        first.replay()
    p.wait()
    with p.on(p.two):
        second.replay()


def pool_of(graph: Any) -> Any:
    return graph.pool()


def a_branch_of_a_graph(p: Place) -> None:
    def work() -> None:
        p.two.wait_stream(p.one)
        ops.mul(p.x, 2.0, out=p.y)
        p.wait()
        with p.on(p.two):
            ops.add(p.y, 1.0, out=p.z)
        p.one.wait_stream(p.two)

    graph = p.captured(work)
    with p.on(p.one):
        graph.replay()


def a_graph_that_was_updated(p: Place) -> None:
    graph = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    other = p.backend.new_capture(p.device.index, keep_graph=True)
    p.graphs.append(other)
    with p.on(p.one):
        other.begin()
        ops.mul(p.z, 2.0, out=p.y)
        other.end()
    graph.update(other)
    with p.on(p.two):
        ops.add(p.x, 1.0, out=p.z)
    p.wait(p.one, p.two)
    with p.on(p.one):
        graph.replay()


def an_upload_into_the_input_of_a_replay(p: Place) -> None:
    host = p.pinned()
    graph = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    with p.on(p.one):
        graph.replay()
    p.wait()
    with p.on(p.two):
        devices.copy(host, p.x, non_blocking=True)
    p.backend.synchronize(p.device.index)


def a_download_of_the_output_of_a_replay(p: Place) -> None:
    host = p.pinned()
    graph = p.captured(lambda: ops.mul(p.x, 2.0, out=p.y))
    with p.on(p.one):
        graph.replay()
    p.wait()
    with p.on(p.two):
        devices.copy(p.y, host, non_blocking=True)
    p.backend.synchronize(p.device.index)


GRAPHS = [
    the_output_of_a_replay,
    the_input_of_a_replay,
    an_input_overwritten_behind_a_replay,
    two_graphs_that_write_one_array,
    two_graphs_of_one_pool,
    a_branch_of_a_graph,
    a_graph_that_was_updated,
]

COPIES_BESIDE_REPLAYS = [an_upload_into_the_input_of_a_replay, a_download_of_the_output_of_a_replay]


@on("sim:*", "cuda:*")
@requires("graphs")
@pytest.mark.parametrize("work", GRAPHS, ids=lambda work: work.__name__)
@racing
def test_graphs(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, r"is not ordered after the .*test_sanitizer\.py:\d+; insert ")


@on("sim:*", "cuda:*")
@requires("graphs", "pinned_memory")
@pytest.mark.parametrize("work", COPIES_BESIDE_REPLAYS, ids=lambda work: work.__name__)
@racing
def test_copies_beside_replays(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, r"is not ordered after the .*test_sanitizer\.py:\d+; insert ")


def a_predicate(p: Place) -> None:
    predicate = from_host(np.ones(1, bool), p.device)
    truth = from_host(np.ones(1, bool), p.device)
    p.backend.synchronize(p.device.index)
    graph = p.backend.new_capture(p.device.index)
    p.graphs.append(graph)
    with p.on(p.one):
        graph.begin()
        with graph.if_node(predicate):
            ops.mul(p.x, 2.0, out=p.y)
        graph.end()
    with p.on(p.two):
        ops.copy(truth, out=predicate)
    p.wait(p.one, p.two)
    with p.on(p.one):
        graph.replay()
    p.backend.synchronize(p.device.index)


def the_body_of_a_node(p: Place) -> None:
    predicate = from_host(np.ones(1, bool), p.device)
    p.backend.synchronize(p.device.index)
    graph = p.backend.new_capture(p.device.index)
    p.graphs.append(graph)
    with p.on(p.one):
        graph.begin()
        with graph.if_node(predicate):
            ops.mul(p.x, 2.0, out=p.y)
        graph.end()
    with p.on(p.one):
        graph.replay()
    p.wait()
    with p.on(p.two):
        ops.add(p.y, 1.0)
    p.backend.synchronize(p.device.index)


@on("sim:*", "cuda:*")
@requires("conditional_graphs")
@pytest.mark.parametrize("work", [a_predicate, the_body_of_a_node], ids=lambda work: work.__name__)
@racing
def test_conditional_nodes(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, "is not ordered after the ")


def an_input_that_was_dropped(p: Place) -> None:
    arrays = [p.array()]
    graph = p.captured(lambda: ops.mul(arrays[0], 2.0, out=p.y))
    if not p.is_safe:
        arrays.clear()
    with p.on(p.one):
        graph.replay()
    p.one.synchronize()


def an_input_dropped_behind_a_replay(p: Place) -> None:
    arrays = [p.array()]
    graph = p.captured(lambda: ops.mul(arrays[0], 2.0, out=p.y))
    with p.on(p.one):
        graph.replay()
    p.wait(p.backend.current_stream(p.device.index), p.one)
    arrays.clear()


@on("cuda:*")
@requires("graphs")
@pytest.mark.parametrize(
    "work", [an_input_that_was_dropped, an_input_dropped_behind_a_replay], ids=lambda work: work.__name__
)
@racing
def test_inputs_of_graphs_that_are_freed(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, "early free")


# ------------------------------------------------------------------------------------------------ pinned memory


def a_host_buffer_read_while_it_is_filled(p: Place) -> None:
    host = p.pinned()
    with p.on(p.one):
        devices.copy(p.x, host, non_blocking=True)
    p.wait()
    with p.on(p.two):
        devices.copy(host, p.y, non_blocking=True)
    p.backend.synchronize(p.device.index)


def a_host_buffer_filled_by_two(p: Place) -> None:
    host = p.pinned()
    with p.on(p.one):
        devices.copy(p.x, host, non_blocking=True)
    p.wait()
    with p.on(p.two):
        devices.copy(p.y, host, non_blocking=True)
    p.backend.synchronize(p.device.index)


def an_upload_read_too_early(p: Place) -> None:
    host = p.pinned()
    with p.on(p.one):
        devices.copy(host, p.y, non_blocking=True)
    p.wait()
    with p.on(p.two):
        ops.add(p.y, 1.0)
    p.backend.synchronize(p.device.index)


def a_download_made_too_early(p: Place) -> None:
    host = p.pinned()
    with p.on(p.one):
        ops.mul(p.x, 2.0, out=p.y)
    p.wait()
    with p.on(p.two):
        devices.copy(p.y, host, non_blocking=True)
    p.backend.synchronize(p.device.index)


def an_array_overwritten_while_it_is_downloaded(p: Place) -> None:
    host = p.pinned()
    with p.on(p.one):
        devices.copy(p.y, host, non_blocking=True)
    p.wait()
    with p.on(p.two):
        ops.mul(p.x, 2.0, out=p.y)
    p.backend.synchronize(p.device.index)


COPIES = [
    a_host_buffer_read_while_it_is_filled,
    a_host_buffer_filled_by_two,
    an_upload_read_too_early,
    a_download_made_too_early,
    an_array_overwritten_while_it_is_downloaded,
]


@on("sim:*", "cuda:*")
@requires("streams", "pinned_memory")
@pytest.mark.parametrize("work", COPIES, ids=lambda work: work.__name__)
@racing
def test_copies_of_pinned_memory(place: Place, work: Callable[[Place], object]) -> None:
    judge(place, work, r"is not ordered after the .*test_sanitizer\.py:\d+; insert ")


@pytest.mark.filterwarnings("ignore")
def test_ops_refuse_bad_outputs_while_races_are_looked_for(device: Device, backend: Any) -> None:
    machine = backend.simulated(devices=device.index + 1, finds_races=False) if device.kind == "sim" else nullcontext()
    found = {}
    with machine, sanitized():
        for op in (ops.add, ops.softmax, ops.sum, ops.addmm, ops.eigh):
            found |= offences(op, lambda: op_call(op, device) or {}, "out")  # noqa: B023  is called at once
            with pytest.raises(CuassayError, match="out"):
                op(**op_call(op, device) or {}, out=np.zeros((2, 3), ml_dtypes.bfloat16))

    assert not found, told(found)
