"""What samples have apart and checks put together: integers of one with the options of another, one bad row of many.

Each wrong function is right on every sample as it is declared; its right twin passes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import ErrorInput, OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS

Function = Callable[..., Any]


def checked(check: str, dtype: str, fn: Function, **declared: Any) -> None:
    CHECKS[check](OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared), "cpu:0", np.dtype(dtype))


# ------------------------------------------------------------------------------------------------ labels and options


def mean_of_kept(counts_all: bool) -> Function:
    def fn(xp: Any, a: Any, labels: Any, scale: float = 1.0) -> Any:
        kept = labels >= 0
        total = xp.where(kept, a, 0.0).sum() * scale
        return (total / (kept.size if counts_all and scale != 1.0 else kept.sum())).astype(a.dtype)

    return fn


def kept_mean(a: Any, labels: Any, scale: float = 1.0) -> Any:
    return np.array(a[labels >= 0].mean() * scale)


def labelled(make: Any) -> list[Any]:
    """No sample has both a label to leave out and a scale."""
    return [
        (make(40), make(40, dtype="int64", low=-1, high=3)),
        Sample((make(30), make(30, dtype="int64", low=0, high=5)), {"scale": 0.5}),
    ]


def test_labels_of_one_sample_meet_the_option_of_another() -> None:
    checked("stress", "float32", mean_of_kept(counts_all=False), samples=labelled, reference=kept_mean)
    with pytest.raises(AssertionError, match="with the integers of input 1 of: 0: shapes 40, 40"):
        checked("stress", "float32", mean_of_kept(counts_all=True), samples=labelled, reference=kept_mean)


def looked_up(xp: Any, table: Any, index: Any) -> Any:
    return table[index]


def test_an_index_beyond_the_array_is_not_asked_for() -> None:
    def tables(make: Any) -> list[Any]:
        return [
            (make(50), make(20, dtype="int64", low=0, high=49)),
            (make(7), make(30, dtype="int64", low=0, high=6)),
        ]

    checked("stress", "float32", looked_up, samples=tables, reference=lambda table, index: table[index])


def test_lengths_that_must_fit_each_other_are_left_as_they_are() -> None:
    """A list of one's own is not a range: how its numbers hang together is not known."""

    def fn(xp: Any, a: Any, lengths: Any) -> Any:
        assert int(lengths.sum()) == a.size
        return xp.repeat(lengths, lengths)

    def samples(make: Any) -> list[Any]:
        return [(make(6), make.of([1, 3, 2])), (make(9), make.of([4, 0, 5, 0]))]

    checked("stress", "int64", fn, samples=samples, reference=lambda a, lengths: np.repeat(lengths, lengths))


# ------------------------------------------------------------------------------------------------ very many


def weekday(skips: int) -> Function:
    return lambda xp, days: xp.where(days == skips, 0, (days + 3) % 7).astype(days.dtype)


def of_weekday(days: Any) -> Any:
    return np.array([datetime.date.fromordinal(719163 + int(day)).weekday() for day in days])


def test_one_integer_of_a_range_that_is_wrong() -> None:
    samples = lambda make: [make(30, low=0, high=2000)]  # noqa: E731
    checked("stress", "int32", weekday(-1), samples=samples, reference=of_weekday)
    with pytest.raises(AssertionError, match="very many of its integers"):
        checked("stress", "int32", weekday(978), samples=samples, reference=of_weekday)


# ------------------------------------------------------------------------------------------------ one row of many


def weighted(every: bool) -> Function:
    def fn(xp: Any, a: Any, weights: Any) -> Any:
        total = weights.sum(axis=-1)
        if bool((total == 0).all() if every else (total == 0).any()):
            raise ZeroDivisionError("the weights sum to zero")
        return (a * weights).sum(axis=-1) / total

    return fn


@pytest.mark.parametrize("every", [False, True])
def test_an_error_in_one_row_is_an_error(every: bool) -> None:
    def run() -> None:
        checked(
            "errors",
            "float64",
            weighted(every),
            samples=lambda make: [(make((4, 9)), make((4, 9), low=0.1, high=1)), (make(5), make(5, low=0.1, high=1))],
            reference=lambda a, weights: np.average(a, axis=-1, weights=weights),
            error_inputs=lambda make: [ErrorInput((make((2, 3)), make.full((2, 3), 0)), ZeroDivisionError, "zero")],
        )

    if not every:
        run()
        return
    with pytest.raises(AssertionError, match="the reference raises ZeroDivisionError where one row of many"):
        run()


# ------------------------------------------------------------------------------------------------ next to zero


def half_square(threshold: float) -> Function:
    """(1 - cos a) / a**2, by its series below a threshold."""

    def fn(xp: Any, a: Any) -> Any:
        wide = a.astype("float64")
        small = xp.abs(wide) < threshold
        safe = xp.where(small, 1.0, wide)
        half = xp.sin(safe / 2) / safe
        series = 0.5 if threshold > 0.1 else 0.5 - wide * wide / 24
        return xp.where(small, series, 2 * half * half).astype(a.dtype)

    return fn


def of_half_square(a: Any) -> Any:
    return 0.5 * np.sinc(a / 2 / np.pi) ** 2


