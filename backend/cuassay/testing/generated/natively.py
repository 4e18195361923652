"""Checks that compare only where the reference is right in the sample's own dtype.

In float64 the reference is right for huge and tiny float32 numbers even if it squares them, but many good functions
are not. A run of the reference in the dtype itself tells which results a function can be expected to get right. Where
it does not overflow in an intermediate step, the function may not either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_float
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, of_reference, on_host
from cuassay.testing.generated.execution import filled_from, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import Change, conditioning, free_floats, refilled, with_element
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, each
from cuassay.testing.terms import is_elementwise
from cuassay.testing.tolerance import FUNCTION, allowed

__all__ = ["check_far_units", "check_orders", "check_predicate", "decided", "with_number", "with_row"]

Array = NDArray[Any]


def decided(narrow: Array, expected: Array, dtype: Any, size: Any) -> NDArray[np.bool_]:
    """Where the reference gives the same in the dtype itself, up to rounding errors of numbers of this `size`."""
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        moved = np.abs(narrow.astype(wide) - expected.astype(wide))
        return np.asarray(np.isfinite(moved) & (moved <= _DECIDED * epsilon(dtype) * size))


#: The number of roundings by which the reference in the dtype itself may be off.
_DECIDED = 64


# ------------------------------------------------------------------------------------------------ far units


def check_far_units(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try numbers whose squares overflow or underflow: a result in range must not be lost in an intermediate step.

    For float32 only: no dtype is wide enough to tell which results of float64 are in range.
    """
    if epsilon(dtype) <= epsilon("float64"):
        return
    exponent = 5 * np.finfo(dtype).maxexp // 8
    units = {f"times 2^{exponent}": exponent, f"in units of 2^-{exponent}": -exponent}
    if spec.expected(sample).dtype.kind in "bui":
        units["next to the largest number"] = np.finfo(dtype).maxexp - 2  # each is in range, but their sum overflows
    if device.kind == "cpu" and _is_of_each_number(spec, sample):
        # Reciprocals of subnormal numbers are infinite. Accelerators flush subnormals to zero by default.
        units["all subnormal"] = np.finfo(dtype).minexp - _BELOW
    for label, power in units.items():
        filled = refilled(sample, lambda array, power=power: np.ldexp(array, power), label)  # type: ignore[misc]
        narrow = of_reference(spec, filled, errors="raise") if is_safely_taken(spec, filled) else None
        if narrow is not None:
            with filled_from(spec, device, dtype, sample, filled, _NOT_MEANT):
                _compare_decided(spec, device, dtype, filled, narrow)


_NOT_MEANT = "; if such numbers are not meant, give the samples a range: make(shape, low=, high=)"


def _is_of_each_number(spec: OpSpec, sample: Sample) -> bool:
    """Whether each result is an integer or truth value that depends only on the inputs at its own index."""
    expected = spec.expected(sample)
    if expected.dtype.kind not in "iub" or not is_elementwise(1, floats_of(sample), expected):
        return False
    other = refilled(sample, with_number(float(np.finfo(np.float16).max)), "one huge number")
    return is_safely_taken(spec, other) and int(np.count_nonzero(spec.expected(other) != expected)) <= 1


def _compare_decided(
    spec: OpSpec, device: Device, dtype: Any, sample: Sample, narrow: Array, *, by_result: bool = False
) -> None:
    """Compare where the reference is right in the dtype itself; `by_result` makes errors relative to each result."""
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    got = on_host(result)
    if not narrow.shape == expected.shape == got.shape:
        return
    if all(one.dtype.kind in "biu" for one in (narrow, expected, got)):
        compare_values(spec, device, dtype, sample, result, expected=np.where(narrow == expected, expected, got))
    if expected.dtype.kind not in "fc":
        return
    least = np.finfo(dtype).tiny / epsilon(dtype)
    sure = decided(narrow, expected, dtype, np.abs(expected)) & ((expected == 0) | (np.abs(expected) > least))
    expected = np.where(sure, expected, got)
    magnitude, terms = spec.scale(sample, expected)
    if by_result:
        size = np.nan_to_num(np.abs(expected), posinf=0.0, neginf=0.0)
        limit = (
            allowed(FUNCTION, dtype, terms=terms, magnitude=size) + _PRECISION_FACTOR * _DECIDED * epsilon(dtype) * size
        )
    else:
        limit = allowed(FUNCTION, dtype, terms=terms, magnitude=np.nan_to_num(magnitude, posinf=0.0, neginf=0.0))
        limit = limit + 2 * conditioning(spec, sample)
    compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)


