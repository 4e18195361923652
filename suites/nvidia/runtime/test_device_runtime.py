"""Devices, forks and a user's kernel, where there is a CUDA device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuassay.cuda
from cuassay import ops
from cuassay.errors import ArgumentError, DeviceError, DriverError, DTypeError

pytestmark = pytest.mark.usefixtures("on_cuda")


cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

AXPY = """
__global__ void axpy(float* y, const float* x, float factor, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * x[i];
}
__global__ void fill(int* out) {
    extern __shared__ int scratch[];
    scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_probe_and_the_driver_agree() -> None:
    assert cuassay.cuda.device_count() == cupy.cuda.runtime.getDeviceCount()
    assert cuassay.cuda.get_device_name(0) == cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def test_an_index_beyond_the_last_is_refused() -> None:
    count = cuassay.cuda.device_count()

    with pytest.raises(DeviceError, match=rf"cuda:{count} does not exist"):
        cuassay.cuda.set_device(count)


def test_asking_for_properties_makes_no_context() -> None:
    code = (
        "import cuassay.cuda as c; from cuda.bindings import driver as d; c.get_device_properties(0);"
        "c.current_device(); print(d.cuDevicePrimaryCtxGetState(d.cuDeviceGet(0)[1])[2])"
    )

    assert run(code) == "0"


def test_once_the_driver_is_initialised_its_count_is_the_one() -> None:
    code = (
        "import os, cuassay.cuda as c; c.init(); before = c.device_count(); os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
        "print(before == c.device_count() > 0)"
    )

    assert run(code) == "True"


def test_a_forked_child_is_told_what_to_do() -> None:
    code = (
        "import os, cuassay.cuda as c; c.init(); pid = os.fork()\n"
        "if pid == 0:\n"
        "    try: c.init()\n"
        "    except Exception as error: print(type(error).__name__, 'spawn' in str(error), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )

    assert run(code) == "ForkError True"


def test_a_fork_before_first_use_works() -> None:
    code = (
        "import os, cuassay.cuda as c; c.is_available(); c.device_count(); pid = os.fork()\n"
        "if pid == 0:\n"
        "    c.init(); print(c.get_device_name(0) != '', flush=True); os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )

    assert run(code) == "True"


def test_a_dead_context_is_found() -> None:
    code = (
        "import cupy, cuassay.cuda as c; from cuassay.devices.cuda.driver import runtime; c.set_device(0); c.init()\n"
        "print(runtime.poisoned(0))\n"
        "k = c.compile_kernel('__global__ void f(int* a) { *(volatile int*)0 = 1; }', 'f')\n"
        "k(1, 1, (cupy.empty(1, 'i'),))\n"
        "print('ILLEGAL_ADDRESS' in runtime.poisoned(0), flush=True)\n"
        "import os; os._exit(0)"
    )

    assert run(code).split() == ["None", "True"]


@pytest.mark.parametrize("stream", ["current", "cupy", "address"])
def test_a_user_kernel_runs_on_the_stream_it_is_given(stream: str) -> None:
    x, y = cupy.arange(1000, dtype=np.float32), cupy.ones(1000, np.float32)
    side = cupy.cuda.Stream()
    given = {"current": None, "cupy": side, "address": side.ptr}[stream]
    cupy.cuda.Device().synchronize()

    cuassay.cuda.compile_kernel(AXPY, "axpy")(4, 256, (y, x, np.float32(2), 1000), stream=given)

    cupy.cuda.Device().synchronize()
    np.testing.assert_array_equal(y.get(), 1 + 2 * np.arange(1000, dtype=np.float32))


def test_dynamic_shared_memory_beyond_48_kib_is_asked_for() -> None:
    kernel = cuassay.cuda.compile_kernel(AXPY, "fill", shared_memory=60 * 1024)
    out = cupy.zeros(64, np.int32)

    kernel(1, 64, (out,))

    np.testing.assert_array_equal(out.get(), np.arange(63, -1, -1))


def test_a_template_kernel_is_checked_by_the_sizes_of_its_parameters() -> None:
    source = "template <typename T> __global__ void put(T* a, T value) { a[0] = value; }"
    kernel, out = cuassay.cuda.compile_kernel(source, "put<float>"), cupy.zeros(1, np.float32)

    with pytest.raises(DTypeError, match="parameter 1 takes 4 bytes; got float of 8 bytes"):
        kernel(1, 1, (out, 3.0))
    with pytest.raises(ArgumentError, match="has 2 parameters; got 1 arguments"):
        kernel(1, 1, (out,))
    kernel(1, 1, (out, np.float32(3)))

    assert out.get()[0] == 3


def test_a_prepared_launch_is_rewritten_in_place() -> None:
    kernel = cuassay.cuda.compile_kernel(AXPY, "axpy")
    x, first, second = (cupy.ones(32, np.float32) for _ in range(3))
    launch = kernel.prepare([cupy.ndarray, cupy.ndarray, np.float32, int])
    launch.write((first, x, np.float32(1), 32))
    stream = cupy.cuda.get_current_stream().ptr

    statuses = [int(launch.launch((1, 1, 1), (32, 1, 1), 0, stream))]
    launch.slots[0] = second.data.ptr
    statuses.append(int(launch.launch((1, 1, 1), (32, 1, 1), 0, stream)))

    assert statuses == [0, 0]
    assert (first.get() == 2).all()
    assert (second.get() == 2).all()


def test_the_current_device_is_restored() -> None:
    before = cuassay.cuda.current_device()

    with cuassay.cuda.device(cuassay.cuda.device_count() - 1):
        assert cuassay.cuda.current_device() == cuassay.cuda.device_count() - 1

    assert cuassay.cuda.current_device() == before


def captured(call: Callable[[], object]) -> Any:
    """The graph of what `call` gives to the current stream; work given to another one is not in it."""
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        side.begin_capture()
        call()
        return side.end_capture()


def test_a_bound_kernel_follows_the_stream_that_is_current_when_it_runs() -> None:
    kernel = cuassay.cuda.compile_kernel(AXPY, "axpy")
    x, y = cupy.ones(32, np.float32), cupy.zeros(32, np.float32)
    bound = kernel.bind(1, 32, (y, x, np.float32(2), 32))
    bound()  # a kernel may be loaded at its first launch, which a capture may refuse

    graph = captured(bound)
    before = y.get()
    graph.launch()

    assert (before == 2).all()
    assert (y.get() == 4).all()


@pytest.mark.parametrize("call", ["dense", "strided", "number", "empty"])
def test_a_plan_of_our_kernels_follows_the_stream_that_is_current_when_it_runs(call: str) -> None:
    a = cupy.arange(64, dtype=np.float32).reshape(8, 8)
    operands = {"dense": (a, a), "strided": (a.T, a), "number": (a, 2.5), "empty": (a[:0], a[:0])}[call]
    plan = ops.add.prepare(*operands)
    wanted = plan.run().get()
    plan.out.fill(0)

    graph = captured(plan.run)
    untouched = plan.out.get()
    graph.launch()

    assert not untouched.any()
    np.testing.assert_array_equal(plan.out.get(), wanted)
    np.testing.assert_array_equal(wanted, ops.add(*operands).get())


def test_a_bound_kernel_keeps_its_arrays() -> None:
    kernel, out = cuassay.cuda.compile_kernel(AXPY, "axpy"), cupy.zeros(32, np.float32)
    bound = kernel.bind(1, 32, (out, cupy.ones(32, np.float32), np.float32(2), 32))

    reused = [cupy.full(32, 99, np.float32) for _ in range(8)]
    bound()

    assert (out.get() == 2).all()
    assert len(reused) == 8


def test_a_launch_that_the_driver_refuses_is_named_and_the_next_one_works() -> None:
    kernel = cuassay.cuda.compile_kernel(AXPY, "axpy")
    out = cupy.zeros(32, np.float32)
    arguments = (out, cupy.ones(32, np.float32), np.float32(2), 32)

    with pytest.raises(DriverError, match=r"launching 'axpy', grid 1, block 4096.*INVALID_VALUE"):
        kernel(1, 4096, arguments)
    kernel(1, 32, arguments)

    assert (out.get() == 2).all()
