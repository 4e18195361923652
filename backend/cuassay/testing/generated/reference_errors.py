"""How far a reference may be from the right result itself: ``log(1 + exp(a))`` in float64 is 0 from -37 down.

Where a comparison has failed it is asked once more, in extended precision. Where the two differ it did not know. And in
float32, where many numbers go into each result: a sum in order is further off than the root of their number says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_float
from cuassay.testing.answers import as_one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample, over_lists
from cuassay.testing.terms import arrays_of

__all__ = ["accumulated_error", "reference_errors"]

Array = NDArray[Any]

#: Most terms of all results together that are added up in extended precision, which no library does fast.
_MOST_TERMS = 2**27

#: The error of float64 is the difference to extended precision, but for the error of that.
_MARGIN = 4.0


def reference_errors(spec: OpSpec, sample: Sample, expected: Array) -> Array | None:
    """For each element how far the reference of a user's function is off at most; None where it is not known to be.

    Where it says exactly 0, both precisions may have lost what is there: up to a rounding of 1, or of larger inputs.
    """
    if spec.op is not None or spec.reference is None or expected.dtype != np.float64:
        return None
    if expected.size * spec.scale(sample, expected)[1] > _MOST_TERMS:
        return None
    extended, again = (_extended(spec.reference, sample) for _ in range(2))
    if extended is None or extended.shape != expected.shape or extended.dtype.kind != "f":
        return None
    if again is None or not np.array_equal(extended, again, equal_nan=True):  # it draws numbers, or keeps something
        return None
    with np.errstate(all="ignore"):
        moved = np.nan_to_num(np.abs(extended - expected.astype(np.longdouble)), nan=0.0, posinf=0.0)
        errors = np.array(_MARGIN * moved, np.float64)
    lost = (expected == 0) & np.isfinite(expected)
    errors[lost] = np.maximum(errors, epsilon("float64") * np.maximum(_sizes(sample, expected.shape), 1.0))[lost]
    return errors if errors.any() else None


#: Fewer terms are within the tolerance in any order.
_MANY = 256

#: A device may add up in another order than NumPy: this many times the error found on the host.
_OTHER_ORDER = 3.0


def accumulated_error(spec: OpSpec, sample: Sample, expected: Array, dtype: Any) -> float:
    """What the roundings of `dtype` do to the reference's sums, found in float32; 0 where that is not known.

    Parameters
    ----------
    dtype : dtype
        That a user's function computes in, float32 or float64.
    """
    if spec.op is not None or expected.dtype != np.float64 or spec.scale(sample, expected)[1] < _MANY:
        return 0.0
    args, kwargs = sample.changed(_narrowed)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            told = spec.run("cpu", args, kwargs) if spec.reference is None else spec.reference(*args, **kwargs)
            narrow = np.asarray(as_one(told))
    except Exception:  # noqa: BLE001  it was declared for float64
        return 0.0
    if narrow.dtype != np.float32 or narrow.shape != expected.shape:
        return 0.0
    with np.errstate(all="ignore"):
        errors = np.nan_to_num(np.abs(narrow.astype(np.float64) - expected), nan=0.0, posinf=0.0)
    return _OTHER_ORDER * float(np.max(errors, initial=0.0)) * epsilon(dtype) / epsilon("float32")


def _narrowed(value: Any) -> Any:
    return value.astype(np.float32) if _is_array(value) else value


def _extended(reference: Callable[..., Any], sample: Sample) -> Array | None:
    args, kwargs = sample.copied()
    given = [over_lists(value, _widened) for value in args]
    options = {name: over_lists(value, _widened) for name, value in kwargs.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.array(as_one(reference(*given, **options)))
    except Exception:  # noqa: BLE001  it was declared for float64
        return None


def _widened(value: Any) -> Any:
    return value.astype(np.float64).astype(np.longdouble) if _is_array(value) else value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_float(value.dtype)


def _sizes(sample: Sample, shape: tuple[int, ...]) -> Array:
    """The largest of the finite inputs of each element, where inputs are as long as the result; else 0."""
    found = np.zeros(shape)
    for array in arrays_of(*sample.host()):
        if _is_array(array) and array.shape == shape:
            found = np.maximum(found, np.nan_to_num(np.abs(array.astype(np.float64)), nan=0.0, posinf=0.0))
    return found
