"""Two CUDA devices, as only the driver shows them; what holds for every kind is in suites/devices."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

import cuassay
from cuassay import cuda, ops, to_host
from cuassay.benchmarking.cases import cases
from cuassay.cuda import memory, tunable
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.sources import DeviceSource
from cuassay.errors import CaptureError, DeviceError
from cuassay.testing import OpSpec, Sample, exclusive

N = 1000


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    """Device 0 is current, and must still be at the end."""
    if cuda.device_count() < 2:
        pytest.skip(f"two CUDA devices needed; {cuda.device_count()} visible")
    cuda.set_device(0)
    yield
    assert cuda.current_device() == 0


@pytest.fixture
def near() -> Any:
    return cuda.Stream(0)


@pytest.fixture
def far() -> Any:
    return cuda.Stream(1)


def filled(index: int, value: float = 7) -> Any:
    return cuassay.full(N, value, "float32", f"cuda:{index}")


# ------------------------------------------------------------------------------------------------ streams


def test_a_stream_is_one_of_its_own_device_only(near: Any, far: Any) -> None:
    assert cuda.get_stream_from_external(far.ptr, 1) == far
    for wrong in (lambda: cuda.ExternalStream(far.ptr), lambda: cuda.get_stream_from_external(near.ptr, "cuda:1")):
        with pytest.raises(DeviceError, match=r"is of cuda:\d; got device cuda:\d; give the stream's device"):
            wrong()


def test_an_address_alone_is_enough_to_find_the_device(far: Any) -> None:
    with cuda.stream(far.ptr) as entered:
        assert cuda.current_device() == 1
        result = ops.add(filled(1), 1.0)
    far.synchronize()

    assert entered.device.index == 1
    assert to_host(result)[0] == 8


@pytest.fixture
def twice() -> Any:
    source = """
    __global__ void twice(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] *= 2;
    }"""
    return cuda.compile_kernel(source, "twice")


def test_a_kernel_runs_on_the_device_of_the_stream_it_is_given(twice: Any, far: Any) -> None:
    array = filled(1)
    with cuda.device(1):
        cupys = cupy.cuda.Stream(non_blocking=True)

    for stream in (far, far.ptr, cupys):
        cuda.synchronize(1)
        twice(4, 256, (array, np.int32(N)), stream=stream)
    cuda.synchronize(1)
    twice(4, 256, (array, np.int32(N)), stream=cuda.default_stream(1))

    assert (to_host(array) == 7 * 16).all()


@pytest.mark.parametrize("mode", ["streamCaptureModeGlobal", "streamCaptureModeThreadLocal"])
def test_a_foreign_stream_is_adopted_while_it_is_captured(twice: Any, mode: str) -> None:
    """Asking the driver for its device would break the capture."""
    array, foreign = filled(0), cupy.cuda.Stream(non_blocking=True)
    cuda.synchronize(0)
    with foreign:
        foreign.begin_capture(getattr(cupy.cuda.runtime, mode))
        with cuda.stream(foreign.ptr):
            twice(4, 256, (array, np.int32(N)))
        twice(4, 256, (array, np.int32(N)), stream=foreign.ptr)
        graph = foreign.end_capture()
    graph.launch(foreign)
    foreign.synchronize()

    assert (to_host(array) == 28).all()


def test_a_foreign_stream_is_adopted_while_another_thread_captures(twice: Any) -> None:
    array, other, foreign = filled(0), filled(0), cupy.cuda.Stream(non_blocking=True)
    cuda.synchronize(0)
    with cupy.cuda.Stream(non_blocking=True) as captured:
        captured.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        other.fill(0)
        thread = threading.Thread(target=lambda: twice(4, 256, (array, np.int32(N)), stream=foreign.ptr))
        thread.start()
        thread.join()
        captured.end_capture()
    foreign.synchronize()

    assert (to_host(array) == 14).all()


def test_a_kernel_of_the_users_runs_on_the_current_device(twice: Any) -> None:
    arrays = [filled(0), filled(1)]

    for index in (1, 0):
        with cuda.device(index):
            twice(4, 256, (arrays[index], np.int32(N)))
            prepared = twice.bind(4, 256, (arrays[index], np.int32(N)))
            prepared()

    assert [(to_host(array) == 28).all() for array in arrays] == [True, True]


def test_events_time_work_of_their_device(far: Any) -> None:
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    with far:
        start.record()
        cuda.spin(2_000_000)
        end.record()
    end.synchronize()

    assert start.elapsed_time(end) > 0.1
    assert start.device.index == 1


# ------------------------------------------------------------------------------------------------ memory


@exclusive
def test_memory_recorded_on_the_others_stream_waits_for_it(near: Any, far: Any) -> None:
    with near:
        array = filled(0)
    block = hook.block_of(array)
    with far:
        cuda.spin(20_000_000)
        memory.record_stream(array, far)
    del array
    near.synchronize()

    again = cuassay.empty(N, "float32", "cuda:0", stream=near)
    assert again.data.ptr != block.address
    far.synchronize()
    cuda.synchronize(0)
    memory.empty_cache()
    assert not block.is_pending


def test_the_others_default_stream_cannot_be_recorded() -> None:
    with pytest.raises(DeviceError, match="default stream of cuda:1 cannot be recorded for memory of cuda:0"):
        memory.record_stream(filled(0), cuda.default_stream(1))


def test_figures_and_limits_are_each_devices_own() -> None:
    held = [filled(0), cuassay.empty(2**22, "uint8", "cuda:1")]
    before = memory.memory_allocated(0), memory.memory_allocated(1)

    more = cuassay.empty(2**22, "uint8", "cuda:1")

    assert (memory.memory_allocated(0), memory.memory_allocated(1)) == (before[0], before[1] + more.nbytes)
    assert "cuda:1" in memory.memory_summary(1)
    assert {segment["device"] for segment in memory.memory_snapshot()} >= {0, 1}
    assert cuda.mem_get_info(1)[1] > 0
    del held


def test_a_pool_of_one_device_serves_no_other() -> None:
    with cuda.device(1):
        pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        here, there = filled(0), filled(1)
        with cuda.device(1):
            cupys = cupy.ones(N)

    assert hook.block_of(here).stream_pool.pool.id != pool.id
    assert {hook.block_of(array).stream_pool.pool.id for array in (there, cupys)} == {pool.id}
    assert (to_host(there) == 7).all()


def test_cupys_arrays_are_ours_on_the_device_they_are_on() -> None:
    memory.use_with_cupy()
    try:
        with cuda.device(1):
            there = cupy.arange(N)
        here = cupy.arange(N)
    finally:
        memory.use_with_cupy(False)

    assert [hook.block_of(array) is not None for array in (here, there)] == [True, True]
    assert [array.data.device_id for array in (here, there)] == [0, 1]
    assert to_host(there)[-1] == N - 1


def test_the_other_device_is_waited_for_and_gives_memory_back_next_to_a_capture() -> None:
    source, graph, array = DeviceSource(1), cuda.CUDAGraph(), filled(0)
    segment = source.reserve(1 << 20, 0)
    ops.add(array, 1.0)
    cuda.synchronize(0)

    with cuda.graph(graph):
        result = ops.add(array, 1.0)
        source.synchronize(())
        source.release(segment)
    graph.replay()

    assert to_host(result)[0] == 8
    graph.reset()


# ------------------------------------------------------------------------------------------------ copies


WITHOUT_PEERS = """
import numpy as np
from cuassay import from_host, ops, to_host
from cuassay.devices.cuda.driver import runtime
runtime.can_device_access_peer = lambda *_: False
for source, target in ((0, 1), (1, 0)):
    for size in (5, 2**20):
        host = np.arange(size, dtype=np.float32)
        there = ops.copy(ops.add(from_host(host, f"cuda:{source}"), 1.0), device=f"cuda:{target}")
        assert (to_host(ops.mul(there, 2.0)) == 2 * host + 2).all()
