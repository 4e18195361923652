"""Steps in a series of numbers: where its level changed, and how sure that is.

The series is fitted by a piecewise constant line that minimizes the sum of absolute errors plus a penalty for each
step, the *L1 Potts* problem. asv's ``step_detect`` solves the same problem and chooses the penalty the same way, by
``4 ln(n) / n`` of the logarithm of the error; but asv is an extra that some platforms lack. This module uses the
exact method of Storath, Weinmann and Unser, "Jump-penalized least absolute values estimation of scalar or
circle-valued signals" (Information and Inference 6, 2017): a segment's level is one of the values of the series, so
dynamic programming over levels suffices. NumPy alone is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["LONGEST", "Segment", "segments"]

LONGEST = 200
"""Points of a series that are looked at, from its end; older ones change nothing about what is to be done now."""

_LEVELS = 32
"""Levels that a fit may use: evenly spaced in rank."""

_PENALTIES = np.geomspace(2, 256, 8)
"""Penalties that are tried, in mean absolute errors of the series around its median of three."""

_FINEST = 1e-4
"""Errors below it count as this much: a clock that is exact, as of sim, must not make every rounding a step."""

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one level.

    Attributes
    ----------
    start, stop : int
        Its points, in the series given; `stop` is not one of them.
    level : float
        The median of its points.
    error : float
        The mean distance of its points from the level.
    """

    start: int
    stop: int
    level: float
    error: float

    def __len__(self) -> int:
        return self.stop - self.start


def segments(values: Sequence[float]) -> list[Segment]:
    """Split a series into stretches of one level, oldest first.

    Parameters
    ----------
    values : sequence of float
        Finite. Give logarithms of times, so that equal ratios are equal steps.
    """
    series = np.asarray(values, dtype=np.float64)
    if len(series) < 4:
        return [_segment(series, 0, len(series))] if len(series) else []
    fits = _fits(series, _PENALTIES * max(_noise(series), _FINEST))
    best = min(fits, key=lambda starts: _badness(series, starts))
    return _without_outliers(series, [*best, len(series)])


def _noise(series: _Floats) -> float:
    """The mean distance from the median of each point and its neighbours: steps are hardly in it."""
    threes = np.stack([series[:-2], series[1:-1], series[2:]])
    return float(np.abs(series[1:-1] - np.median(threes, axis=0)).mean()) * 2


def _fits(series: _Floats, penalties: _Floats) -> list[list[int]]:
    """The starts of the segments of the best fit under each penalty."""
    levels = np.quantile(series, np.linspace(0, 1, min(_LEVELS, len(series))), method="nearest")
    cost = np.abs(levels - series[0])[None, :].repeat(len(penalties), axis=0)
    jumped, sources = np.zeros((len(series), *cost.shape), dtype=bool), np.zeros((len(series), len(cost)), dtype=int)
    for place, value in enumerate(series[1:], start=1):
        sources[place] = cost.argmin(axis=1)
        jump = (cost[np.arange(len(cost)), sources[place]] + penalties)[:, None]
        jumped[place] = jump < cost
        cost = np.minimum(cost, jump) + np.abs(levels - value)
    level = cost.argmin(axis=1)
    starts: list[list[int]] = [[0] for _ in penalties]
    rows = np.arange(len(penalties))
    for place in range(len(series) - 1, 0, -1):
        here = jumped[place, rows, level]
        for row in np.flatnonzero(here):
            starts[row].insert(1, place)
        level = np.where(here, sources[place], level)
    return starts


def _badness(series: _Floats, starts: Sequence[int]) -> float:
    count = len(series)
    parts = zip(starts, [*starts[1:], count], strict=True)
    error = sum(float(np.abs(series[a:b] - np.median(series[a:b])).sum()) for a, b in parts)
    return 4 * math.log(count) / count * len(starts) + math.log(max(error / count, _FINEST))


def _without_outliers(series: _Floats, edges: Sequence[int]) -> list[Segment]:
    """The segments, where one of a single point within the series belongs to its neighbours."""
    found = [_segment(series, 0, edges[1])]
    for start, stop in pairwise(edges[1:]):
        new = _segment(series, start, stop)
        is_outlier = len(new) == 1 and stop < len(series)
        is_back = abs(new.level - found[-1].level) <= max(new.error, found[-1].error)
        if is_outlier or is_back:
            new = _segment(series, found.pop().start, stop)
        found.append(new)
    return found


def _segment(series: _Floats, start: int, stop: int) -> Segment:
    level = float(np.median(series[start:stop]))
    return Segment(start, stop, level, float(np.abs(series[start:stop] - level).mean()))
