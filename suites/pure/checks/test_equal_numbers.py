"""Which functions are asked for results of equal numbers, and which results fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.equal_numbers import check_equal_numbers
from cuassay.testing.samples import Samples

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")
EPSILON = 2.0**-23
#: The numbers in an array of the default range, and the four parts of a range.
PARTS = (0.1234, 0.317, 0.7011, 0.9137)
TRIED = np.array([-3 + 6 * part for part in PARTS], np.float32)


def check(fn: Callable[[Any], Any], reference: Any, given: Any = None) -> None:
    spec = OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=("float32",), samples=lambda make: [make(5)]
    )
    check_equal_numbers(spec, CPU, FLOAT32, Sample((Samples(1, "float32")(5) if given is None else given,)))


def fails(fn: Callable[[Any], Any], reference: Any, given: Any = None) -> bool:
    try:
        check(fn, reference, given)
    except AssertionError:
        return True
    return False


def spread(a: Any) -> Any:
    return a.max(keepdims=True) - a.min(keepdims=True)


@pytest.mark.parametrize(
    ("error", "is_found"),
    [(0.9 * 2.0**-10, False), (1.05 * 2.0**-10, True)],
    ids=["of rounding", "of divided rounding errors"],
)
def test_what_is_constant_is_found_within_rounding(error: float, is_found: bool) -> None:
    assert fails(lambda a: spread(a) + np.float32(error), spread) is is_found


@pytest.mark.parametrize("size", [8, -8])
@pytest.mark.parametrize(("error", "is_found"), [(7 * 2.0**-10, False), (9 * 2.0**-10, True)])
def test_the_error_is_relative_to_large_results(error: float, is_found: bool, size: int) -> None:
    assert fails(lambda a: spread(a) + np.float32(size + error), lambda a: spread(a) + size) is is_found


@pytest.mark.parametrize("part", range(4))
def test_each_of_four_numbers_is_tried(part: int) -> None:
    assert fails(lambda a: spread(a) + (a[:1] == TRIED[part]), spread)


@pytest.mark.parametrize("part", range(4))
def test_numbers_lie_in_the_range_that_was_asked_for(part: int) -> None:
    number = np.float32(10 + 2 * PARTS[part])

    assert fails(lambda a: spread(a) + (a[:1] == number), spread, Samples(1, "float32")(5, low=10, high=12))


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param(None, id="no reference"),
        pytest.param(lambda a: a * 1, id="another result for each number"),
        pytest.param(lambda a: (spread(a) > 0).astype(np.int64), id="integers"),
        pytest.param(lambda a: spread(a) * np.inf, id="NaN"),
        pytest.param(lambda a: spread(a) + np.inf, id="infinity"),
        pytest.param(lambda a: spread(a) + 5 * (a.dtype == np.float64), id="another result in float32"),
        pytest.param(lambda a: spread(a) * np.ones(1 if a.dtype == np.float64 else 5), id="another shape in float32"),
        pytest.param(lambda a: spread(a) + 68 * EPSILON * (a.dtype == np.float32), id="a rounded one in float32"),
        pytest.param(lambda a: spread(a) + (a[:1] > 2) * (a.dtype == np.float64), id="another result in float64"),
    ],
)
def test_nothing_is_asked_where_the_reference_does_not_give_the_same(reference: Any) -> None:
    check(lambda a: spread(a) + 2000, reference)


def test_nothing_is_asked_where_the_reference_refuses_one_of_the_numbers() -> None:
    def reference(a: Any) -> Any:
        if a[0] > 2:
            raise ValueError("give smaller numbers")
        return spread(a)

    check(lambda a: spread(a) + 2000, reference)


@pytest.mark.parametrize(
    ("steps", "is_asked"),
    [
        pytest.param((0, 60, -60, 0), True, id="close to the first"),
        pytest.param((60, 0, -60, 0), False, id="not close to the first"),
    ],
)
def test_results_are_the_same_if_each_is_close_to_the_first(steps: tuple[int, ...], is_asked: bool) -> None:
    moves = dict(zip(TRIED.tolist(), steps, strict=True))

    def reference(a: Any) -> Any:
        return np.array([moves.get(float(a[0]), 0) * EPSILON])

    def single(a: Any) -> Any:
        return (reference(a) + 1).astype(np.float32)

    assert fails(single, reference) is is_asked


def test_nothing_is_asked_where_the_reference_fails_in_float32() -> None:
    def reference(a: Any) -> Any:
        if a.dtype == np.float32:
            raise TypeError("give float64")
        return spread(a)

    check(lambda a: spread(a) + 2000, reference)


def test_a_result_rounded_in_float32_is_the_same() -> None:
    assert fails(lambda a: spread(a) + 2000, lambda a: spread(a) + 60 * EPSILON * (a.dtype == np.float32))


def test_empty_results_are_the_same() -> None:
    check(lambda a: a[:0], lambda a: a[:0])


def test_arrays_of_a_range_are_filled_next_to_free_ones() -> None:
    free, ranged = Samples(1, "float32")(5), Samples(1, "float32")(5, low=1, high=2)
    spec = OpSpec(
        fn=lambda xp, a, b: spread(a) + spread(b) + 1, reference=lambda a, b: spread(a) + spread(b), name="both",
        samples=lambda make: [(make(5), make(5))],
    )  # fmt: skip

    with pytest.raises(AssertionError, match="all numbers of an array are equal"):
        check_equal_numbers(spec, CPU, FLOAT32, Sample((free, ranged), label="drawn"))


def test_a_failure_says_that_the_numbers_are_equal() -> None:
    with pytest.raises(
        AssertionError, match=r"^right for the sample's own numbers, wrong for others: all numbers of an"
    ):
        check(lambda a: spread(a) + (spread(a) == 0), spread)
