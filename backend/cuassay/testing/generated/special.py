"""Checks with numbers at which formulas break: zeros, constants, ends of ranges, other units, one large number.

Each check refills ordinary samples, one for each set of options. Most of them apply only if the samples show that the
function accepts any number. Results are compared only where the reference gives a number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import dtype_name, epsilon, is_complex, is_float, largest
from cuassay.core.device import Device
from cuassay.testing.compare import judge
from cuassay.testing.generated.broken import assert_whole
from cuassay.testing.generated.comparison import compare_values, explained_rounding, on_host
from cuassay.testing.generated.ends import each_end, note_refused_ends, several_arrays, with_input
from cuassay.testing.generated.equal_numbers import check_equal_numbers
from cuassay.testing.generated.execution import (
    check,
    explained,
    filled_from,
    is_function,
    is_safely_taken,
    on_sample,
    run_sample,
)
from cuassay.testing.generated.far import (
    check_branch_cuts,
    check_far,
    check_far_complex,
    check_large_complex,
    check_small_complex,
)
from cuassay.testing.generated.filling import (
    conditioning,
    free_floats,
    is_general,
    last_digit_moves,
    near_zero,
    refilled,
    some_tiny,
    with_element,
)
from cuassay.testing.generated.natively import check_far_units, check_orders
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import by_options, generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import HostArray, Sample, each
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import FUNCTION, GROWTH, allowed

Array = NDArray[Any]
Fill = Callable[[Array], Array]

#: The most elements of a sample. Each sample costs one call of the function and several of its reference.
MOST_ELEMENTS = 9000


def samples_to_fill(spec: OpSpec, device: Device, dtype: Any) -> Iterator[Sample]:
    """The samples to refill: one for each set of options, with floats from the default range."""
    if is_float(dtype):
        keep = functools.partial(is_general, spec)
        yield from by_options(spec, device, dtype, most=MOST_ELEMENTS, keep=keep)


def _check(
    spec: OpSpec,
    device: Device,
    dtype: Any,
    base: Sample,
    sample: Sample,
    *,
    is_finite: bool = False,
    only_finite: bool = False,
) -> Exception | None:
    """Compare where the reference does not give NaN; return the error with which a declared reference refuses.

    With `is_finite`, compare only if the whole expected result is finite. With `only_finite`, skip infinite elements.
    """
    if not is_safely_taken(spec, sample):
        return assert_whole(spec, sample, base)
    expected = spec.expected(sample)
    if is_finite and not np.isfinite(expected).all():
        return None
    with filled_from(spec, device, dtype, base, sample):
        result = run_sample(spec, device, sample)
        got = on_host(result)
        if got.shape == expected.shape and expected.dtype.kind in "fc":
            excused = ~np.isfinite(expected) if only_finite else np.isnan(expected)
            expected = np.where(excused, got, expected)
        limit = explained_rounding(spec, dtype, sample, expected) + 2 * conditioning(spec, sample)
        compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)
    return None


# ------------------------------------------------------------------------------------------------ zeros


def _every_other(array: Array, number: float) -> Array:
    flat = array.reshape(-1).copy()
    flat[::2] = number
    return flat.reshape(array.shape)


#: How often -1, 0 and 1 are drawn. In some draws a small matrix has a column of zeros, or only negative numbers.
_DRAWS = 6


def _minus_one_to_one(chance: np.random.Generator, array: Array) -> Array:
    return chance.integers(-1, 2, array.shape).astype(array.dtype)


def _constant(array: Array) -> Array:
    return np.full_like(array, 2)


@check(is_function)
def check_zeros(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for zeros, for equal numbers, and for the ends of declared ranges.

    Zeros are everywhere, at every other place, or in one of several arrays.
    """
    for sample in samples_to_fill(spec, device, dtype):
        _check(spec, device, dtype, sample, refilled(sample, np.zeros_like, "all zero"))
        if any(array.dtype == np.bool_ for array in arrays_of(*sample.host())):
            nothing = refilled(_all_false(sample), np.zeros_like, "all zero, and all truth values False")
            _check(spec, device, dtype, sample, nothing)
        _check(
            spec,
            device,
            dtype,
            sample,
            refilled(sample, functools.partial(_every_other, number=0), "every other number is 0"),
        )
        _check(spec, device, dtype, sample, refilled(sample, _constant, "all numbers are 2"), is_finite=True)
        for label, one_zero in _each_zero(sample):
            _check(spec, device, dtype, sample, replace(one_zero, label=f"{sample.label}, {label}"))
        ends = [replace(filled, label=f"{sample.label}, {label}") for label, filled in each_end(sample)]
        note_refused_ends(spec, sample, [(end, _check(spec, device, dtype, sample, end)) for end in ends])
    if is_float(dtype):
        for sample in by_options(spec, device, dtype, most=MOST_ELEMENTS):
            _check_range_ends(spec, device, dtype, sample)
            _check_minus_one_to_one(spec, device, dtype, sample)
            check_equal_numbers(spec, device, dtype, sample)


