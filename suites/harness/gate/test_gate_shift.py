"""The common shift of a comparison: it is that of the unchanged benchmarks, also where a third of the suite changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay.benchmarking.ab import Outcome, compare
from cuassay.benchmarking.arms import Arm
from cuassay.benchmarking.comparison import Comparison, Side
from cuassay.benchmarking.noise import Noise, Profile
from cuassay.benchmarking.shifts import common_shift
from cuassay.benchmarking.stages import Stage

NOISE = 0.001
NAMES = [f"work {number:02d}" for number in range(30)]
PLANTED = {name: (0.005, 0.01, 0.02, 0.05)[place % 4] for place, name in enumerate(NAMES[:10])}
SECONDS = {name: 3e-6 * 1.15 ** (7 * place % 30) for place, name in enumerate(NAMES)}
PROFILE = Profile({}, {name: Noise(NOISE, 20) for name in NAMES})


class Simulated(Comparison):
    """A comparison whose processes are drawn: normal noise, and a shift that each pair has in all benchmarks."""

    missing: list[str] = []  # type: ignore[assignment]  # noqa: RUF012

    def pair(self, stage: str, number: int, only: Iterable[str] = ()) -> dict[str, tuple[float, float]]:
        random = np.random.default_rng((ord(stage), number))
        share, seconds = 0.03 * random.standard_normal(), 1e-7 * random.standard_normal()
        drawn = {
            name: share
            + seconds / SECONDS[name]
            + np.log1p(PLANTED.get(name, 0.0))
            + NOISE * 2**0.5 * random.standard_normal()
            for name in NAMES
        }
        return {name: (SECONDS[name], SECONDS[name] * np.exp(drawn[name])) for name in list(only) or NAMES}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    sides = {side: Side(Arm(side, side, [side], {})) for side in ("base", "head")}
    return compare(Simulated(sides, tmp_path_factory.mktemp("state")), PROFILE)


def test_what_was_planted_in_a_third_of_the_suite_is_found_and_nothing_else(outcome: Outcome) -> None:
    assert {one.name for one in outcome.of("slower")} == set(PLANTED)
    assert outcome.of("faster") == []


def test_the_effect_is_what_was_planted(outcome: Outcome) -> None:
    found = {one.name: one.effect for one in outcome.of("slower")}

    assert found == {name: pytest.approx(share, abs=0.0015) for name, share in PLANTED.items()}


def test_unchanged_benchmarks_are_not_shifted_by_the_changed_ones(outcome: Outcome) -> None:
    same = [one.effect for one in outcome.of("same")]

    assert abs(float(np.mean(same))) < 0.0002


def drawn(benchmarks: int = 30, pairs: int = 6, shortest: float = 3e-6, seed: int = 0) -> tuple[Any, Any]:
    """Log-ratios of unchanged benchmarks with normal noise, and how long each takes."""
    random = np.random.default_rng(seed)
    return NOISE * random.standard_normal((benchmarks, pairs)), shortest * 1.15 ** np.arange(benchmarks)


SHARES = np.array([0.02, -0.01, 0.0, 0.03, 0.0, 0.0])
CONSTANT = np.array([0.0, 5e-8, -1e-7, 2e-8, 0.0, 1e-7])


@pytest.mark.parametrize("changed", [[], range(1, 30, 3)], ids=["no change", "a third changed"])
def test_the_shift_is_that_of_the_benchmarks_that_did_not_change(changed: Iterable[int]) -> None:
    ratios, seconds = drawn()
    shift = SHARES + CONSTANT / seconds[:, None]
    ratios[list(changed)] += 0.02

    found = common_shift(ratios + shift, seconds)

    assert found.offsets == pytest.approx(shift, abs=4 * NOISE)
    assert found.share == pytest.approx(SHARES, abs=NOISE)
    assert found.seconds == pytest.approx(CONSTANT, abs=1e-8)
    assert not found.unchanged[list(changed)].any()


def test_precise_benchmarks_that_changed_alike_do_not_outvote_the_rest() -> None:
    ratios, seconds = drawn(pairs=10)
    noise = np.full(30, NOISE)
    noise[1:30:3], ratios[1:30:3] = NOISE / 10, ratios[1:30:3] / 10 + 0.005

    found = common_shift(ratios, seconds, noise)

    assert not found.unchanged[1:30:3].any()
    assert np.abs(found.offsets).max() < 4 * NOISE


@pytest.mark.parametrize("place", [0, 29], ids=["shortest", "longest"])
def test_a_change_of_the_shortest_or_the_longest_is_not_taken_off(place: int) -> None:
    ratios, seconds = drawn(12, 4)
    seconds[0], seconds[-1] = 3e-7, 1e-2
    place = min(place, 11)
    ratios[place] += 0.05

    found = common_shift(ratios, seconds, np.full(12, NOISE), np.full(12, fill_value=True))

    assert (ratios - found.offsets)[place].mean() == pytest.approx(0.05, abs=0.02)


def test_a_benchmark_has_the_shift_that_the_others_show() -> None:
    ratios, seconds = drawn(10, 4)
    other = ratios.copy()
    other[3] += 0.01

    one, two = (
        common_shift(values, seconds, np.full(10, NOISE), np.full(10, fill_value=True)) for values in (ratios, other)
    )

    assert two.offsets[3] == pytest.approx(one.offsets[3], abs=NOISE / 2)


def test_few_benchmarks_have_no_common_shift() -> None:
    ratios, seconds = drawn(7)

    assert not common_shift(ratios + 0.02, seconds).offsets.any()


def test_one_disturbed_process_does_not_move_the_others() -> None:
    ratios, seconds = drawn()
    ratios[4, 2] += 0.5

    offsets = common_shift(ratios, seconds).offsets

    assert np.abs(np.delete(offsets, 4, axis=0)).max() < 4 * NOISE


def test_what_a_pair_did_not_measure_has_no_offset() -> None:
    ratios, seconds = drawn()
    ratios[5:20, 3:] = np.nan

    found = common_shift(ratios + 0.01, seconds)

    assert (np.isfinite(found.offsets) == np.isfinite(ratios)).all()
    assert found.share == pytest.approx(0.01, abs=NOISE)


def test_a_profile_has_no_noise_that_all_benchmarks_share() -> None:
    random = np.random.default_rng(1)
    processes = []
    for late in 1e-7 * random.standard_normal(12):
        times = {name: (late + seconds) for name, seconds in SECONDS.items()}
        processes.append({name: one * np.exp(NOISE * random.standard_normal()) for name, one in times.items()})

    noises = [one.noise for one in Profile.of(processes, {}).noises.values()]

    assert float(np.median(noises)) == pytest.approx(NOISE, rel=0.25)
    assert max(noises) < 2 * NOISE


SIDES = {side: Side(Arm(side, side, [side], {})) for side in ("base", "head")}


class Undecided(Simulated):
    """One benchmark with an effect just below its floor: neither a change, nor certain to be none."""

    effect = 0.0

    def pair(self, stage: str, number: int, only: Iterable[str] = ()) -> dict[str, tuple[float, float]]:
        return {"work": (1e-5, 1e-5 * np.exp(self.effect + (0.003 if number % 2 else -0.003)))}


@pytest.mark.parametrize(
    ("noise", "effect", "pairs"), [(0.003, 0.0045, 10), (None, 0.0095, 18)], ids=["up to 0.3 %", "no profile"]
)
def test_an_undecided_benchmark_ends_with_the_pairs_of_its_class(
    noise: float | None, effect: float, pairs: int, tmp_path: Path
) -> None:
    known = Profile({}, {} if noise is None else {"work": Noise(noise, 20)})
    comparison = Undecided(SIDES, tmp_path)
    comparison.effect = effect

    (verdict,) = compare(comparison, known).verdicts

    assert (verdict.word, verdict.pairs) == ("ambiguous", pairs)


def test_a_suspect_is_not_an_anchor_of_the_shift(tmp_path: Path) -> None:
    stage = Stage(Simulated(SIDES, tmp_path), "p", PROFILE)
    stage.add(())
    stage.add(())
    suspects = dict.fromkeys(NAMES[:12], 1)

    assert not set(stage.anchors(suspects)) & set(suspects)


@pytest.fixture(scope="module")
def h200() -> dict[str, Any]:
    """What an H200 measured: the medians of a profile's processes, and of the pairs of an unchanged suite."""
    told: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "gate_h200.json").read_text())
    return told


