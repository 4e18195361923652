"""Timing: one interface on every device; what a series says of itself."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.benchmarking import empty as empties
from cuassay.benchmarking import roofline, sampling, throttling
from cuassay.benchmarking import timing as module
from cuassay.benchmarking.cases import cases, row, timing_row
from cuassay.benchmarking.roofline import Limit, fraction, limits
from cuassay.benchmarking.settling import ENOUGH_SECONDS, SETTLED_SAMPLES
from cuassay.benchmarking.timing import MIN_SAMPLES, Timing, interleave, measure, ratio
from cuassay.errors import ArgumentError, CaptureError, MeasurementError
from cuassay.testing import Work, exclusive, requires
from cuassay.testing import devices as on
from cuassay.testing.own_specs import own_specs


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
    assert timing.clock == ("device" if devices.capabilities(device).answer("timing") else "host")


def test_the_most_samples_is_a_limit(device: Device) -> None:
    assert len(measure(adding(device), device, samples=3).samples_s) == 3


def test_a_median_that_is_settled_at_once_has_the_fewest_samples(device: Device) -> None:
    found = measure(adding(device), device, precision=1e9, max_seconds=60.0)

    assert found.settled
    assert len(found.samples_s) == SETTLED_SAMPLES or sum(found.samples_s) >= ENOUGH_SECONDS  # on a busy host


@pytest.mark.parametrize("is_on", [True, False])
def test_no_garbage_is_collected_inside_a_sample(device: Device, is_on: bool) -> None:
    inside: list[bool] = []
    (gc.enable if is_on else gc.disable)()
    try:
        add = adding(device)
        measure(lambda: (inside.append(gc.isenabled()), add()), device, samples=2)
        after = gc.isenabled()
    finally:
        gc.enable()

    assert (inside[-2:], after) == ([False, False], is_on)


def test_peers_take_turns_in_abba_order(device: Device) -> None:
    order: list[str] = []
    add = adding(device)
    calls = {name: lambda name=name: (order.append(name), add()) for name in "ab"}

    interleave(calls, device, samples=2, queued=False)  # a queued sample that was held up is taken again

    assert order[-4:] == ["a", "b", "b", "a"]


@pytest.mark.parametrize(("cache", "most"), [("cold", math.inf), ("warm", 0)])
def test_the_cache_is_flushed_before_each_cold_sample_and_no_warm_one(
    device: Device, cache: Any, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(devices.backend(device.kind))
    flush, flushed = kind.flush_cache, []
    monkeypatch.setattr(kind, "flush_cache", lambda self, index: (flushed.append(index), flush(self, index)))

    found = measure(adding(device), device, cache=cache, samples=5)

    assert min(len(found.samples_s), most) <= len(flushed) <= most


def test_something_can_be_done_before_each_sample_and_before_the_cache_is_flushed(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(devices.backend(device.kind))
    flush, order, add = kind.flush_cache, list[str](), adding(device)
    monkeypatch.setattr(kind, "flush_cache", lambda self, index: (order.append("flush"), flush(self, index)))

    interleave(
        {"add": lambda: (order.append("call"), add())}, device, samples=2, before_sample=lambda: order.append("before")
    )

    assert order[-6:] == ["before", "flush", "call"] * 2


@on("cpu")
def test_what_is_done_before_a_sample_is_not_in_its_time(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: now))

    timing = interleave(
        {"call": lambda: pass_time(1.0)}, device, samples=3, queued=False, before_sample=lambda: pass_time(64.0)
    )["call"]

    assert timing.host_s == (1.0,) * 3


@on("cpu")
def test_the_time_is_for_each_of_the_calls(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def call() -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))

    found = interleave({"a": call, "b": call}, device, queued=False, max_seconds=20.5, precision=-1.0)

    assert len(found["a"].samples_s) == len(found["b"].samples_s) == 21


def test_the_hosts_time_is_that_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 8.0])
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=clock.__next__))
    one = sampling.Series(devices.backend("cpu"), 0, lambda: None, "warm", queued=False)
    one.repeats = 4

    assert one.once()[1] == 2.0


def test_all_series_go_on_until_each_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling.Series, "is_settled", lambda self, precision: len(self.device_s) >= self.call())

    found = interleave({"soon": lambda: 3, "late": lambda: 15}, "cpu", samples=20, max_seconds=1e6)

    assert [len(one.samples_s) for one in found.values()] == [15, 15]


@pytest.mark.parametrize(
    ("calls", "needed_s", "held_s"),
    [(1, 30e-6, 40e-6), (1, 100e-6, 160e-6), (100, 2e-3, 2.02e-3), (1, 10.0, 0.0)],
    ids=["as the host took", "longer", "many calls", "never"],
)
def test_the_stream_is_held_for_as_long_as_the_host_needs(calls: int, needed_s: float, held_s: float) -> None:
    series: Any = SimpleNamespace(queued=True, repeats=calls, hold_s=1.0, longest_hold=sampling.LONGEST_HOLD)
    series.once = lambda: (1e-6, 10e-6 + series.hold_s, series.hold_s >= needed_s)  # a held sample takes longer

    sampling.Series.find_hold(series)

    assert (series.queued, series.hold_s) == (held_s > 0, pytest.approx(held_s))


@pytest.mark.parametrize(
    ("samples", "is_settled"),
    [
        pytest.param([1e-5] * 29, False, id="29 short ones"),
        pytest.param([1e-5] * 30, True, id="30 short ones"),
        pytest.param([2e-3] * 10, True, id="20 ms"),
        pytest.param([2e-3] * 9, False, id="fewer than 10"),
        pytest.param([1.0] * 25 + [1.1] * 25, False, id="drifted"),
    ],
)
def test_a_median_settles_with_samples_enough_that_agree(samples: list[float], is_settled: bool) -> None:
    taken = SimpleNamespace(device_s=samples, repeats=1)

    assert sampling.Series.is_settled(taken, 0.005) == is_settled  # type: ignore[arg-type]


def test_the_precision_that_is_asked_for_decides_when_a_series_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[float] = set()
    monkeypatch.setattr(sampling.Series, "is_settled", lambda self, precision: asked.add(precision) or True)

    measure(lambda: None, "cpu", precision=0.25)
    interleave({"a": lambda: None}, "cpu", precision=0.125)

    assert asked == {0.25, 0.125}


def test_a_series_that_ran_out_of_time_is_not_settled(device: Device) -> None:
    found = measure(adding(device), device, precision=-1.0, samples=12)

    assert found.settled is False
    assert timing_row("add", device, "cuassay", found, case="1000")["settled"] is False


def samples_until_warm(durations: list[float], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many samples a warm-up took, of a call that takes `durations` and then the last of them."""
    now, taken = 0.0, 0

    def once() -> tuple[float, float, bool]:
        nonlocal now, taken
        lasted = durations[min(taken, len(durations) - 1)]
        now, taken = now + lasted, taken + 1
        return lasted, 0.0, True

    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: now))
    series: Any = SimpleNamespace(backend=devices.backend("cpu"), once=once)
    sampling.Series.warm_up(series)
    return taken


