"""Special functions that NumPy lacks: the error function, for the NumPy implementations.

Source: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969), 631-637.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["erf"]

# Numerators and denominators, highest power first, of Cody's three intervals.
_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)  # fmt: skip
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
_INV_SQRT_PI = 0.56418958354775628695


def erf(x: NDArray[Any]) -> NDArray[Any]:
    """Return the error function of a float32 or float64 array, in its dtype.

    The error is within 4 units in the last place of float64.
    """
    wide = np.asarray(x, dtype=np.float64)
    size = np.abs(wide)
    result = np.where(
        size <= 0.46875, _near_zero(np.minimum(size, 0.46875)), 1.0 - _complement(np.maximum(size, 0.46875))
    )
    result = np.where(np.isnan(wide), wide, np.copysign(result, wide))
    rounded: NDArray[Any] = np.asarray(result, dtype=np.asarray(x).dtype)
    return rounded


def _near_zero(size: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(size * _ratio(_SMALL, size * size))


def _complement(size: NDArray[Any]) -> NDArray[Any]:
    """Return the complementary error function for size >= 0.46875. From 6 on it is below float64's resolution."""
    clipped = np.minimum(size, 6.0)
    middle = _ratio(_MIDDLE, np.minimum(clipped, 4.0))
    inverse = 1.0 / np.square(np.maximum(clipped, 4.0))
    large = (_INV_SQRT_PI - inverse * _ratio(_LARGE, inverse)) / np.maximum(clipped, 4.0)
    return np.asarray(np.exp(-clipped * clipped)) * np.where(clipped <= 4.0, middle, large)


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: NDArray[Any]) -> NDArray[Any]:
    numerator, denominator = polynomials
    return np.asarray(np.polyval(numerator, x) / np.polyval(denominator, x))
