"""Random numbers of 1 GiB compared with a fill of as many bytes, torch and CuPy; and what a call costs the host."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, empty, random
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark, is_measuring
from cuassay.random import Generator
from cuassay.testing import Work, devices, dtypes

#: Bytes written while measuring, and as a test.
NBYTES, NBYTES_AS_TEST = 2**30, 2**20

Calls = dict[str, Callable[[], Any]]


@pytest.fixture
def out(device: Device, dtype: np.dtype[Any], pytestconfig: pytest.Config) -> Any:
    nbytes = NBYTES if is_measuring(pytestconfig) else NBYTES_AS_TEST
    return empty((nbytes // dtype.itemsize,), dtype, device)


def torch_calls(device: Device, out: Any, dtype: str) -> Calls:
    """Torch's fill and generators on an array of its own."""
    if importlib.util.find_spec("torch") is None or device.kind != "cuda":
        return {}
    import torch

    tensor = torch.empty(out.size, dtype=getattr(torch, dtype), device=str(device))
    return {
        "fill": lambda: tensor.fill_(1.5),  # by 16-byte stores; CuPy's own fill stores one element at a time
        "torch uniform": tensor.uniform_,
        "torch normal": tensor.normal_,
    }


def cupy_calls(device: Device, out: Any, dtype: str) -> Calls:
    """CuPy's generators, which write float32 and float64."""
    if device.kind != "cuda" or dtype not in ("float32", "float64"):
        return {}
    import cupy

    drawn = cupy.random.default_rng(1)
    return {
        "cupy uniform": lambda: drawn.random(dtype=dtype, out=out),
        "cupy normal": lambda: drawn.standard_normal(dtype=dtype, out=out),
    }


@devices("cuda:*")
@dtypes("float32", "bfloat16", "float64")
def test_uniform_and_normal_write_at_what_rate(
    device: Device, dtype: np.dtype[Any], out: Any, device_benchmark: DeviceBenchmark
) -> None:
    name, generator = dtype.name, Generator(device, seed=1)
    calls: Calls = {
        "uniform": lambda: random.uniform(out=out, generator=generator),
        "normal": lambda: random.normal(out=out, generator=generator),
        **torch_calls(device, out, name),
        **cupy_calls(device, out, name),
    }

    device_benchmark(calls, device, work=Work(bytes=out.nbytes), op="random", dtype=name, case=f"{out.nbytes} bytes")

    calls["uniform"]()
    assert generator.get_offset() > 0
    assert 0 <= float(out[:1000].max()) < 1


@devices("cuda:*")
@dtypes("float32")
def test_a_small_call_costs_the_host_what(
    device: Device, dtype: np.dtype[Any], device_benchmark: DeviceBenchmark
) -> None:
    out, generator = empty((1024,), dtype, device), Generator(device, seed=1)
    calls: Calls = {
        "uniform": lambda: random.uniform(out=out, generator=generator),
        **{name: call for name, call in torch_calls(device, out, dtype.name).items() if "uniform" in name},
    }

    device_benchmark(calls, device, work=Work(bytes=out.nbytes), op="random", dtype=dtype.name, case="1024 elements")

    assert generator.get_offset() > 0
