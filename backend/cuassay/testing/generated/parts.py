"""Checks of a NaN next to a number: in one part of a complex number, and in one array where another has 0, 1 or inf."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, on_host
from cuassay.testing.generated.execution import filled_from, is_safely_taken, run_sample
from cuassay.testing.generated.filling import refilled
from cuassay.testing.generated.mentions import names_nan
from cuassay.testing.generated.natively import with_number
from cuassay.testing.generated.selection import one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, each

__all__ = ["check_beside", "check_parts"]

_NUMBERS = {
    "the real part of one number is NaN": complex(np.nan, 1),
    "the imaginary part of one number is NaN": complex(1, np.nan),
}


def check_parts(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Set one part of one free complex number to NaN: the result must be NaN where the reference's is."""
    if np.dtype(dtype).kind != "c" or spec.is_its_own_reference:
        return
    sample = one(spec, device, dtype, most=9000)
    free = [given.values for given in each(sample.args, sample.kwargs) if _is_free(given, dtype)]
    for label, number in _NUMBERS.items() if free else ():
        filled = refilled(sample, with_number(number), label, chosen=free)
        if is_safely_taken(spec, filled):
            with filled_from(spec, device, dtype, sample, filled):
                _check(spec, device, dtype, filled)


def _is_free(given: Any, dtype: Any) -> bool:
    return isinstance(given, HostArray) and given.dtype == dtype and given.is_free and given.values.size > 0


def _check(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Compare, but allow more NaN than a reference that does not mention NaN gives, as an FFT spreads them."""
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    got = on_host(result)
    if got.shape != expected.shape or got.dtype.kind not in "fc" or expected.dtype.kind not in "fc":
        return
    is_right = np.isnan(got) & (np.isnan(expected) | (not names_nan(spec.reference)))
    compare_values(spec, device, dtype, sample, result, expected=np.where(is_right, got, expected))


def check_beside(spec: OpSpec, device: Device, dtype: Any, sample: Sample, free: list[NDArray[Any]]) -> None:
    """Try a NaN in one of two floating-point arrays, where the other has 0, 1 or infinity.

    This applies only if the reference mentions NaN. In some libraries zero times NaN is zero, as at an index that a
    mask excludes.
    """
    if not names_nan(spec.reference):
        return
    for array, other in permutations(free, 2):
        if array.shape != other.shape or not array.size:
            continue
        for number in (0.0, 1.0, np.inf):
            filled = _with_nan_and_number(sample, array, other, number)
            if is_safely_taken(spec, filled):
                with filled_from(spec, device, dtype, sample, filled):
                    compare_values(spec, device, dtype, filled, run_sample(spec, device, filled))


def _with_nan_and_number(sample: Sample, nan: NDArray[Any], other: NDArray[Any], number: float) -> Sample:
    def put(array: NDArray[Any]) -> NDArray[Any]:
        return with_number(np.nan if array is nan else number)(array)

    return refilled(sample, put, f"a NaN in one array, {number:g} in another", chosen=[nan, other])
