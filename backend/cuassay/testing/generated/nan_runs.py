"""Checks with several NaN: the first half of each row, which a short window does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, on_host
from cuassay.testing.generated.execution import filled_from, is_safely_taken, run_sample
from cuassay.testing.generated.filling import refilled
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["check_counts_of_nan", "has_declared_nan", "with_nan_run"]

Array = NDArray[Any]


def with_nan_run(array: Array) -> Array:
    """Set the first half of each row to NaN; an array without axes stays as it is."""
    filled = array.copy()
    if array.ndim:
        filled[..., : (array.shape[-1] + 1) // 2] = np.nan
    return filled


def has_declared_nan(spec: OpSpec, device: Device, dtype: Any) -> bool:
    """Whether a declared sample has NaN: otherwise nobody says what a row of nothing else gives."""
    declared = samples_of(spec, device, dtype, "values", "extremal")
    return any(np.isnan(array).any() for sample in declared for array in floats_of(sample))


def check_counts_of_nan(spec: OpSpec, device: Device, dtype: Any, base: Sample) -> None:
    """Where function and reference agree on the count of one NaN, they must agree on that of several."""
    if spec.is_its_own_reference or spec.expected(base).dtype.kind not in "iu":
        return
    single = refilled(base, _with_first, "a NaN")
    several = refilled(base, with_nan_run, "the first half of each row is NaN")
    if not (is_safely_taken(spec, single) and is_safely_taken(spec, several)):
        return
    if np.array_equal(on_host(run_sample(spec, device, single)), spec.expected(single)):
        with filled_from(spec, device, dtype, single, several):
            compare_values(spec, device, dtype, several, run_sample(spec, device, several))


def _with_first(array: Array) -> Array:
    """Set the first number of each row to NaN; an array without axes stays as it is."""
    filled = array.copy()
    if array.ndim:
        filled[..., :1] = np.nan
    return filled