def test_a_warm_up_goes_on_while_clocks_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    rising = [5e-3 / (1 + step / 10) for step in range(20)]

    assert samples_until_warm([*rising, 1e-3], monkeypatch) > len(rising) + sampling.WINDOW


def test_a_warm_up_lasts_a_least_time_although_its_samples_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    assert samples_until_warm([1e-4], monkeypatch) == pytest.approx(sampling.LEAST_WARM_UP / 1e-4, abs=1)


def test_a_warm_up_ends_although_nothing_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert samples_until_warm([1e-3 * 1.1**step for step in range(100)], monkeypatch) < 30


@on("sim")
def test_modelled_times_need_no_warm_up(device: Device) -> None:
    calls = count()
    add = adding(device)

    measure(lambda: (next(calls), add()), device, samples=1)

    assert next(calls) == module.WARM_UP + 2 + 1  # and two that find the hold


@on("sim")
def test_samples_of_a_throttled_device_are_counted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False, False, True])
    monkeypatch.setattr(type(devices.backend("sim")), "throttled", lambda self, index: next(answers), raising=False)
    monkeypatch.setattr(throttling, "EVERY_SECONDS", 0.0)

    found = measure(adding(device), device, samples=3)

    assert found.throttled == 1
    assert timing_row("add", device, "cuassay", found, case="1000")["throttled"] == 1


def test_a_device_that_does_not_tell_has_no_count_of_throttled_samples() -> None:
    assert measure(adding(Device("cpu:0")), "cpu", samples=3).throttled is None


def test_modelled_times_have_a_unit_of_their_own(device: Device) -> None:
    found = measure(adding(device), device, samples=3)

    assert found.unit == ("virtual s" if device.kind == "sim" else "s")
    assert timing_row("add", device, "cuassay", found, case="1000")["unit"] == found.unit


