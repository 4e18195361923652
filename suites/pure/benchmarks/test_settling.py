"""When a series has enough samples: what is claimed of its median is so, of dependent samples as well."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from cuassay.benchmarking.settling import is_enough, modes_of, standard_error

Draw = Callable[[np.random.Generator], NDArray[np.float64]]

SAMPLES = 200


def wandering(random: np.random.Generator) -> NDArray[np.float64]:
    """Autocorrelation of 0.8 and a deviation of 1 %."""
    steps, value = random.standard_normal(SAMPLES) * 0.006, random.standard_normal() * 0.01
    found = [value := 0.8 * value + step for step in steps]
    return 1 + np.array(found)


def two_clocks(random: np.random.Generator) -> NDArray[np.float64]:
    """Two clock states 2 % apart, each held for some ten samples, three tenths of the time the slower."""
    slow, found = random.random() < 0.3, []
    for chance in random.random(SAMPLES):
        slow = slow != (chance < (0.1 if slow else 0.043))
        found.append(slow)
    return 1 + 0.02 * np.array(found) + 0.003 * random.standard_normal(SAMPLES)


@pytest.mark.parametrize(("draw", "median"), [(wandering, 1.0), (two_clocks, 1.0012)])
def test_the_claimed_error_is_within_a_third_of_the_real_one(draw: Draw, median: float) -> None:
    random = np.random.default_rng(0)
    errors = []
    for _ in range(150):
        samples = draw(random)
        stop = next((n for n in range(30, SAMPLES, 5) if standard_error(samples[:n].tolist()) <= 0.005), None)
        if stop is not None:
            errors.append(float(np.median(samples[:stop])) / median - 1)

    assert len(errors) > 100
    assert math.sqrt(np.mean(np.square(errors))) <= 1.3 * 0.005


def test_a_clock_of_coarse_steps_is_never_precise() -> None:
    coarse = np.round(np.random.default_rng(0).normal(10.4, 0.3, SAMPLES)).tolist()

    assert standard_error(coarse) > 0.02
    assert standard_error([10.0] * 39 + [11.0]) > 0.02  # though all batches agree


def test_equal_samples_have_no_error_and_few_have_none_that_is_known() -> None:
    assert standard_error([1.0] * 30) == 0.0
    assert standard_error([1.0] * 9) == math.inf


@pytest.mark.parametrize(
    ("count", "seconds", "calls", "enough"), [(30, 0.0, 1, True), (29, 1e-6, 1, False), (10, 1e-4, 20, True)]
)
def test_thirty_samples_or_twenty_milliseconds_are_enough(count: int, seconds: float, calls: int, enough: bool) -> None:
    assert is_enough([seconds] * count, calls) is enough


def test_two_groups_with_a_gap_are_two_modes() -> None:
    assert modes_of([1.0, 1.01, 2.0, 1.0, 2.01, 2.0]) == pytest.approx((1.00333, 2.00333), abs=1e-4)
    assert modes_of([1.0, 1.1, 1.2, 1.3, 1.4, 1.5]) is None
    assert modes_of([1.0, 1.0, 1.0, 1.0, 1.0, 2.0]) is None


@pytest.mark.parametrize(("gap", "is_two"), [(2.5, False), (4.0, True)])
def test_two_modes_are_groups_apart_by_more_than_thrice_their_widths(gap: float, is_two: bool) -> None:
    low = [1.0, 1.25, 1.5, 2.0]
    found = modes_of([*low, *(value + 1.0 + gap for value in low)])

    assert (found is not None) == is_two
