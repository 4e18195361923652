"""CUDA graphs: raw handles, what breaks a capture, re-pointed inputs, memory by the driver's own count, life cycle."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda, from_host, ops, to_host
from cuassay.core import watchers
from cuassay.core.graphs import Graph
from cuassay.cuda import memory
from cuassay.errors import CaptureError
from cuassay.testing import exclusive

DEVICE = "cuda:0"

#: A sanitizer knows the inputs of a graph by the addresses of the capture: while one is on, inputs are copied there.
pointing = pytest.mark.skipif(watchers.wants_accesses(), reason="inputs are copied while a sanitizer asks for accesses")

SCALE = """
__global__ void scale(float* out, const float* a, float factor, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * a[i];
}
"""


@pytest.fixture(autouse=True)
def warm(on_cuda: None) -> None:
    """A device, and kernels compiled outside of captures."""
    a = full(1)
    ops.add(ops.mul(a, a), 1.0)
    cuda.synchronize()


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Makes graphs; they are reset whatever the test leaves."""
    graphs: list[Graph] = []

    def make(keep_graph: bool = False) -> Graph:
        graphs.append(cuda.CUDAGraph(keep_graph))
        return graphs[-1]

    yield make
    for graph in graphs:
        graph.reset()


def full(value: float, size: int = 1024) -> Any:
    return from_host(np.full(size, value, np.float32), DEVICE)


def values(array: Any) -> set[float]:
    return set(to_host(array).ravel().tolist())


def run(code: str) -> subprocess.CompletedProcess[str]:
    head = "import gc, os, numpy as np, cupy; from cuassay import cuda, from_host, ops\n"
    head += "a = from_host(np.ones(1024, np.float32), 'cuda:0'); ops.add(a, a); cuda.synchronize()\n"
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=100, check=False)


# ------------------------------------------------------------------------------------------------ capturing


def test_the_current_stream_says_whether_it_is_captured(made: Any) -> None:
    a = full(1)
    assert cuda.is_current_stream_capturing() is False

    with cuda.graph(made()):
        ops.add(a, a)
        assert cuda.is_current_stream_capturing() is True

    assert cuda.is_current_stream_capturing() is False


def test_cupys_arrays_of_a_capture_are_of_its_pool(made: Any) -> None:
    graph = made()
    with cuda.graph(graph):
        inside = cupy.zeros(1 << 20, cupy.float32)
        inside += 1

    assert graph.statistics().pool_nbytes >= 4 << 20
    graph.replay()
    graph.replay()
    assert values(inside) == {1.0}


def test_a_mem_pool_serves_a_capture(made: Any) -> None:
    pool, graph, a = memory.MemPool(), made(), full(1, 1 << 20)
    with cuda.graph(graph, pool=pool.id):
        result = ops.add(a, a)

    graph.replay()

    assert graph.pool() == pool.id
    assert values(result) == {2.0}
    assert sum(segment["total_size"] for segment in pool.snapshot()) >= 4 << 20


def test_a_stream_of_cupys_may_be_captured(made: Any) -> None:
    graph, stream, a = made(), cupy.cuda.Stream(non_blocking=True), full(1)

    with cuda.graph(graph, stream=stream):
        result = ops.add(a, a)
    graph.replay()

    assert values(result) == {2.0}


def test_a_kernel_is_compiled_and_loaded_within_a_capture(made: Any) -> None:
    graph, a = made(), full(3)
    out = cupy.empty_like(a)
    kernel = cuda.compile_kernel(SCALE.replace("scale", "scale_late"), "scale_late")

    with cuda.graph(graph):
        kernel(4, 256, (out, a, np.float32(2), 1024))
    graph.replay()

    assert values(out) == {6.0}


def test_an_array_recorded_for_another_stream_is_not_used_again_within_the_capture(made: Any) -> None:
    graph, a, side = made(), full(1, 1 << 20), cuda.Stream()
    with cuda.graph(graph):
        main = cuda.current_stream()
        temporary = ops.add(a, 1.0)
        address = temporary.data.ptr
        side.wait_stream(main)
        with side:
            cuda.spin(200_000)
            read = ops.add(temporary, 1.0)
        cuda.record_stream(temporary, side)
        del temporary
        other = ops.mul(a, 9.0)
        main.wait_stream(side)

    graph.replay()
    graph.replay()

    assert other.data.ptr != address
    assert values(read) == {3.0}


# ------------------------------------------------------------------------------------------------ what breaks it


