"""Candidates of CUDA: kernels with a launch plan through the runner, and Python programs, each in its own process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import cuda, devices
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import ArgumentError, CandidateLostError, CompileError
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.plan import C_TYPES, parse_plan
from cuassay.judging.process import CandidateProcess
from cuassay.judging.zygote import Zygote

SOURCE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuComplex.h>

template <typename T> __global__ void touch(const T* x, T* out, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}

extern "C" __global__ void scale(const float* x, float* out, long long n, float factor) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * factor;
}

extern "C" __global__ void beyond(const float* x, float* out, long long n, float factor) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = x[i] * factor;
}
"""


def plan(**fields: Any) -> dict[str, Any]:
    launch = {
        "kernel": "scale",
        "grid": ["ceil_div(in0.size, 256)"],
        "block": [256],
        "arguments": ["in0", "out0", {"int64": "in0.size"}, {"float32": "factor"}],
        **fields,
    }
    return {"outputs": [{"shape": ["in0[0]", "in0[1]"], "dtype": "in0"}], "launches": [launch]}


# ---------------------------------------------------------------------------------------- without a GPU


@pytest.mark.parametrize("dtype", C_TYPES)
def test_every_dtype_has_a_name_in_cpp(dtype: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    step = parse_plan(json.dumps(plan(kernel="touch<{in0}>"))).launches[0]

    cuda.compile_kernel(SOURCE, step.kernel_for({"in0": dtype}), arch="sm_90")


@pytest.mark.parametrize(
    "option",
    ["--use_fast_math", "--fmad=false", "--ftz=true", "--prec-div=false", "--maxrregcount=32", "-DA=1", "--std=c++20",
     "--extra-device-vectorization"],
)  # fmt: skip
def test_compiler_takes_the_options_of_a_plan(option: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    (said,) = parse_plan(json.dumps({**plan(), "options": [option]})).options

    cuda.compile_kernel(SOURCE, "scale", arch="sm_90", options=[said])


# ---------------------------------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    reason = devices.backend("cuda").why_absent()
    if reason is not None:  # before a process is started for nothing
        pytest.skip(f"no CUDA device: {reason}")
    with Zygote("cuda") as one:
        yield one


X = np.linspace(-1, 1, 1000, dtype=np.float32).reshape(10, 100)


@pytest.fixture
def candidate(zygote: Zygote, tmp_path: Path) -> Iterator[Any]:
    started: list[CandidateProcess] = []

    def start(source: str, said: dict[str, Any] | None, device_arena_nbytes: int = 1 << 24) -> CandidateProcess:
        file = tmp_path / ("candidate.py" if said is None else "mine.cu")
        file.write_text(source, encoding="utf-8")
        if said is not None:
            (tmp_path / "launch.json").write_text(json.dumps(said), encoding="utf-8")
        tier = "program" if said is None else "kernel"
        limits = Limits(
            load_s=120, call_s=120, processes=512, arena_nbytes=1 << 24, device_arena_nbytes=device_arena_nbytes
        )
        started.append(
            CandidateProcess(file, device="cuda:0", tier=tier, limits=limits, jail=JailOptions(), zygote=zygote)
        )
        started[-1].load()
        return started[-1]

    yield start
    for one in started:
        one.close()


def call(one: CandidateProcess, x: Any = X) -> Any:
    return one.call([x], {"factor": 3.0}, [(x.shape, "float32")])


def test_kernel_is_launched_and_timed(candidate: Any) -> None:
    one = candidate(SOURCE, plan())

    for x in (X, X[::-1], X.T):
        reply = call(one, x)
        assert reply.raised is None, reply.raised
        np.testing.assert_array_equal(reply.outputs[0].array, x * np.float32(3))
        assert reply.device_s > 0
        assert reply.changed == ()


def test_write_outside_an_array_is_found(candidate: Any) -> None:
    assert call(candidate(SOURCE, plan(kernel="beyond"))).raised.kind == "GuardBandError"


def test_source_that_does_not_compile_is_told(candidate: Any) -> None:
    raised = call(candidate(SOURCE.replace("out[i] = x[i] * factor", "not C++"), plan())).raised

    assert raised.kind == CompileError.__name__
    assert "does not compile" in raised.message


def test_source_without_the_kernel_is_told(candidate: Any) -> None:
    raised = call(candidate("__global__ void scaled() {}", plan())).raised

    assert raised.kind == ArgumentError.__name__
    assert "did you mean 'scaled'" in raised.message


def test_headers_of_the_machine_are_not_read(candidate: Any) -> None:
    assert call(candidate('#include "/etc/passwd"\n' + SOURCE, plan())).raised.kind == CompileError.__name__


def test_plan_that_is_not_one_is_told_at_loading(candidate: Any) -> None:
    with pytest.raises(CandidateLostError, match=ArgumentError.__name__) as caught:
        candidate(SOURCE, {"launches": []})
    assert caught.value.reason == "load"


def test_program_runs_on_the_device(candidate: Any) -> None:
    one = candidate("def run(xp, x, *, factor):\n    return x * xp.float32(factor)\n", None)

    for x in (X, X[::-1, ::2], X.T):
        reply = call(one, x)
        assert reply.raised is None, (reply.raised, one.jail)
        np.testing.assert_array_equal(reply.outputs[0].array, x * np.float32(3))


# ---------------------------------------------------------------------------------------- the device's arena


def test_program_gets_views_of_memory_that_the_judge_shares(candidate: Any) -> None:
    source = "def run(xp, x, *, factor):\n    return xp.full_like(x, isinstance(x.data.mem, xp.cuda.UnownedMemory))\n"

    reply = call(candidate(source, None))

    assert reply.raised is None, reply.raised
    np.testing.assert_array_equal(reply.outputs[0].array, np.ones_like(X))


def test_larger_arrays_pass_through_the_host(candidate: Any) -> None:
    one = candidate(
        "def run(xp, x, *, factor):\n    return x * xp.float32(factor)\n", None, device_arena_nbytes=2 << 20
    )
    large = np.arange(2**20, dtype=np.float32)

    for x in (X, large, X.T):
        np.testing.assert_array_equal(call(one, x).outputs[0].array, x * np.float32(3))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "bfloat16", "float16", "float64", "complex64"])
