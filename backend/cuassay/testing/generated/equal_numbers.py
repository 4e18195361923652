"""A check with all numbers equal, where a rounded mean differs from them although nothing deviates from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, of_reference
from cuassay.testing.generated.execution import filled_from, is_safely_taken, run_sample
from cuassay.testing.generated.filling import refilled, span_of
from cuassay.testing.generated.natively import decided
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import SPAN, Sample
from cuassay.testing.tolerance import largest_size

__all__ = ["check_equal_numbers"]

#: Where in the range of an array its number is. Sums of such numbers are rounded, and some of their means differ.
_PARTS = (0.1234, 0.317, 0.7011, 0.9137)

#: A result of divided rounding errors is off by more, and one of rounding errors alone by less.
_CLEARLY = 2.0**-10


def check_equal_numbers(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try numbers that are all equal, if the reference gives the same for each such number, in the dtype itself too.

    A function that finds what is constant by deviations of exactly zero divides rounding errors by one another.
    """
    if spec.is_its_own_reference:
        return
    equal = [_with_equal(sample, part) for part in _PARTS]
    if not all(is_safely_taken(spec, one) for one in equal):
        return
    first = spec.expected(equal[0])
    if first.dtype.kind not in "fc":
        return
    for one in equal:
        expected, narrow = spec.expected(one), of_reference(spec, one)
        if narrow is None or not narrow.shape == expected.shape == first.shape:
            return
        if not (decided(narrow, first, dtype, 1.0).all() and decided(expected, first, dtype, 1.0).all()):
            return
    limit = _CLEARLY * max(1.0, largest_size(first))
    for one in equal:
        with filled_from(spec, device, dtype, sample, one):
            compare_values(spec, device, dtype, one, run_sample(spec, device, one), limit=limit)


def _with_equal(sample: Sample, part: float) -> Sample:
    """The call with each array of floats filled with one number of its range."""

    def fill(array: NDArray[Any]) -> NDArray[Any]:
        low, high = span_of(sample, array) or SPAN
        return np.full_like(array, low + part * (high - low))

    return refilled(sample, fill, "all numbers of an array are equal", every=True)