def test_the_call_of_another_library_that_breaks_a_capture_is_named(made: Any) -> None:
    graph, a = made(), full(1)
    stream = cupy.cuda.Stream(non_blocking=True)

    with pytest.raises(CaptureError, match=r"`broken_by\(.*streamSynchronize.*` at .*test_graphs\.py"):
        broken_by(graph, lambda: cupy.cuda.runtime.streamSynchronize(stream.ptr), a)

    assert values(ops.add(a, a)) == {2.0}


def broken_by(graph: Any, call: Callable[[], object], a: Any) -> None:
    with cuda.graph(graph):
        ops.add(a, a)
        call()


def test_an_error_that_is_not_let_out_is_told_at_the_end(made: Any) -> None:
    graph, a = made(), full(1)

    def swallowed() -> None:
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            cupy.cuda.runtime.malloc(1 << 20)

    with pytest.raises(CaptureError, match="a call in between was rejected and its error was caught"):
        broken_by(graph, swallowed, a)

    assert values(ops.add(a, a)) == {2.0}


@pytest.mark.parametrize(("mode", "is_broken"), [("global", True), ("thread_local", False), ("relaxed", False)])
def test_the_mode_says_whose_allocations_break_a_capture(made: Any, mode: str, is_broken: bool) -> None:
    graph, a, refused = made(), full(1), []

    def allocate() -> None:
        try:
            cupy.cuda.runtime.free(cupy.cuda.runtime.malloc(1 << 20))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            refused.append(error)

    graph.begin(cuda.Stream(), capture_error_mode=mode)
    ops.add(a, a)
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()

    assert graph.is_broken == bool(refused) == is_broken
    graph.reset()


def test_graphs_dropped_in_another_thread_do_not_break_a_capture(made: Any) -> None:
    a, graph, others = full(1, 1 << 20), made(), [cuda.CUDAGraph() for _ in range(3)]
    for other in others:
        with cuda.graph(other):
            ops.add(a, a)
        other.replay()
    del other

    def drop() -> None:
        others.clear()
        gc.collect()

    with cuda.graph(graph):
        first = ops.add(a, a)
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
        second = ops.add(first, a)
    graph.replay()

    assert values(second) == {3.0}


