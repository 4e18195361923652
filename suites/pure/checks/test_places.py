"""The index of a NaN in results: where the reference gives it, the function must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.testing import Sample
from cuassay.testing.generated.places import check_place_of_nan

NAN = np.nan
ROW = np.array([3.0, 1.0, NAN, 2.0, 5.0])
BLOCK = np.array([[3.0, 1.0, 4.0], [2.0, 5.0, NAN]])


def said(array: Any, got: Any, expected: Any, *others: Any) -> str:
    """What the check says; empty if it passes."""
    try:
        check_place_of_nan(Sample((array, *others), label="drawn"), np.asarray(got), np.asarray(expected))
    except AssertionError as error:
        return str(error)
    return ""


def test_lost_index_is_reported_with_both_indices_and_the_sample() -> None:
    assert said(ROW, 4, 2) == (
        "the index of a NaN is lost: got 4, but the reference gives the NaN's index, 2; NumPy's argmax and argmin give "
        "the first NaN\n  sample: drawn"
    )


@pytest.mark.parametrize(
    ("array", "right", "wrong"),
    [
        pytest.param(ROW, 2, 4, id="of a row"),
        pytest.param(np.array(NAN), 0, 1, id="of an array without an axis"),
        pytest.param(BLOCK, 5, 4, id="of the flat array"),
        pytest.param(BLOCK, [0, 1, 1], [0, 1, 0], id="along the first axis"),
        pytest.param(BLOCK, [2, 2], [2, 1], id="along the last axis"),
        pytest.param(BLOCK.reshape(2, 1, 3), [[0, 1, 1]], [[0, 1, 0]], id="along the first of three"),
        pytest.param(BLOCK.reshape(2, 1, 3), [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]], id="along the second"),
        pytest.param(BLOCK.reshape(2, 1, 3), [[2], [2]], [[2], [1]], id="along the third"),
    ],
)
def test_index_of_a_reduction_must_be_that_of_the_nan(array: Any, right: Any, wrong: Any) -> None:
    assert said(array, right, right) == ""
    assert said(array, wrong, right) != ""


@pytest.mark.parametrize(
    ("array", "got", "expected"),
    [
        pytest.param(BLOCK, [0, 0, 1], [0, 1, 1], id="another result is wrong"),
        pytest.param(BLOCK, [2, 0], [2, 1], id="the reference gives another index"),
        pytest.param(BLOCK, [4, 4], 5, id="of other shapes"),
        pytest.param(ROW, 4.0, 2, id="the function gives floats"),
        pytest.param(ROW, 4, 2.0, id="the reference gives floats"),
        pytest.param(ROW, 4.0, 2.0, id="both give floats"),
        pytest.param(ROW, np.uint64(4), np.uint64(2), id="both give unsigned integers"),
        pytest.param(np.array([3.0, NAN, NAN, 2.0]), 3, 1, id="two NaN"),
        pytest.param(np.array([3.0, 1.0, 4.0]), 0, 2, id="no NaN"),
        pytest.param(BLOCK, [4], [5], id="a result that is too short along either axis"),
        pytest.param(ROW, [4], [2], id="an array of one index"),
        pytest.param(ROW, [2, 1, 0, 3, 4], [2, 1, 3, 0, 4], id="an order"),
        pytest.param(BLOCK, [[5, 5, 5, 5]], [[2, 5, 1, 1]], id="as many axes"),
    ],
)
def test_other_results_are_left_to_the_comparison(array: Any, got: Any, expected: Any) -> None:
    assert said(array, got, expected) == ""


def test_only_functions_of_one_array_are_checked() -> None:
    assert said(ROW, 4, 2, np.ones(2)) == ""
    assert said(ROW, 4, 2, 7.0, "word") != ""


# ------------------------------------------------------------------------------------------------ the largest so far


def test_lost_index_of_the_largest_so_far_is_reported_with_the_axis() -> None:
    assert said(ROW, [0, 0, 2, 2, 4], [0, 0, 2, 2, 2]) == (
        "the index of a NaN is lost: from the NaN at 2 of axis 0 on, the reference gives 2, got [2, 2, 4]\n"
        "  sample: drawn"
    )
    assert "from the NaN at 0 of axis 1 on" in said(np.array([[1, 2.0], [NAN, 3]]), [[0, 1], [0, 1]], [[0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("got", "is_lost"),
    [
        pytest.param([0, 0, 2, 2, 2], False, id="right"),
        pytest.param([0, 1, 2, 2, 2], False, id="wrong before the NaN"),
        pytest.param([0, 0, 0, 2, 2], True, id="wrong at the NaN"),
        pytest.param([0, 0, 2, 2, 4], True, id="wrong behind the NaN"),
        pytest.param([0, 0, 3, 3, 3], True, id="wrong from the NaN on"),
    ],
)
def test_index_of_the_largest_so_far_stays_that_of_the_nan(got: Any, is_lost: bool) -> None:
    assert (said(ROW, got, [0, 0, 2, 2, 2]) != "") is is_lost


SQUARE = np.array([[1.0, 2.0, 3.0], [4.0, NAN, 6.0], [9.0, 8.0, 7.0]])


@pytest.mark.parametrize(
    ("at", "of", "axis"),
    [pytest.param((2, 1), [0, 1, 1], 0, id="down a column"), pytest.param((1, 2), [0, 1, 1], 1, id="along a row")],
)
def test_index_stays_that_of_the_nan_along_its_own_line(at: tuple[int, int], of: Any, axis: int) -> None:
    expected = np.full((3, 3), 7)
    expected[(slice(None), 1) if axis == 0 else (1, slice(None))] = of
    lost, other = expected.copy(), expected.copy()
    lost[at], other[2, 2] = 2, 0

    assert f"from the NaN at 1 of axis {axis} on, the reference gives 1" in said(SQUARE, lost, expected)
    assert said(SQUARE, other, expected) == ""


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param([0, 0, 2, 3, 2], id="not always the NaN's"),
        pytest.param([2, 2, 0, 0, 0], id="only before the NaN"),
    ],
)
def test_reference_that_forgets_the_nan_demands_nothing(expected: Any) -> None:
    assert said(ROW, [4, 4, 4, 4, 4], expected) == ""


def test_single_result_from_a_nan_at_the_end_on_demands_nothing() -> None:
    last = np.array([3.0, 1.0, NAN])

    assert said(last, [0, 0, 1], [0, 0, 2]) == ""
    assert said(np.array([3.0, NAN, 1.0]), [0, 0, 1], [0, 1, 1]) != ""
