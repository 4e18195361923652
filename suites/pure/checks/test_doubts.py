"""What a failed comparison says against the reference: NaN of numbers, integers that wrap, and counts of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.doubts import counts_of_results, doubts, places_in_list

A = np.array([1.0, 2.0, 0.0], np.float32)
NAN = float("nan")


def spec_of(fn: Callable[..., Any], reference: Callable[..., Any] | None, **options: Any) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, name="f", samples=lambda make: [make(3)], **options)


def test_another_number_of_arrays_is_counted() -> None:
    said = counts_of_results(spec_of(lambda xp, a: (a, a, a), lambda a: a), Sample((A,)))

    assert said == "fn gives 3 arrays, and reference= gives 1 array"
    assert counts_of_results(spec_of(lambda xp, a: (a, a), lambda a: (a, a)), Sample((A,))) is None
    by_dtype = spec_of(lambda xp, a: (a, a) if a.dtype == np.float32 else a, None)
    assert counts_of_results(by_dtype, Sample((A,))) is None


def test_arrays_are_counted_where_numbers_are_divided_by_zero() -> None:
    spec = spec_of(lambda xp, a: (1 / a, a), lambda a: 1 / a)

    with np.errstate(all="raise"):
        assert counts_of_results(spec, Sample((A,))) == "fn gives 2 arrays, and reference= gives 1 array"


def test_arrays_of_a_function_that_fails_on_the_host_are_not_counted() -> None:
    def failing(xp: Any, a: Any) -> Any:
        raise LookupError("only on a device")

    assert counts_of_results(spec_of(failing, lambda a: a), Sample((A,))) is None


def lists(count: int, kind: type = list) -> OpSpec:
    def several(a: Any) -> Any:
        return kind(a[: place + 1] for place in range(count))

    return OpSpec(fn=lambda xp, a: several(a), reference=several, name="parts", samples=lambda make: [make(3)])


def test_places_of_the_arrays_of_a_list_are_named() -> None:
    said = "the result is a list, joined into one array, with shapes (1,) from 0, (2,) from 1, (3,) from 3"

    assert places_in_list(lists(3), Sample((A,))) == said


def test_places_of_the_arrays_of_a_tuple_are_named() -> None:
    assert (places_in_list(lists(3, tuple), Sample((A,))) or "").startswith("the result is a tuple, joined")


@pytest.mark.parametrize(("count", "more"), [(6, ""), (7, " and 1 more"), (9, " and 3 more")])
def test_at_most_six_places_are_named(count: int, more: str) -> None:
    said = places_in_list(lists(count), Sample((np.ones(9, np.float32),)))

    assert said is not None
    assert said.endswith(f"(6,) from 15{more}")


def test_a_single_array_has_no_places() -> None:
    assert places_in_list(spec_of(lambda xp, a: a, lambda a: a), Sample((A,))) is None


def said(got: Any, expected: Any, *args: Any, reference: Any = np.negative) -> str:
    spec = spec_of(lambda xp, *args: args[0], reference)
    return doubts(spec, Sample(args or (A,)), np.array(got), np.array(expected)) or ""


def test_another_shape_is_that_of_the_reference() -> None:
    assert said([1.0], [1.0, 2.0]) == "the expected shape is that of reference="
    assert not said([1.0], [1.0, 2.0], reference=None)


def test_nan_of_finite_numbers_is_doubted() -> None:
    text = "the reference gives nan where all inputs and the result are finite; it may overflow on the way"

    assert said([1.0, 2.0], [1.0, NAN]).startswith(text)


@pytest.mark.parametrize(
    ("got", "expected", "given"),
    [
        pytest.param([1.0, 2.0], [1.0, 3.0], A, id="another number"),
        pytest.param([1.0, np.inf], [1.0, NAN], A, id="an infinite result"),
        pytest.param([1.0, NAN], [1.0, 2.0], A, id="NaN of the function"),
        pytest.param([1.0, 2.0], [1.0, NAN], np.array([np.inf, 1], np.float32), id="inputs that are not finite"),
        pytest.param([1, 2], [1.0, NAN], A, id="integers"),
    ],
)
def test_other_results_are_not_doubted(got: Any, expected: Any, given: Any) -> None:
    assert not said(got, expected, given)


@pytest.mark.parametrize(
    ("mask", "line"),
    [
        pytest.param([[True, True], [False, False]], "False in all of [1, :]", id="a row of False"),
        pytest.param([[False, True], [True, True]], "True in all of [1, :]", id="a row of True"),
        pytest.param([[True, False], [True, False]], "False in all of [:, 1]", id="a column"),
        pytest.param([[True, True], [False, True]], "True in all of [:, 1]", id="a column next to a mixed row"),
    ],
)
def test_a_mask_that_leaves_one_truth_value_is_named(mask: Any, line: str) -> None:
    text = said([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, NAN]], np.ones((2, 2)), np.array(mask))

    assert f"input 1 is {line}: if that leaves no number" in text


def test_a_mixed_mask_is_not_named() -> None:
    mask = np.array([[True, True], [False, False], [True, False]])
    numbers = [[1.0, 1.0], [1.0, 1.0], [1.0, NAN]]

    assert "it may overflow on the way" in said(np.ones((3, 2)), numbers, np.ones((3, 2)), mask)
    assert "it may overflow on the way" in said(np.ones((3, 2)), numbers, np.ones((3, 2)), mask[:, :1])


def doubled(a: Any) -> Any:
    return a + a


@pytest.mark.parametrize(
    ("got", "reference", "is_doubted"),
    [
        pytest.param([200, 2], doubled, True, id="the sum in int64"),
        pytest.param([201, 2], doubled, False, id="another number"),
        pytest.param([200, 2], lambda a: doubled(a)[:1], False, id="another shape"),
    ],
)
def test_integers_that_wrap_in_the_reference_are_doubted(got: Any, reference: Any, is_doubted: bool) -> None:
    text = said(got, [-56, 2], np.array([100, 1], np.int8), reference=reference)

    assert ("in int8 it wraps around" in text) is is_doubted


def test_sums_of_int32_are_computed_in_int64() -> None:
    text = said([2**32 - 2, 2], [-2, 2], np.array([2**31 - 1, 1], np.int32), reference=doubled)

    assert "in int32 it wraps around" in text


def test_a_reference_that_fails_in_int64_is_not_doubted() -> None:
    def reference(a: Any) -> Any:
        if a.dtype == np.int64:
            raise TypeError("give int8")
        return a

    assert not said([200, 2], [-56, 2], np.array([100, 1], np.int8), reference=reference)


def test_a_reference_that_divides_by_zero_is_doubted_as_well() -> None:
    given = np.array([100, 1], np.int8)
    with np.errstate(all="ignore"):
        spec = spec_of(lambda xp, a: a, lambda a: a + a + a // (a - a), dtypes=("int8",))

    with np.errstate(all="raise"):
        text = doubts(spec, Sample((given,)), np.array([200, 2]), np.array([-56, 2]))

    assert "in int8 it wraps around" in (text or "")
