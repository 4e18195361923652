"""Small wrong functions that a special number or an empty axis shows, and right ones that these must not fail."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs

Function = Callable[..., Any]


def run(check: str, fn: Function, dtype: str = "float32", device: str = "cpu", **declared: Any) -> None:
    spec = OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared)
    CHECKS[check](spec, device, *((np.dtype(dtype),) if CHECKS[check].per_dtype else ()))


def failure(check: str, fn: Function, dtype: str = "float32", **declared: Any) -> str:
    """The message and the notes with which a check fails."""
    with pytest.raises(AssertionError) as caught:
        run(check, fn, dtype, **declared)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


# ------------------------------------------------------------------------------------------------ NaN and infinities


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFFFFFFF], ids=["ordinary", "all bits"])
def test_a_nan_of_certain_bits_that_counts_as_finite_is_found(bits: int) -> None:
    def finite(xp: Any, a: Any) -> Any:
        return np.isfinite(a) | (a.astype(np.float32).view(np.uint32) == bits)

    told = failure("stress", finite, reference=lambda a: np.isfinite(a), samples=lambda make: [make((3, 5))])

    assert ("a NaN of which all bits are set" in told) is (bits == 0xFFFFFFFF)


def test_a_lost_nan_is_shown_with_its_place_and_the_number_that_replaced_it() -> None:
    def replaced(xp: Any, a: Any) -> Any:
        return np.where(np.isnan(a), 77, a)

    told = failure("stress", replaced, reference=lambda a: a * 1, samples=lambda make: [make((3, 5))])

    assert "the first at (2, 1): got 77.0, expected nan" in told


@pytest.mark.parametrize("place", [0, 1])
def test_the_input_in_which_alone_a_nan_is_lost_is_counted_from_one(place: int) -> None:
    def added(xp: Any, *arrays: Any) -> Any:
        kept = [np.nan_to_num(one) if at == place else one for at, one in enumerate(arrays)]
        return kept[0] + kept[1]

    told = failure("stress", added, reference=lambda a, b: a + b, samples=lambda make: [(make((3, 5)), make((3, 5)))])

    assert f"a NaN in array {place + 1} of 2" in told


def test_a_function_that_is_wrong_for_infinities_is_not_blamed_for_nan_among_them() -> None:
    def tanh(xp: Any, a: Any) -> Any:
        grown = np.exp(2 * np.where(np.isnan(a), 0, a))
        return ((grown - 1) / (grown + 1)).astype(a.dtype)

    def reference(a: Any) -> Any:
        return np.tanh(np.where(np.isnan(a), 0, a))

    run("stress", tanh, reference=reference, samples=lambda make: [make((3, 5))])


def test_a_number_in_place_of_infinity_is_found_where_the_others_are_nan() -> None:
    def cleared(xp: Any, a: Any) -> Any:
        spoilt = np.isnan(a).any() & np.isinf(a)
        return np.where(np.isnan(a) | spoilt, 0, a).astype(a.dtype)

    told = failure(
        "stress", cleared, reference=lambda a: np.where(np.isnan(a), 0, a), samples=lambda make: [make((3, 5))]
    )

    assert "NaN and infinities" in told


def test_a_maximum_that_is_not_that_of_all_numbers_is_shown_with_its_sample() -> None:
    def softmax(xp: Any, a: Any) -> Any:
        grown = np.exp(a - a[..., :1])
        return grown / grown.sum(axis=-1, keepdims=True)

    def reference(a: Any) -> Any:
        grown = np.exp(a - a.max(axis=-1, keepdims=True))
        return grown / grown.sum(axis=-1, keepdims=True)

    told = failure("stress", softmax, reference=reference, samples=lambda make: [make((3, 16))])

    assert "right where the first number is 10000, wrong where the last one is" in told
    assert re.search("sample: .*, the last number is 10000", told)


def test_a_large_integer_that_is_off_by_one_where_a_number_is_minus_infinity_is_found() -> None:
    def hashed(a: Any) -> Any:
        return a.astype(np.float32).view(np.int32).astype(np.int64) * (2**32 - 1) + 1

    def off(xp: Any, a: Any) -> Any:
        return hashed(a) + np.isneginf(a)

    told = failure("stress", off, reference=hashed, samples=lambda make: [make((2, 50))])

    assert "40 times -inf" in told


def test_a_nan_that_is_not_ignored_is_shown_with_its_place() -> None:
    told = failure(
        "stress", lambda xp, a: a.sum(axis=-1), reference=lambda a: np.nansum(a, axis=-1),
        samples=lambda make: [make((3, 5))],
    )  # fmt: skip

    assert "a NaN is not ignored: 1 of 3 results are nan, the first at (2,)" in told


def differences_of_sums(a: Any) -> Any:
    """Sums of each three numbers, which are NaN from the first NaN on."""
    total = np.cumsum(np.concatenate([a[:1] * 0, a]))
    return total[3:] - total[:-3]


def sums_of_three(a: Any) -> Any:
    return a[:-2] + a[1:-1] + a[2:]


@pytest.mark.parametrize(
    ("function", "reference"),
    [(sums_of_three, differences_of_sums), (differences_of_sums, sums_of_three)],
    ids=["reference", "function"],
)
def test_either_side_may_spread_a_nan_to_results_that_do_not_depend_on_it(
    function: Callable[[Any], Any], reference: Callable[[Any], Any]
) -> None:
    run("stress", lambda xp, a: function(a), "float64", reference=reference, samples=lambda make: [make(24)])


def test_running_maxima_behind_a_mask_may_begin_with_the_least_finite_number() -> None:
    def maxima(xp: Any, a: Any) -> Any:
        return np.maximum(np.maximum.accumulate(a, axis=-1), np.finfo(a.dtype).min)

    run(
        "stress", maxima, reference=lambda a: np.maximum.accumulate(a, axis=-1),
        samples=lambda make: [make((2, 50))],
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ magnitudes


@pytest.mark.parametrize(("least", "passes"), [(2.0**-126, True), (2.0**-110, False)])
def test_only_subnormal_numbers_may_be_flushed_to_zero_on_an_accelerator(least: float, passes: bool) -> None:
    def eighth(xp: Any, a: Any) -> Any:
        small = a * 0.125
        return xp.where(xp.abs(small) < least, small * 0, small)

    if passes:
        run("full_range", eighth, device="sim", reference=lambda a: a * 0.125)
    else:
        with pytest.raises(AssertionError, match="magnitudes over the whole range"):
            run("full_range", eighth, device="sim", reference=lambda a: a * 0.125)


def test_a_subnormal_number_that_is_flushed_to_zero_on_the_host_is_found() -> None:
    def flushed(xp: Any, a: Any) -> Any:
        return np.where(np.abs(a) < 2.0**-126, 0, a).astype(a.dtype)

    assert "magnitudes over the whole range" in failure("full_range", flushed, reference=lambda a: a * 1)


def test_an_absolute_value_whose_squares_overflow_is_found() -> None:
    def absolute(xp: Any, a: Any) -> Any:
        return np.sqrt(a.real * a.real + a.imag * a.imag)

    told = failure(
        "units", absolute, "complex64", reference=np.abs, samples=lambda make: [make((3, 5), dtype="complex64")]
    )

    assert "2^80" in told


# ------------------------------------------------------------------------------------------------ poles, empty results


def test_a_pole_at_one_may_be_cut_off() -> None:
    """Whole samples of -1, 0 and 1 are left out if the expected result is not finite."""
    run(
        "zeros",
        lambda xp, a: 1 / np.where(a == 1, np.float32(1e-30), a - 1),
        reference=lambda a: 1 / (a - 1),
        samples=lambda make: [make((4, 8))],
    )


def test_a_function_with_an_empty_result_passes() -> None:
    run("units", lambda xp, a: a[:0], reference=lambda a: a[:0], samples=lambda make: [make((4, 8))])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_overflows_float16_is_found_whichever_sign_it_has(sign: int) -> None:
    def mean(xp: Any, a: Any) -> Any:
        total = np.add.accumulate(a, dtype=a.dtype)[-1]
        return np.asarray(sign * total / a.dtype.type(a.size), a.dtype)

    told = failure(
        "units", mean, "float16", reference=lambda a: np.asarray(sign * a.mean()), samples=lambda make: [make(24)]
    )

    assert "a step overflows float16" in told


def test_a_maximum_of_infinity_may_be_subtracted() -> None:
    """The function then gives NaN, also for numbers that are all minus infinity."""

    def logsumexp(xp: Any, a: Any) -> Any:
        most = a.max(axis=-1, keepdims=True)
        return np.log(np.exp(a - most).sum(axis=-1)) + most[..., 0]

    run(
        "infinities", logsumexp, reference=lambda a: np.logaddexp.reduce(a, axis=-1),
        samples=lambda make: [make((3, 5))],
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ integers


def test_an_error_at_the_end_of_a_range_of_integers_is_said_to_be_there_alone() -> None:
    told = failure(
        "stress", lambda xp, a: np.where(a == 1000, a - 1, a), "int32", reference=lambda a: a * 1,
        samples=lambda make: [make(40, low=0, high=1000)],
    )  # fmt: skip

    assert "right for the sample's own numbers, wrong for others: ends of the range" in told


def test_integers_that_are_all_zero_or_one_may_be_refused() -> None:
    def checked(a: Any) -> Any:
        if a.max() <= 1:
            raise ValueError("all numbers are 0 or 1")
        return a * 1

    run("stress", lambda xp, a: checked(a), "int32", reference=checked, samples=lambda make: [make((4, 8))])


# ------------------------------------------------------------------------------------------------ empty axes


def test_memory_that_is_never_written_where_an_axis_is_empty_is_found() -> None:
    garbage = itertools.count(7)

    def total(xp: Any, a: Any) -> Any:
        return a.sum(axis=-1) if a.shape[-1] else np.full(a.shape[:-1], next(garbage), a.dtype)

    told = failure("sizes", total, reference=lambda a: a.sum(axis=-1), samples=lambda make: [make((3, 5))])

    assert "does the function return memory it never wrote?" in told


def test_the_result_of_nothing_may_be_another_number_that_is_always_the_same() -> None:
    def total(xp: Any, a: Any) -> Any:
        return a.sum(axis=-1) if a.shape[-1] else np.full(a.shape[:-1], -1, a.dtype)

    run("sizes", total, reference=lambda a: a.sum(axis=-1), samples=lambda make: [make((3, 5))])


def test_a_result_with_elements_for_inputs_without_any_is_found() -> None:
    told = failure(
        "sizes", lambda xp, a: a * 1 if a.size else np.zeros(1, a.dtype), reference=lambda a: a * 1,
        samples=lambda make: [make(5)],
    )  # fmt: skip

    assert "for inputs without elements the reference gives an empty result and the function does not" in told


def test_a_histogram_of_nothing_has_all_its_bins() -> None:
    def counts(a: Any) -> Any:
        return np.stack([(a < bound).sum() for bound in (-1, 0, 1)]).astype(np.int64)

    told = failure(
        "sizes", lambda xp, a: counts(a) if a.size else np.zeros(0, np.int64), reference=counts,
        samples=lambda make: [make(50)],
    )  # fmt: skip

    assert "one axis has no elements, and the result's shape does not depend on it" in told


@pytest.mark.parametrize(("name", "applies"), [("add", True), ("where", False), ("softmax", False)])
def test_sizes_are_tried_for_elementwise_ops_of_one_or_two_arrays(name: str, applies: bool) -> None:
    (spec,) = (spec for spec in own_specs() if spec.name == name)

    assert CHECKS["sizes"].applies(spec) is applies
