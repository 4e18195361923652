"""Matrix products, torch's and the library's bare call: what they cost the host, and what a pass less saves.

Host times are of small matrices, until the call returns; device times are of a GPT-2 layer and its heads.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops, to_host
from cuassay.arrays.dtypes import as_dtype
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark
from cuassay.benchmarking.timing import Cache, Timing
from cuassay.results.record import Recorder
from cuassay.testing import devices, dtypes, requires
from cuassay.testing.samples import Samples

Call = Callable[[], Any]
Measured = Callable[..., None]

#: Rows, columns and inner extent where the host's time is all there is.
SMALL = 128

#: Calls a sample: few enough that the queue does not fill.
CALLS = 100

#: Enough that none of them is remembered from its last turn.
OUTPUTS = 5000

#: The floor: the library's call in a loop of C, its arguments as they come.
CALL_IN_C = """
#include <stdint.h>
typedef int (*Matmul)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                      void *, void *, uint64_t, void *);
int call_many(Matmul f, void **a, int count) {
    int status = 0;
    while (count-- && !status)
        status = f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                   (uint64_t)a[14], a[15]);
    return status;
}
"""


def torch_of(*arrays: Any) -> tuple[Any, list[Any]] | None:
    """torch, and its copies of our arrays; None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        import torch

        return torch, [
            torch.from_numpy(to_host(a).astype(np.float32)).to("cuda", getattr(torch, as_dtype(a.dtype).name))
            for a in arrays
        ]


def repeated(call: Call) -> Call:
    def run() -> None:
        for _ in repeat(None, CALLS):
            call()

    return run


@pytest.fixture
def measured(device: Device, device_benchmark: DeviceBenchmark, recorder: Recorder | None) -> Measured:
    """Measures calls side by side, by the host's clock where `host`, and keeps the figures where they are kept."""

    def measure(op: str, case: str, dtype: str, calls: dict[str, Call], *, host: bool = False) -> None:
        cache: Cache = "warm" if host else "cold"
        timings = device_benchmark(calls, device, cache=cache, queued=not host, op=op, case=case, dtype=dtype)
        if host:
            timings = {name: Timing(one.host_s, one.host_s, "host", one.cache) for name, one in timings.items()}
        device_benchmark.note(**{f"{name}_{case}_s": timing.median_s for name, timing in timings.items()})
        for name, timing in timings.items() if recorder is not None else ():
            recorder.write_time(**timing_row(op, device, name, timing, case=case, dtype=dtype))

    return measure


@devices("cuda")
@dtypes("bfloat16", "float32")
def test_mm_costs_the_host(device: Device, dtype: np.dtype[Any], measured: Measured) -> None:
    make = Samples(1, dtype.name)
    a, b = make((SMALL, SMALL)).on(device), make((SMALL, SMALL)).on(device)
    out = ops.mm(a, b)
    calls: dict[str, Call] = {
        "cuassay plan": ops.mm.prepare(a, b, out=out).run,
        "cuassay": partial(ops.mm, a, b, out=out),
        "cuassay, never the same addresses": _in_turn(a, b, [ops.mm(a, b) for _ in range(OUTPUTS)]),
    }
    peer = torch_of(a, b, out)
    if peer is not None:
        torch, (of_a, of_b, of_out) = peer
        calls["torch"] = partial(torch.mm, of_a, of_b, out=of_out)
    for call in calls.values():
        repeated(call)()

    measured("mm", f"{SMALL}, the host's part", dtype.name, calls, host=True)


def _in_turn(a: Any, b: Any, outputs: list[Any]) -> Call:
    """A product into each of `outputs` in turn."""
    out = cycle(outputs)
    return lambda: ops.mm(a, b, out=next(out))