def _all_false(sample: Sample) -> Sample:
    """The call with nothing marked by its masks."""

    def put(value: Any) -> Any:
        is_mask = isinstance(value, np.ndarray) and value.dtype == np.bool_
        return HostArray(np.zeros_like(value)) if is_mask else value

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs)


def _each_zero(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """The call with each of its arrays in turn set to zero; nothing if there is only one array."""
    free = free_floats(sample)
    for place, array in several_arrays(sample):
        if any(array is one for one in free):
            for zero in (0.0, -0.0):  # the sign of a zero chooses the side of a branch cut
                yield f"input {place} is {zero:g}", with_input(sample, place, np.full_like(array, zero))


def _check_minus_one_to_one(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try -1, 0 and 1 alone, if they are in range; not for integer results, in which ties may come in any order."""
    chosen = [*free_floats(sample), *(given.values for given in each(sample.args) if _spans_minus_one_to_one(given))]
    chance = generator()
    for _ in range(_DRAWS if chosen and spec.expected(sample).dtype.kind in "fc" else 0):
        few = refilled(sample, functools.partial(_minus_one_to_one, chance), "numbers are -1, 0 and 1", chosen=chosen)
        _check(spec, device, dtype, sample, few, is_finite=True)


def _spans_minus_one_to_one(given: Any) -> bool:
    """Whether the argument has a requested range that includes -1, 0 and 1."""
    return _has_range(given) and given.span[0] <= -1 and given.span[1] >= 1


def _check_range_ends(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try the ends of requested ranges, such as probabilities of 0 and 1; only finite results are compared.

    They are put everywhere, into whole rows, and at every other place. The upper end can occur although numbers are
    drawn below it, because they may be rounded to it. If the range has numbers of both signs, 0 is tried as well.
    """
    ranged = [(place, given) for place, given in enumerate(sample.args) if _has_range(given)]
    for place, given in ranged:
        low, high = given.span
        if any(array.dtype == np.bool_ for array in arrays_of(*sample.host())):
            nothing = with_input(_all_false(sample), place, np.full_like(given.values, low))
            label = f"{sample.label}, each number of input {place} is {low}, and all truth values are False"
            _check(spec, device, dtype, sample, replace(nothing, label=label), only_finite=True)
        for number in (low, 0.0, high) if low < 0 < high else (low, high):
            for where, fill in _FILLS.items():
                label = f"{sample.label}, {where} of input {place} is {number}"
                filled = replace(with_input(sample, place, fill(given.values, number)), label=label)
                _check(spec, device, dtype, sample, filled, only_finite=True)
    if len(ranged) > 1:
        filled = sample
        for place, given in ranged:
            filled = with_input(filled, place, _every_other(given.values, given.span[0]))
        filled = replace(filled, label=f"{sample.label}, every other number of each input is its least")
        _check(spec, device, dtype, sample, filled, only_finite=True)


def _last_half(array: Array, number: float) -> Array:
    """Fill whole rows, if there are several, and leave the others unchanged."""
    flat = array.reshape(-1).copy()
    flat[flat.size // 2 :] = number
    return flat.reshape(array.shape)


#: The places to which the end of a range is written.
_FILLS: dict[str, Callable[[Array, float], Array]] = {
    "every other number": _every_other,
    "the last half": _last_half,
    "each number": np.full_like,
}


def _has_range(given: Any) -> bool:
    """Whether the argument is an array of floats with a requested range."""
    return isinstance(given, HostArray) and given.span is not None and is_float(given.dtype)


# ------------------------------------------------------------------------------------------------ units

#: Ordinary numbers in another unit. It shows an epsilon or a threshold that was added; logarithms are far apart, and
#: exponentials are still finite in float32.
_SMALL = 2.0**-27
#: The square of a number in this unit is below a threshold such as 1e-4, but the number is not lost when added to 1.
_SMALLER = 2.0**-8
_UNITS = {"in units of 2^-27": _SMALL, "in units of 2^-8": _SMALLER, "times 16": 16.0}


@check(is_function)
def check_units(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for much smaller and larger numbers, far from zero on either side, and with one very large.

    Numbers are 2^27 and 2^8 times smaller, 16 and 128 times larger, and in units whose squares overflow or underflow.

    Small numbers also replace arrays with a requested range that includes zero, such as variances. In a range of one
    sign that spans several orders of magnitude, numbers of each order are tried. Complex numbers get imaginary parts
    that are zeros of either sign.
    """
    for sample in samples_to_fill(spec, device, dtype):
        if is_coarse(dtype):
            if dtype_name(dtype) == "float16":
                _check_near_overflow(spec, device, dtype, sample)
            continue
        for label, unit in _UNITS.items():
            _check(spec, device, dtype, sample, refilled(sample, _times(unit), label))
        _check_spike(spec, device, dtype, sample)
        check_far_units(spec, device, dtype, sample)
        check_far(spec, device, dtype, sample)
    if is_float(dtype) and not is_coarse(dtype):
        for sample in by_options(spec, device, dtype, most=MOST_ELEMENTS):
            _check_next_to_zero(spec, device, dtype, sample)
            check_orders(spec, device, dtype, sample)
    elif is_complex(dtype):
        _check_complex(spec, device, dtype)


def _check_complex(spec: OpSpec, device: Device, dtype: Any) -> None:
    for sample in by_options(spec, device, dtype, most=MOST_ELEMENTS)[:1]:
        check_far_complex(spec, device, dtype, sample)
        check_small_complex(spec, device, dtype, sample)
        check_large_complex(spec, device, dtype, sample)
        check_branch_cuts(spec, device, dtype, sample)


def _check_next_to_zero(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    if near := near_zero(sample):
        for name, unit in (("2^-27", _SMALL), ("2^-8", _SMALLER)):
            label = f"numbers next to zero {name} times as large"
            _check(spec, device, dtype, sample, refilled(sample, _times(unit), label, chosen=near))
    if chosen := near or free_floats(sample):
        _check(spec, device, dtype, sample, refilled(sample, some_tiny, "some numbers next to zero", chosen=chosen))


def _times(unit: float) -> Fill:
    return lambda array: np.asarray(array * unit)


def _check_near_overflow(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Linear functions of float16 must add in float32, as libraries do, so that only a result may overflow.

    Where terms cancel and results are small, the rounding errors of the terms are allowed.
    """
    if spec.is_its_own_reference or _is_meant_to_round(spec) or not _is_linear(spec, sample):
        return
    least = largest(dtype) / 16
    near = refilled(sample, lambda array: (least * (1 + np.abs(array.astype(np.float64)))).astype(array.dtype), "")
    near = replace(near, label=f"{sample.label}, numbers from {least:,.0f} up")
    if not is_safely_taken(spec, near):
        return
    with on_sample(near):
        expected, result = spec.expected(near), run_sample(spec, device, near)
        _, terms = spec.scale(near, expected)
        size = max(float(np.abs(array).max(initial=0.0)) for array in floats_of(near))
        rounding = 4 * GROWTH["sqrt"](terms) * epsilon(dtype) * size
        limit = np.maximum(FUNCTION.most * np.abs(expected), rounding)
        with np.errstate(over="ignore"):
            got, wanted = on_host(result), expected.astype(dtype)
        is_lost = got.shape == wanted.shape and bool((np.isfinite(wanted) & ~np.isfinite(got)).any())
        with explained(_OVERFLOWS) if is_lost else nullcontext():
            compare_values(spec, device, dtype, near, result, expected=expected, limit=limit)


def _is_meant_to_round(spec: OpSpec) -> bool:
    """Whether the spec's tolerance declares that each step is computed in the dtype itself."""
    return spec.rule is not FUNCTION and spec.rule.computed_in == "self"


_OVERFLOWS = (
    "a step overflows float16, although the result fits: add in float32, as in sum(..., dtype='float32'), or say "
    "which numbers the function is meant for: make(shape, low=..., high=...)"
)


def _is_linear(spec: OpSpec, sample: Sample) -> bool:
    """Whether the reference seems linear: f(2 a) is 2 f(a), and f(a + b) is f(a) + f(b)."""
    other = refilled(sample, lambda array: np.roll(array, 1), "")
    double = refilled(sample, lambda array: array + array, "")
    total = refilled(sample, lambda array: array + np.roll(array, 1), "")
    if not all(is_safely_taken(spec, one) for one in (other, double, total)):
        return False
    a, b, twice, both = (spec.expected(one) for one in (sample, other, double, total))
    if a.dtype.kind not in "fc":
        return False
    close = 2 * epsilon("float16") * float(np.max(np.abs(a), initial=0.0))
    return bool(np.allclose(twice, 2 * a, rtol=0, atol=close) and np.allclose(both, a + b, rtol=0, atol=4 * close))


def _check_spike(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """One number so large that the others vanish next to it must not spoil results that do not depend on it."""
    if spec.is_its_own_reference:
        return
    spiked = refilled(sample, _spiked, f"one number is {_spike(dtype):.3g}")
    if not is_safely_taken(spec, spiked):
        return
    expected = spec.expected(spiked)
    got = on_host(result := run_sample(spec, device, spiked))
    if expected.dtype.kind != "f" or got.shape != expected.shape or not np.isfinite(expected).all():
        return
    _, terms = spec.scale(sample, spec.expected(sample))
    ordinary = max((float(np.abs(array).max(initial=0.0)) for array in floats_of(sample)), default=0.0)
    limit = allowed(FUNCTION, dtype, terms=terms, magnitude=np.maximum(np.abs(expected), ordinary))
    limit = limit + 4 * last_digit_moves(spec, spiked)
    verdict = judge(got, expected, limit)
    far = limit < _spike(dtype) * epsilon(dtype) / 64
    if verdict.where is None or not (verdict.where & far).any() or is_spread(verdict.where & far, far):
        return
    with filled_from(spec, device, dtype, sample, spiked):
        compare_values(spec, device, dtype, spiked, result, expected=expected, limit=limit)


def _spike(dtype: Any) -> float:
    return 8.0 / epsilon(dtype)


def _spiked(array: Array) -> Array:
    return with_element(array, array.size // 6, _spike(array.dtype))


def is_spread(bad: NDArray[np.bool_], among: NDArray[np.bool_], share: float = 0.8) -> bool:
    """Whether the wrong elements `bad` cover whole lines along one axis, as an FFT spreads errors.

    Each line with a wrong element must have at least three elements in `among`, and this share of them must be wrong.
    """
    if not bad.ndim:
        return False
    views: list[list[NDArray[np.bool_]]] = [[one.reshape(1, -1) for one in (bad, among)]]
    for axis, extent in enumerate(bad.shape):
        views.append([np.moveaxis(one, axis, -1).reshape(-1, extent) for one in (bad, among)])
    return any(_are_whole_lines(one, other, share) for one, other in views)


def _are_whole_lines(bad: NDArray[np.bool_], among: NDArray[np.bool_], share: float) -> bool:
    met = bad.any(axis=-1)
    of_each = among[met].sum(axis=-1)
    return bool(met.any() and of_each.min() >= 3 and (bad[met].sum(axis=-1) >= share * of_each).all())
