"""Checks that replace numbers of the ordinary samples, so that no spec has to declare such samples.

The numbers for which a function is defined are not known. If a spec gives samples, the new numbers stay in the range of
theirs, unless these were drawn from the whole default range. A sample that the reference, or the function on the host,
rejects is left out.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import INTEGERS, dtype_name, epsilon, is_float, largest, smallest_subnormal
from cuassay.core.device import Device
from cuassay.testing.failures import inputs_there
from cuassay.testing.generated.chains import check_chains
from cuassay.testing.generated.comparison import compare, compare_values, explained_rounding, on_host
from cuassay.testing.generated.crossed import check_crossed
from cuassay.testing.generated.execution import (
    check,
    explained,
    filled_from,
    is_function,
    is_safely_taken,
    on_sample,
    run_sample,
    run_unchanging,
    verify,
)
from cuassay.testing.generated.extents import elements_of
from cuassay.testing.generated.filling import Change, conditioning, free_floats, is_general, refilled, with_element
from cuassay.testing.generated.integers import check_default_integers, check_given_integers
from cuassay.testing.generated.mentions import names_finite, names_nan, tests_nan
from cuassay.testing.generated.nan_runs import check_counts_of_nan, has_declared_nan, with_nan_run
from cuassay.testing.generated.natively import with_number, with_row
from cuassay.testing.generated.parts import check_beside, check_parts
from cuassay.testing.generated.places import check_place_of_nan
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.saturation import check_saturation
from cuassay.testing.generated.selection import by_options, generator, one, samples_of
from cuassay.testing.generated.special import MOST_ELEMENTS
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import Sample
from cuassay.testing.terms import is_elementwise

# ------------------------------------------------------------------------------------------------ special numbers

#: Length of a run of masked numbers: longer than a warp's 32 lanes and a vector of 8.
_STRETCH = 40
#: Added to every number; a variance computed from squares then loses all its digits.
_OFFSET = 1e4


def _offset(array: NDArray[Any]) -> NDArray[Any]:
    return (array.astype(np.float64) + _OFFSET).astype(array.dtype)


def _with_nan(array: NDArray[Any]) -> NDArray[Any]:
    place = min(2 * array.size // 3 + 1, array.size - 1)  # with three rows, not the first number of one
    return with_element(array, place, np.nan)


def _with_first_nan(array: NDArray[Any]) -> NDArray[Any]:
    """Set the first number of the last row to NaN, as a series with a gap at its start has it."""
    return with_element(array, -array.shape[-1] if array.ndim else 0, np.nan)


def _with_all_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Set one number to a negative NaN with all bits set, which an integer carry turns into another number."""
    flat = array.reshape(-1).copy()
    flat.view(np.uint8).reshape(flat.size, -1)[flat.size // 3] = 255
    return flat.reshape(array.shape)


def _masked(array: NDArray[Any]) -> NDArray[Any]:
    masked = array.copy()
    if masked.ndim and masked.shape[-1] > _STRETCH:
        masked[..., :_STRETCH] = -np.inf
    return masked


def _of_few_numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Make ties: only three different numbers remain."""
    flat = array.reshape(-1)
    few = flat[[0, flat.size // 3, flat.size - 1]]
    return np.asarray(few[generator().integers(0, 3, array.shape)], array.dtype)


@check(is_function)
def check_stress(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right with an offset, NaN, ties, -inf, large last numbers and integers, and graphs that are chains.

    Integers are at both ends of their range.
    """
    check_chains(spec, device, dtype)
    check_crossed(spec, device, dtype)
    if not is_float(dtype):
        check_given_integers(spec, device, dtype)
        check_saturation(spec, device, dtype)
        check_parts(spec, device, dtype)
        return
    sample = one(spec, device, dtype, most=MOST_ELEMENTS)
    if not floats_of(sample):
        return
    _check_ties(spec, device, dtype, sample, refilled(sample, _of_few_numbers, "ties", every=True))
    if not is_general(spec, sample):
        others = by_options(spec, device, dtype, most=MOST_ELEMENTS, keep=functools.partial(is_general, spec))
        if not others:
            return
        sample = others[0]
    _check_nan(spec, device, dtype, sample, refilled(sample, _with_nan, "a NaN"))
    _check_nan(spec, device, dtype, sample, refilled(sample, _with_first_nan, "the first number of a row is NaN"))
    _check_last_nan(spec, device, dtype)
    _check_nan_in_each(spec, device, dtype)
    for like in by_options(spec, device, dtype, most=MOST_ELEMENTS) if names_nan(spec.reference) else ():
        _check_nan(spec, device, dtype, like, refilled(like, with_nan_run, "the first half of each row is NaN"))
        if has_declared_nan(spec, device, dtype):  # a function that leaves NaN out has nothing left in such a row
            _check_nan(spec, device, dtype, like, refilled(like, with_row(np.nan), "a row of nothing but NaN"))
    check_counts_of_nan(spec, device, dtype, sample)
    _check_nan_and_infinities(spec, device, dtype, sample)
    if is_coarse(dtype):
        return
    check_beside(spec, device, dtype, sample, free_floats(sample))
    _check_filled(spec, device, dtype, sample, refilled(sample, _offset, f"{_OFFSET:g} added"))
    _check_large_at_end(spec, device, dtype, sample)
    masked = refilled(sample, _masked, f"{_STRETCH} times -inf")
    if not is_safely_taken(spec, masked):
        return
    if np.isfinite(spec.expected(masked)).all() or not _spreads(spec, device, sample):
        _check_filled(spec, device, dtype, sample, masked, is_excused=False, is_finite=True)


def _spreads(spec: OpSpec, device: Device, sample: Sample) -> bool:
    """Whether a single minus infinity makes the function give NaN where the reference is finite, as an FFT does."""
    low = refilled(sample, _large_at(0, -np.inf), "")
    if not is_safely_taken(spec, low):
        return True
    expected, result = spec.expected(low), run_sample(spec, device, low)
    got = on_host(result)
    return got.shape != expected.shape or got.dtype.kind != "f" or bool((np.isnan(got) & np.isfinite(expected)).any())


def _check_large_at_end(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """A maximum that is subtracted or divided by must be that of all numbers, so that no exponential overflows."""
    last = refilled(sample, _large_at(-1), f"the last number is {_OFFSET:g}")
    lost = _overflowed(spec, device, dtype, last)
    if lost is None or _overflowed(spec, device, dtype, refilled(sample, _large_at(0), "")) is not None:
        return  # a function that overflows wherever the large number is does not use a maximum
    with on_sample(last), explained(f"right where the first number is {_OFFSET:g}, wrong where the last one is"):
        compare_values(spec, device, dtype, last, lost)


def _large_at(place: int, number: float = _OFFSET) -> Change:
    return lambda array: with_element(array, place, number)


def _overflowed(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> Any:
    """The result, if part of it is infinite or NaN where the reference's is in range; otherwise None."""
    if not is_safely_taken(spec, sample):
        return None
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    got = on_host(result)
    if got.shape != expected.shape or not got.dtype.kind == expected.dtype.kind == "f":
        return None
    inside = np.abs(expected.astype(np.float64)) < largest(dtype)
    return result if (inside & ~np.isfinite(got)).any() else None


def _check_filled(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    base: Sample,
    sample: Sample,
    *,
    is_excused: bool = True,
    is_finite: bool = False,
) -> None:
    """Compare where the reference does not give NaN, because it may overflow where the function does not.

    With `is_finite`, compare only where the reference is finite. With `is_excused`, skip elements that overflow on the
    host as well.
    """
    if is_safely_taken(spec, sample):
        with filled_from(spec, device, dtype, base, sample):
            result, floor = run_sample(spec, device, sample), 2 * conditioning(spec, sample)
            expected = spec.expected(sample)
            if is_finite and expected.dtype.kind in "fc":
                expected = np.where(np.isfinite(expected), expected, np.nan)
            expected = _or_as_got(expected, result)
            compare_values(spec, device, dtype, sample, result, expected=expected, excuse=is_excused, floor=floor)


def _or_as_got(expected: NDArray[Any], result: Any) -> NDArray[Any]:
    got = on_host(result)
    if got.shape != expected.shape or expected.dtype.kind not in "fc":
        return expected
    return np.where(np.isnan(expected), got, expected)


def _check_ties(spec: OpSpec, device: Device, dtype: Any, base: Sample, sample: Sample) -> None:
    """Equal numbers may come in any order, but a single index, such as that of the maximum, must be the first one's."""
    if is_safely_taken(spec, sample):
        expected = spec.expected(sample)
        if expected.dtype.kind not in "iub" and any(is_coarse(array.dtype) for array in floats_of(sample)):
            return  # the error of a sum of equal numbers in 16 bits is not known
        orders = expected.dtype.kind in "iu" and expected.ndim >= max(array.ndim for array in floats_of(sample))
        if not orders:
            _check_filled(spec, device, dtype, base, sample)
        elif np.array_equal(on_host(run_sample(spec, device, sample)), expected):
            _check_order_of_zeros(spec, device, dtype, base)


def _check_order_of_zeros(spec: OpSpec, device: Device, dtype: Any, base: Sample) -> None:
    """If equal numbers come in the order of the reference, so must zeros of both signs, because they are equal."""
    chance = generator()
    zeros = refilled(base, lambda array: _zeros_among(array, chance), "zeros of both signs among the numbers")
    if is_safely_taken(spec, zeros):
        with filled_from(spec, device, dtype, base, zeros):
            compare_values(spec, device, dtype, zeros, run_sample(spec, device, zeros))


def _zeros_among(array: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    return np.where(
        chance.integers(0, 2, array.shape), array, chance.choice(np.array([0.0, -0.0], array.dtype), array.shape)
    )


def _check_last_nan(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Try a NaN at the end of the longest row: it may be lost where the results of blocks are put together."""
    drawn = samples_of(spec, device, dtype, "values")
    several = [one for one in drawn if elements_of(one) <= MOST_ELEMENTS and floats_of(one) and is_general(spec, one)]
    longest = max(several, key=lambda one: max(array.shape[-1:] or (1,) for array in floats_of(one)), default=None)
    if longest is not None and spec.refusal(longest) is None:
        _check_nan(spec, device, dtype, longest, refilled(longest, with_number(np.nan, 1.0), "the last number is NaN"))


def _check_nan_in_each(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Try a NaN in one array only: a function that looks for NaN in each may have forgotten one."""
    small = [sample for sample in samples_of(spec, device, dtype, "values") if elements_of(sample) <= _MOST_OF_NAN]
    base = max(small, key=lambda sample: len(free_floats(sample)), default=None)
    if base is None or spec.refusal(base) is not None or len(free := free_floats(base)) < 2:
        return
    for place, array in enumerate(free):
        alone = refilled(base, _with_nan, f"a NaN in array {place + 1} of {len(free)}", chosen=[array])
        _check_nan(spec, device, dtype, base, alone)


#: The most elements of a call that is repeated with a NaN in each of its arrays.
_MOST_OF_NAN = 2048


def _check_nan(spec: OpSpec, device: Device, dtype: Any, base: Sample, sample: Sample) -> None:
    """The result must be NaN where that of the reference is; it may have more NaN, as an FFT gives them."""
    if not is_safely_taken(spec, sample):
        return
    expected = spec.expected(sample)
    result = run_unchanging(spec, device, sample, "the function writes an input if a number is NaN", base)
    got = on_host(result)
    check_place_of_nan(sample, got, expected)
    if got.dtype.kind in "iub" and expected.dtype.kind in "iub" and names_finite(spec.reference):
        with filled_from(spec, device, dtype, base, sample):
            compare_values(spec, device, dtype, sample, result)
        other = refilled(base, _with_all_bits, "a NaN of which all bits are set")
        with filled_from(spec, device, dtype, base, other):
            compare_values(spec, device, dtype, other, run_sample(spec, device, other))
        return
    if got.dtype.kind not in "fc" or got.shape != expected.shape or expected.dtype.kind not in "fc":
        return
    lost = np.isnan(expected) & ~np.isnan(got)
    if lost.any() and not tests_nan(spec.reference):
        lost &= _depends(spec, sample)
    if lost.any():
        place = tuple(int(at) for at in np.argwhere(lost)[0])
        lines = [
            f"a NaN is lost: {int(lost.sum()):,} of {lost.size:,} results that depend on it are numbers",
            f"the first at {place}: got {got[place].item()!r}, expected nan",
            *inputs_there(place, got.shape, sample.host()),
            f"sample: {sample.label}",
        ]
        raise AssertionError("\n  ".join(lines))
    _check_ignored(spec, sample, got, expected)
    right = np.where(np.isnan(expected) | np.isnan(got), got, expected)
    limit = explained_rounding(spec, dtype, base, spec.expected(base)) + 2 * conditioning(spec, base)
    plain = functools.partial(verify, spec, device, dtype, [base])
    with on_sample(sample), explained("wrong for inputs with one NaN, where the reference gives a number", plain):
        compare_values(spec, device, dtype, sample, result, expected=right, limit=float(np.max(limit, initial=0.0)))


def _check_nan_and_infinities(spec: OpSpec, device: Device, dtype: Any, base: Sample) -> None:
    """Try NaN and infinities in one array: code that replaces NaN by an infinity confuses the two.

    This applies to references that name NaN, and to functions that are right for the same infinities without NaN.
    """
    if not names_nan(spec.reference):
        return
    alone = refilled(base, functools.partial(_among_infinities, 0.0), "infinities")
    mixed = refilled(base, functools.partial(_among_infinities, np.nan), "NaN and infinities")
    if not (is_safely_taken(spec, alone) and is_safely_taken(spec, mixed)):
        return
    with np.errstate(all="ignore"):
        try:
            compare(spec, device, dtype, alone, run_sample(spec, device, alone))
        except AssertionError:
            return
        with filled_from(spec, device, dtype, alone, mixed):
            compare(spec, device, dtype, mixed, run_sample(spec, device, mixed))


def _among_infinities(number: float, array: NDArray[Any]) -> NDArray[Any]:
    """A quarter of the numbers are infinite, a quarter minus infinite, and a quarter are `number`."""
    flat = array.reshape(-1).copy()
    for place, other in enumerate((np.inf, -np.inf, number)):
        flat[generator().permutation(flat.size)[place::4]] = other
    return flat.reshape(array.shape)


def _check_ignored(spec: OpSpec, sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> None:
    """A NaN must be ignored where a reference that mentions NaN gives a number that depends on the number it replaced.

    Only then does the reference show what to do with a NaN.
    """
    spread = np.isnan(got) & np.isfinite(expected)
    if not spread.any() or not names_nan(spec.reference):
        return
    spread &= _depends(spec, sample)
    if spread.any():
        place = tuple(int(at) for at in np.argwhere(spread)[0])
        raise AssertionError(
            f"a NaN is not ignored: {int(spread.sum()):,} of {spread.size:,} results are nan, the first at {place}; "
            f"the reference, which names NaN, gives {expected[place].item()!r} there\n  sample: {sample.label}"
        )


def _depends(spec: OpSpec, sample: Sample) -> NDArray[np.bool_]:
    """Which exact results depend on the number that the NaN replaced; running sums spread NaN to others as well."""
    small, ordinary, large = (refilled(sample, _in_place_of_nan(number), "") for number in (-_FAR, 0.0, _FAR))
    if not all(is_safely_taken(spec, one) for one in (small, ordinary, large)):
        return np.ones(spec.expected(sample).shape, np.bool_)
    low, middle, high = (spec.expected(one) for one in (small, ordinary, large))
    with np.errstate(all="ignore"):
        close = [np.abs(one - middle) <= _ROUNDED * _FAR for one in (low, high)]
    return np.asarray(~(close[0] & close[1]))


#: A number far from ordinary ones, and the fraction of it that a float64 sum may lose to rounding.
_FAR, _ROUNDED = 1e3, 1e-11


def _in_place_of_nan(number: float) -> Change:
    return lambda array: np.where(np.isnan(array), number, array).astype(array.dtype)


# ------------------------------------------------------------------------------------------------ the whole range

#: The number of elements of each array.
_COUNT = 1025


@check(lambda spec: spec.op is None and spec.has_default_samples)
def check_full_range(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for numbers of every magnitude and sign, and for integers at both ends of their range.

    Integers are compared with the reference in int64.
    """
    if dtype_name(dtype) in INTEGERS:
        check_default_integers(spec, device, dtype)
    elif is_float(dtype) and not dtype_name(dtype).startswith("float8"):
        sample = one(spec, device, dtype)
        if is_elementwise(spec.scale(sample, spec.expected(sample))[1], floats_of(sample), spec.expected(sample)):
            _check_magnitudes(spec, device, dtype, sample)


def _check_magnitudes(spec: OpSpec, device: Device, dtype: Any, like: Sample) -> None:
    flush = device.kind != "cpu"  # accelerators flush subnormals to zero by default
    least = np.log2(smallest_subnormal(dtype) / (epsilon(dtype) if flush else 0.5))
    chance, most = generator(), np.log2(largest(dtype))

    def magnitudes(_: NDArray[Any]) -> NDArray[Any]:
        sign = chance.choice((-1.0, 1.0), _COUNT)
        return (sign * 2.0 ** chance.uniform(least, most, _COUNT)).astype(dtype)

    sample = replace(refilled(like, magnitudes, ""), label="magnitudes over the whole range of the dtype")
    if is_safely_taken(spec, sample):
        with on_sample(sample):
            floor = smallest_subnormal(dtype) / epsilon(dtype) if flush else 0.0
            result = run_sample(spec, device, sample)
            compare_values(spec, device, dtype, sample, result, excuse=spec.reference is None, floor=floor, each=True)