@devices("cuda")
@requires("cublaslt")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) on PATH")
def test_mm_next_to_c(device: Device, measured: Measured, tmp_path: Path) -> None:
    make = Samples(1, "bfloat16")
    a, b = make((SMALL, SMALL)).on(device), make((SMALL, SMALL)).on(device)
    out = ops.mm(a, b)
    expected = to_host(out)
    plan = ops.mm.prepare(a, b, out=out)
    for _ in range(3):
        plan.run()
    calls = {"cuassay plan": repeated(plan.run), "c": calls_in_c(tmp_path, a, b, out)}

    measured("mm", f"{SMALL}, {CALLS} calls, the host's part", "bfloat16", calls, host=True)

    out.fill(0)
    calls["c"]()
    np.testing.assert_array_equal(to_host(out), expected)


def calls_in_c(folder: Path, a: Any, b: Any, out: Any) -> Call:
    """The library's calls for ``a @ b`` from C, with what our plan gives it."""
    from cuda import pathfinder

    from cuassay import cuda
    from cuassay.devices.cuda.blas import gemm
    from cuassay.devices.cuda.blas.product import Product

    source, library = folder / "call.c", folder / "call.so"
    source.write_text(CALL_IN_C)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    lt, compiled = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path), ctypes.CDLL(str(library))
    plan = gemm.route_of(Product(a, b, out), 256).plan
    of_a, of_b, beta, of_c, of_d = plan._layouts
    stream = cuda.current_stream().cuda_stream
    first, second, target = b.data.ptr, a.data.ptr, out.data.ptr
    given = (*plan._before, first, of_a, second, of_b, beta, target, of_c, target, of_d, plan._algorithm, 0, 0, stream)
    arguments = (ctypes.c_void_p * 16)(*map(int, given))

    def call_many() -> None:
        assert compiled.call_many(lt.cublasLtMatmul, arguments, CALLS) == 0
        assert plan  # the descriptors are its

    return call_many


@devices("cuda")
@dtypes("bfloat16", "float16")
@pytest.mark.parametrize("activation", [None, "relu", "gelu_tanh"])
def test_an_epilogue_next_to_its_parts(
    device: Device, dtype: np.dtype[Any], activation: Any, measured: Measured
) -> None:
    make = Samples(1, dtype.name)
    a, weight, bias = make((8192, 768)).on(device), make((3072, 768)).on(device), make(3072).on(device)
    out = ops.linear(a, weight, bias)

    def apart() -> None:
        ops.matmul(a, weight.T, out=out)
        ops.add(out, bias, out=out)
        if activation is not None:
            ops.relu(out, out=out) if activation == "relu" else ops.gelu(out, approximate="tanh", out=out)

    fused = partial(ops.linear, a, weight, bias, activation=activation, out=out)
    calls: dict[str, Call] = {"cuassay": fused, "apart": apart}
    peer = torch_of(a, weight, bias)
    if peer is not None:
        torch, (of_a, of_weight, of_bias) = peer
        linear, fusing = torch.nn.functional.linear, torch._addmm_activation
        calls["torch"] = (
            partial(linear, of_a, of_weight, of_bias)
            if activation is None
            else partial(fusing, of_bias, of_a, of_weight.T, use_gelu=activation == "gelu_tanh")
        )

    measured("linear", f"8192x768x3072, {activation}", dtype.name, calls)


@devices("cuda")
@dtypes("bfloat16", "float16")
@pytest.mark.parametrize(
    ("left", "right"),
    [((96, 1024, 64), (96, 64, 1024)), ((96, 1024, 1024), (96, 1024, 64)), ((8, 12, 1024, 64), (8, 12, 64, 1024))],
    ids=["scores", "values", "four dimensions"],
)
def test_stacks_next_to_torch(device: Device, dtype: np.dtype[Any], left: Any, right: Any, measured: Measured) -> None:
    make = Samples(1, dtype.name)
    a, b = make(left).on(device), make(right).on(device)
    out = ops.matmul(a, b)
    calls: dict[str, Call] = {"cuassay": partial(ops.matmul, a, b, out=out)}
    peer = torch_of(a, b, out)
    if peer is not None:
        torch, (of_a, of_b, of_out) = peer
        calls["torch"] = partial(torch.matmul, of_a, of_b, out=of_out)

    measured("matmul", f"{left} {right}", dtype.name, calls)
