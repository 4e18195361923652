"""When a series has enough samples: the standard error of its median by batch means; and whether it has two modes.

Samples of a GPU are not independent: clocks wander, two clock states alternate, events step by half a microsecond. The
deviation of single samples is then too optimistic; medians of a few long batches of neighbours are not. Source:
Schmeiser, "Batch size effects in the analysis of simulation output", Oper. Res. 30 (1982), doi 10.1287/opre.30.3.556.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["BATCHES", "ENOUGH_SECONDS", "FEWEST", "SETTLED_SAMPLES", "is_enough", "modes_of", "standard_error"]

#: Batches of neighbours that the samples are cut into: long ones, as neighbours depend on each other.
BATCHES = 5

#: Five batches sometimes understate an error, and a rule that stops at the first small one favours those times. With
#: this factor a claim of 0.5 % was 0.47 % (autocorrelation of 0.8) and 0.51 % (two clock states) in simulation.
CAUTION = 1.6

#: Fewest samples that a median and its spread are stated from, if each takes long.
FEWEST = 10

#: Short series need this many samples, or this much time of the device.
SETTLED_SAMPLES, ENOUGH_SECONDS = 30, 0.02


def is_enough(samples: Sequence[float], calls: int = 1) -> bool:
    """Whether there are enough samples to judge their scatter: 30, or 10 and 20 ms of the device's time."""
    count = len(samples)
    return count >= SETTLED_SAMPLES or (count >= FEWEST and sum(samples) * calls >= ENOUGH_SECONDS)


def standard_error(samples: Sequence[float]) -> float:
    """The standard error of the median, relative to it; infinite for fewer than two samples a batch.

    The clock's step, the smallest difference between samples, cannot be averaged away.
    """
    taken = np.asarray(samples, dtype=np.float64)
    length = len(taken) // BATCHES
    middle = float(np.median(taken))
    if length < 2 or middle <= 0:
        return math.inf
    medians = np.median(taken[len(taken) - BATCHES * length :].reshape(BATCHES, length), axis=1)
    steps = np.diff(np.unique(taken))
    step = float(steps.min()) / math.sqrt(12) if len(steps) else 0.0
    return CAUTION * math.hypot(float(medians.std(ddof=1)) / math.sqrt(BATCHES), step) / middle


def modes_of(values: Sequence[float]) -> tuple[float, float] | None:
    """Two groups of values with a gap between them of more than thrice their widths: the lower and the upper mean."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if len(ordered) < 6:
        return None
    gaps = np.diff(ordered)
    cut = int(gaps[1:-1].argmax()) + 2  # two on each side at least
    low, high = ordered[:cut], ordered[cut:]
    within = max(float(np.ptp(low)), float(np.ptp(high)))
    return (float(low.mean()), float(high.mean())) if gaps[cut - 1] > 3 * within else None
