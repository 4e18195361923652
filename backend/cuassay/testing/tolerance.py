"""How far a right result may be from the reference: one table, with a reason for each number.

A result is right if it is the rounding, to its dtype, of *some* number within the tolerance of the reference. So a
bfloat16 result computed in float32 has the tolerance of float32; its rounding to bfloat16 adds nothing to that.
`cuassay.testing.compare` applies the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, compute_dtype, dtype_name, epsilon, is_complex, is_float, smallest_subnormal
from cuassay.core.precision import current_precision
from cuassay.errors import SpecError
from cuassay.testing.declared import Declared
from cuassay.testing.rounding_error import RoundingError

__all__ = [
    "BY_CLASS",
    "FEWER_DIGITS",
    "FUNCTION",
    "GENERAL",
    "GROWTH",
    "MODE_EPS",
    "Growth",
    "Tolerance",
    "allowed",
    "by_rounding_error",
    "finite_size",
    "largest_size",
    "rounding_limit",
]

Growth = Literal["none", "sqrt", "linear"]

#: How the error of one term grows with the number n of accumulated terms.
GROWTH: dict[str, Callable[[int], float]] = {
    "none": lambda n: 1.0,
    # Roundings of a sum are independent: they add up like a random walk (Higham & Mary 2019, doi 10.1137/18M1226312).
    "sqrt": lambda n: math.sqrt(max(n, 1)),
    # The bound that always holds (Higham 2002, eq. 3.5), for code whose order of summation is not known.
    "linear": lambda n: float(max(n, 1)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance(Declared):
    """The tolerance ``ulps`` times the epsilon of the computing dtype, the growth over the terms, and the magnitude.

    Attributes
    ----------
    ulps : float
        The error of one term, in units of the computing dtype's epsilon.
    growth : str
        How it grows with the number of accumulated terms; a key of `GROWTH`.
    computed_in : str or None
        ``None``: 16-bit and 8-bit floats are computed in float32, as by this package's kernels. ``"self"``: they are
        computed in the dtype itself, rounded after each step, as by many functions of array libraries.
    roundings : int
        The number of times that results are rounded to their dtype: n for a composition of n operations.
    most : float
        The largest relative tolerance; with a larger one, no test could fail.
    """

    ulps: float
    growth: Growth = "none"
    computed_in: Literal["self"] | None = None
    roundings: int = 1
    most: float = math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ulps) and self.ulps >= 0) or self.growth not in GROWTH:
            raise SpecError(
                f"a tolerance needs finite ulps >= 0 and a growth of {', '.join(GROWTH)}; "
                f"got {self.ulps!r}, {self.growth!r}"
            )


#: By class of operation. Each number is at most twice the documented error of the named implementations.
BY_CLASS: dict[str, Tolerance] = {
    "storage": Tolerance(ulps=0),  # moves elements without computing
    # CUDA documents 2 ulp for expf, erff and tanhf each; three such steps and their roundings fit into 8.
    "elementwise": Tolerance(ulps=8),
    # For tree sums and sequential ones; the constant covers exp, division and square root around them.
    "reduction": Tolerance(ulps=8, growth="sqrt"),
    # One product and one sum for each term, in an order that the library chooses.
    "matmul": Tolerance(ulps=2, growth="sqrt"),
    "random": Tolerance(ulps=4),  # a logarithm and a cosine
}

#: For two arrays of which nothing is known.
GENERAL = Tolerance(ulps=16, computed_in="self")

#: For a user's function, of whose steps nothing is known; `cuassay.testing.terms` finds the number of terms. Sums in
#: the order of the elements, in the dtype itself, were off by up to 9 ulps of a term times the root of their number
#: (NumPy's cumsum of 8,256 in float16). An error of a quarter is not rounding, even if bfloat16 could explain it.
FUNCTION = Tolerance(ulps=8, growth="sqrt", computed_in="self", most=0.25)

#: Half of the digits of float64. A larger error has another cause than rounding that an unusual option amplifies.
FEWER_DIGITS = 2.0**-26

#: Factor on the error found on the host: a device may round differently from NumPy, and in tests it gets other numbers.
_OWN_ERRORS = 3.0

#: Any function may be off by the effect of this many units of its inputs. NumPy adds float16 in float32, but CuPy's
#: blocks pass their sums on in float16 (a sum of 1,023 numbers was off by 1.3 times the rounding of its inputs).
_UNITS_OF_INPUTS = 2.0

#: Roundings of the largest intermediate number, apart from those of sums.
_STEPS = 4

#: The precision to which float32 products round their operands, as epsilon. It does not grow with the terms, because
#: operands are rounded once. Modes that are not listed are as precise as float32.
MODE_EPS: dict[str, float] = {
    "tf32": 2.0**-10,  # 10 explicit bits; both operands are off by half a unit
    "fp16": 2.0**-10,
    "bf16": 2.0**-7,
    "bf16x3": 2.0**-16,  # two parts of 8 bits; half a unit for each operand, and the product that is left out
}


def allowed(tolerance: Tolerance, dtype: Any, *, terms: int, magnitude: Any, matmul: bool = False) -> Any:
    """The absolute tolerance of each element.

    Parameters
    ----------
    tolerance : Tolerance
        The rule.
    dtype : dtype
        The dtype of the operation, from which its epsilon follows.
    terms : int
        Accumulated terms for each element of the result.
    magnitude : numpy.ndarray
        What errors are relative to: the size of the result, or more if the computation cancels.
    matmul : bool
        Whether the current float32 precision mode applies.

    Returns
    -------
    numpy.ndarray or float
        The tolerance.
    """
    unit, tiny = _unit_of(tolerance, as_dtype(dtype))
    relative = tolerance.ulps * unit * GROWTH[tolerance.growth](terms)
    relative += (tolerance.roundings - 1) * 0.5 * _unit_in(as_dtype(dtype))[0]
    if matmul and dtype_name(dtype) == "float32":
        relative += MODE_EPS.get(current_precision(), 0.0)
    relative = min(relative, tolerance.most)
    with np.errstate(over="ignore", invalid="ignore"):
        return relative * np.abs(magnitude) + (tiny if relative else 0.0)


def by_rounding_error(own: RoundingError, dtype: Any, expected: Any, terms: int, magnitude: Any, passed: Any) -> Any:
    """The absolute tolerance of a user's function in a dtype of 16 bits or fewer, from its measured rounding errors.

    Parameters
    ----------
    own : RoundingError
        The effect of rounding on the function on the host.
    dtype : dtype
        The coarsest dtype of inputs and result.
    expected, magnitude : numpy.ndarray
        The reference's result, and what errors are relative to.
    terms : int
        Accumulated terms for each element; sums must be as precise as float32, in which devices accumulate.
    passed : numpy.ndarray
        Numbers as large as the intermediate results that are rounded.

    Returns
    -------
    numpy.ndarray
        The tolerance.
    """
    size, largest = finite_size(expected), largest_size(passed)
    unit = epsilon(dtype)
    # An error far beyond the rounding of the inputs, or of the largest intermediate number, is not a rounding error.
    believed = (_STEPS + GROWTH["sqrt"](terms)) * max(own.inputs, unit * largest)
    sums = allowed(FUNCTION, np.float32, terms=terms, magnitude=magnitude)
    passed_on = max(_OWN_ERRORS * own.rounding, _UNITS_OF_INPUTS * own.inputs)
    return FUNCTION.ulps * unit * size + sums + min(passed_on, believed)


def rounding_limit(errors: Any, dtype: Any, expected: Any) -> Any:
    """The absolute tolerance for a function's own rounding `errors`, plus some units of the result."""
    size = finite_size(expected)
    return FUNCTION.ulps * epsilon(dtype) * size + _OWN_ERRORS * errors + smallest_subnormal(dtype)


def finite_size(array: Any) -> NDArray[Any]:
    """The absolute values; 0 for NaN and infinities."""
    size = np.asarray(np.abs(np.asarray(array)))
    with np.errstate(invalid="ignore"):
        if size.size and np.max(size) < np.inf:  # the maximum of numbers with a NaN is NaN
            return size
    return np.asarray(np.where(size < np.inf, size, size.dtype.type(0)))


def largest_size(array: Any) -> float:
    """The largest absolute value; 0 if no number is finite."""
    return float(np.max(finite_size(array), initial=0.0))


def _unit_of(tolerance: Tolerance, dtype: np.dtype[Any]) -> tuple[float, float]:
    """The epsilon and the smallest subnormal of the computing dtype."""
    return _unit_in(dtype if tolerance.computed_in == "self" else compute_dtype(dtype))


def _unit_in(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The epsilon and the smallest subnormal; zeros for exact dtypes."""
    if not (is_float(dtype) or is_complex(dtype)):
        return 0.0, 0.0
    return epsilon(dtype), smallest_subnormal(dtype)
