"""A check of NaN where the result does not depend on the number: behind a mask, or times an option of zero.

Which places these are, the reference says: it gives the same for three numbers there, and a number for NaN. Such places
hold padding, or memory that nobody wrote. What becomes of other NaN is checked in `numbers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.failures import inputs_there
from cuassay.testing.generated.comparison import on_host
from cuassay.testing.generated.execution import is_safely_taken, run_sample
from cuassay.testing.generated.numbers import Change, free_floats, refilled
from cuassay.testing.generated.selection import generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_unused"]

Array = NDArray[Any]

#: Numbers in place of the NaN.
_NUMBERS = (-1e3, 0.5, 1e3)

#: Places of an array that are tried.
_PLACES = 8


def check_unused(spec: OpSpec, device: Device, sample: Sample) -> None:
    """One NaN behind a mask, or in what an option of 0.0 leaves out, spoils no result if the reference ignores it.

    A mask has the shape of the array that it is for. Nothing else is asked: products and transforms spread a NaN, also
    of a place whose factor is zero.
    """
    if spec.is_its_own_reference:
        return
    is_left_out = any(type(value) is float and value == 0 for value in sample.kwargs.values())
    shapes = {array.shape for array in arrays_of(*sample.host()) if array.dtype == np.bool_}
    for number, array in enumerate(free_floats(sample)):
        if not is_left_out and array.shape not in shapes:
            continue
        for place in generator().integers(0, max(array.size, 1), _PLACES)[: array.size]:
            filled = refilled(sample, _with(place, np.nan), f"a NaN in float array {number}", chosen=[array])
            if is_safely_taken(spec, filled) and _is_unused(spec, sample, filled, array, place):
                _check(spec, device, filled)
                break


def _with(place: int, number: float) -> Change:
    def put(array: Array) -> Array:
        flat = array.reshape(-1).copy()
        flat[place] = number
        return flat.reshape(array.shape)

    return put


def _is_unused(spec: OpSpec, base: Sample, filled: Sample, array: Array, place: int) -> bool:
    """Whether the reference gives numbers alone, and the same whatever number is there."""
    expected = spec.expected(filled)
    if expected.dtype.kind not in "fc" or not expected.size or not np.isfinite(expected).all():
        return False
    others = [refilled(base, _with(place, number), "", chosen=[array]) for number in _NUMBERS]
    return all(is_safely_taken(spec, one) and np.array_equal(spec.expected(one), expected) for one in others)


def _check(spec: OpSpec, device: Device, sample: Sample) -> None:
    got = on_host(run_sample(spec, device, sample))
    if got.dtype.kind not in "fc" or not np.isnan(got).any():
        return
    where = tuple(int(at) for at in np.argwhere(np.isnan(got))[0])
    spoilt = f"{int(np.isnan(got).sum()):,} of {got.size:,} results are nan, the first at {where}"
    lines = [
        f"a NaN that has no part in the result spoils it: {spoilt}; {_SAME}",
        *inputs_there(where, got.shape, sample.host()),
        f"sample: {sample.label}",
    ]
    raise AssertionError("\n  ".join(lines))


_SAME = (
    "whatever number is there, the reference gives the same; leave it out, as by where(), "
    "rather than multiply it by zero"
)
