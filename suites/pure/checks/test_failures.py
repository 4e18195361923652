"""What a failed comparison prints after its numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay.testing import assert_close
from cuassay.testing.failures import error_map, inputs_there, number

A = np.arange(20, dtype=np.float32).reshape(4, 5)
B = np.arange(15, dtype=np.float32).reshape(5, 3)


def with_number(row: int | list[int], number: float) -> Any:
    """Twelve rows of three zeros, with a number at the start of some."""
    array = np.zeros((12, 3))
    array[row, 0] = number
    return array


#: Index and shape of a result, the call's arguments, and the lines about them.
THERE: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...], list[str]]] = {
    "element": ((2, 3), (4, 5), (A,), ["input 0 there: 13.0"]),
    "broadcast": ((2, 3), (4, 5), (A, A[0], A[:, :1]), [
        "input 0 there: 13.0", "input 1 there: 3.0", "input 2 there: 10.0",
    ]),
    "row": ((1,), (4,), (A,), ["input 0 at [1, :]: 5.0, 6.0, 7.0, 8.0, 9.0 (5 numbers)"]),
    "column": ((1,), (5,), (A,), ["input 0 at [:, 1]: 1.0, 6.0, 11.0, 16.0 (4 numbers)"]),
    "product": ((3, 2), (4, 3), (A, B), [
        "input 0 at [3, :]: 15.0, 16.0, 17.0, 18.0, 19.0 (5 numbers)",
        "input 1 at [:, 2]: 2.0, 5.0, 8.0, 11.0, 14.0 (5 numbers)",
    ]),
    "two leading axes": ((3, 1, 2), (4, 5, 3), (np.arange(80.0).reshape(4, 5, 4),), [
        "input 0 at [3, 1, :]: 64.0, 65.0, 66.0, 67.0 (4 numbers)",
    ]),
    "sum": ((), (), (A,), ["input 0: 0.0, 1.0, 2.0, 3.0, 4.0, 5.0 ... (20 numbers)"]),
    "six": ((), (), (A.ravel()[:6],), ["input 0: 0.0, 1.0, 2.0, 3.0, 4.0, 5.0 (6 numbers)"]),
    "number": ((2, 3), (4, 5), (A, 0.5), ["input 0 there: 13.0", "input 1: 0.5"]),
    "list": ((1,), (4,), ([np.ones(4), A[:, 0]],), ["input 0[0] there: 1.0", "input 0[1] there: 5.0"]),
    "empty": ((), (), (A[:0],), ["input 0 is empty, of shape (0, 5)"]),
    "infinity": ((0,), (3,), (with_number(10, np.inf),), [
        "input 0 at [:, 0]: 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 ... (12 numbers; inf at [10, 0])",
    ]),
    "two-nan": ((), (), (with_number([3, 8, 9], np.nan)[:, 0].copy(),), [
        "input 0: 0.0, 0.0, 0.0, nan, 0.0, 0.0 ... (12 numbers; nan at [8] and 1 more)",
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("index", "shape", "args", "lines"), THERE.values(), ids=THERE)
def test_every_input_is_printed_where_the_worst_error_is(
    index: tuple[int, ...], shape: tuple[int, ...], args: tuple[Any, ...], lines: list[str]
) -> None:
    assert list(inputs_there(index, shape, (args, {}))) == lines


def test_a_keyword_is_printed_by_its_name() -> None:
    assert list(inputs_there((2,), (4,), ((), {"weight": np.arange(4.0), "eps": 0.1}))) == [
        "input weight there: 2.0",
        "input eps: 0.1",
    ]


def test_the_map_of_a_wrong_tail_shows_its_columns() -> None:
    bad = np.zeros((24, 96), bool)
    bad[:, 94:] = True
    found = error_map(bad)

    assert found is not None
    assert (found.rows, found.columns, len(found.percent), len(found.percent[0])) == (24, 96, 12, 48)
    assert [row.index(100) for row in found.percent] == [47] * 12
    assert list(found.lines())[1:] == ["  " + "." * 47 + "#"] * 12


def test_one_wrong_element_among_many_is_not_rounded_to_none() -> None:
    bad = np.zeros((1200, 4800), bool)
    bad[700, 11] = True
    found = error_map(bad)

    assert found is not None
    assert sum(map(sum, found.percent)) == found.percent[7][0] == 1


def test_leading_axes_are_rows() -> None:
    found = error_map(np.eye(6, dtype=bool).reshape(2, 3, 6))

    assert found is not None
    assert found.as_row() == {
        "rows": 6,
        "columns": 6,
        "percent": [[100 * (row == column) for column in range(6)] for row in range(6)],
    }


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (5, 1), (0, 5)], ids=str)
def test_results_without_two_dimensions_have_no_map(shape: tuple[int, ...]) -> None:
    assert error_map(np.ones(shape, bool)) is None


def test_a_result_of_which_each_second_row_is_wrong_has_a_map() -> None:
    bad = np.zeros((4, 3), bool)
    bad[1::2] = True
    found = error_map(bad)

    assert found is not None
    assert list(found.lines())[1:] == ["  ...", "  ###"] * 2


def test_a_failure_prints_the_map_unless_most_is_wrong() -> None:
    right, wrong = np.zeros((2, 4)), np.zeros((2, 4))
    wrong[1, 2] = 1

    with pytest.raises(AssertionError, match=r"mark is an element\):\n    \.\.\.\.\n    \.\.#\."):
        assert_close(wrong, right)
    with pytest.raises(AssertionError) as caught:
        assert_close(right + 1, right)
    assert "where, of" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.5, "2.5"),
        (np.float64(0.1), "0.1"),
        (np.float32(0.1), "0.10000000149011612"),
        (np.int64(2**62 + 1), "4611686018427387905"),
        (np.ones(1, ml_dtypes.bfloat16)[0], "1.0"),
        (np.full(1, 0.1, ml_dtypes.float8_e4m3fn)[0], "0.1015625"),
    ],
    ids=["Python's", "float64", "float32", "int64", "bfloat16", "float8"],
)
def test_a_number_is_told_with_all_its_digits(value: Any, text: str) -> None:
    assert number(value) == text


def test_a_small_result_has_a_cell_for_each_element() -> None:
    found = error_map(np.eye(5, dtype=bool)[:3])

    assert found is not None
    assert found.percent == [[100, 0, 0, 0, 0], [0, 100, 0, 0, 0], [0, 0, 100, 0, 0]]


def test_the_first_three_arrays_of_a_list_are_printed() -> None:
    found = inputs_there((1,), (4,), (([np.arange(4.0)] * 5,), {}))

    assert [line.split(" there")[0] for line in found if " there" in line] == [
        f"input 0[{place}]" for place in range(3)
    ]