@pytest.fixture(scope="module")
def gains(h200: dict[str, Any]) -> Any:
    """What taking the common shift off does to the root mean square of each benchmark's log-ratios."""
    medians = np.array(h200["unchanged"], float)
    ratios = np.log(medians[:, 1] / medians[:, 0]).T
    rest = ratios - common_shift(ratios, np.nanmean(medians, axis=(0, 1)) * 1e-9).offsets
    before, after = (np.sqrt(np.nanmean(one**2, axis=1)) for one in (ratios, rest))
    return after / before


def test_noise_of_an_h200_falls_by_a_sixth_and_by_a_third_for_short_kernels(h200: dict[str, Any], gains: Any) -> None:
    short = [name.startswith(("foreach_add", "foreach_mul", "fused")) for name in h200["benchmarks"]]

    assert np.exp(np.log(gains).mean()) < 0.85
    assert np.exp(np.log(gains[short]).mean()) < 0.7


def test_no_benchmark_of_an_h200_becomes_noisier_by_a_tenth(gains: Any) -> None:
    assert gains.max() < 1.1


def test_an_unchanged_suite_of_an_h200_gives_no_false_alarm(h200: dict[str, Any], tmp_path: Path) -> None:
    names = h200["benchmarks"]

    class Replayed(Simulated):
        def pair(self, stage: str, number: int, only: Iterable[str] = ()) -> dict[str, tuple[float, float]]:
            found = zip(names, *h200["unchanged"][number], strict=True)
            return {name: (1e-9 * b, 1e-9 * h) for name, b, h in found if b and h and (not only or name in only)}

    processes = [dict(zip(names, (1e-9 * one for one in row), strict=True)) for row in h200["profile"]]
    outcome = compare(Replayed(SIDES, tmp_path), Profile.of(processes, {}))

    assert outcome.of("slower") + outcome.of("faster") == []
    assert len(outcome.of("same")) >= 22
