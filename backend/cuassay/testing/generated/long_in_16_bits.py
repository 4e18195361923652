"""Long arrays in 16 bits: a count of elements in float16 is infinite above 65,504, and in bfloat16 it stays at 256."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, is_float
from cuassay.core.device import Device
from cuassay.testing.generated.affordable import affordable
from cuassay.testing.generated.comparison import compare_values, result_dtype
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.extents import MOST_OF_SMALL
from cuassay.testing.generated.filling import refilled
from cuassay.testing.generated.selection import by_options
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_long_in_16_bits"]

#: Extents; the last one is compared, if the earlier ones show that it does not take long.
_EXTENTS = (263, 4_099, 32_771, 163_841)

#: The most sets of options.
_OPTIONS = 3

#: The largest expected result, half of what float16 holds, and the share of it that a result may be off by.
_LARGEST, _SHARE = 2.0**15, 2.0**-3

_WRONG = "wrong for a long array in 16 bits: are elements counted, or sums kept, in the dtype of the data?"


def check_long_in_16_bits(spec: OpSpec, device: Device) -> None:
    """Fail if results for long arrays of 16-bit numbers are entirely wrong; rounding errors are not looked at."""
    for name in spec.dtypes:
        if is_float(name) and is_coarse(as_dtype(name)) and spec.why_unsupported(device, name) is None:
            for options in by_options(spec, device, as_dtype(name), most=MOST_OF_SMALL)[:_OPTIONS]:
                _check(spec, device, as_dtype(name), options)


def _check(spec: OpSpec, device: Device, dtype: Any, options: Sample) -> None:
    extent = max((extent for array in arrays_of(*options.host()) for extent in array.shape), default=0)
    found = list(affordable(spec, device, options, ({extent: length} for length in _EXTENTS if length > extent)))
    if extent < 2 or len(found) < len(_EXTENTS):
        return
    sample = refilled(found[-1], np.abs, "free numbers positive")  # whose mean is not near zero
    if not is_safely_taken(spec, sample):
        return
    expected, wanted = spec.expected(sample), result_dtype(spec, sample)
    largest = float(np.max(np.abs(expected), initial=0.0)) if expected.dtype.kind == "f" else np.inf
    if largest <= _LARGEST and (wanted is None or is_float(wanted)):
        with on_sample(sample), explained(_WRONG):
            result = run_sample(spec, device, sample)
            compare_values(spec, device, dtype, sample, result, expected=expected, limit=_SHARE * largest)
