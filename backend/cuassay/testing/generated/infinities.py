"""A check with infinities among ordinary numbers: many formulas turn an infinite result into NaN or a finite number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, of_reference, on_host
from cuassay.testing.generated.execution import check, filled_from, is_function, is_safely_taken, run_sample
from cuassay.testing.generated.extents import elements_of, longest_axis
from cuassay.testing.generated.filling import Change, is_general, refilled
from cuassay.testing.generated.natively import check_predicate, with_number, with_row
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import samples_of
from cuassay.testing.generated.special import MOST_ELEMENTS, is_spread, samples_to_fill
from cuassay.testing.generated.unused import check_unread_triangle, check_unused
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import Sample

Array = NDArray[Any]


@check(is_function)
def check_infinities(spec: OpSpec, device: Device, dtype: Any) -> None:
    """With one infinity or a row of them, results are infinite exactly where those of the reference are.

    A NaN behind a mask, or in an operand that an option of 0.0 cancels, must not spoil a result. If an option names a
    triangle of a matrix, numbers in the other triangle must not matter.

    Two finite results are not compared, because few references are meant for infinities, unless they are positions.
    An infinite result may be NaN if the function gives NaN when all numbers are minus infinity, as one that subtracts
    the maximum does. This does not excuse a function whose reference is linear, as a sum is: it needs no maximum.
    Functions of several floating-point arrays are left out unless they return truth values or counts: a weight of zero
    times infinity is NaN in every library.
    """
    if is_coarse(dtype):
        return
    check_unread_triangle(spec, device, dtype)
    for sample in samples_to_fill(spec, device, dtype):
        check_predicate(spec, device, dtype, sample)
        check_unused(spec, device, sample)
        if len(floats_of(sample)) > 1:
            _check_counts(spec, device, dtype, sample)
            _check_finite(spec, device, dtype, sample)
            continue
        changes: dict[str, Change] = {f"one number is {number}": with_number(number) for number in (np.inf, -np.inf)}
        changes["the last number is inf"] = with_number(np.inf, 1.0)
        changes["a row of minus infinity"] = with_row(-np.inf)  # its maximum is then not the least finite number
        changes |= {f"all numbers are {number}": _all(number) for number in (np.inf, -np.inf)}
        _check_changes(spec, device, dtype, sample, changes)
    for sample in islice(samples_of(spec, device, dtype, "values"), _MOST_SAMPLES):
        is_small = elements_of(sample) <= MOST_ELEMENTS
        if is_small and len(floats_of(sample)) == 1 and is_general(spec, sample):
            changes = {f"less than half of a row is {number}": _part_of_row(number) for number in (np.inf, -np.inf)}
            _check_changes(spec, device, dtype, sample, changes)


#: The most samples in which less than half of a row is infinite: whether a median meets it depends on their length.
_MOST_SAMPLES = 12


def _check_changes(spec: OpSpec, device: Device, dtype: Any, sample: Sample, changes: Mapping[str, Change]) -> None:
    for label, change in changes.items():
        filled = refilled(sample, change, label)
        if is_safely_taken(spec, filled):
            with filled_from(spec, device, dtype, sample, filled):
                _check_infinity(spec, device, dtype, filled, sample)


def _check_counts(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try an infinity in each of several arrays in turn, if the results are counts or positions.

    A function that makes NaN of it on the way, as an expanded square of a distance does, is not meant for infinities.
    """
    if spec.is_its_own_reference or spec.expected(sample).dtype.kind not in "iu":
        return
    for place, array in enumerate(floats_of(sample)):
        for number in (np.inf, -np.inf):
            label = f"one number of float array {place} is {number}"
            filled = refilled(sample, with_number(number), label, chosen=[array])
            if is_safely_taken(spec, filled) and _makes_no_nan(spec, filled):
                with filled_from(spec, device, dtype, sample, filled):
                    _check_positions(spec, device, dtype, filled, sample, run_sample(spec, device, filled))