print("right")
"""


def test_devices_that_do_not_reach_each_other_copy_through_the_host() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_PEERS], capture_output=True, text=True, check=False)

    assert run.stdout.strip() == "right", run.stderr


@pytest.mark.parametrize("captured", [0, 1])
def test_a_copy_is_recorded_where_one_of_the_streams_is_captured(captured: int) -> None:
    source, target = filled(0), filled(1, 0)
    ops.copy(source, out=target)
    with cuda.device(captured):
        graph = cuda.CUDAGraph()

    with cuda.graph(graph):
        ops.copy(source, out=target)
    source.fill(3)
    for index in (0, 1):
        cuda.synchronize(index)
    before = to_host(target)[0]
    graph.replay()
    cuda.synchronize(captured)

    assert (before, to_host(target)[0]) == (7, 3)
    graph.reset()


def test_a_copy_is_recorded_in_one_capture_of_both_devices(far: Any) -> None:
    source, target = filled(0), filled(1, 0)
    ops.copy(source, out=target)
    graph = cuda.CUDAGraph()

    with cuda.graph(graph):
        near = cuda.current_stream(0)
        far.wait_stream(near)
        with far:
            ops.copy(source, out=target)
        near.wait_stream(far)
    source.fill(3)
    for index in (0, 1):
        cuda.synchronize(index)
    before = to_host(target)[0]
    graph.replay()
    cuda.synchronize(0)

    assert (before, to_host(target)[0]) == (7, 3)
    graph.reset()


def test_a_copy_that_needs_a_kernel_next_to_the_capture_is_refused() -> None:
    source, target = filled(0), filled(1)
    graph = cuda.CUDAGraph()

    with pytest.raises(CaptureError, match="cannot be captured on another device"), cuda.graph(graph):
        ops.copy(source[::2], out=target[::2])


WITHOUT_PEERS_CAPTURED = """
import cuassay
from cuassay import cuda, ops
from cuassay.devices.cuda.driver import runtime
from cuassay.errors import CaptureError
runtime.can_device_access_peer = lambda *_: False
source, target = cuassay.full(5, 1, "float32", "cuda:0"), cuassay.zeros(5, "float32", "cuda:1")
ops.copy(source, out=target)
try:
    with cuda.graph(cuda.CUDAGraph()):
        ops.copy(source, out=target)
