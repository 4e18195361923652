"""Float32 products of the split modes and of native ones, ours and torch's: flop/s, error, share of bfloat16's limit.

The error is ||out - exact|| / ||exact|| with the product of the same numbers in float64.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark
from cuassay.benchmarking.roofline import Limit
from cuassay.results.record import Recorder
from cuassay.testing import devices

#: Products of bfloat16 parts that each mode adds.
PRODUCTS = {"bf16x3": 3, "tf32x3": 6, "bf16x6": 6, "bf16x9": 9}

#: Instead of the extent where nothing is measured.
AS_TEST = 640


def torch_mm(a: Any, b: Any, out: Any) -> Callable[[], Any] | None:
    """torch's native product of the same memory; None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        import torch

        return partial(torch.mm, *(torch.from_dlpack(x) for x in (a, b)), out=torch.from_dlpack(out))


@devices("cuda")
@pytest.mark.parametrize("extent", [1024, 2048, 4096, 8192])
def test_split_modes_next_to_native_products(
    device: Device,
    extent: int,
    device_benchmark: DeviceBenchmark,
    recorder: Recorder | None,
    ceilings: Callable[[Device], tuple[Limit, ...]],
) -> None:
    n = extent if device_benchmark.enabled else AS_TEST
    a, b = (from_host(np.random.default_rng(seed).standard_normal((n, n), np.float32), device) for seed in (1, 2))
    exact = ops.mm(a.astype(np.float64), b.astype(np.float64))
    calls: dict[str, Callable[[], Any]] = {}
    errors: dict[str, float] = {}
    for mode in ("ieee", *PRODUCTS):
        out = ops.mm(a, b, precision=mode)
        errors[mode] = float(np.sqrt((((out - exact) ** 2).sum() / (exact**2).sum()).get()))
        calls[f"cuassay {mode}"] = ops.mm.prepare(a, b, out=out, precision=mode).run
    peer = torch_mm(a, b, ops.mm(a, b))
    if peer is not None:
        calls["torch"] = peer

    timings = device_benchmark(calls, device, op="mm", case=f"{n}", dtype="float32")

    for mode in PRODUCTS:
        assert errors[mode] <= (5e-5 if mode == "bf16x3" else 1.5 * errors["ieee"])
    device_benchmark.note(**{f"{mode}_error": error for mode, error in errors.items()})
    device_benchmark.note(**{f"{name}_flops": 2 * n**3 / timing.median_s for name, timing in timings.items()})
    if timings:
        half = next(one.value for one in ceilings(device) if one.limit == "compute" and one.dtype == "bfloat16")
        shares = {
            f"{mode}_share": 2 * n**3 * PRODUCTS[mode] / timings[f"cuassay {mode}"].median_s / half for mode in PRODUCTS
        }
        device_benchmark.note(**shares)
    for name, timing in timings.items() if recorder is not None else ():
        columns = timing_row("mm", device, name, timing, case=f"{n}", dtype="float32", flops=2 * n**3)
        recorder.write_time(**columns)