def meanwhile(work: Callable[[], object]) -> None:
    """In a thread of its own, to its end."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(work).result()


def test_the_allocators_calls_in_another_thread_do_not_break_a_capture(made: Any) -> None:
    from cuassay.devices.cuda.memory.sources import AsyncSource, DeviceSource

    sources, stream, a, graph = (DeviceSource(0), AsyncSource(0)), cuda.Stream(), full(1), made()
    segments = [source.reserve(1 << 20, 0) for source in sources]
    marker = sources[0].record(stream.ptr)
    stream.synchronize()

    def ask_and_free() -> None:
        assert sources[0].query(marker) is True
        sources[0].release(segments[0])

    with cuda.graph(graph):
        ops.add(a, a)
        meanwhile(ask_and_free)
        result = ops.mul(a, 3.0)
    graph.replay()
    sources[1].release(segments[1])

    assert values(result) == {3.0}


@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_a_librarys_handle_is_made_in_another_thread_without_breaking_a_capture(
    made: Any, monkeypatch: pytest.MonkeyPatch, library: str, request: pytest.FixtureRequest
) -> None:
    from cuassay.devices.cuda.blas import cublas, cublaslt

    if library == "cublaslt":
        request.getfixturevalue("cublaslt")  # skips where it is absent
    module: Any = {"cublas": cublas, "cublaslt": cublaslt}[library]
    module.version()
    monkeypatch.setattr(module._handles, "_idle", {})
    a, graph = full(1), made()

    def make() -> None:
        assert module._handles.on(0)

    with cuda.graph(graph):
        ops.add(a, a)
        meanwhile(make)
        result = ops.mul(a, 3.0)
    graph.replay()

    assert values(result) == {3.0}


def test_in_debug_mode_the_ops_around_the_call_that_broke_a_capture_are_named(made: Any) -> None:
    graph, a = made(), full(1)
    graph.enable_debug_mode()

    def swallowed() -> None:
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
            cupy.cuda.runtime.malloc(1 << 20)
        ops.mul(a, a)

    with pytest.raises(CaptureError, match="a call between add and mul broke the capture"):
        broken_by(graph, swallowed, a)


# ------------------------------------------------------------------------------------------------ raw handles


def test_raw_handles_need_what_they_are_of(made: Any) -> None:
    a, plain, kept = full(1), made(), made(keep_graph=True)
    for graph in (plain, kept):
        with pytest.raises(CaptureError, match="instantiate"):
            graph.raw_cuda_graph_exec()
        with cuda.graph(graph):
            ops.add(a, a)

    with pytest.raises(CaptureError, match="keep_graph=True"):
        plain.raw_cuda_graph()
    with pytest.raises(CaptureError, match="instantiate"):
        kept.raw_cuda_graph_exec()
    kept.instantiate()
    handles = plain.raw_cuda_graph_exec(), kept.raw_cuda_graph_exec(), kept.raw_cuda_graph()

    assert all(handles)
    assert len(set(handles)) == 3


def test_raw_handles_serve_cuda_bindings(made: Any) -> None:
    from cuda.bindings import runtime

    total, graph = full(0), made(keep_graph=True)
    with cuda.graph(graph):
        ops.add(total, 1.0, out=total)
    graph.instantiate()
    stream = cuda.Stream()
    cuda.synchronize()

    (status,) = runtime.cudaGraphLaunch(graph.raw_cuda_graph_exec(), stream.ptr)
    stream.synchronize()

    assert int(status) == 0
    assert runtime.cudaGraphGetNodes(graph.raw_cuda_graph())[-1] == 1
    assert values(total) == {1.0}


def test_a_kept_graph_is_captured_again_after_reset(made: Any) -> None:
    a, graph = full(1), made(keep_graph=True)
    for factor in (2.0, 3.0):
        with cuda.graph(graph):
            result = ops.mul(a, factor)
        graph.replay()
        assert values(result) == {factor}
        graph.reset()
        with pytest.raises(CaptureError):
            graph.raw_cuda_graph()


# ------------------------------------------------------------------------------------------------ re-pointed inputs


@pointing
def test_inputs_of_our_kernels_are_pointed_at_not_copied() -> None:
    static = full(1), full(2)
    graphed = cuda.make_graphed_callables(lambda a, b: ops.mul(ops.add(a, b), b), static)

    results = [values(graphed.replay((full(a), full(b)))) for a, b in ((3, 4), (5, 6))]

    assert graphed.repointable == (True, True)
    assert results == [{28.0}, {66.0}]
    assert [values(array) for array in static] == [{1.0}, {2.0}]
    assert values(graphed(full(1), full(1))) == {2.0}
    assert values(graphed.replay(static)) == {2.0}


@pointing
def test_what_a_users_kernel_reads_is_pointed_at() -> None:
    kernel, out = cuda.compile_kernel(SCALE, "scale"), full(0)

    def work(a: Any) -> Any:
        kernel(4, 256, (out, a, np.float32(3), 1024))
        return out

    graphed = cuda.make_graphed_callables(work, (full(1),))

    assert graphed.repointable == (True,)
    assert values(graphed.replay((full(5),))) == {15.0}


@pointing
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("extent", [64, 1024])
def test_what_a_library_reads_is_copied_and_the_rest_is_pointed_at(dtype: str, extent: int) -> None:
    """cuBLAS's kernels for sm_90 take one buffer with descriptors in it."""
    draw = np.random.default_rng(0)

    def made() -> Any:
        return from_host(draw.standard_normal((extent, extent)).astype(dtype), DEVICE)

    def work(a: Any, b: Any, c: Any) -> Any:
        return ops.add(ops.matmul(a, b), c)

    graphed = cuda.make_graphed_callables(work, (made(), made(), made()))

    assert graphed.repointable == (False, False, True)
    for _ in range(3):
        inputs = made(), made(), made()
        np.testing.assert_array_equal(to_host(graphed.replay(inputs)), to_host(work(*inputs)))


def test_what_cupys_kernels_and_copies_read_is_copied() -> None:
    def work(a: Any, b: Any) -> Any:
        return ops.add(cupy.sqrt(a), b.copy())

    graphed = cuda.make_graphed_callables(work, (full(4), full(1)))

    assert graphed.repointable == (False, False)
    assert values(graphed.replay((full(9), full(2)))) == {5.0}