except CaptureError as error:
    print("cannot be captured" in str(error))
"""


def test_a_copy_between_devices_that_do_not_reach_each_other_is_not_captured() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_PEERS_CAPTURED], capture_output=True, text=True, check=False)

    assert run.stdout.strip() == "True", run.stderr


# ------------------------------------------------------------------------------------------------ other processes


IMPORTER = """
import pickle, sys
from cuassay import cuda, to_host
from cuassay.cuda import memory
cuda.set_device(0)
array = memory.open_ipc_handle(pickle.loads(sys.stdin.buffer.read()))
print(array.data.device_id, to_host(array).sum(), cuda.current_device())
"""


def test_an_array_of_the_second_device_is_opened_on_it_in_another_process() -> None:
    with cuda.device(1):
        pool = memory.MemPool(one_handle=True)
    with memory.use_mem_pool(pool):
        array = cuassay.full(N, 3, "int32", "cuda:1")

    run = subprocess.run(
        [sys.executable, "-c", IMPORTER],
        input=pickle.dumps(memory.ipc_handle(array)),
        capture_output=True,
        check=False,
    )

    assert run.stdout.split() == [b"1", b"3000", b"0"], run.stderr
    memory.ipc_collect()


def test_an_event_of_the_second_device_is_waited_for_in_another_process(far: Any) -> None:
    event = cuda.Event(interprocess=True)
    event.record(far)
    code = f"""
from cuassay import cuda
from cuassay.errors import DeviceError
event = cuda.Event.from_ipc_handle("cuda:1", bytes.fromhex({event.ipc_handle().hex()!r}))
cuda.Stream(1).wait_event(event)
try:
    cuda.Stream(0).wait_event(event)
except DeviceError as error:
    print("let a stream of cuda:1 wait" in str(error))
event.synchronize()
print(event.query(), event.device)
"""

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert run.stdout.split() == ["True", "True", "cuda:1"], run.stderr


# ------------------------------------------------------------------------------------------------ products


def test_each_device_has_its_own_handles() -> None:
    handles = []
    for index in (0, 1):
        with cuda.device(index):
            handles.append(cuda.current_blas_handle())

    assert handles[0] != handles[1]


@pytest.mark.usefixtures("cublaslt", "own_tuner")
def test_products_are_tuned_on_both_at_once(tmp_path: Path) -> None:
    from cuassay.devices.cuda.blas import offline
    from cuassay.devices.cuda.blas.tuning import tuner
    from cuassay.tune.shapes import GemmShape

    problems = [offline.problem_of(GemmShape(m=extent, n=extent, k=extent)) for extent in (64, 96, 128, 160)]
    tuner().configure(path=str(tmp_path / "results%d.jsonl"))
    told: list[dict[str, Any]] = []

    offline.tune_on_several(problems, [0, 1], told.append)
    tuner().reread()

    assert len(told) == 4
    for index in (0, 1):
        lines = (tmp_path / f"results{index}.jsonl").read_text().splitlines()
        assert len(lines) == 3  # a header, and half of the products


@pytest.mark.usefixtures("cublaslt", "own_tuner")
def test_a_product_of_the_second_device_is_tuned_at_its_first_call_and_right() -> None:
    tunable.enable()
    a = cuassay.from_host(np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7, "cuda:1")

    found = to_host(ops.mm(a, a))

    with cuda.device(1):
        assert len(tunable.get_results()) == 1
    np.testing.assert_allclose(found, to_host(a) @ to_host(a), rtol=1e-6)


# ------------------------------------------------------------------------------------------------ functions under test


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_function_is_given_cupy_itself_to_test_and_to_measure(device: str) -> None:
    """It may choose its way by ``xp is cupy``; another one would be tested in its place."""
    seen: list[tuple[bool, int]] = []

    def twice(xp: Any, a: Any) -> Any:
        if isinstance(a, cupy.ndarray):  # what it must move is asked of it on cpu
            seen.append((xp is cupy, xp.zeros(1).device.id))
        return 2 * a

    spec = OpSpec(
        fn=twice, name="twice", dtypes=("float32",), reference=lambda a: 2 * a,
        samples=lambda make: [Sample((make(8),))], bench=lambda make, sizes: [Sample((make(8),))],
    )  # fmt: skip

    spec.run(device, (cuassay.full(8, 1.0, "float32", device),), {})
    case = next(cases(spec, device, "float32"))
    with cuda.device(int(device[-1])):
        case.run()

    assert seen == [(True, int(device[-1]))] * 2
