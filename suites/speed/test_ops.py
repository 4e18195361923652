"""Every op at GPT-2 small's shapes, with its peers, in one process; bytes/s, flop/s and share of the roofline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, to_host
from cuassay.benchmarking.cases import DTYPES, Case, cases, row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark
from cuassay.benchmarking.roofline import Limit, fraction
from cuassay.results.record import Recorder
from cuassay.testing import OpSpec, dtypes, ops
from cuassay.testing.opspec import REDUCED
from cuassay.testing.own_specs import own_specs

Peers = Callable[[Case], dict[str, Callable[[], Any]]]
Ceilings = Callable[[Device], tuple[Limit, ...]]

#: Specs that declare a second benchmark.
SECOND = tuple(spec for spec in own_specs() if len(list(spec.draw_bench(0, "float32", REDUCED))) > 1)


@pytest.fixture
def measured(
    device: Device,
    device_benchmark: DeviceBenchmark,
    peers: Peers,
    ceilings: Ceilings,
    recorder: Recorder | None,
) -> Callable[[Case], None]:
    """Measures a case with its peers, and keeps the figures where they are kept."""

    def measure(case: Case) -> None:
        told = {"op": case.spec.name, "dtype": case.dtype, "case": case.label}
        timings = device_benchmark({"cuassay": case.run, **peers(case)}, device, work=case.work, **told)
        if timings:
            share = fraction(case.work, timings["cuassay"], ceilings(device), case.dtype)
            device_benchmark.note(fraction=share)
        for name, timing in timings.items() if recorder is not None else ():
            recorder.write_time(**row(case, name, timing))

    return measure


@ops()
@dtypes(*DTYPES)
def test_op(device: Device, dtype: np.dtype[Any], op: OpSpec, measured: Callable[[Case], None]) -> None:
    case = next(cases(op, device, dtype))

    measured(case)

    assert np.isfinite(to_host(case.run()).astype(np.float64)).all()


@ops(*SECOND)
@dtypes(*DTYPES)
def test_op_second(device: Device, dtype: np.dtype[Any], op: OpSpec, measured: Callable[[Case], None]) -> None:
    _, case, *_ = cases(op, device, dtype)

    measured(case)

    assert np.isfinite(to_host(case.run()).astype(np.float64)).all()
