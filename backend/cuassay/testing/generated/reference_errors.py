"""Estimate how far the reference itself may be off: ``log(1 + exp(a))`` in float64, for example, is 0 below -37.

After a failed comparison the reference runs again in extended precision. Where the two results differ, its float64
result is not exact. That does not show the rounding of angles, which are Python's floats: a reference that mentions pi
or a Fourier transform is believed to fewer digits. Some libraries compute in float64 whatever they are given; their
rounding shows in results for inputs that are almost the same, which are not on a line. The reference also runs in
float32 if many numbers go into each result, because a sum in order may be further off than the square root of their
number suggests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_float
from cuassay.testing.answers import as_one
from cuassay.testing.generated.mentions import names_angles
from cuassay.testing.generated.result_dtypes import coarsest
from cuassay.testing.once import once_for
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import Sample, over_arguments
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import FUNCTION, allowed

__all__ = ["accumulated_error", "for_long_sums", "reference_errors"]

Array = NDArray[Any]

#: The most terms of all results together that are added up in extended precision, which is slow in every library.
_MOST_TERMS = 2**27

#: Factor on the difference to extended precision, which has errors too.
_MARGIN = 4.0

#: Factor on the median of these errors. A function that is as good as the reference makes errors of its own.
_TYPICAL = 2.0


def reference_errors(spec: OpSpec, sample: Sample, expected: Array) -> Array | None:
    """A bound for the error of each element of a user's reference; None if no error is found.

    Where the reference gives exactly 0, both precisions may have lost the result. There the bound is a rounding error
    of 1, or of the inputs if they are larger.
    """
    if spec.op is not None or spec.reference is None or expected.dtype != np.float64:
        return None
    return once_for(sample, expected, "reference errors", lambda: _all_errors(spec, sample, expected))


def _all_errors(spec: OpSpec, sample: Sample, expected: Array) -> Array | None:
    found = (
        _beyond_float64(spec, sample, expected),
        _of_angles(spec, sample, expected),
        _scatter(spec, sample, expected),
    )
    errors = [one for one in found if one is not None]
    return np.asarray(sum(errors)) if errors else None


def _of_angles(spec: OpSpec, sample: Sample, expected: Array) -> Array | None:
    """The errors of sines of angles of some turns, which are rounded before their sine is taken."""
    if not names_angles(spec.reference):
        return None
    magnitude, terms = spec.scale(sample, expected)
    return np.asarray(_OF_ANGLES * allowed(FUNCTION, np.float64, terms=terms, magnitude=magnitude))


#: Factor on the tolerance of a float64 function. An angle of 8 turns is rounded to 50 units of its sine; results of a
#: DCT of 16 numbers were off by 3.7 times the tolerance.
_OF_ANGLES = 7.0


def _beyond_float64(spec: OpSpec, sample: Sample, expected: Array) -> Array | None:
    """A bound for the error that extended precision shows; None if there is none, or the reference does not run so."""
    if spec.reference is None or expected.size * spec.scale(sample, expected)[1] > _MOST_TERMS:
        return None
    extended, again = (_again(spec.reference, sample) for _ in range(2))
    if extended is None or extended.shape != expected.shape or extended.dtype.kind != "f":
        return None
    if again is None or not np.array_equal(extended, again, equal_nan=True):  # it is random, or keeps state
        return None
    with np.errstate(all="ignore"):
        moved = np.nan_to_num(np.abs(extended - expected.astype(np.longdouble)), nan=0.0, posinf=0.0)
        errors = np.array(_MARGIN * moved, np.float64)
    typical = _TYPICAL * _typical_share(errors, expected) * np.nan_to_num(np.abs(expected), posinf=0.0)
    errors = np.asarray(np.maximum(errors, typical))  # an array even if it has no axes
    lost = expected == 0
    errors[lost] = np.maximum(errors, epsilon("float64") * np.maximum(_sizes(sample, expected.shape), 1.0))[lost]
    return errors if errors.any() else None


def _typical_share(errors: Array, expected: Array) -> float:
    """The median of the errors as shares of the results, because a single result may be exact by chance.

    Results that lost nearly all their digits do not count: they say nothing of the others.
    """
    with np.errstate(all="ignore"):
        shares = errors / np.abs(expected)
    shares = shares[np.isfinite(shares) & (shares <= _MOST_SCATTER)]
    return float(np.median(shares)) if shares.size else 0.0


#: Relative changes of all inputs, in pairs of opposite sign; the function is a line between them but for 2^-57 of it.
_STEPS = (2.0**-30, 3 * 2.0**-30)

#: Factor on the largest distance from the line. Two results may be near to it by chance.
_MORE_SCATTER = 5.0

#: The largest share of a result that its scatter may be. Larger differences are steps, as those of `floor`.
_MOST_SCATTER = 2.0**-20


def _scatter(spec: OpSpec, sample: Sample, expected: Array) -> Array | None:
    """A bound for the error that shows in results for inputs that are almost the same; None if there is none."""
    if spec.reference is None or not expected.size or not any(map(_is_array, arrays_of(*sample.host()))):
        return None
    size = np.maximum(*np.broadcast_arrays(spec.scale(sample, expected)[0], np.abs(expected)))
    largest = 0.0
    for step in _STEPS:
        below, above = (_again(spec.reference, sample, times) for times in (1 - step, 1 + step))
        if below is None or above is None or not below.shape == above.shape == expected.shape:
            return None
        with np.errstate(all="ignore"):
            shares = np.abs(below / 2 + above / 2 - expected) / size
        shares = shares[np.isfinite(shares) & (shares <= _MOST_SCATTER)]
        largest = max(largest, float(np.max(shares, initial=0.0)))
    return np.where(np.isfinite(size), _MORE_SCATTER * largest * size, 0.0) if largest else None


#: Sums of fewer terms are within the tolerance in any order.
_MANY = 256

#: Factor on the error found on the host, because a device may add up in another order than NumPy.
_OTHER_ORDER = 3.0


#: The order in which a sum is added up may widen a tolerance by at most this factor.
_ANY_ORDER = 4.0


def for_long_sums(spec: OpSpec, sample: Sample, got: Array, expected: Array, limit: Any) -> Any:
    """The tolerance, widened to the errors of the reference's own long sums; None if that cannot excuse the result."""
    precise = coarsest(sample, expected.dtype)
    if is_coarse(precise) or _is_further_off(got, expected, _ANY_ORDER * np.asarray(limit)):
        return None
    error = accumulated_error(spec, sample, expected, precise)
    wider = np.maximum(limit, np.minimum(_ANY_ORDER * np.asarray(limit), error))
    return wider if np.any(wider > limit) else None