def _check_finite(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try infinities in each array of the result's shape, and in all: a number of the reference must not become NaN.

    Arrays of other shapes are left out, and so are results at other places than the infinity: a product with the zeros
    of a border or of a mask makes NaN of infinity in every library.
    """
    if spec.is_its_own_reference or spec.expected(sample).dtype.kind != "f":
        return
    shape = spec.expected(sample).shape
    for number in (np.inf, -np.inf):
        everywhere = refilled(sample, _all(number), f"all numbers are {number}")
        _check_no_nan(spec, device, dtype, sample, everywhere, np.ones(shape, np.bool_))
        for place, array in enumerate(floats_of(sample)):
            if array.shape == shape:
                label = f"one number of float array {place} is {number}"
                filled = refilled(sample, with_number(number), label, chosen=[array])
                _check_no_nan(spec, device, dtype, sample, filled, np.isinf(with_number(number)(array)))


def _check_no_nan(
    spec: OpSpec, device: Device, dtype: Any, base: Sample, sample: Sample, among: NDArray[np.bool_]
) -> None:
    """Compare `among` the results where the reference gives a number in the inputs' dtype too, and the function NaN.

    First of all, the reference must not convert infinities to integers: ``np.take(..., mode="wrap")`` never ends with
    such an index. A function that spreads NaN over whole lines, as an FFT does, is not meant for infinities.
    """
    narrow = of_reference(spec, sample, errors="of casts")
    if narrow is None or not is_safely_taken(spec, sample):
        return
    expected = spec.expected(sample)
    with filled_from(spec, device, dtype, base, sample):
        result = run_sample(spec, device, sample)
        got = on_host(result)
        if not narrow.shape == expected.shape == got.shape == among.shape or got.dtype.kind != "f":
            return
        is_lost = among & np.isnan(got) & np.isfinite(narrow) & np.isfinite(expected)
        if is_lost.any() and not is_spread(np.isnan(got), np.ones_like(is_lost)):
            wanted = np.where(is_lost, expected, got)
            compare_values(spec, device, dtype, sample, result, expected=wanted, limit=0.0)


def _makes_no_nan(spec: OpSpec, sample: Sample) -> bool:
    """Whether no step of the function on the host makes NaN of numbers."""
    try:
        with np.errstate(all="ignore", invalid="raise"):
            spec.run("cpu", *sample.copied())
    except Exception:  # noqa: BLE001  a function for one device may fail in any way on the host
        return False
    return True


def _all(number: float) -> Change:
    """Set every number: the largest finite number, as the start of a minimum, is then below all of them."""
    return lambda array: np.full_like(array, number)


def _part_of_row(number: float) -> Change:
    """Set less than half of the first row to an infinity: its median is the last finite number in order."""

    def change(array: Array) -> Array:
        filled = array.copy()
        filled.reshape(-1)[: (array.shape[-1] - 1) // 2 if array.ndim else 0] = number
        return filled

    return change


def _check_infinity(spec: OpSpec, device: Device, dtype: Any, sample: Sample, base: Sample) -> None:
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    got = on_host(result)
    if got.shape != expected.shape:
        return
    if got.dtype.kind in "iu" and expected.dtype.kind in "iu":
        _check_positions(spec, device, dtype, sample, base, result)
    if not got.dtype.kind == expected.dtype.kind == "f":
        return
    lost = np.isnan(got) & ~np.isnan(expected)
    is_excused = np.isnan(expected) | (np.isfinite(got) & np.isfinite(expected))
    every = np.ones_like(lost)
    if lost.any() and (is_spread(np.isnan(got), every) or is_spread(~np.isfinite(got), every, share=1.0)):
        is_excused |= lost
    is_lost_infinity = lost & np.isinf(expected)
    if is_lost_infinity.any() and _subtracts_infinities(spec, device, base) and not _is_linear(spec, base):
        is_excused |= is_lost_infinity
    expected = np.where(is_excused, got, expected)
    compare_values(spec, device, dtype, sample, result, expected=expected, limit=0.0)


def _check_positions(spec: OpSpec, device: Device, dtype: Any, sample: Sample, base: Sample, result: Any) -> None:
    """Compare results that are positions along an axis, or -1; other integers may be infinities that were converted."""
    most = longest_axis(base)
    usual, expected = spec.expected(base), spec.expected(sample)
    if ((usual >= -1) & (usual <= most)).all():
        is_position = (expected >= -1) & (expected <= most)
        expected = np.where(is_position, expected, on_host(result))
        compare_values(spec, device, dtype, sample, result, expected=expected, limit=0.0)


def _subtracts_infinities(spec: OpSpec, device: Device, base: Sample) -> bool:
    """Whether the function gives NaN if all its numbers are minus infinity, as one that subtracts the maximum does.

    Such a function is not meant for infinities. One that handles either infinity must also handle the other.
    """
    low = refilled(base, _all(-np.inf), "all numbers are -inf")
    if not is_safely_taken(spec, low):
        return False
    expected, got = spec.expected(low), on_host(run_sample(spec, device, low))
    return bool(got.shape == expected.shape and not np.isfinite(expected).any() and np.isnan(got).all())


def _other(numbers: Array, _: Array) -> Array:
    return numbers


def _is_linear(spec: OpSpec, base: Sample) -> bool:
    """Whether the reference of a sum of two arrays is the sum of both references, to a thousandth of the largest."""
    given = floats_of(base)
    if len(given) != 1:
        return False
    a = given[0].astype(np.float64)
    b = np.roll(a, 1) * 0.375 + 0.25
    filled = [refilled(base, partial(_other, to.astype(given[0].dtype)), "of a sum") for to in (a + b, a, b)]
    if not all(is_safely_taken(spec, one) for one in filled):
        return False
    of_sum, of_a, of_b = (spec.expected(one).astype(np.float64) for one in filled)
    if not of_sum.shape == of_a.shape == of_b.shape or not of_sum.size:
        return False
    off = np.abs(of_sum - (of_a + of_b))
    return bool((off <= 1e-3 * (np.abs(of_a) + np.abs(of_b)).max()).all())
