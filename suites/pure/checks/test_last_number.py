"""The numbers at both ends of a reduction count, also where the result is a truth value or an integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.last_number import _zeros_except, check_last_number

CPU = Device("cpu")
SAMPLE = Sample((np.ones((2, 5), np.float32),))


def check(function: Any, reference: Any, result_dtype: str) -> None:
    spec = OpSpec(
        fn=lambda xp, a: function(a), name="rows", dtypes=("float32",), reference=reference, result_dtype=result_dtype
    )
    check_last_number(spec, CPU, SAMPLE)


REDUCTIONS: dict[str, tuple[Any, str]] = {
    "truth value": (lambda a: (a != 0).any(axis=-1), "bool"),
    "unsigned integer": (lambda a: (a != 0).sum(axis=-1).astype("uint8"), "uint8"),
    "float": (lambda a: a.sum(axis=-1), "float32"),
    "complex": (lambda a: a.sum(axis=-1).astype("complex64"), "complex64"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_right_reduction_passes(name: str) -> None:
    function, dtype = REDUCTIONS[name]
    check(function, function, dtype)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(
    ("taken", "which"),
    [(slice(0, -1), "the last number"), (slice(1, None), "the first number")],
    ids=["without the last", "without the first"],
)
def test_a_reduction_without_an_end_fails(name: str, taken: slice, which: str) -> None:
    function, dtype = REDUCTIONS[name]
    with pytest.raises(AssertionError, match=f"^{which} has no part in the result"):
        check(lambda a: function(a[..., taken]), function, dtype)


def first_of(a: Any) -> Any:
    return a[..., 0] * 2


@pytest.mark.parametrize(("dtype", "count"), [("float32", "float32"), ("int64", "int64")])
def test_a_number_that_has_no_part_in_the_reference_is_not_asked_for(dtype: str, count: str) -> None:
    check(lambda a: first_of(a).astype(dtype), lambda a: first_of(a).astype(count), dtype)


@pytest.mark.parametrize(
    ("offset", "is_seen"),
    [(62, True), (63.5, False), (1000, False)],
    ids=["a 63rd", "less than a 64th", "a thousandth"],
)
def test_a_number_of_which_the_result_changes_little_is_not_asked_for(offset: float, is_seen: bool) -> None:
    failure = ""
    try:
        check(lambda a: a[..., 0] * 0 + offset, lambda a: a.sum(axis=-1) + offset, "float32")
    except AssertionError as error:
        failure = str(error)

    assert failure.startswith("the last number has no part in the result") is is_seen


@pytest.mark.parametrize("offset", [-64.5, 62], ids=["negative", "positive"])
def test_the_change_is_relative_to_the_larger_of_both_results(offset: float) -> None:
    with pytest.raises(AssertionError, match="has no part"):
        check(lambda a: a[..., 0] * 0, lambda a: a.sum(axis=-1) * 3 + offset, "float32")


def test_the_number_before_the_last_counts() -> None:
    with pytest.raises(AssertionError, match=r"^the last number but one has no part in the result"):
        check(lambda a: a.sum(axis=-1) - a[..., -2], lambda a: a.sum(axis=-1), "float32")


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("offset", [63.5, -64.5])
def test_a_change_of_less_than_a_64th_of_either_result_is_too_small(sign: int, offset: float) -> None:
    check(lambda a: a[..., 0] * 0, lambda a: sign * (a.sum(axis=-1) + offset), "float32")


def test_two_numbers_are_enough_for_a_reduction() -> None:
    spec = OpSpec(
        fn=lambda xp, a: a[:, 0] * 1, reference=lambda a: a.sum(axis=-1), name="rows", dtypes=("float32",),
        samples=lambda make: [make((3, 2))],
    )  # fmt: skip

    with pytest.raises(AssertionError, match="sample: drawn, zeros and the last number 1"):
        check_last_number(spec, CPU, Sample((np.ones((3, 2), np.float32),), label="drawn"))


def test_the_place_and_the_results_are_named() -> None:
    def second_row_is_short(a: Any) -> Any:
        return np.array([a[0].sum(), a[1, :-1].sum()])

    with pytest.raises(AssertionError) as caught:
        check(second_row_is_short, lambda a: a.sum(axis=-1), "float32")

    assert "the function gives 0.0 at (1,); the reference gives 0.0 and 1.0" in str(caught.value)


@pytest.mark.parametrize("refused", [0, 1], ids=["zeros", "zeros and a 1"])
def test_numbers_that_the_reference_refuses_are_not_tried(refused: int) -> None:
    def reference(a: Any) -> Any:
        if a.max() == refused:
            raise ValueError("give other numbers")
        return a.sum(axis=-1)

    check(lambda a: a.sum(axis=-1) * 0, reference, "float32")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda a: a.sum(axis=-1)[:1] * 0, id="another shape"),
        pytest.param(lambda a: a.sum(axis=-1)[: 1 + int(a.sum() > 0)] * 0, id="a shape that changes"),
    ],
)
def test_results_of_another_shape_are_left_to_other_checks(function: Any) -> None:
    check(function, lambda a: a.sum(axis=-1), "float32")


def test_axes_of_one_element_stay_zero() -> None:
    spec = OpSpec(fn=lambda xp, a, b: a.sum() * 0, reference=lambda a, b: b.sum(), name="second", dtypes=("float32",))

    check_last_number(spec, CPU, Sample((np.ones(5, np.float32), np.ones((5, 1), np.float32))))
    check_last_number(spec, CPU, Sample((np.ones(5, np.float32), np.ones((), np.float32))))


def test_keywords_of_a_call_are_filled_too() -> None:
    given = Sample((np.ones((2, 3), np.float32), 5), {"weight": np.ones(4, np.int32), "axis": 1}, "drawn")
    found = _zeros_except(given, "the last number but one", 1)

    assert found.args[0].values.tolist() == [[0, 1, 0], [0, 1, 0]]
    assert (found.kwargs["weight"].values.tolist(), found.kwargs["weight"].dtype) == ([0, 0, 1, 0], np.int32)
    assert (found.args[1], found.kwargs["axis"]) == (5, 1)
    assert found.label == "drawn, zeros and the last number but one 1"
