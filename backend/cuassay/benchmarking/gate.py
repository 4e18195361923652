"""The statistics of the gate: verdicts from pairs of process medians, for whole suites at once, without a device.

A pair is the log-ratio of the medians of two fresh processes, head over base. Pairs are evaluated in groups. At each
*look* a benchmark becomes a *suspect*, becomes *same*, or stays open. A suspect is measured again with fresh pairs, and
a verdict needs both stages; the first eight fresh pairs confirm a clear change. The variance of few pairs is moderated
by the runner's noise profile. The noise of a benchmark determines which slow-down is guaranteed to be found: see
`CLASSES`. ``ci/gate_simulation.py`` simulates the gate.

Sources: moderated t, Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004), doi 10.2202/1544-6115.1027; processes as
replicates, Kalibera and Jones, ISMM 2013, doi 10.1145/2464157.2464160; looks that share one chance of an error, Lan and
DeMets, Biometrika 70 (1983), doi 10.1093/biomet/70.3.659.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cuassay.benchmarking.student import quantile

__all__ = [
    "BUDGET",
    "CLASSES",
    "CONFIRMING_LOOKS",
    "LOOKS",
    "NoiseClass",
    "Word",
    "class_of",
    "confirmation_level",
    "confirmed",
    "level_at",
    "look",
    "smallest_effect",
]

Word = Literal["faster", "slower", "same", "ambiguous"]
Floats = NDArray[np.float64]

LOOKS: tuple[int, ...] = (4, 6, 8, 10, 14, 18)
"""Numbers of pairs after which the open benchmarks are evaluated. A noise class may stop earlier."""

CONFIRMING_LOOKS: tuple[int, ...] = (8, 14, 24)
"""Numbers of fresh pairs after which suspects are evaluated. The noise class of a suspect sets its last look."""

EARLY_PART = 0.1
"""The share of a confirmation's error probability that each look before the last may use. A clear change then needs no
more pairs, and the last look keeps at least eight tenths."""

BUDGET = 0.0005
"""The probability of any false alarm in a comparison of the whole suite."""

ALARM_LEVEL, SAME_LEVEL = 0.999, 0.90
"""The confidence of one look that a benchmark changed, and that it did not change by more than the floor."""

MOST_PRIOR_DEGREES = 15.0
"""The largest number of degrees of freedom of the profile, so that a runner that became noisier is noticed."""

CONFIRMING_PRIOR_DEGREES = 6.0
"""The same in a confirmation. A profile that understates the noise of a benchmark creates a false suspect, and with the
same weight it would also confirm it. In simulations with heavy tails, 15 degrees gave twice the budget of false alarms,
and 6 gave less than half of the budget."""

ESTIMATE_ALLOWANCE = 1.4
"""A factor on the limits of classes, because one in 100 profiles of 20 processes overstates a noise by 38 % or more."""


@dataclass(frozen=True, slots=True)
class NoiseClass:
    """The guarantee for benchmarks up to a noise. The first three attributes are fractions.

    Attributes
    ----------
    noise : float
        The largest standard deviation of one process' median.
    promise : float
        The slow-down that is guaranteed to be found; infinite if the benchmark is only reported and never fails a
        build.
    floor : float
        The smallest effect that is called a change.
    pairs : int
        A benchmark that is undecided after this many pairs is ambiguous.
    confirming : int
        The largest number of fresh pairs for a suspect: one of `CONFIRMING_LOOKS`.
    """

    noise: float
    promise: float
    floor: float
    pairs: int = 10
    confirming: int = 14


CLASSES: tuple[NoiseClass, ...] = (
    NoiseClass(noise=0.0015, promise=0.005, floor=0.0025),
    NoiseClass(noise=0.003, promise=0.01, floor=0.005),
    NoiseClass(noise=0.01, promise=0.02, floor=0.01, pairs=18, confirming=24),
    NoiseClass(noise=math.inf, promise=math.inf, floor=0.02),
)


def class_of(noise: float | None) -> NoiseClass:
    """Return the class of a benchmark with this noise in the profile. If it is None, the last class that gates."""
    if noise is None:
        return CLASSES[-2]
    return next(one for one in CLASSES if noise <= one.noise * ESTIMATE_ALLOWANCE)


def confirmation_level(benchmarks: int, budget: float = BUDGET) -> float:
    """Return the confidence of a confirmation that keeps `benchmarks` unchanged benchmarks within the `budget`.

    Each of the `len(LOOKS)` looks makes one in a thousand unchanged benchmarks a suspect on either side.
    """
    accused = len(LOOKS) * 2 * (1 - ALARM_LEVEL)
    return 1 - min(0.005, budget / max(benchmarks, 1) / accused)


def level_at(level: float, pairs: int, most: int) -> float:
    """Return the confidence of the look after `pairs` of at most `most` fresh pairs, so that all looks keep `level`."""
    early = CONFIRMING_LOOKS.index(most)
    return 1 - (1 - level) * (EARLY_PART if pairs < most else 1 - EARLY_PART * early)


def look(pairs: Floats, noise: Floats, degrees: Floats, floor: Floats) -> NDArray[np.int8]:
    """Evaluate benchmarks after some pairs.

    Parameters
    ----------
    pairs : array, (benchmarks, pairs)
        Log-ratios of head over base without the common shift.
    noise, degrees : array, (benchmarks,)
        The standard deviation of one process' median in the profile, and its degrees of freedom; 0 if unknown.
    floor : array, (benchmarks,)
        The floor of each benchmark's class.

    Returns
    -------
    array, (benchmarks,)
        1 if suspected to be slower, -1 if suspected to be faster, 0 if same, 2 if undecided.
    """
    mean, error, freedom = _moderated(pairs, noise, np.minimum(degrees, MOST_PRIOR_DEGREES))
    size = np.abs(mean)
    alarmed = (size - _quantiles(ALARM_LEVEL, freedom) * error > 0) & (size > floor)
    same = size + _quantiles(SAME_LEVEL, freedom) * error < floor
    return np.where(alarmed, np.sign(mean), np.where(same, 0, 2)).astype(np.int8)


def confirmed(
    side: NDArray[np.int8], pairs: Floats, noise: Floats, degrees: Floats, floor: Floats, level: Floats | float
) -> NDArray[np.bool_]:
    """Return whether fresh pairs confirm, at each suspect's `level`, a change in the direction that the look found."""
    mean, error, freedom = _moderated(pairs, noise, np.minimum(degrees, CONFIRMING_PRIOR_DEGREES))
    size = mean * side
    return np.asarray((size - _quantiles(level, freedom) * error > 0) & (size > floor))


def smallest_effect(pairs: Floats, noise: float, degrees: float, floor: float) -> float:
    """Return the smallest change, as a fraction, that these pairs would have detected in nine of ten cases."""
    prior = np.array([min(degrees, MOST_PRIOR_DEGREES)])
    _, error, freedom = _moderated(pairs[None], np.array([noise]), prior)
    needed = (_quantiles(ALARM_LEVEL, freedom) + _quantiles(SAME_LEVEL, freedom)) * error
    return float(max(needed[0], floor))


def _moderated(pairs: Floats, noise: Floats, prior: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean, standard error and degrees of freedom. The variance combines that of the pairs and the profile's."""
    count = pairs.shape[1]
    own = pairs.var(axis=1, ddof=1)
    freedom = prior + count - 1
    variance = (prior * 2 * noise**2 + (count - 1) * own) / freedom
    return pairs.mean(axis=1), np.sqrt(variance / count), freedom


def _quantiles(level: Floats | float, freedom: Floats) -> Floats:
    known, place = np.unique(np.stack(np.broadcast_arrays(level, freedom)), axis=1, return_inverse=True)
    table = np.array([quantile(*one) for one in known.T.tolist()])
    return np.asarray(table[place.reshape(-1)])
