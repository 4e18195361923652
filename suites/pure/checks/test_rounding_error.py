"""What rounding does to a function: measured by running it in its dtype and in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay.testing.rounding_error import RoundingError, is_coarse, rounding_error, rounding_errors
from cuassay.testing.tolerance import by_rounding_error, rounding_limit

ROWS = np.random.default_rng(3).uniform(-3, 3, (64, 129)).astype(np.float16)
UNIT = 2.0**-10


def measured(function: Any, *args: Any, **kwargs: Any) -> Any:
    return rounding_error(lambda args, kwargs: np.asarray(function(*args, **kwargs)), args, kwargs)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float16", True), (ml_dtypes.bfloat16, True), ("float32", False), ("int8", False)]
)
def test_sixteen_bits_are_coarse(dtype: Any, expected: bool) -> None:
    assert is_coarse(np.dtype(dtype)) is expected


def test_what_is_only_moved_is_exact() -> None:
    assert measured(np.sort, ROWS).rounding == 0


def test_one_rounding_is_half_a_unit_of_the_largest_result() -> None:
    found = measured(lambda a: a + a.dtype.type(0.1), ROWS)

    assert 0.25 * UNIT <= found.rounding <= 2 * UNIT  # numbers up to 4


def test_what_moving_the_inputs_does_is_measured_exactly() -> None:
    found = measured(lambda a: 100 * a.astype(np.float64), np.full(1000, 2.0, np.float16))

    assert 100 * UNIT <= found.inputs <= 100 * 2 * UNIT  # the units below 2 and from 2 on


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_inputs_move_by_a_unit_of_their_own_dtype(dtype: str) -> None:
    found = measured(lambda a: a.astype(np.longdouble), np.full(1000, 4 / 3, dtype))

    assert 0.5 * np.finfo(dtype).eps <= found.inputs <= 2 * np.finfo(dtype).eps


def test_the_layout_decides_in_which_order_numpy_adds() -> None:
    def total(a: Any) -> Any:
        return np.add.reduce(a, axis=-1)

    rows = np.random.default_rng(4).uniform(0, 3, (3, 2049)).astype(np.float16)

    assert measured(total, np.asfortranarray(rows)).rounding > 10 * measured(total, rows).rounding


def test_the_inputs_are_left_as_they_are() -> None:
    before = ROWS.copy()

    measured(lambda a: a.fill(0) or a, ROWS)

    np.testing.assert_array_equal(ROWS, before)


def test_lists_and_names_are_arguments_too() -> None:
    found = measured(lambda arrays, *, weight: arrays[0] * weight + arrays[1], [ROWS, ROWS], weight=ROWS)

    assert 0 < found.rounding < 16 * UNIT


@pytest.mark.parametrize("refusal", [TypeError("no float64"), RuntimeError("not on the host")])
def test_a_function_that_refuses_tells_nothing(refusal: Exception) -> None:
    def function(a: Any) -> Any:
        if a.dtype != np.float16:
            raise refusal
        return a

    assert measured(function, ROWS) is None


def test_infinities_and_nothing_at_all_have_no_error() -> None:
    assert measured(lambda a: a / a.dtype.type(0), ROWS) == (0, 0)
    assert measured(np.exp, np.zeros(0, np.float16)) == (0, 0)


def test_what_leaves_the_range_of_the_dtype_alone_is_told_element_by_element() -> None:
    numbers = np.array([300, 1e-4, 1.1, 0, np.inf], np.float16)
    found = rounding_errors(lambda args, kwargs: args[0] * args[0], [numbers], {})

    assert found is not None
    errors, outside = found
    assert outside.tolist() == [True, True, False, False, True]
    assert 0 < errors[2] <= 2 * UNIT
    assert (errors[0], errors[3]) == (0, 0)


def test_a_function_that_raises_tells_nothing_of_its_elements() -> None:
    assert rounding_errors(lambda args, kwargs: args[0].nothing, [ROWS], {}) is None


@pytest.mark.parametrize("passed", [0.0, 100.0], ids=["nothing on the way", "large on the way"])
def test_no_more_of_an_error_is_believed_than_numbers_on_the_way_explain(passed: float) -> None:
    zeros = np.zeros(3)
    limit = by_rounding_error(RoundingError(0.5, 0.0), "float16", zeros, 1, zeros, np.array([passed]))
    none = by_rounding_error(RoundingError(0.0, 0.0), "float16", zeros, 1, zeros, np.array([passed]))

    assert (limit > none).all() == (passed > 0)
    assert (limit - none <= 10 * UNIT * passed).all()


def test_the_limit_of_a_result_is_its_own_rounding_and_that_of_the_way() -> None:
    errors, expected = np.array([0, 0, 1e-2]), np.array([0, 8.0, 8.0])
    none, units, both = rounding_limit(errors, "float16", expected)

    assert none == 2.0**-24
    assert UNIT * 8 <= units <= 10 * UNIT * 8
    assert 1e-2 <= both - units <= 1e-1


@pytest.mark.parametrize(("dtype", "unit"), [("float16", UNIT), ("float32", 2.0**-23), ("complex64", 2.0**-23)])
def test_errors_are_measured_in_a_wider_dtype(dtype: str, unit: float) -> None:
    found = rounding_errors(lambda args, kwargs: args[0] / args[0].dtype.type(3), [np.ones(9, dtype)], {})

    assert found is not None
    assert unit / 100 < found[0].max() < unit
    assert not found[1].any()


@pytest.mark.parametrize("wrong", [0, 3], ids=["first run", "last run"])
def test_the_largest_error_of_all_runs_counts(wrong: int) -> None:
    calls: list[Any] = []

    def call(args: Any, kwargs: Any) -> Any:
        calls.append(args)
        return np.full(3, 5.0 if len(calls) == 2 * wrong + 1 else 0.0)  # in the dtype, then wide

    found = rounding_errors(call, [np.ones(3, np.float16)], {})

    assert found is not None
    assert (found[0].tolist(), len(calls)) == ([5, 5, 5], 8)


def test_as_many_runs_are_made_as_are_asked_for() -> None:
    calls: list[Any] = []
    rounding_errors(lambda args, kwargs: (calls.append(args), args[0])[1], [np.ones(3, np.float16)], {}, runs=1)

    assert len(calls) == 2
    assert [args[0].dtype for args in calls] == [np.float16, np.float64]


def test_later_runs_move_each_number_by_a_unit_at_most() -> None:
    given: list[Any] = []
    numbers = np.array([1.0, 2.0, 3.0, 0.0], np.float32)
    measured(lambda a: (given.append(a), a)[1], np.tile(numbers, 99))

    moves = [np.abs(run - given[0]) / 2.0**-23 for run in given[2::2]]
    assert len(moves) == 3
    assert all(0 < move.max() <= 4 for move in moves)
    assert all((move.reshape(-1, 4) <= [1, 2, 4, 0]).all() for move in moves)


@pytest.mark.parametrize("integers", [np.arange(5), np.array([True, False])], ids=["integers", "truth values"])
def test_whole_numbers_are_not_moved(integers: Any) -> None:
    assert measured(lambda a: a * 2.0, integers) == (0, 0)


def test_the_first_run_is_of_the_numbers_themselves() -> None:
    given: list[Any] = []
    numbers = np.linspace(1, 2, 99, dtype=np.float32)
    measured(lambda a: (given.append(a.copy()), a)[1], numbers)

    assert given[0].tolist() == given[1].tolist() == numbers.tolist()
    assert given[2].tolist() != numbers.tolist()


def test_results_in_float64_are_not_rounded_to_float32() -> None:
    found = measured(lambda a: a.astype(np.float64) + 2.0**-40, np.ones(9, np.float32))

    assert found.rounding == 0
