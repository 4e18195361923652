"""The figure of several times of one program: the fastest calls or the median, and what their error is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cuassay.judging.figures import ERRORS, FIGURES, fastest, fastest_error, median_error


@pytest.mark.parametrize(
    ("calls", "figure"),
    [([3.0, 1.0, 2.0], 1.5), ([5.0], 5.0), ([*range(19)], 0.5), ([*range(29)], 0.5), ([*range(30, 0, -1)], 2.0)],
)
def test_the_fastest_calls_are_a_tenth_and_at_least_two(calls: list[float], figure: float) -> None:
    assert fastest(calls) == figure


def test_calls_that_are_disturbed_change_the_median_and_not_the_fastest() -> None:
    calm = [1.0 + 0.001 * number for number in range(20)]
    disturbed = [one * (1.1 if number % 3 else 1.0) for number, one in enumerate(calm)]

    assert fastest(disturbed) == pytest.approx(fastest(calm), rel=2e-3)
    assert FIGURES["kernel"](disturbed) > 1.09 * FIGURES["kernel"](calm)


@pytest.mark.parametrize("error", [fastest_error, median_error])
def test_the_error_of_few_calls_is_infinite(error: Callable[[Sequence[float]], float]) -> None:
    assert math.isinf(error([1.0, 1.0, 1.0]))
    assert error([1.0] * 4) == 0.0


@pytest.mark.parametrize("tier", ["program", "kernel"])
def test_the_error_is_the_deviation_of_the_figures_of_many_runs(tier: str) -> None:
    chance = np.random.default_rng(5)
    runs = [chance.normal(10, 1, 100).tolist() for _ in range(200)]

    found = np.std([FIGURES[tier](run) for run in runs])

    assert np.mean([ERRORS[tier](run) for run in runs]) == pytest.approx(found, rel=0.25)


def test_the_error_of_the_same_calls_is_the_same() -> None:
    calls = np.random.default_rng(1).normal(10, 1, 20).tolist()

    assert fastest_error(calls) == fastest_error(calls) > 0