@requires("graphs")
def test_a_graph_is_replayed_for_the_call(device: Device) -> None:
    a = from_host(np.ones(100, np.float32), device)
    out = from_host(np.zeros(100, np.float32), device)

    timing = measure(lambda: ops.add(a, a, out=out), device, mode="graph", samples=10)

    assert timing.mode == "graph"
    assert to_host(out)[0] == 2


@requires("graphs")
def test_the_graph_of_a_series_is_reset_after_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    graph_type = type(devices.backend(device.kind).new_capture(device.index))
    begin, reset = graph_type.begin, graph_type.reset
    begun: list[Any] = []  # held here: a graph that is dropped is reset, too
    ended: list[Any] = []
    monkeypatch.setattr(graph_type, "begin", lambda self: (begun.append(self), begin(self)))
    monkeypatch.setattr(graph_type, "reset", lambda self: (ended.append(self), reset(self)))

    measure(adding(device), device, mode="graph", samples=2)

    assert len(begun) == 1
    assert begun[0] in ended


@requires("graphs")
def test_a_call_that_fails_while_it_is_captured_leaves_no_capture_open(device: Device) -> None:
    add, turn = adding(device), count()

    def call() -> None:
        add()
        if next(turn) == module.WARM_UP:  # the calls before do not belong to a graph
            raise RuntimeError("wrong")

    with pytest.raises(RuntimeError, match="wrong") as raised:  # which keeps the frames, and what they hold, alive
        measure(call, device, mode="graph", samples=1)

    assert to_host(add())[0] == 2
    del raised


@pytest.mark.parametrize(
    ("calls", "limits"), [({}, {}), ({"x": print}, {"samples": 0}), ({"x": print}, {"max_seconds": 0.0})], ids=str
)
def test_nothing_to_time_is_refused(device: Device, calls: Any, limits: Any) -> None:
    with pytest.raises(ArgumentError, match="timing needs a call"):
        interleave(calls, device, **limits)


@on("sim")
def test_a_simulated_device_has_no_ceilings(device: Device) -> None:
    assert limits(device, ("float32",)) == ()


@on("cpu", "cuda:*")
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


@on("sim:*", "cuda:*")
@requires("timing")
@exclusive
def test_a_call_that_gives_the_device_nothing_is_refused(device: Device) -> None:
    with pytest.raises(MeasurementError, match=r"fn gave .* nothing to do"):
        measure(lambda: None, device, samples=3)


@on("sim:*", "cuda:*")
@requires("timing")
def test_nothing_is_refused_while_others_use_the_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(empties._empty, device, module.Empty(1e-3, 1e-3))

    assert measure(adding(device), device, samples=3).samples_s


@exclusive
@on("sim:*", "cuda:*")
@requires("timing")
def test_the_empty_interval_is_shorter_than_any_call(device: Device) -> None:
    empty = module.empty_interval(device, fresh=True)

    assert empty is not None
    assert 0 <= empty.median_s < measure(adding(device), device, samples=3).median_s
    assert module.empty_interval(device) is empty


@on("cpu")
def test_there_is_no_empty_interval_where_nothing_queues(device: Device) -> None:
    assert module.empty_interval(device) is None


