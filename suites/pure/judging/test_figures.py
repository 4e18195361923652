"""The figure of several times of one program: the fastest calls or the median, and what their error is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cuassay.judging.figures import ERRORS, FIGURES, fastest, fastest_error, median_error


@pytest.mark.parametrize(
    ("calls", "figure"),
    [([3.0, 1.0, 2.0], 1.5), ([5.0], 5.0), ([*range(19)], 0.5), ([*range(30, 0, -1)], 1.5)],
)
def test_the_figure_is_the_mean_of_the_two_fastest_calls(calls: list[float], figure: float) -> None:
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


@pytest.mark.parametrize(
    ("tier", "above", "low", "high"),
    [("program", "gamma", 0.85, 1.15), ("kernel", "normal", 0.75, 1.25), ("program", "normal", 0.65, 1.15)],
    ids=["above a floor", "median", "no floor"],
)
def test_the_error_is_the_deviation_of_the_figures_of_many_runs(tier: str, above: str, low: float, high: float) -> None:
    chance = np.random.default_rng(5)
    draw = {"gamma": lambda: 10 + chance.gamma(2, 0.5, 20), "normal": lambda: chance.normal(10, 1, 20)}[above]
    runs = [draw().tolist() for _ in range(400)]

    found = np.std([FIGURES[tier](run) for run in runs])

    assert low < np.mean([ERRORS[tier](run) for run in runs]) / found < high


def test_the_error_of_the_same_calls_is_the_same() -> None:
    calls = np.random.default_rng(1).normal(10, 1, 20).tolist()

    assert fastest_error(calls) == fastest_error(calls) > 0
