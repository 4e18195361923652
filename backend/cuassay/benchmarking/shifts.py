"""Estimate the shift that all benchmarks of a pair of processes share, from the unchanged ones, and subtract it.

Fresh processes of the same code differ in two ways that every benchmark shares. Clocks change all times by the same
share. Launches and events add nearly the same time to each call. On an H200 the second is larger: a process shifts all
its medians by about 40 ns, which is 1 % of a kernel of 4 us but negligible for one of 200 us. The log-ratio of a
benchmark that takes t seconds is therefore modelled as ``level + share + seconds / t``, plus its own noise. The level
is the same in all pairs, and the other two are drawn for each pair.

Each pair is fitted by weighted least squares, as a ridge regression. The ridge is set by the expected sizes of share
and seconds, which are chosen to maximize the likelihood of all pairs. A time that is the same in all pairs therefore
stays in the results, while the level is subtracted. Benchmarks that changed are excluded: those that do not agree with
most of the others, however precise they are. The shift of a benchmark that takes part in a fit is estimated from the
others, so that its own change is not subtracted.

Source of the likelihood: empirical Bayes for linear models, Efron and Morris, JASA 68 (1973), doi 10.2307/2284155.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST_FOR_SHIFT", "Shift", "common_shift"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEWEST_FOR_SHIFT = 8
"""The smallest number of benchmarks whose common shift is subtracted. With fewer it could be the change of one."""

_SHARES = (0.0, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
_SECONDS = (0.0, 3e-9, 1e-8, 3e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-4)
"""The standard deviations of the share and of the seconds that are tried; the most likely pair is used."""

_LEAST_NOISE = 3e-4
"""The smallest noise that is assumed of a benchmark, as a fraction, because the model is not exact."""

_FAR = 3.0
"""A benchmark changed if its mean is further from the level than this many standard errors."""

_DISTURBED = 2.0
"""A log-ratio that is further off than this many standard deviations counts less in the fit of its pair."""

_ENOUGH = 6
"""The smallest number of log-ratios that may correct the noise of a profile."""

_CANDIDATES = 500
"""The largest number of pairs of benchmarks whose shift is tried as that of the suite."""

_ROUNDS = 3


@dataclass(frozen=True)
class Shift:
    """The common shift of some pairs.

    Attributes
    ----------
    offsets : array, (benchmarks, pairs)
        The value to subtract from each log-ratio; NaN if the pair did not measure the benchmark.
    share, seconds : array, (pairs,)
        The part that is proportional to the time, as a log-ratio, and the seconds that each call took longer.
    unchanged : array, (benchmarks,)
        The benchmarks that it was estimated from.
    """

    offsets: Floats
    share: Floats
    seconds: Floats
    unchanged: Bools


def common_shift(ratios: Floats, seconds: Floats, noise: Floats | None = None, unchanged: Bools | None = None) -> Shift:
    """Estimate the common shift.

    Parameters
    ----------
    ratios : array, (benchmarks, pairs)
        Log-ratios of head over base; NaN if a pair did not measure the benchmark.
    seconds : array, (benchmarks,)
        The time of a call in seconds.
    noise : array, (benchmarks,), optional
        The standard deviation of a log-ratio according to the profile; NaN if it is unknown, and the spread of
        `ratios` is used then.
    unchanged : array, (benchmarks,), optional
        Which benchmarks are known to be unchanged. By default they are searched for.
    """
    if len(ratios) < FEWEST_FOR_SHIFT:
        return _no_shift(ratios)
    rows = np.column_stack([np.ones(len(seconds)), 1 / seconds])
    known = np.full(len(ratios), np.nan) if noise is None else noise
    offsets, expected = np.tile(np.nanmedian(ratios, axis=0), (len(ratios), 1)), np.zeros(2)
    for _ in range(_ROUNDS):
        spread = _spread(ratios - offsets, known)
        chosen, level = _lasting(ratios, spread, rows, expected[1], unchanged)
        expected = _expected(ratios, offsets, spread, rows, chosen)
        offsets, fits = _offsets(ratios, level, spread, rows * expected, chosen)
    found = fits * expected
    share = float(np.median(level)) + found[:, 0]
    return Shift(np.where(np.isfinite(ratios), offsets, np.nan), share, found[:, 1], chosen)


def _no_shift(ratios: Floats) -> Shift:
    """Return a shift of zero, because there are too few benchmarks to estimate one."""
    nothing = np.zeros(ratios.shape[1])
    offsets = np.where(np.isfinite(ratios), 0.0, np.nan)
    return Shift(offsets, nothing, nothing, np.full(len(ratios), fill_value=True))


def _lasting(
    ratios: Floats, spread: Floats, rows: Floats, seconds: float, unchanged: Bools | None
) -> tuple[Bools, Floats]:
    """Return what is the same in all pairs: which benchmarks did not change, and the level of each."""
    counts = np.isfinite(ratios).sum(axis=1)
    error = np.hypot(spread / np.sqrt(counts), _LEAST_NOISE / 2)
    model = rows * [_SHARES[-1], seconds / np.sqrt(counts.max())]
    means = np.nanmean(ratios, axis=1)
    chosen = _unchanged(means, error, model) if unchanged is None else unchanged
    return chosen, _levels(means, error, model, chosen)


def _offsets(ratios: Floats, level: Floats, spread: Floats, model: Floats, chosen: Bools) -> tuple[Floats, Floats]:
    """Return the offset of each log-ratio, and the fit of each pair around the level."""
    apart, measured = ratios - level[:, None], np.isfinite(ratios)
    pairs = range(ratios.shape[1])
    fits = [_fitted(model, apart[:, pair], spread, chosen & measured[:, pair]) for pair in pairs]
    offsets = level[:, None] + np.column_stack([offset for offset, _ in fits])
    return offsets, np.array([fit for _, fit in fits])


def _spread(rest: Floats, known: Floats) -> Floats:
    """Return the noise of each benchmark: from the profile, or from these log-ratios if they vary more."""
    counts = np.isfinite(rest).sum(axis=1)
    squares = np.nansum((rest - np.nanmean(rest, axis=1, keepdims=True)) ** 2, axis=1)
    own = np.sqrt(squares / np.maximum(counts - 1, 1))
    typical = float(np.median(own[counts > 1])) if (counts > 1).any() else _LEAST_NOISE
    own = np.where(counts > 1, own, typical)
    trusted = np.isfinite(known) & (counts < _ENOUGH)
    return np.fmax(np.where(trusted, known, np.fmax(known, own)), _LEAST_NOISE)


def _unchanged(means: Floats, error: Floats, model: Floats) -> Bools:
    """Return which benchmarks agree with the shift on which most agree.

    Every two benchmarks define a shift that explains both. The shift with the smallest total distance of all benchmarks
    is used. Each distance is limited to `_FAR`, so that a few precise benchmarks that changed do not outvote the rest.
    """
    one, other = np.triu_indices(len(means), 1)
    tried = np.unique(np.linspace(0, len(one) - 1, min(len(one), _CANDIDATES)).astype(int))
    places = np.column_stack([one[tried], other[tried]])
    fits = np.array([_ridge(model[two], means[two], error[two] ** -2.0)[0] for two in places])
    apart = (means - fits @ model.T) / error
    costs = np.minimum(apart**2, _FAR**2).sum(axis=1) + (fits**2).sum(axis=1)
    chosen = np.abs(apart[np.argmin(costs)]) < _FAR
    for _ in range(_ROUNDS):
        fit, _inverse = _ridge(model[chosen], means[chosen], error[chosen] ** -2.0)
        chosen = np.abs(means - model @ fit) < _FAR * error
    return np.asarray(chosen)


def _levels(means: Floats, error: Floats, model: Floats, chosen: Bools) -> Floats:
    """Return the level for each benchmark: the share of the other `chosen` ones in the mean of all pairs."""
    weights = np.where(chosen, error**-2.0, 0.0)
    fit, inverse = _ridge(model, means, weights)
    leverage = np.einsum("ij,jk,ik->i", model, inverse, model) * weights
    without = fit - (model @ inverse) * (weights * (means - model @ fit) / (1 - leverage))[:, None]
    return np.asarray(without[:, 0] * model[:, 0])


def _expected(ratios: Floats, offsets: Floats, spread: Floats, rows: Floats, chosen: Bools) -> Floats:
    """Return the standard deviations of share and seconds that maximize the likelihood of the `chosen` benchmarks.

    Each benchmark is centred on its mean over the pairs, so that lasting differences do not count as variation.
    """
    apart = np.clip(ratios - offsets, -_FAR * spread[:, None], _FAR * spread[:, None])
    kept = offsets + apart
    kept = kept - np.nanmean(kept, axis=1, keepdims=True)
    weights = np.where(np.isfinite(ratios) & chosen[:, None], spread[:, None] ** -2.0, 0.0)
    values = np.where(weights > 0, kept, 0.0)
    squares = np.einsum("ij,ip,ik->pjk", rows, weights, rows)
    moments = np.einsum("ij,ip->pj", rows, weights * values)
    tried = [np.array([share, seconds]) for share in _SHARES for seconds in _SECONDS]
    return max(tried, key=lambda one: _likelihood(one, squares, moments))


def _likelihood(expected: Floats, squares: Floats, moments: Floats) -> float:
    """Return the logarithm of the likelihood of all pairs, without terms that do not depend on `expected`."""
    matrix = np.eye(2) + squares * np.outer(expected, expected)
    scaled = moments * expected
    explained = np.einsum("pj,pj->p", scaled, np.linalg.solve(matrix, scaled[..., None])[..., 0])
    return float((explained - np.log(np.linalg.det(matrix))).sum() / 2)


def _fitted(model: Floats, ratios: Floats, spread: Floats, used: Bools) -> tuple[Floats, Floats]:
    """Return the offsets of all benchmarks in one pair, and the fit. Those `used` get the offset of the others."""
    precision, values, rows = spread[used] ** -2.0, ratios[used], model[used]
    weights = precision
    for _ in range(_ROUNDS):
        fit, inverse = _ridge(rows, values, weights)
        rest = np.abs(values - rows @ fit) / spread[used]
        weights = precision * np.minimum(1.0, _DISTURBED / np.maximum(rest, 1e-9))
    fit, inverse = _ridge(rows, values, weights)
    leverage = np.einsum("ij,jk,ik->i", rows, inverse, rows) * weights
    offsets = model @ fit
    offsets[used] = values - (values - rows @ fit) / (1 - leverage)
    return offsets, fit


def _ridge(rows: Floats, values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return coefficients with a standard normal prior, and the inverse of the matrix of the normal equations."""
    weighted = rows.T * weights
    inverse = np.linalg.inv(weighted @ rows + np.eye(rows.shape[1]))
    return np.asarray(inverse @ (weighted @ values)), np.asarray(inverse)