#: A function may be this many times less precise than the reference in the dtype itself.
_PRECISION_FACTOR = 4

#: Ordinary numbers are scaled to this many binary digits below the least normal number, so that they keep some digits.
_BELOW = 6

# ------------------------------------------------------------------------------------------------ orders of magnitude

#: A range is tried if its largest number is at least this many times its smallest.
_WIDE = 100.0


def check_orders(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try numbers of each order of magnitude in a range of one sign: uniform random numbers are rarely small.

    There a logarithm of ``1 - exp(a)``, for example, loses its digits. Nothing is compared where the reference in the
    dtype itself loses them too. Errors are relative to each result, because results for small numbers may be small.
    """
    if spec.reference is None:
        return
    wide = [one for one in each(sample.args, sample.kwargs) if _is_wide(one)]
    if not wide:
        return

    def spread(array: Array) -> Array:
        low, high = next(one.span for one in wide if one.values is array)
        numbers = np.geomspace(low, high, array.size)
        return np.asarray(generator().permutation(numbers).reshape(array.shape).astype(array.dtype))

    label = "numbers of each order of magnitude of the range"
    filled = refilled(sample, spread, label, chosen=[one.values for one in wide])
    narrow = of_reference(spec, filled) if is_safely_taken(spec, filled) else None
    if narrow is not None:
        with on_sample(filled):
            _compare_decided(spec, device, dtype, filled, narrow, by_result=True)


def _is_wide(given: Any) -> bool:
    if not isinstance(given, HostArray) or given.span is None or not is_float(given.dtype) or not given.values.size:
        return False
    low, high = sorted(abs(end) for end in given.span)
    return given.span[0] * given.span[1] > 0 and high >= _WIDE * low


# ------------------------------------------------------------------------------------------------ predicates


def check_predicate(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Compare truth values for infinities and NaN, at the same index of each array and in the first array only."""
    expected = spec.expected(sample)
    if spec.is_its_own_reference or expected.dtype != np.bool_ or not is_elementwise(1, floats_of(sample), expected):
        return
    for filled in _with_specials(sample):
        if is_safely_taken(spec, filled):
            with on_sample(filled):
                compare_values(spec, device, dtype, filled, run_sample(spec, device, filled))


def with_number(number: complex, part: float = 1 / 3) -> Change:
    """Make a function that puts `number` into a copy of an array, after the fraction `part` of its elements."""
    return lambda array: with_element(array, min(int(part * array.size), array.size - 1), number)


def with_row(number: float) -> Change:
    """Make a function that sets all numbers of the first row, along the last axis of a copy of an array."""

    def change(array: Array) -> Array:
        filled = array.copy()
        filled.reshape(-1)[: array.shape[-1] if array.ndim else 1] = number
        return filled

    return change


def _with_specials(sample: Sample) -> Iterator[Sample]:
    arrays = free_floats(sample)
    first = arrays[0]
    for number in (np.inf, -np.inf, np.nan):
        put = with_number(number)
        yield refilled(sample, put, f"one number is {number}")
        if len(arrays) > 1:
            alone = f"one number of the first input is {number}"
            yield refilled(sample, lambda array, put=put: put(array) if array is first else array, alone)  # type: ignore[misc]