def _is_further_off(got: Array, expected: Array, limit: Array) -> bool:
    """Whether some number is off by more than `limit`; False for other shapes and for results that are not floats."""
    if got.shape != expected.shape or not {got.dtype.kind, expected.dtype.kind} <= set("fc"):
        return False
    with np.errstate(all="ignore"):
        return bool(np.any(np.abs(got.astype(expected.dtype) - expected) > limit))


def accumulated_error(spec: OpSpec, sample: Sample, expected: Array, dtype: Any) -> float:
    """The error that rounding in `dtype` causes in the reference's sums, measured in float32; 0 if it is not known.

    Parameters
    ----------
    dtype : dtype
        The dtype in which the function computes: float32 or float64.
    """
    if spec.op is not None or expected.dtype != np.float64 or spec.scale(sample, expected)[1] < _MANY:
        return 0.0
    args, kwargs = sample.changed(_narrowed)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            told = spec.run("cpu", args, kwargs) if spec.reference is None else spec.reference(*args, **kwargs)
            narrow = np.asarray(as_one(told))
    except Exception:  # noqa: BLE001  the reference was declared for float64 and may fail in any way
        return 0.0
    if narrow.dtype != np.float32 or narrow.shape != expected.shape:
        return 0.0
    with np.errstate(all="ignore"):
        errors = np.nan_to_num(np.abs(narrow - expected), nan=0.0, posinf=0.0)
    return _OTHER_ORDER * float(np.max(errors, initial=0.0)) * epsilon(dtype) / epsilon("float32")


def _narrowed(value: Any) -> Any:
    return value.astype(np.float32) if _is_array(value) else value


def _again(reference: Callable[..., Any], sample: Sample, times: float | None = None) -> Array | None:
    """The reference's result in extended precision, or in float64 for numbers that are `times` as large."""

    def put(value: Any) -> Any:
        if not _is_array(value):
            return value
        wide = value.astype(np.float64)
        return wide.astype(np.longdouble) if times is None else wide * times

    given, options = over_arguments(*sample.copied(), put)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.array(as_one(reference(*given, **options)))
    except Exception:  # noqa: BLE001  the reference was declared for float64 and may fail in any way
        return None


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_float(value.dtype)


def _sizes(sample: Sample, shape: tuple[int, ...]) -> Array:
    """The largest finite input for each element, among inputs of the result's shape; 0 if there is none."""
    found = np.zeros(shape)
    for array in arrays_of(*sample.host()):
        if _is_array(array) and array.shape == shape:
            found = np.maximum(found, np.nan_to_num(np.abs(array.astype(np.float64)), nan=0.0, posinf=0.0))
    return found