def test_numbers_next_to_zero_are_in_a_range_that_holds_it() -> None:
    samples = lambda make: [make(40, low=-2, high=2), make((3, 5), low=-1.5, high=0.5)]  # noqa: E731
    checked("units", "float64", half_square(1e-3), samples=samples, reference=of_half_square)

    def clamped(xp: Any, a: Any) -> Any:
        return half_square(1e-3)(xp, xp.where(xp.abs(a) < 5e-3, xp.asarray(5e-3, dtype=a.dtype), a))

    def squared(xp: Any, a: Any) -> Any:
        """As `clamped`, but next to zero the result is so small that an error of 1e-6 does not show."""
        return (a * a * clamped(xp, a)).astype(a.dtype) + 1

    with pytest.raises(AssertionError, match=r"numbers next to zero 2\^-8 times as large"):
        checked("units", "float64", squared, samples=samples, reference=lambda a: a * a * of_half_square(a) + 1)

    with pytest.raises(AssertionError, match=r"numbers next to zero 2\^-27 times as large"):
        checked("units", "float64", clamped, samples=samples, reference=of_half_square)


def test_small_complex_numbers_keep_their_digits() -> None:
    def exact(xp: Any, z: Any) -> Any:
        x, y = z.real, z.imag
        half = xp.sin(y / 2)
        return (xp.expm1(x) * xp.cos(y) - 2 * half * half) + 1j * (xp.exp(x) * xp.sin(y))

    samples = lambda make: [make(40)]  # noqa: E731
    checked("units", "complex128", exact, samples=samples, reference=np.expm1)
    with pytest.raises(AssertionError, match="does a difference lose their digits"):
        checked("units", "complex128", lambda xp, z: xp.exp(z) - 1, samples=samples, reference=np.expm1)


# ------------------------------------------------------------------------------------------------ one number of many


def sign_of_permutation(complete: bool) -> Function:
    def fn(xp: Any, order: Any) -> Any:
        n = order.size
        there = xp.sort(order) == xp.arange(n)
        ends = int(order.min()) == 0 and int(order.max()) == n - 1 and int(order.sum()) == n * (n - 1) // 2
        if not (bool(there.all()) if complete else ends):
            raise ValueError("not a permutation")
        before = xp.arange(n)[:, None] < xp.arange(n)[None, :]
        return 1 - 2 * (((order[:, None] > order[None, :]) & before).sum(dtype="int64") % 2)

    return fn


def sign(order: Any) -> Any:
    if sorted(order) != list(range(order.size)):
        raise ValueError("not a permutation")
    return np.int64(round(float(np.linalg.det(np.eye(order.size)[order]))))


@pytest.mark.parametrize("complete", [True, False])
def test_an_input_with_a_wrong_number_or_two_is_an_error(complete: bool) -> None:
    def run() -> None:
        checked(
            "errors",
            "int64",
            sign_of_permutation(complete),
            samples=lambda make: [make.of([2, 0, 1]), make.of([7, 3, 9, 0, 1, 8, 2, 6, 5, 4])],
            reference=sign,
            result_dtype="int64",
            error_inputs=lambda make: [ErrorInput(make.of([1, 2, 3]), ValueError, "not a permutation")],
        )

    if complete:
        run()
        return
    with pytest.raises(AssertionError, match="the reference raises ValueError where 1 is moved from one number"):
        run()


def test_what_the_reference_refuses_in_other_words_need_not_be_refused() -> None:
    """NumPy refuses a length of -1 by the same class of error that the function declares for something else."""

    def of_some(a: Any) -> None:
        if not a.size:
            raise ValueError("give a number or more")

    def fn(xp: Any, a: Any) -> Any:
        of_some(a)
        return xp.full(1, a.sum())

    def reference(a: Any) -> Any:
        of_some(a)
        return np.full(1 if a[0] < a[-1] else -1, a.sum())

    checked(
        "errors",
        "int64",
        fn,
        samples=lambda make: [make.of([1, 4, 2, 9])],
        reference=reference,
        error_inputs=lambda make: [ErrorInput(make.full((0,), 0), ValueError, "give a number or more")],
    )


# ------------------------------------------------------------------------------------------------ ends of a range


@pytest.mark.parametrize("epsilon", [0.0, 1e-30])
def test_rows_at_the_end_of_a_range_are_tried(epsilon: float) -> None:
    """The mean place of a mass is the middle where there is none; a number added to it makes it the first."""

    def places(xp: Any, mass: Any) -> Any:
        total, at = mass.sum(axis=-1), xp.arange(mass.shape[-1], dtype=mass.dtype)
        none = total + epsilon == 0
        found = (mass * at).sum(axis=-1) / xp.where(none, xp.ones_like(total), total + epsilon)
        return xp.where(none, xp.full_like(total, (mass.shape[-1] - 1) / 2), found)

    def reference(mass: Any) -> Any:
        total = mass.sum(axis=-1)
        with np.errstate(invalid="ignore"):
            return np.where(total == 0, (mass.shape[-1] - 1) / 2, mass @ np.arange(mass.shape[-1]) / total)

    def run() -> None:
        checked("zeros", "float64", places, samples=lambda make: [make((4, 9), low=0, high=1)], reference=reference)

    if not epsilon:
        run()
        return
    with pytest.raises(AssertionError, match="the last half of input 0 is 0"):
        run()


# ------------------------------------------------------------------------------------------------ long sums


def product(kept: int) -> Function:
    return lambda xp, a, b: a[:, :kept] @ b[:kept]


@pytest.mark.parametrize(("kept", "referenced"), [(2048, True), (2048, False), (2047, True)])
def test_a_long_product_is_right_and_one_without_its_last_term_is_not(kept: int, referenced: bool) -> None:
    """Of half a million sums in order some are further off than the root of the number of terms says."""

    def run() -> None:
        checked(
            "values",
            "float32",
            product(kept),
            samples=lambda make: [(make((512, 2048)), make((2048, 1024)))],
            **({"reference": lambda a, b: a @ b} if referenced else {}),
        )

    if kept == 2048:
        run()
        return
    with pytest.raises(AssertionError, match="out of tolerance"):
        run()
