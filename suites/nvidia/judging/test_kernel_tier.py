"""Candidates of CUDA: kernels with a launch plan through the runner, and Python programs, each in its own process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import cuda, devices
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

    def start(source: str, said: dict[str, Any] | None) -> CandidateProcess:
        file = tmp_path / ("candidate.py" if said is None else "mine.cu")
        file.write_text(source, encoding="utf-8")
        if said is not None:
            (tmp_path / "launch.json").write_text(json.dumps(said), encoding="utf-8")
        tier = "program" if said is None else "kernel"
        limits = Limits(load_s=120, call_s=120, processes=512, arena_nbytes=1 << 24)
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
    raised = call(candidate("not C++", plan())).raised

    assert raised.kind == CompileError.__name__
    assert "does not compile" in raised.message


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