def test_what_is_reached_through_a_table_is_copied_and_the_rest_is_pointed_at() -> None:
    """The kernels of lists find their arrays in device memory, where another address would not be seen."""

    def work(a: Any, b: Any) -> Any:
        total = ops.copy(b)
        ops.foreach_add_([total], [a])
        return total

    graphed = cuda.make_graphed_callables(work, (full(1), full(2)))

    assert graphed.repointable[0] is False
    assert [values(graphed.replay((full(a), full(b)))) for a, b in ((3, 4), (5, 6))] == [{7.0}, {11.0}]


def test_what_a_list_made_ready_before_reads_is_copied() -> None:
    a, total = full(1), full(0)
    ready = ops.foreach_add_.prepare([total], [a])

    def work(a: Any) -> Any:
        ready.run()
        return ops.add(a, 1.0)

    graphed = cuda.make_graphed_callables(work, (a,))
    before = to_host(total)[0]

    assert graphed.repointable == (False,)
    assert values(graphed.replay((full(7),))) == {8.0}
    assert values(total) == {before + 7}


def test_an_input_aligned_otherwise_is_copied() -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(a, 2.0), (full(1),))
    shifted = full(7, 1025)[1:]

    assert values(graphed.replay((shifted,))) == {14.0}
    assert values(graphed.replay((full(8),))) == {16.0}


@pointing
def test_a_view_of_an_input_is_pointed_at_with_it() -> None:
    graphed = cuda.make_graphed_callables(lambda a: ops.add(a[:512], a[512:]), (full(1),))
    halves = from_host(np.repeat(np.array([3, 4], np.float32), 512), DEVICE)

    assert graphed.repointable == (True,)
    assert values(graphed.replay((halves,))) == {7.0}


@pointing
def test_after_an_update_that_rebuilds_a_graph_its_new_calls_are_known(made: Any) -> None:
    """Which arrays a library's kernel was given is what was seen of the capture that the nodes are of."""
    graph, other, a, b = made(), made(keep_graph=True), full(1), full(2)
    c = from_host(np.ones((64, 64), np.float16), DEVICE)
    ops.matmul(c, c)
    with cuda.graph(graph):
        ops.add(a, 1.0)
    with cuda.graph(other), other.observed():
        ops.matmul(c, c)
        ops.add(b, 1.0)

    assert graph.update(other) is False
    assert graph.input_pointer(b) is not None
    assert graph.input_pointer(c) is None


@pointing
def test_a_graph_updated_in_place_points_at_nothing(made: Any) -> None:
    graph, other, a, b = made(), made(keep_graph=True), full(1), full(2)
    with cuda.graph(graph):
        ops.add(a, 1.0)
    pointer = graph.input_pointer(a)
    with cuda.graph(other):
        ops.add(b, 1.0)

    assert pointer is not None
    assert graph.update(other) is True
    assert pointer(full(3)) is False
    assert graph.input_pointer(b) is None


@exclusive
def test_an_update_gives_up_the_memory_of_the_work_before(made: Any) -> None:
    a, graph, other = full(1, 2**20), made(), made(keep_graph=True)
    gc.collect()
    cuda.empty_cache()
    before = cuda.memory_reserved()
    with cuda.graph(graph):
        first = ops.mul(ops.add(a, a), 2.0)
    with cuda.graph(other):
        second = ops.mul(ops.add(a, a), 3.0)
    del first, second

    graph.update(other)
    graph.reset()
    gc.collect()
    cuda.empty_cache()

    assert cuda.memory_reserved() == before


@exclusive
def test_an_updated_graph_keeps_its_memory_when_the_other_is_reset(made: Any) -> None:
    a, graph, other = full(1, 2**23), made(), made(keep_graph=True)
    with cuda.graph(graph):
        ops.mul(ops.add(a, a), 2.0)
    with cuda.graph(other):
        result = ops.mul(ops.add(a, a), 3.0)
    graph.update(other)
    gc.collect()
    cuda.empty_cache()
    before = cuda.memory_reserved()

    other.reset()
    gc.collect()
    cuda.empty_cache()

    assert cuda.memory_reserved() == before
    graph.replay()
    assert (to_host(result) == 6).all()


def test_replays_under_way_keep_the_inputs_they_were_given() -> None:
    total = full(0)
    graphed = cuda.make_graphed_callables(lambda a: ops.add(total, a, out=total), (full(0),), num_warmup_iters=1)
    inputs = [full(2.0**power) for power in range(12)]
    cuda.synchronize()

    cuda.spin(2_000_000)
    for array in inputs:
        graphed.replay((array,))

    assert values(total) == {4095.0}


# ------------------------------------------------------------------------------------------------ memory