def test_every_dtype_and_layout_arrives(candidate: Any, dtype: str) -> None:
    one = candidate("def run(xp, x, *, factor):\n    return x\n", None)
    whole = (np.arange(240) % 2 if dtype == "bool" else np.arange(240) % 100).astype(as_dtype(dtype)).reshape(4, 60)

    for x in (whole, whole[::-1, ::3], whole.T, whole[:, :0], whole[2, 3]):
        reply = one.call([np.asarray(x)], {"factor": 3.0}, [(x.shape, dtype)])
        assert reply.raised is None, (reply.raised, one.jail)
        np.testing.assert_array_equal(reply.outputs[0].array, np.asarray(x))
        assert reply.changed == ()


def test_changed_input_is_seen(candidate: Any) -> None:
    one = candidate("def run(xp, x, *, factor):\n    x *= 2\n    return x\n", None)

    assert call(one).changed == (0,)


@pytest.mark.parametrize("result", ["np.asarray(x.get())", "[float(x.sum())]", "x.get().tolist()"])
def test_result_on_the_host_is_taken(candidate: Any, result: str) -> None:
    one = candidate(f"import numpy as np\ndef run(xp, x, *, factor):\n    return {result}\n", None)
    x = np.float32([2.0])

    reply = one.call([x], {"factor": 3.0}, [(x.shape, "float64")])

    np.testing.assert_array_equal(reply.outputs[0].array.ravel(), x)


def test_scalars_arrive_as_numbers(candidate: Any) -> None:
    one = candidate("def run(xp, x, *, factor):\n    return x * factor\n", None)

    reply = one.call([X], {"factor": np.float32(3)}, [(X.shape, "float32")])

    np.testing.assert_array_equal(reply.outputs[0].array, X * np.float32(3))


LATE = """
def run(xp, x, *, factor):
    stream = xp.cuda.Stream(non_blocking=True)
    out = xp.empty_like(x)
    spin = xp.RawKernel('extern "C" __global__ void spin(float* out, const float* x, int n, long long clocks) {'
                        ' long long t = clock64(); while (clock64() - t < clocks);'
                        ' for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = 3 * x[i]; }', 'spin')
    with stream:
        spin((1,), (256,), (out, x, x.size, 200_000_000))
    return out
"""


def test_work_of_another_stream_counts_as_part_of_the_call(candidate: Any) -> None:
    one = candidate(LATE, None)
    call(one)

    reply = call(one)

    assert reply.raised is None, (reply.raised, one.jail)
    assert (reply.ended_ns - reply.begun_ns) * 1e-9 > 0.9 * 200e6 / 2.5e9  # clocks over a rate that no GPU exceeds
