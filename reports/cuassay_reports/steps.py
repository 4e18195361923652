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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["LONGEST", "Segment", "segments", "segments_of"]

LONGEST = 200
"""The number of last points of a series that are examined; older points have no effect on decisions now."""

_LEVELS = 32
"""The number of levels that a fit may use, evenly spaced in rank."""

_PENALTIES = np.geomspace(2, 256, 8)
"""The penalties that are tried, in mean absolute errors of the series around its median of three."""

_FINEST = 1e-4
"""The least error that counts: with an exact clock, as of sim, rounding must not become a step."""

_Floats = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int_]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one level.

    Attributes
    ----------
    start, stop : int
        Its points in the given series; `stop` is excluded.
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
        The values; they are finite. Give logarithms of times, so that equal ratios are equal steps.
    """
    return segments_of([values])[0]


def segments_of(many: Sequence[Sequence[float] | _Floats]) -> list[list[Segment]]:
    """Split several series like `segments`, but series of equal length together, which is many times faster."""
    arrays = [np.asarray(values, dtype=np.float64) for values in many]
    found: list[list[Segment]] = [[_segment(one, 0, len(one))] if len(one) else [] for one in arrays]
    lengths: dict[int, list[int]] = {}
    for place, one in enumerate(arrays):
        lengths.setdefault(len(one), []).append(place)
    for count, places in lengths.items():
        for some in _batches(places) if count >= _FEWEST else ():
            parts = _split(np.stack([arrays[place] for place in some]))
            for place, segmented in zip(some, parts, strict=True):
                found[place] = segmented
    return found


_FEWEST = 4
"""A series with fewer points is a single segment."""

_TOGETHER = 128
"""The number of series that are fitted together, which bounds the memory."""


def _batches(places: Sequence[int]) -> Iterator[Sequence[int]]:
    yield from (places[start : start + _TOGETHER] for start in range(0, len(places), _TOGETHER))


def _split(series: _Floats) -> list[list[Segment]]:
    """Return the segments of several series of equal length."""
    penalties = _PENALTIES * np.maximum(_noise(series), _FINEST)[:, None]
    return [
        _without_outliers(one, [*min(fits, key=partial(_badness, one)), len(one)])
        for one, fits in zip(series, _fits(series, penalties), strict=True)
    ]


def _noise(series: _Floats) -> _Floats:
    """Return the mean distance of points from the median of their neighbourhood, which steps hardly affect."""
    threes = np.stack([series[:, :-2], series[:, 1:-1], series[:, 2:]])
    return np.asarray(np.abs(series[:, 1:-1] - np.median(threes, axis=0)).mean(axis=1) * 2)


def _fits(series: _Floats, penalties: _Floats) -> list[list[list[int]]]:
    """Return, for each series and penalty, the starts of the segments of the best fit."""
    length = series.shape[1]
    ranks = np.linspace(0, 1, min(_LEVELS, length))
    levels = np.quantile(series, ranks, axis=1, method="nearest").T[:, None, :]
    cost = np.abs(levels - series[:, :1, None]).repeat(penalties.shape[1], axis=1)
    jumped = np.zeros((length, *cost.shape), dtype=bool)
    sources = np.zeros((length, *penalties.shape), dtype=int)
    for place in range(1, length):
        sources[place] = cost.argmin(axis=2)
        jump = (cost.min(axis=2) + penalties)[:, :, None]
        jumped[place] = jump < cost
        cost = np.minimum(cost, jump) + np.abs(levels - series[:, place, None, None])
    return _starts(jumped, sources, cost.argmin(axis=2))


def _starts(jumped: npt.NDArray[np.bool_], sources: _Places, level: _Places) -> list[list[list[int]]]:
    """Trace each fit back from its last level."""
    starts = [[[0] for _ in row] for row in level]
    rows, columns = np.indices(level.shape)
    for place in range(len(jumped) - 1, 0, -1):
        here = jumped[place, rows, columns, level]
        for row, column in np.argwhere(here):
            starts[row][column].insert(1, place)
        level = np.where(here, sources[place], level)
    return starts


def _badness(series: _Floats, starts: Sequence[int]) -> float:
    count = len(series)
    parts = zip(starts, [*starts[1:], count], strict=True)
    error = sum(float(np.abs(series[a:b] - np.median(series[a:b])).sum()) for a, b in parts)
    return 4 * math.log(count) / count * len(starts) + math.log(max(error / count, _FINEST))


def _without_outliers(series: _Floats, edges: Sequence[int]) -> list[Segment]:
    """Return the segments, with a single point inside the series merged into its neighbours."""
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
