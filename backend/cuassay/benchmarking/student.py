"""The quantile of Student's t distribution, without SciPy.

The distribution function is a regularized incomplete beta function, by Lentz's continued fraction: DLMF 8.17.22.
"""

from __future__ import annotations

import math
from functools import cache

__all__ = ["quantile"]

_TINY = 1e-300


@cache
def quantile(level: float, degrees: float) -> float:
    """Return the t that is exceeded with probability 1 - `level`, which must be at least one half."""
    tail, low, high = 1.0 - level, 0.0, 1.0
    while _tail(high, degrees) > tail:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, degrees) > tail else (low, middle)
    return (low + high) / 2


def _tail(t: float, degrees: float) -> float:
    """P(T > t)."""
    return 0.5 * _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(log_front) / a / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, 400):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1.0 / (1.0 + term * d or _TINY)
        c = 1.0 + term / c or _TINY
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
