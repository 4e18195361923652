"""Timing: one interface on every device; what a series says of itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.benchmarking import timing as module
from cuassay.benchmarking.cases import cases, row
from cuassay.benchmarking.roofline import fraction, limits
from cuassay.benchmarking.timing import MIN_SAMPLES, Timing, interleave, measure, ratio
from cuassay.errors import ArgumentError
from cuassay.testing import devices as on
from cuassay.testing import requires
from cuassay.testing.opspec import Work, own_specs


def adding(device: Device, size: int = 1000) -> Callable[[], Any]:
    a = from_host(np.ones(size, np.float32), device)
    out = from_host(np.zeros(size, np.float32), device)
    return lambda: ops.add(a, a, out=out)


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_series_has_samples_of_both_clocks(device: Device, cache: Any) -> None:
    timing = measure(adding(device), device, cache=cache, samples=12, max_seconds=0.1)

    assert MIN_SAMPLES <= len(timing.samples_s) <= 12
    assert len(timing.host_s) == len(timing.samples_s)
    assert all(sample > 0 for sample in timing.samples_s)
    assert (timing.cache, timing.mode) == (cache, "stream")


def test_the_most_samples_is_a_limit(device: Device) -> None:
    assert len(measure(adding(device), device, samples=3).samples_s) == 3


def test_peers_take_turns_in_abba_order(device: Device) -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}

    interleave(calls, device, samples=2)

    assert order[-4:] == ["a", "b", "b", "a"]


@pytest.mark.parametrize(("cache", "most"), [("cold", 100), ("warm", 0)])
def test_the_cache_is_flushed_before_each_cold_sample_and_no_warm_one(
    device: Device, cache: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(devices.backend(device.kind))
    flush, flushed = kind.flush_cache, []
    monkeypatch.setattr(kind, "flush_cache", lambda self, index: (flushed.append(index), flush(self, index)))

    found = measure(adding(device), device, cache=cache, samples=5)

    assert min(len(found.samples_s), most) <= len(flushed) <= most


@on("cpu")
def test_the_time_is_for_each_of_the_calls(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def call() -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))

    found = interleave({"a": call, "b": call}, device, queued=False, max_seconds=20.5, precision=-1.0)

    assert len(found["a"].samples_s) == len(found["b"].samples_s) == 21


@pytest.mark.parametrize(("samples", "is_settled"), [(4, False), (100, True)])
def test_more_samples_settle_a_median(samples: int, is_settled: bool) -> None:
    taken = SimpleNamespace(device_s=[0.99, 1.01] * (samples // 2))

    assert module._Series.is_settled(taken, 0.005) == is_settled  # type: ignore[arg-type]


@requires("graphs")
def test_a_graph_is_replayed_for_the_call(device: Device) -> None:
    a = from_host(np.ones(100, np.float32), device)
    out = from_host(np.zeros(100, np.float32), device)

    timing = measure(lambda: ops.add(a, a, out=out), device, mode="graph", samples=10)

    assert timing.mode == "graph"
    assert to_host(out)[0] == 2


def test_nothing_to_time_is_refused(device: Device) -> None:
    with pytest.raises(ArgumentError, match="timing needs a call"):
        interleave({}, device)


def test_the_ceilings_of_a_device_are_rates_and_a_time(device: Device) -> None:
    found = limits(device, ("float32",))

    assert [(one.limit, one.unit) for one in found] == [("bandwidth", "B/s"), ("compute", "FLOP/s"), ("launch", "s")]
    assert all(one.value > 0 for one in found)


def test_a_case_becomes_a_row_of_results(device: Device) -> None:
    spec = next(spec for spec in own_specs() if spec.name == "layer_norm")
    case = next(cases(spec, device, "float32"))

    columns = row(case, "cuassay", measure(case.run, device, samples=3, max_seconds=0.1))

    assert (columns["benchmark"], columns["device"], columns["n"]) == ("layer_norm", str(device), 3)
    assert columns["bytes"] == case.work.bytes > 0


# ------------------------------------------------------------------------------------------------ figures


def series(*samples: float) -> Timing:
    return Timing(samples, samples, "device", "cold")


def test_a_series_states_median_quartiles_and_spread() -> None:
    timing = series(1.0, 2.0, 3.0, 4.0, 5.0)

    assert (timing.median_s, timing.quartiles_s) == (3.0, (2.0, 4.0))
    assert timing.spread == pytest.approx(2 / 3)
    assert repr(timing) == "Timing(median 3 s, spread 66.7%, n 5, device, cold, stream)"


def test_a_ratio_below_one_is_faster() -> None:
    found = ratio(series(1.0, 1.0, 1.0), series(2.0, 2.0, 4.0))

    assert (found.value, found.high) == (0.5, 0.5)


def test_a_ratio_to_no_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match="longer than no time"):
        ratio(series(1.0), series(0.0))


@pytest.mark.parametrize(("work", "expected"), [(Work(bytes=50), 0.5), (Work(bytes=10, flops=900), 0.9)])
def test_the_nearer_ceiling_decides_the_fraction(work: Work, expected: float) -> None:
    from cuassay.benchmarking.roofline import Limit

    ceilings = (
        Limit(device="cpu:0", limit="bandwidth", value=100.0, unit="B/s", how="x"),
        Limit(device="cpu:0", limit="compute", value=1000.0, unit="FLOP/s", how="x", dtype="float32"),
    )

    assert fraction(work, series(1.0), ceilings, "float32") == pytest.approx(expected)
