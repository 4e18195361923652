"""Operations made of a body, on arrays far larger than any cache, next to what torch and CuPy make of one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")

from cuassay import Device, empty, from_host, namespace, ops
from cuassay.arrays.dtypes import dtype_name
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark, is_measuring
from cuassay.jit import elementwise
from cuassay.results.record import Recorder
from cuassay.testing import Work, devices, dtypes

Call = Callable[[], Any]

#: Elements of one array of float32 while measuring, and as a test.
ELEMENTS, ELEMENTS_AS_TEST = 2**27, 2**12

#: Numbers drawn on the host, which the arrays repeat.
DRAWN = 2**16 + 61

#: Bodies by name: their arrays, and the function in C++.
BODIES = {
    "scaled": (2, "template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * y; }"),
    "silu": (1, "template <typename T> T silu(T x, T alpha) { return x / (1 + std::exp(-alpha * x)); }"),
    "clipped": (
        3,
        """template <typename T> T clipped(T x, T low, T high, T alpha) {
            if (x < low) return low;
            return x > high ? high : alpha * x;
        }""",
    ),
}

#: The same for CuPy, which knows no bfloat16 in them.
CUPY_BODIES = {
    "scaled": ("T x, T y", "z = x + 2.0f * y"),
    "silu": ("T x", "z = x / (1 + exp(-2.0f * x))"),
    "clipped": ("T x, T y, T h", "z = x < y ? y : x > h ? h : 2.0f * x"),
}


@pytest.fixture
def drawn(device: Device, dtype: np.dtype[Any], pytestconfig: pytest.Config) -> Callable[[int], list[Any]]:
    """That many arrays of equal size, of 512 MiB while measuring."""
    nbytes = 4 * (ELEMENTS if is_measuring(pytestconfig) else ELEMENTS_AS_TEST)
    elements = nbytes // dtype.itemsize

    def make(number: int) -> list[Any]:
        generator = np.random.default_rng(2026)
        host = [generator.standard_normal(DRAWN, np.float32).astype(dtype) for _ in range(number)]
        xp = namespace(device)
        return [xp.tile(from_host(one, device), -(-elements // DRAWN))[:elements] for one in host]

    return make


@devices("cuda:*")
@dtypes("float32", "bfloat16")
@pytest.mark.parametrize("body", BODIES)
def test_body(
    device: Device,
    dtype: np.dtype[Any],
    body: str,
    drawn: Callable[[int], list[Any]],
    device_benchmark: DeviceBenchmark,
    recorder: Recorder | None,
) -> None:
    number, code = BODIES[body]
    arrays = drawn(number)
    out, name = empty(arrays[0].shape, dtype, device), dtype_name(dtype)
    ours = elementwise(code, alpha=2.0)
    calls: dict[str, Call] = {
        "cuassay": lambda: ours(*arrays, out=out),
        "copy": lambda: ops.copy(arrays[0], out=out),
        **_peers(body, arrays, name),
    }
    work, told = Work(bytes=(number + 1) * out.nbytes), {"dtype": name, "case": "large"}

    timings = device_benchmark(calls, device, work=work, op=body, **told)

    for implementation, timing in timings.items() if recorder is not None else ():
        recorder.write_time(**timing_row(f"body:{body}", device, implementation, timing, **told))
    ours(*arrays, out=out)
    assert np.isfinite(float(ops.sum(out)))


def _peers(body: str, arrays: list[Any], dtype: str) -> dict[str, Call]:
    found: dict[str, Call] = {}
    if dtype != "bfloat16":
        import cupy

        inputs, text = CUPY_BODIES[body]
        kernel, their_out = cupy.ElementwiseKernel(inputs, "T z", text, f"{body}_peer"), cupy.empty_like(arrays[0])
        found["cupy"] = lambda: kernel(*arrays, their_out)
    if importlib.util.find_spec("torch") is not None:
        import torch

        jiterated = torch.cuda.jiterator._create_jit_fn(BODIES[body][1], alpha=2.0)
        bits = [torch.as_tensor(a.view(np.int16) if dtype == "bfloat16" else a) for a in arrays]
        theirs = [a.view(getattr(torch, dtype)) for a in bits]
        found["torch"] = lambda: jiterated(*theirs)
    return found
