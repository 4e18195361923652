"""The gate's statistics: what a look, a confirmation and the classes say of pairs of processes."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.benchmarking import gate
from cuassay.benchmarking.student import quantile


@pytest.mark.parametrize(
    ("level", "degrees", "t"),
    [(0.999, 3, 10.2145), (0.999, 19, 3.5794), (0.9, 5, 1.47588), (0.995, 9, 3.24984), (0.9999, 30, 4.2340)],
)
def test_quantiles_are_those_of_the_tables(level: float, degrees: float, t: float) -> None:
    assert quantile(level, degrees) == pytest.approx(t, rel=1e-4)


def looked(mean: float, scatter: float, pairs: int = 6, noise: float = 0.0, degrees: float = 0.0) -> int:
    """Pairs of that mean and standard deviation, looked at with a floor of half a percent."""
    values = np.resize([1.0, -1.0], pairs)
    values = mean + scatter * values / values.std(ddof=1)
    return int(gate.look(values[None], np.array([noise]), np.array([degrees]), np.array([0.005]))[0])


@pytest.mark.parametrize(
    ("mean", "scatter", "found"),
    [
        pytest.param(0.02, 0.002, 1, id="slower"),
        pytest.param(-0.02, 0.002, -1, id="faster"),
        pytest.param(0.0, 0.002, 0, id="same"),
        pytest.param(0.004, 0.0001, 0, id="certain-and-under-the-floor"),
        pytest.param(0.02, 0.03, 2, id="noisy"),
        pytest.param(0.0, 0.03, 2, id="too-noisy-for-same"),
    ],
)
def test_a_look_accuses_clears_or_goes_on(mean: float, scatter: float, found: int) -> None:
    assert looked(mean, scatter) == found


def test_pairs_that_agree_by_chance_are_no_proof_on_a_noisy_runner() -> None:
    assert looked(0.01, 0.0005, pairs=4) == 1
    assert looked(0.01, 0.0005, pairs=4, noise=0.01, degrees=19) == 2


def test_the_profile_does_not_silence_a_runner_that_got_noisier() -> None:
    assert looked(0.006, 0.02, pairs=10, noise=0.0005, degrees=10_000) == 2


@pytest.mark.parametrize(("side", "mean", "kept"), [(1, 0.02, True), (-1, 0.02, False), (1, 0.004, False)])
def test_a_suspect_is_confirmed_on_its_own_side_and_above_the_floor(side: int, mean: float, kept: bool) -> None:
    pairs = mean + 0.001 * np.resize([1.0, -1.0], 10)[None]
    arrays = np.zeros(1), np.zeros(1), np.array([0.005])

    assert gate.confirmed(np.array([side], np.int8), pairs, *arrays, 0.9999).tolist() == [kept]


@pytest.mark.parametrize("most", {one.confirming for one in gate.CLASSES})
def test_all_looks_of_a_confirmation_together_keep_its_level(most: int) -> None:
    looks = [count for count in gate.CONFIRMING_LOOKS if count <= most]
    errors = [1 - gate.level_at(0.999, count, most) for count in looks]

    assert looks[-1] == most
    assert sum(errors) == pytest.approx(0.001)
    assert errors[-1] >= 0.0008 > max(errors[:-1])


def test_each_suspect_is_confirmed_at_its_own_level() -> None:
    pairs = np.repeat(0.01 + 0.003 * np.resize([1.0, -1.0], 8)[None], 2, axis=0)
    arrays = np.zeros(2), np.zeros(2), np.full(2, 0.005)

    kept = gate.confirmed(np.ones(2, np.int8), pairs, *arrays, np.array([0.999, 0.999999]))

    assert kept.tolist() == [True, False]


@pytest.mark.parametrize(("mean", "kept"), [(0.006, False), (0.008, True)])
def test_a_profile_that_understates_the_noise_does_not_confirm(mean: float, kept: bool) -> None:
    scatter = np.resize([1.0, -1.0], 10)
    pairs = mean + 0.006 * (scatter / scatter.std(ddof=1))[None]
    arrays = np.array([0.0005]), np.array([19.0]), np.array([0.005])

    assert gate.confirmed(np.array([1], np.int8), pairs, *arrays, gate.confirmation_level(300)).tolist() == [kept]


@pytest.mark.parametrize(
    ("noise", "promise"),
    [(0.001, 0.005), (0.0015, 0.005), (0.003, 0.01), (0.009, 0.02), (0.02, math.inf), (None, 0.02)],
)
def test_the_noise_decides_what_is_promised(noise: float | None, promise: float) -> None:
    assert gate.class_of(noise).promise == promise


def test_a_larger_suite_is_confirmed_at_a_stricter_level() -> None:
    small, large = gate.confirmation_level(30), gate.confirmation_level(3000)

    assert small < large < 1
    assert 1 - large == pytest.approx((1 - small) / 100)


def test_the_smallest_effect_shrinks_with_pairs_down_to_the_floor() -> None:
    pairs = 0.01 * np.resize([1.0, -1.0], 100)
    few, many = (gate.smallest_effect(pairs[:count], 0.0, 0.0, 0.005) for count in (4, 100))

    assert few > 0.05
    assert many < 0.02
    assert gate.smallest_effect(pairs * 1e-6, 0.0, 0.0, 0.005) == 0.005


def test_a_profile_is_of_single_processes_and_a_pair_has_twice_their_variance() -> None:
    pairs, noise = np.full(6, 0.02), 0.01
    degrees = gate.MOST_PRIOR_DEGREES
    freedom = degrees + 5  # those of the profile, and five of six pairs that agree
    error = math.sqrt(degrees * 2 * noise**2 / freedom / 6)
    quantiles = quantile(gate.ALARM_LEVEL, freedom) + quantile(gate.SAME_LEVEL, freedom)

    assert gate.smallest_effect(pairs, noise, degrees, 0.0) == pytest.approx(quantiles * error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "effect", "least"), [(0.0015, 0.005, 0.90), (0.003, 0.01, 0.95), (0.005, 0.02, 0.95), (0.01, 0.02, 0.95)]
)
def test_what_is_promised_is_found_in_simulation(
    noise: float, effect: float, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "ci")
    simulation: Any = importlib.import_module("gate_simulation")

    found = simulation.simulate(simulation.gaussian, noise, effect, 5_000, seed=1)
    unchanged = simulation.simulate(simulation.gaussian, noise, 0.0, 100_000, seed=2)

    assert found.slower / found.benchmarks >= least
    assert unchanged.slower + unchanged.faster <= 1


def test_simulated_suites_that_share_a_time_are_judged_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "ci")
    simulation: Any = importlib.import_module("gate_simulation")
    counts = dict.fromkeys(("alarms", "among changes", "ambiguous", "found", "pairs"), 0.0)
    common = simulation.Common(share=0.003, seconds=5e-8)

    for seed in range(3):
        simulation._suite(counts, common, seed, changed=False)
        simulation._suite(counts, common, 100 + seed, changed=True)

    assert counts["alarms"] == 0
    assert counts["found"] >= 0.8 * 3 * simulation.CHANGED