def settled() -> int:
    """Free memory by the driver, when nothing that can go back is held."""
    gc.collect()
    cuda.synchronize()
    memory.empty_cache()
    return cuda.mem_get_info()[0]


def network(size: int) -> tuple[Callable[[Any], Any], Any]:
    """A model of 8 layers and its input of `size` rows; the result is small."""
    return lambda x: ops.sum(layers(x, 8), axis=0), from_host(np.ones((size, 4096), np.float32), DEVICE)


def layers(x: Any, depth: int) -> Any:
    for _ in range(depth):
        x = ops.gelu(ops.add(ops.mul(x, 0.5), x))
    return x


@exclusive
def test_graphs_of_16_batch_sizes_take_what_the_largest_takes() -> None:
    sizes = [8 * n for n in range(1, 17)]
    models = [network(64 * size) for size in sizes]
    for function, x in models:
        function(x)
    before = settled()

    largest = cuda.make_graphed_callables(*models[-1][:1], models[-1][1:])
    alone = before - settled()
    largest.reset()
    del largest
    together_before = settled()
    graphed = cuda.make_graphed_callables([model for model, _ in models], [(x,) for _, x in models])
    together = together_before - settled()

    assert together <= 1.05 * alone
    for one, (function, x) in zip(graphed, models, strict=True):
        np.testing.assert_array_equal(to_host(one(x)), to_host(function(x)))


@exclusive
def test_memory_is_back_when_the_last_graph_is_gone() -> None:
    a = full(1, 1 << 22)
    ops.add(a, a)
    before = settled()
    graphs = [cuda.CUDAGraph() for _ in range(8)]
    for graph in graphs:
        with cuda.graph(graph):
            for _ in range(100):
                b = ops.mul(ops.add(a, 1.0), 0.5)
        graph.replay()
    del b, graph

    taken = before - settled()
    graphs.clear()

    assert taken >= 8 * (32 << 20)
    assert abs(before - settled()) <= 2 << 20


@exclusive
def test_captures_over_and_over_take_no_more_memory() -> None:
    a = from_host(np.ones((256, 256), np.float16), DEVICE)

    def capture() -> None:
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            ops.matmul(ops.matmul(a, a), a)
        graph.replay()
        graph.reset()

    ops.matmul(a, a)
    for _ in range(3):
        capture()
    before = settled()
    for _ in range(20):
        capture()

    assert abs(before - settled()) <= 2 << 20


# ------------------------------------------------------------------------------------------------ life


def test_the_interpreter_exits_with_graphs_alive_and_one_being_captured() -> None:
    done = run(
        "ready, kept, open_ = cuda.CUDAGraph(), cuda.CUDAGraph(True), cuda.CUDAGraph()\n"
        "for graph in (ready, kept):\n"
        "    with cuda.graph(graph): ops.add(a, a)\n"
        "    for _ in range(100): graph.replay()\n"
        "graph.cycle = graph\n"
        "open_.begin(cuda.Stream())\n"
        "print('end')"
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "end", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_may_drop_its_parents_graphs() -> None:
    done = run(
        "import warnings; warnings.simplefilter('ignore')\n"
        "ready, kept = cuda.CUDAGraph(), cuda.CUDAGraph(True)\n"
        "for graph in (ready, kept):\n"
        "    with cuda.graph(graph): b = ops.add(a, a)\n"
        "    graph.replay()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    del graph, ready, kept; gc.collect(); os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); ready.replay(); kept.replay(); cuda.synchronize()\n"
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "7", "")


@exclusive
def test_a_short_graph_on_another_stream_is_done_while_a_long_one_runs(made: Any) -> None:
    long, short, streams = made(), made(), [cuda.Stream(), cuda.Stream()]
    for graph, cycles in ((long, 400_000_000), (short, 1_000)):
        with cuda.graph(graph):
            cuda.spin(cycles)
    cuda.synchronize()

    for graph, stream in zip((long, short), streams, strict=True):
        with stream:
            graph.replay()
    streams[1].synchronize()

    assert streams[0].query() is False
    streams[0].synchronize()


def test_a_graph_of_one_device_is_not_captured_into_on_another(made: Any) -> None:
    if cuda.device_count() < 2:
        pytest.skip("one CUDA device is visible")
    graph = made()
    with cuda.device(1):
        stream = cuda.Stream()

    with pytest.raises(CaptureError, match="that device current"):
        graph.begin(stream)
