"""The common shift of a comparison: it is that of the unchanged benchmarks, also where a third of the suite changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import Outcome, compare
from cuassay.benchmarking.arms import Arm
from cuassay.benchmarking.comparison import Comparison, Side
from cuassay.benchmarking.noise import Noise, Profile
from cuassay.benchmarking.stages import Stage

NOISE = 0.001
NAMES = [f"work {number:02d}" for number in range(30)]
PLANTED = {name: (0.005, 0.01, 0.02, 0.05)[place % 4] for place, name in enumerate(NAMES[:10])}
PROFILE = Profile({}, {name: Noise(NOISE, 20) for name in NAMES})


class Simulated(Comparison):
    """A comparison whose processes are drawn: normal noise, and a shift that each pair has in all benchmarks."""

    missing: list[str] = []  # type: ignore[assignment]  # noqa: RUF012

    def pair(self, stage: str, number: int, only: Iterable[str] = ()) -> dict[str, float]:
        random = np.random.default_rng((ord(stage), number))
        shift = 0.03 * random.standard_normal()
        drawn = {
            name: shift + np.log1p(PLANTED.get(name, 0.0)) + NOISE * 2**0.5 * random.standard_normal() for name in NAMES
        }
        chosen = list(only) or NAMES
        return {name: drawn[name] for name in chosen}


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


def test_the_shift_is_that_of_the_benchmarks_that_did_not_change() -> None:
    random = np.random.default_rng(0)
    pairs = NOISE * random.standard_normal((30, 6)) + np.array([0.02, -0.01, 0.0, 0.03, 0.0, 0.0])
    pairs[:10] += 0.02

    assert gate.common_shift(pairs) == pytest.approx([0.02, -0.01, 0.0, 0.03, 0.0, 0.0], abs=3 * NOISE / 20**0.5)


SIDES = {side: Side(Arm(side, side, [side], {})) for side in ("base", "head")}


class Undecided(Simulated):
    """One benchmark with an effect just below its floor: neither a change, nor certain to be none."""

    effect = 0.0

    def pair(self, stage: str, number: int, only: Iterable[str] = ()) -> dict[str, float]:
        return {"work": self.effect + (0.003 if number % 2 else -0.003)}


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
