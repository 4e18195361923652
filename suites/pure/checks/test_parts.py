"""A NaN in one part of a complex number, and in one array next to 0, 1 or infinity in another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.parts import _with_nan_and_number, check_beside, check_parts
from cuassay.testing.samples import HostArray

CPU, COMPLEX64, FLOAT32 = Device("cpu"), np.dtype("complex64"), np.dtype("float32")


def spec_of(fn: Any, reference: Any, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("complex64",), "samples": lambda make: [make(9)], **fields}
    return OpSpec(fn=fn, name="given", reference=reference, **fields)


def with_zero_for_nan(real: bool, imaginary: bool) -> Any:
    """The input with 0 in place of NaN in one of its parts."""

    def fn(xp: Any, a: Any) -> Any:
        parts = [np.nan_to_num(one) if fill else one for one, fill in ((a.real, real), (a.imag, imaginary))]
        result = np.empty_like(a)
        result.real, result.imag = parts
        return result

    return fn


@pytest.mark.parametrize(
    ("real", "imaginary", "message"),
    [
        (False, False, None),
        (True, False, "the real part of one number is NaN"),
        (False, True, "the imaginary part of one number is NaN"),
    ],
    ids=["right", "real part", "imaginary part"],
)
def test_nan_that_is_lost_in_one_part_is_found(real: bool, imaginary: bool, message: str | None) -> None:
    spec = spec_of(with_zero_for_nan(real, imaginary), lambda a: a + 0)

    if message is None:
        check_parts(spec, CPU, COMPLEX64)
    else:
        with pytest.raises(AssertionError, match=f"right for the sample's own numbers, wrong for others: {message}"):
            check_parts(spec, CPU, COMPLEX64)


def spread(xp: Any, a: Any) -> Any:
    """NaN everywhere if one number is NaN, as in a Fourier transform."""
    return a + 0 * a.sum()


def keeping_nan(a: Any) -> Any:
    return np.where(np.isnan(a), a, a)


def test_more_nan_than_the_references_are_wrong_only_if_it_mentions_nan() -> None:
    check_parts(spec_of(spread, lambda a: a + 0), CPU, COMPLEX64)

    with pytest.raises(AssertionError, match="wrong for others: the real part of one number is NaN"):
        check_parts(spec_of(spread, keeping_nan), CPU, COMPLEX64)


def test_nan_of_a_reference_that_mentions_nan_may_have_the_other_part_nan_too() -> None:
    check_parts(spec_of(lambda xp, a: a * (1 + 0j), keeping_nan), CPU, COMPLEX64)


def numbers_met(make_samples: Any, dtype: str = "complex64", reference: Any = lambda a: a + 0) -> list[Any]:
    """The arrays with a NaN that the function gets, without those of the check whether it accepts them."""
    met: list[Any] = []

    def noting(xp: Any, a: Any) -> Any:
        if np.isnan(a).any():
            met.append(a.copy())
        return a + 0

    check_parts(spec_of(noting, reference, samples=make_samples, dtypes=(dtype,)), CPU, np.dtype(dtype))
    return met


def test_one_number_is_nan_in_one_part_and_1_in_the_other() -> None:
    met = [one[np.isnan(one)] for one in numbers_met(lambda make: [make(9)])]

    assert {(one.size, str(one[0].real), str(one[0].imag)) for one in met} == {(1, "nan", "1.0"), (1, "1.0", "nan")}


def test_array_of_more_than_9000_numbers_is_not_tried() -> None:
    met = numbers_met(lambda make: [make(8), make(9000), make(9001)])

    assert {one.size for one in met} == {9000}


@pytest.mark.parametrize(
    ("samples", "dtype"),
    [
        (lambda make: [make(9)], "float32"),
        (lambda make: [make(9, low=1, high=2)], "complex64"),
        (lambda make: [make(0)], "complex64"),
    ],
    ids=["real", "in a range", "empty"],
)
def test_only_complex_numbers_that_are_free_become_nan(samples: Any, dtype: str) -> None:
    assert numbers_met(samples, dtype) == []


def test_function_that_is_its_own_reference_is_not_tried() -> None:
    check_parts(spec_of(lambda xp, a: a.astype("float32") if np.isnan(a).any() else a + 0, None), CPU, COMPLEX64)
    assert numbers_met(lambda make: [make(9)], reference=None) == []


def test_array_of_one_number_is_tried() -> None:
    assert {str(one[0].real) for one in numbers_met(lambda make: [make(1)])} == {"nan", "1.0"}


def test_array_of_another_dtype_stays_as_it_is() -> None:
    def product(xp: Any, a: Any, weight: Any) -> Any:
        if np.isnan(weight).any():
            raise RuntimeError("a weight is a number")
        return a * weight

    samples = lambda make: [(make(9), make(9, dtype="float32"))]  # noqa: E731
    check_parts(spec_of(product, lambda a, weight: a * np.nan_to_num(weight), samples=samples), CPU, COMPLEX64)


def test_results_of_integers_are_not_compared() -> None:
    count = lambda xp, a: xp.asarray(np.isfinite(a).sum() + np.isnan(a).sum() * 7)  # noqa: E731

    check_parts(spec_of(count, lambda a: np.isfinite(a).sum()), CPU, COMPLEX64)
    check_parts(spec_of(count, lambda a: np.isfinite(a).sum() * 1.0), CPU, COMPLEX64)


# ------------------------------------------------------------------------------------------------ two arrays


def nan_product(a: Any, b: Any) -> Any:
    """A product in which zero times NaN is zero."""
    return np.where((a == 0) | (b == 0), 0, np.where(np.isnan(a) | np.isnan(b), np.nan, a * b))


def nan_in_one_of_two(fn: Any, reference: Any = nan_product, shapes: Any = (9, 9)) -> None:
    samples = lambda make: [tuple(make(shape) for shape in shapes)]  # noqa: E731
    spec = spec_of(lambda xp, *given: fn(*given), reference, samples=samples, dtypes=("float32",))
    sample = next(spec.draw(2026, "float32"))

    check_beside(spec, CPU, FLOAT32, sample, [one.values for one in sample.args])


@pytest.mark.parametrize(("nan", "number"), [(nan, number) for nan in (0, 1) for number in (0.0, 1.0, np.inf)], ids=str)
def test_nan_next_to_a_number_is_tried_in_both_arrays(nan: int, number: float) -> None:
    def wrong(*given: Any) -> Any:
        result = nan_product(*given).astype("float32")
        return np.where(np.isnan(given[nan]) & (given[1 - nan] == number), 7, result).astype("float32")

    nan_in_one_of_two(lambda a, b: nan_product(a, b).astype("float32"))
    with pytest.raises(AssertionError, match=f"wrong for others: a NaN in one array, {number:g} in another"):
        nan_in_one_of_two(wrong)


def test_reference_that_does_not_mention_nan_says_nothing_about_it() -> None:
    nan_in_one_of_two(lambda a, b: np.where(a * b == a * b, a * b, 7).astype("float32"), lambda a, b: a * b)


@pytest.mark.parametrize("shapes", [((2, 9), 9), (0, 0)], ids=["two shapes", "empty"])
def test_only_arrays_with_elements_in_the_same_places_are_tried(shapes: Any) -> None:
    nan_in_one_of_two(lambda a, b: np.where(np.isnan(a) | np.isnan(b), 7, a * b).astype("float32"), shapes=shapes)


def test_the_nan_and_the_number_are_put_into_two_of_the_arrays() -> None:
    arrays = [HostArray(np.full(9, value, np.float32), is_free=True) for value in (1, 2, 3)]
    nan, other, third = (one.values for one in arrays)

    found = _with_nan_and_number(Sample(tuple(arrays), label="drawn"), nan, other, 7.0)

    first, second, last = (one.values.tolist() for one in found.args)
    assert str(first) == str([1.0] * 3 + [np.nan] + [1.0] * 5)
    assert second == [2.0] * 3 + [7.0] + [2.0] * 5
    assert last == third.tolist()
    assert found.label == "drawn, a NaN in one array, 7 in another"
