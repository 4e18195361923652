"""Operations on arrays far larger than any cache, compared with torch and with a copy of as many bytes."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from cuassay import Device, empty, from_host, namespace, ops
from cuassay.arrays.dtypes import dtype_name
from cuassay.benchmarking.cases import Case, row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark, is_measuring
from cuassay.results.record import Recorder
from cuassay.testing import OpSpec, Work, devices, dtypes
from cuassay.testing.own_specs import own_specs

#: Bytes of one array while measuring: a tail of a few blocks must not show; and as a test.
NBYTES, NBYTES_AS_TEST = 2**29, 2**20

#: Rows drawn on the host; the array repeats them, as drawing half a gigabyte would take longer than all of this.
DRAWN = 61

SPECS: dict[str, OpSpec] = {spec.name: spec for spec in own_specs()}
NO_KEYWORDS = MappingProxyType[str, Any]({})


@pytest.fixture
def large(device: Device, dtype: np.dtype[Any], pytestconfig: pytest.Config) -> Callable[[int], Any]:
    """Of a width: an array of `NBYTES` in rows of it."""
    nbytes = NBYTES if is_measuring(pytestconfig) else NBYTES_AS_TEST

    def make(width: int) -> Any:
        drawn = np.random.default_rng(2026).standard_normal((DRAWN, width), np.float32).astype(dtype)
        rows = max(DRAWN, nbytes // (width * dtype.itemsize))
        return namespace(device).tile(from_host(drawn, device), (-(-rows // DRAWN), 1))[:rows]

    return make


@devices("cuda:*")
@dtypes("float32", "bfloat16")
@pytest.mark.parametrize(
    ("op", "width"),
    [("softmax", 1_024), ("softmax", 50_257), ("layer_norm", 768), ("layer_norm", 8_192)],
    ids=lambda value: str(value),
)
def test_rows(
    device: Device,
    dtype: np.dtype[Any],
    op: str,
    width: int,
    large: Callable[[int], Any],
    peers: Callable[[Case], dict[str, Callable[[], Any]]],
    device_benchmark: DeviceBenchmark,
    recorder: Recorder | None,
) -> None:
    rows = large(width)
    vectors = [from_host(np.full(width, value, np.float32).astype(dtype), device) for value in (1.5, 0.5)]
    arguments = [rows] if op == "softmax" else [rows, *vectors]
    out = empty(rows.shape, dtype, device)
    label, work = f"{rows.shape[0]}x{width}", Work(bytes=2 * rows.nbytes)
    spec, name = SPECS[op], dtype_name(dtype)
    case = Case(spec, device, name, label, arguments, NO_KEYWORDS, lambda: spec.op(*arguments, out=out), work)
    calls = {"cuassay": case.run, "copy": lambda: ops.copy(rows, out=out), **peers(case)}

    timings = device_benchmark(calls, device, work=work, op=op, dtype=name, case=label)

    for implementation, timing in timings.items() if recorder is not None else ():
        recorder.write_time(**row(case, implementation, timing))
    case.run()
    assert np.isfinite(float(ops.sum(out)))


#: Whose arrays are made positive.
POSITIVE = ("div", "sqrt", "log", "rsqrt", "reciprocal", "log1p", "pow")

#: Of an operation: its arrays.
ELEMENTWISE = {
    "sub": 2,
    "div": 2,
    "neg": 1,
    "sqrt": 1,
    "log": 1,
    "tanh": 1,
    "sigmoid": 1,
    "gelu": 1,
    "gelu_backward": 2,
    "abs": 1,
    "sign": 1,
    "rsqrt": 1,
    "reciprocal": 1,
    "expm1": 1,
    "log1p": 1,
    "sin": 1,
    "cos": 1,
    "erf": 1,
    "silu": 1,
    "pow": 2,
    "maximum": 2,
    "minimum": 2,
}


@devices("cuda:*")
@dtypes("float32", "bfloat16")
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elements(
    device: Device,
    dtype: np.dtype[Any],
    op: str,
    large: Callable[[int], Any],
    peers: Callable[[Case], dict[str, Callable[[], Any]]],
    device_benchmark: DeviceBenchmark,
    recorder: Recorder | None,
) -> None:
    rows = large(8_192)
    rows = ops.add(ops.mul(rows, rows), 0.5) if op in POSITIVE else rows
    arguments = [rows, *(ops.copy(rows) for _ in range(ELEMENTWISE[op] - 1))]
    out, spec, name = empty(rows.shape, dtype, device), SPECS[op], dtype_name(dtype)
    work = Work(bytes=(len(arguments) + 1) * rows.nbytes)
    case = Case(spec, device, name, "large", arguments, NO_KEYWORDS, lambda: spec.op(*arguments, out=out), work)
    calls = {"cuassay": case.run, "copy": lambda: ops.copy(rows, out=out), **peers(case)}

    timings = device_benchmark(calls, device, work=work, op=op, dtype=name, case=case.label)

    for implementation, timing in timings.items() if recorder is not None else ():
        recorder.write_time(**row(case, implementation, timing))
    case.run()
    assert np.isfinite(float(ops.sum(out)))


#: Of a copy to C order: height and width of the matrices that are transposed, one after another in memory.
LAYOUTS = {"transposed": (8_192, 16_384), "channels last": (256, 8_192), "channels first": (8_192, 256)}


@devices("cuda:*")
@dtypes("float32", "bfloat16")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_to_another_order(
    device: Device,
    dtype: np.dtype[Any],
    layout: str,
    large: Callable[[int], Any],
    peers: Callable[[Case], dict[str, Callable[[], Any]]],
    device_benchmark: DeviceBenchmark,
    recorder: Recorder | None,
) -> None:
    height, width = LAYOUTS[layout]
    rows = large(width)
    height = min(height, rows.shape[0])
    dense = rows[: rows.shape[0] // height * height].reshape(-1, height, width)
    arguments, keywords = [dense.transpose(0, 2, 1)], MappingProxyType({"memory_format": "contiguous"})
    spec, name, work = SPECS["copy"], dtype_name(dtype), Work(bytes=2 * dense.nbytes)
    case = Case(spec, device, name, layout, arguments, keywords, lambda: ops.copy(*arguments, **keywords), work)
    calls = {"cuassay": case.run, "copy": lambda: ops.copy(dense), **peers(case)}

    timings = device_benchmark(calls, device, work=work, op="copy", dtype=name, case=layout)

    for implementation, timing in timings.items() if recorder is not None else ():
        recorder.write_time(**row(case, implementation, timing))
    assert namespace(device).array_equal(case.run(), arguments[0])