@on("sim")
def test_a_cold_series_carries_the_empty_interval_and_a_batch_its_share(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(empties._empty, devices.find(device), module.Empty(1e-7, 0.0))

    cold, warm = (measure(adding(device), device, cache=cache, samples=3) for cache in ("cold", "warm"))
    live = measure(adding(device), device, queued=False, samples=3)

    assert cold.empty_s == 1e-7
    assert 0 < warm.empty_s < cold.empty_s
    assert live.empty_s == 0.0
    assert cold.net_s == cold.median_s - 1e-7
    assert timing_row("add", device, "cuassay", cold, case="1000")["empty"] == 1e-7


@on("sim")
def test_a_sample_must_exceed_the_empty_interval_by_its_spread(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = measure(adding(device), device, samples=3).median_s
    monkeypatch.setitem(empties._empty, devices.find(device), module.Empty(taken * 0.8, taken * 0.1))

    with pytest.raises(MeasurementError, match="cannot be told from two events"):
        measure(adding(device), device, samples=3)


@on("sim")
def test_a_batch_of_short_calls_is_not_taken_for_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    once = measure(adding(device), device, samples=3).median_s
    monkeypatch.setitem(empties._empty, devices.find(device), module.Empty(2 * once, 0.0))

    assert measure(adding(device), device, cache="warm", samples=3).median_s < 2 * once


@requires("graphs")
def test_a_graph_that_captured_nothing_is_refused(device: Device) -> None:
    with pytest.raises(CaptureError, match="the graph holds nothing"):
        measure(lambda: None, device, mode="graph", samples=3)


@exclusive
@requires("graphs")
def test_a_graph_that_captured_a_part_is_refused(device: Device) -> None:
    few, many, turn = adding(device), adding(device, 3_000_000), count()

    def call() -> None:
        few()
        if next(turn) != module.WARM_UP:  # what runs live and not while it is captured
            many()

    with pytest.raises(CaptureError, match="lacks some of its launches"):
        measure(call, device, mode="graph", samples=3)


@on("sim")
def test_a_call_that_was_slow_once_is_not_taken_for_a_graph_that_lacks_work(device: Device) -> None:
    few, many, turn = adding(device), adding(device, 3_000_000), count()

    def call() -> None:
        few()
        if 0 < next(turn) - module.WARM_UP <= 5:  # the five calls of the first look, after the captured one
            many()

    assert measure(call, device, mode="graph", samples=3).mode == "graph"


# ------------------------------------------------------------------------------------------------ figures


def series(*samples: float) -> Timing:
    return Timing(samples, samples, "device", "cold")


def test_a_series_states_median_quartiles_and_spread() -> None:
    timing = series(1.0, 2.0, 3.0, 4.0, 5.0)

    assert (timing.median_s, timing.quartiles_s) == (3.0, (2.0, 4.0))
    assert timing.spread == pytest.approx(2 / 3)
    assert repr(timing) == "Timing(median 3 s, spread 66.7%, n 5, device, cold, stream)"


@pytest.mark.parametrize(
    ("samples", "quartiles", "spread"),
    [((2.0,), (2.0, 2.0), 0.0), ((1.0, 3.0), (1.5, 2.5), 0.5), ((0.0,), (0.0, 0.0), 0.0)],
)
def test_few_samples_have_quartiles_too(
    samples: tuple[float, ...], quartiles: tuple[float, float], spread: float
) -> None:
    timing = series(*samples)

    assert (timing.quartiles_s, timing.spread) == (quartiles, spread)


def test_a_ratio_below_one_is_faster() -> None:
    found = ratio(series(1.0, 1.0, 1.0), series(2.0, 2.0, 4.0))

    assert (found.value, found.high) == (0.5, 0.5)


def test_a_ratio_is_of_times_without_their_empty_intervals() -> None:
    of, to = (Timing((sample,) * 3, (), "device", "cold", empty_s=1.0) for sample in (2.0, 3.0))

    assert (ratio(of, to).value, ratio(of, to).low) == (0.5, 0.5)


def test_each_series_of_a_ratio_is_without_its_own_empty_interval() -> None:
    of, to = (Timing((full,) * 3, (), "device", "cold", empty_s=empty) for full, empty in ((2.0, 1.0), (4.5, 0.5)))
    found = ratio(of, to)

    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_a_ratio_to_no_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match="longer than no time"):
        ratio(series(1.0), series(0.0))


def test_a_row_has_the_least_sample_and_the_quartiles_in_order() -> None:
    columns = timing_row("add", "cpu", "cuassay", series(3.0, 1.0, 2.0, 5.0, 4.0))

    assert [columns[name] for name in ("minimum", "q25", "median", "q75")] == [1.0, 2.0, 3.0, 4.0]


def test_a_row_tells_bytes_from_operations() -> None:
    assert Work(bytes=8, flops=3).columns() == {"bytes": 8, "flops": 3}


def test_a_ceiling_counts_bytes_read_and_written_and_two_operations_a_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "measure", lambda *call, **how: series(1.0))

    bandwidth, compute, _ = limits("cpu", ("float32",))

    assert (bandwidth.value, compute.value) == (2 * 32 * 2**20, 2 * 1024**3)


@pytest.mark.parametrize(("work", "expected"), [(Work(bytes=50), 0.5), (Work(bytes=10, flops=900), 0.9)])
def test_the_nearer_ceiling_decides_the_fraction(work: Work, expected: float) -> None:
    ceilings = (
        Limit(device="cpu:0", limit="bandwidth", value=100.0, unit="B/s", how="x"),
        Limit(device="cpu:0", limit="compute", value=1000.0, unit="FLOP/s", how="x", dtype="float32"),
        Limit(device="cpu:0", limit="compute", value=8000.0, unit="FLOP/s", how="x", dtype="bfloat16"),
    )

    assert fraction(work, series(1.0), ceilings, "float32") == pytest.approx(expected)
