"""Figures of time: the empty call is taken off, an error that is too large withholds, the floor refuses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest

from cuassay import Device
from cuassay.judging.baseline import LEAST_OFFSET, Baseline
from cuassay.judging.clocks import case_times, drift_of, floor_of, is_impossible, peaks_of
from cuassay.judging.results import Results
from cuassay.judging.trial import Trial
from cuassay.judging.verdict import CaseTime
from cuassay.testing import OpSpec, Sample, Work

SPEC = OpSpec(fn=lambda xp, a: a + 1, name="one", reference=lambda a: a + 1, dtypes=("float32",))
KEY = ("8", "float32")
STEADY = [0.010, 0.0101, 0.0099, 0.010, 0.010, 0.0101, 0.0099, 0.010]


def timed(
    samples: Sequence[float],
    empty: Sequence[float] = (),
    baseline: Sequence[float] = (),
    tier: str = "program",
    **peaks: float,
) -> CaseTime:
    trial = Trial(
        times={KEY: list(samples)}, empty={KEY: list(empty)}, shapes={KEY: Sample((np.zeros(8, np.float32),))}
    )
    ours = Baseline([{KEY: baseline}], [{KEY: empty}])
    (found,) = case_times(Results([SPEC]), trial, ours, tier=tier, on="device", peaks=lambda nbytes: peaks)
    return found


def test_the_time_of_an_empty_call_is_taken_off() -> None:
    found = timed(STEADY, empty=[0.004] * 8)

    assert found.time_s == pytest.approx(0.0059)
    assert (found.n, found.clock, found.withheld) == (8, "host", "")


def test_a_figure_whose_error_is_too_large_is_withheld() -> None:
    found = timed([0.001, 0.02, 0.003, 0.04, 0.002])

    assert found.time_s is None
    share = 100 * found.error_s / 0.003  # the median, as the calls differ by far
    assert found.withheld == (
        f"its error is {share:,.1f} %, and at most 5 % is allowed; the call is too short, so measure a larger size by "
        "bench=, or give --no-times"
    )


def test_a_figure_below_that_of_an_empty_call_is_withheld() -> None:
    assert timed(STEADY, empty=[0.02] * 8).time_s is None


def test_few_calls_give_no_figure() -> None:
    assert timed([0.01, 0.01, 0.01]).withheld == "too few calls were timed"


def test_a_ratio_to_the_declared_function_has_its_range() -> None:
    found = timed(STEADY, baseline=[0.02, 0.0201, 0.0199, 0.02])

    assert found.ratio_low is not None
    assert found.ratio_high is not None
    assert found.ratio_low <= 2.0 <= found.ratio_high


@pytest.mark.parametrize("tier", ["program", "kernel"])
def test_the_error_contains_the_offset_between_processes(tier: str) -> None:
    found = timed([0.01] * 8, tier=tier)

    assert found.offset == LEAST_OFFSET[tier]
    assert found.error_s == pytest.approx(0.01 * LEAST_OFFSET[tier])


def test_a_ratio_is_widened_by_the_offset_between_processes() -> None:
    found = timed([0.01] * 8, baseline=[0.01] * 8)

    offsets = 1 + 2 * LEAST_OFFSET["program"] * math.sqrt(2)
    assert (found.ratio_low, found.ratio_high) == (pytest.approx(1 / offsets), pytest.approx(offsets))
    assert found.reference_s == pytest.approx(0.01)


def test_calls_that_were_disturbed_do_not_count_in_the_program_tier() -> None:
    calls = [0.0100, 0.0102, 0.0101, 0.0110, 0.0112, 0.0108, 0.0109, 0.0111, 0.0113, 0.0107]

    assert timed(calls).time_s == pytest.approx(0.01005)
    assert timed(calls, tier="kernel").time_s == pytest.approx(0.01085)


@pytest.mark.parametrize(("usual", "figure"), [(0.0114, 0.01), (0.0117, 0.0117)])
def test_a_candidate_that_is_much_faster_in_a_few_calls_has_the_time_of_most(usual: float, figure: float) -> None:
    found = timed([usual, 0.01] * 5 + [usual] * 6)

    assert found.time_s == pytest.approx(figure)


def test_the_same_uneven_program_is_as_fast_as_declared() -> None:
    calls = [0.0117, 0.01] * 5 + [0.0117] * 6

    found = timed(calls, empty=[0.001, 0.0012] * 8, baseline=calls)

    assert found.reference_s == found.time_s == pytest.approx(0.0106)
    assert found.q25 is not None
    assert found.q75 is not None
    assert found.q25 <= found.time_s <= found.q75


def test_what_is_fast_beside_its_empty_calls_has_the_time_of_most() -> None:
    found = timed([0.0110] * 4 + [0.0100] * 3 + [0.0110] * 9, empty=[0.0085] * 16)

    assert found.time_s == pytest.approx(0.0025)


def test_the_floor_is_that_of_the_scarcer_resource() -> None:
    peaks = {"bandwidth": 1e9, "float32": 1e12}

    assert floor_of(Work(bytes=10**9, flops=10**9), "float32", peaks) == 1.0
    assert floor_of(Work(bytes=10**3, flops=10**12), "float32", peaks) == 1.0
    assert floor_of(Work(bytes=10**3), "float32", {}) is None


@pytest.mark.parametrize(("bandwidth", "impossible"), [(64 / 0.010, False), (64 / 0.0105, False), (64 / 0.012, True)])
def test_a_time_below_nine_tenths_of_the_floor_is_impossible(bandwidth: float, impossible: bool) -> None:
    assert is_impossible(timed(STEADY, bandwidth=bandwidth)) is impossible


@pytest.mark.parametrize("name", ["cpu", "sim"])
def test_hosts_have_no_peaks(name: str) -> None:
    assert peaks_of(Device(name), ("float32",), 10**9) == {}


def test_peaks_of_a_gpu_are_those_that_its_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay.devices.cuda.driver import runtime

    h200 = {
        "memory_clock_rate": 2_619_000, "memory_bus_width": 5120, "clock_rate": 1_980_000, "multi_processor_count": 132,
        "major": 9, "L2_cache_size": 50 << 20,
    }  # fmt: skip
    told = runtime.Properties(**dict.fromkeys((one.name for one in fields(runtime.Properties)), 0) | h200)
    monkeypatch.setattr(runtime, "get_device_properties", lambda index: told)

    large, small = (peaks_of(Device("cuda"), ("float32",), nbytes) for nbytes in (10**9, 10**6))

    assert large == {"bandwidth": pytest.approx(3.352e12, rel=1e-3), "float32": pytest.approx(2.141e15, rel=1e-3)}
    assert small == {"float32": large["float32"]}


#: Times of a machine that has other work: single calls are late.
NOISY = [1.0, 1.02, 0.99, 1.6, 1.01, 1.0, 0.98, 1.03, 2.4, 1.0, 0.99, 1.01, 1.02, 1.0]


@pytest.mark.parametrize(
    ("samples", "drift"),
    [
        ([1.0] * 14, None),
        (NOISY, None),
        ([1.0, 1.01, 0.99] * 3 + [1.05, 1.06, 1.04] * 2, None),
        ([1.0, 1.01, 0.99] * 4 + [2.0, 2.01, 1.99], 2.0),
        ([1.0, 1.01, 0.99] + [2.0, 2.01, 1.99] * 4, 2.0),
        ([2.0, 2.01, 1.99] * 3 + [1.0, 1.01, 0.99] * 3, 0.5),
        ([1.0, 1.0, 2.0, 2.0], None),
        ([0.0] * 14, None),
    ],
    ids=["steady", "noisy", "a little", "slow at last", "fast at first", "fast at last", "few calls", "no time"],
)
def test_a_drift_is_a_clear_and_large_change_that_lasts(samples: list[float], drift: float | None) -> None:
    assert drift_of(samples) == (None if drift is None else pytest.approx(drift, rel=0.02))


def levels(chance: np.random.Generator, share: float, step: float) -> list[float]:
    return np.where(chance.random(int(chance.integers(12, 21))) < share, 1 + step, 1.0).tolist()


@pytest.mark.parametrize(("share", "step"), [(0.5, 0.15), (0.5, 0.12), (0.2, 0.3)])
def test_times_of_two_levels_in_any_order_hardly_ever_drift(share: float, step: float) -> None:
    chance = np.random.default_rng(7)

    found = [drift_of(levels(chance, share, step)) for _ in range(200)]

    assert sum(one is not None for one in found) <= 8


@pytest.mark.parametrize("count", [12, 20])
@pytest.mark.parametrize("slow", [3, 4, 5, 6])
def test_a_few_slow_calls_at_the_end_are_a_drift(count: int, slow: int) -> None:
    chance = np.random.default_rng(7)
    samples = [*chance.normal(1.0, 0.01, count - slow).tolist(), *chance.normal(1.3, 0.01, slow).tolist()]

    assert drift_of(samples) == pytest.approx(1.3, rel=0.05)


def test_a_figure_that_drifts_is_withheld_with_the_ratio() -> None:
    found = timed([0.01, 0.0101, 0.0099] * 3 + [0.015, 0.0151, 0.0149] * 3)

    assert found.time_s is None
    assert found.drift == pytest.approx(1.5)
    assert found.withheld.startswith("it drifts: its later calls take 1.5 times as long as its earlier ones")
