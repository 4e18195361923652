"""A million tests on a thousand workers that do not exist, by the policy that real fleets follow."""

from __future__ import annotations

import random

import pytest

from cuassay.fleet.simulation import Fleet, simulate


def durations(number: int) -> list[float]:
    dice = random.Random(0)  # noqa: S311
    return dice.choices([0.002, 0.005, 0.1, 0.3, 9.0], [60, 30, 7, 2.5, 0.5], k=number)


def test_a_million_tests_stay_near_the_bound() -> None:
    found = simulate(durations(1_000_000), Fleet())

    assert found.lost > 20
    assert (found.missing, found.twice) == (0, 0)
    assert found.stretch <= 1.15
    assert found.messages / found.makespan_s < 2_000


@pytest.mark.parametrize("lost", [0.0, 0.3, 0.6])
def test_no_row_is_lost_or_twice_however_many_workers_are(lost: float) -> None:
    found = simulate(durations(20_000), Fleet(workers=20, lost=lost, failed_by_machine=0.2, slow=0.2))

    assert (found.missing, found.twice) == (0, 0)


def test_slow_workers_are_repeated() -> None:
    found = simulate(durations(20_000), Fleet(workers=20, lost=0.0, failed_by_machine=0.0, slow=0.3, slowness=10.0))

    assert found.repeated > 0


def test_the_same_seed_gives_the_same_outcome() -> None:
    seconds = durations(5_000)

    assert simulate(seconds, Fleet(workers=10), 3) == simulate(seconds, Fleet(workers=10), 3)
