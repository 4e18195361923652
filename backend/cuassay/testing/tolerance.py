"""How wrong a right answer may be: one table, each number with its reason.

A result is right when it is the rounding, to its dtype, of *some* number within the tolerance of the reference.
So a bfloat16 result computed in float32 gets float32's tolerance and no more; the rounding to bfloat16 costs
nothing on top. How two arrays are compared by it is decided in `compare`.
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
    "FUNCTION",
    "GENERAL",
    "GROWTH",
    "MODE_EPS",
    "Growth",
    "Tolerance",
    "allowed",
    "by_rounding_error",
    "finite_size",
    "rounding_limit",
]

Growth = Literal["none", "sqrt", "linear"]

#: What n accumulated terms do to the error of one.
GROWTH: dict[str, Callable[[int], float]] = {
    "none": lambda n: 1.0,
    # Roundings of a sum are independent: they add like a random walk (Higham & Mary 2019, doi 10.1137/18M1226312).
    "sqrt": lambda n: math.sqrt(max(n, 1)),
    # The bound that always holds (Higham 2002, eq. 3.5); for code whose order of summation is not known.
    "linear": lambda n: float(max(n, 1)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance(Declared):
    """``ulps`` units of the computing dtype, times the growth over the terms, times the result's magnitude.

    Attributes
    ----------
    ulps : float
        Error of one term, in units of the computing dtype's epsilon.
    growth : str
        How it grows with the number of accumulated terms; one of `GROWTH`.
    computed_in : str or None
        ``None``: 16-bit and 8-bit floats are computed in float32, as our kernels do. ``"self"``: in the dtype
        itself, rounded after each step, as an array library's functions may.
    roundings : int
        How often a result is rounded to its dtype on the way: a composition of n operations does it n times.
    most : float
        Never more than this part of what errors are relative to: beyond, nothing could fail.
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


#: By class of operation. Each number is at most twice what the named implementations are documented to need.
BY_CLASS: dict[str, Tolerance] = {
    "storage": Tolerance(ulps=0),  # moved, not computed
    # CUDA documents 2 ulp for expf and 2 for erff, 2 for tanhf; three such steps and their roundings fit in 8.
    "elementwise": Tolerance(ulps=8),
    # Tree sums and sequential ones both; exp, division and square root around them are the constant.
    "reduction": Tolerance(ulps=8, growth="sqrt"),
    # One product and one sum a term, in an order the library chooses.
    "matmul": Tolerance(ulps=2, growth="sqrt"),
    "random": Tolerance(ulps=4),  # a logarithm and a cosine
}

#: Two arrays of which nothing is known.
GENERAL = Tolerance(ulps=16, computed_in="self")

#: A user's function, of whose steps nothing is known; how many numbers go into one is found out (`terms`). Sums in the
#: order of the elements, in the dtype itself, were up to 9 ulps of a term times the root of their number away (NumPy's
#: cumsum of 8,256 in float16). An error of a quarter is not rounding, even if bfloat16 could explain it.
FUNCTION = Tolerance(ulps=8, growth="sqrt", computed_in="self", most=0.25)

#: A device may round differently from NumPy, and meets other numbers: this many times the error found on the host.
_OWN_ERRORS = 3.0

#: Nobody can ask for more than what as many units of the inputs make; NumPy adds float16 in float32, CuPy's blocks do
#: not pass on their sums so (a sum of 1,023 numbers was 1.3 times the rounding of its inputs off).
_UNITS_OF_INPUTS = 2.0

#: Roundings of the largest number on the way, apart from those of sums.
_STEPS = 4

#: What float32 products round their operands to, as epsilon; it does not grow, since the rounding errors are of
#: the operands. Modes that are not here are as good as float32.
MODE_EPS: dict[str, float] = {
    "tf32": 2.0**-10,  # 10 explicit bits; both operands, half a unit each
    "fp16": 2.0**-10,
    "bf16": 2.0**-7,
    "bf16x3": 2.0**-16,  # two parts of 8 bits; both operands, half a unit each, and the product that is left out
}


def allowed(tolerance: Tolerance, dtype: Any, *, terms: int, magnitude: Any, matmul: bool = False) -> Any:
    """The absolute tolerance, element by element.

    Parameters
    ----------
    tolerance : Tolerance
        The rule.
    dtype : dtype
        Of the operation: what it is looked up by.
    terms : int
        Accumulated terms per element of the result.
    magnitude : numpy.ndarray
        What errors are relative to: the result's size, or larger where the computation cancels.
    matmul : bool
        Whether the float32 precision mode in force applies.
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
    """The absolute tolerance of a user's function in a dtype of 16 bits or fewer, by what rounding does to it.

    Parameters
    ----------
    own : RoundingError
        What rounding did to it on the host.
    dtype : dtype
        The coarsest on the way.
    expected, magnitude : numpy.ndarray
        The reference's answer, and what errors are relative to.
    terms : int
        Accumulated terms an element; sums are held to float32, in which devices keep them.
    passed : numpy.ndarray
        Numbers as large as those that are rounded on the way.
    """
    size, largest = finite_size(expected), float(np.max(finite_size(passed), initial=0.0))
    unit = epsilon(dtype)
    # What is far beyond the rounding of the inputs, or of the largest intermediate number, is not rounding.
    believed = (_STEPS + GROWTH["sqrt"](terms)) * max(own.inputs, unit * largest)
    sums = allowed(FUNCTION, np.float32, terms=terms, magnitude=magnitude)
    passed_on = max(_OWN_ERRORS * own.rounding, _UNITS_OF_INPUTS * own.inputs)
    return FUNCTION.ulps * unit * size + sums + min(passed_on, believed)


def rounding_limit(errors: Any, dtype: Any, expected: Any) -> Any:
    """The absolute tolerance that some units of the result, and a function's own rounding `errors`, explain."""
    size = finite_size(expected)
    return FUNCTION.ulps * epsilon(dtype) * size + _OWN_ERRORS * errors + smallest_subnormal(dtype)


def finite_size(array: Any) -> NDArray[Any]:
    """The absolute values; 0 for NaN and infinities."""
    size = np.abs(np.asarray(array))
    return np.asarray(np.where(size < np.inf, size, size.dtype.type(0)))


def _unit_of(tolerance: Tolerance, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Epsilon and smallest subnormal of the dtype it is computed in."""
    return _unit_in(dtype if tolerance.computed_in == "self" else compute_dtype(dtype))


def _unit_in(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Epsilon and smallest subnormal; zeros for exact dtypes."""
    if not (is_float(dtype) or is_complex(dtype)):
        return 0.0, 0.0
    return epsilon(dtype), smallest_subnormal(dtype)
