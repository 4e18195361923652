"""How many numbers go into one of a result: counted by changing some, whatever the function does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.errors import SpecError
from cuassay.testing import OpSpec, Tolerance, Work
from cuassay.testing.terms import arrays_of, count_terms, is_elementwise
from cuassay.testing.tolerance import allowed

GRID = np.linspace(0.5, 2, 6 * 8).reshape(6, 8)
COUNTS: dict[str, tuple[Any, tuple[Any, ...], int]] = {
    "element by element": (np.tanh, (GRID,), 1),
    "two arrays": (np.add, (GRID, GRID + 1), 2),
    "one that is broadcast": (np.multiply, (GRID, GRID[0]), 2),
    "rows": (lambda a: a / a.sum(-1, keepdims=True), (GRID,), 8),
    "everything": (np.sum, (GRID,), 48),
    "neighbours": (lambda a: a + np.roll(a, 1), (GRID,), 2),
    "what came before": (np.cumsum, (GRID,), 48),
    "a product": (np.matmul, (GRID, GRID.T.copy()), 16),
    "one of all": (np.max, (GRID,), 48),
    "none": (lambda a: np.zeros(3), (GRID,), 1),
    "a list": (lambda arrays: arrays[0] + arrays[1], ([GRID, GRID + 1],), 2),
    "whole numbers": (np.sum, (np.arange(8),), 1),
    "nothing": (np.sum, (np.zeros(0),), 1),
}


@pytest.mark.parametrize(("function", "args", "count"), COUNTS.values(), ids=COUNTS)
def test_what_goes_into_an_element_is_counted(function: Any, args: tuple[Any, ...], count: int) -> None:
    def call(args: Any, kwargs: Any) -> Any:
        return np.asarray(function(*args, **kwargs))

    before = GRID.copy()

    assert count_terms(call, args, {}, call(args, {})) == count
    np.testing.assert_array_equal(GRID, before)


def test_all_of_it_where_the_function_refuses_other_numbers() -> None:
    def call(args: Any, kwargs: Any) -> Any:
        if args[0] is not GRID:
            raise ValueError("no other")
        return args[0] * 2

    assert count_terms(call, (GRID,), {}, GRID * 2) == GRID.size


@pytest.mark.parametrize(
    ("terms", "shapes", "expected", "found"),
    [
        (1, [(3, 4)], (3, 4), True),
        (2, [(3, 4)], (3, 4), False),
        (2, [(3, 4), (4,)], (3, 4), True),
        (1, [(3, 4)], (4, 3), False),
        (2, [(3, 4), (5,)], (3, 4), False),
    ],
)
def test_elements_of_one_place_are_known(terms: int, shapes: Any, expected: Any, found: bool) -> None:
    assert is_elementwise(terms, [np.zeros(shape) for shape in shapes], np.zeros(expected)) is found


def test_a_tolerance_is_never_more_than_its_most() -> None:
    rule = Tolerance(ulps=8, growth="sqrt", computed_in="self", most=0.25)

    assert allowed(rule, "bfloat16", terms=10_000, magnitude=np.float64(8)) == pytest.approx(2, rel=1e-6)
    assert allowed(rule, "float64", terms=4, magnitude=np.float64(1)) == pytest.approx(16 * 2.0**-52)


@pytest.mark.parametrize("samples", [lambda make: [(3, 5)], lambda make: [3.0]], ids=["a shape", "a number"])
def test_samples_without_an_array_are_refused(samples: Any) -> None:
    with pytest.raises(SpecError, match=r"samples hold no array, .*; make them with make\(\(3, 5\)\)"):
        OpSpec(fn=lambda xp, *numbers: sum(numbers), name="total", samples=samples)


def test_work_of_many_times_the_arrays_is_refused() -> None:
    with pytest.raises(SpecError, match=r"work= declares .* bytes for a call whose arrays have"):
        OpSpec(fn=lambda xp, a: a + 1, name="one_more", work=lambda a: Work(bytes=1000 * a.nbytes))
    OpSpec(fn=lambda xp, a: a + 1, name="one_more", work=lambda a: Work(bytes=4 * a.nbytes))


def test_a_number_is_changed_by_a_thousandth_and_zero_by_a_millionth() -> None:
    changes: list[float] = []

    def call(args: Any, kwargs: Any) -> Any:
        changes.extend((args[0] - numbers)[args[0] != numbers])
        return args[0] * 2

    numbers = np.array([0.0, 1.0, -4.0, 1.0, 0.0, 2.0])
    count_terms(call, (numbers,), {}, numbers * 2)

    assert changes == [2.0**-20, 2.0**-8 * -1 + 2.0**-20, 2.0**-9 + 2.0**-20]


@pytest.mark.parametrize(
    ("before", "after", "count"), [(np.nan, 1.0, 16), (1.0, np.nan, 16), (np.nan, np.nan, 1), (1.0, 1.0, 1)]
)
def test_an_element_that_becomes_nan_or_a_number_has_changed(before: float, after: float, count: int) -> None:
    assert count_terms(lambda args, kwargs: np.full(8, after), (np.ones(16),), {}, np.full(8, before)) == count


def test_terms_of_a_call_whose_shape_changes_are_all_of_the_largest_array() -> None:
    arrays = np.ones(3), np.ones(5)

    assert count_terms(lambda args, kwargs: np.ones(2), arrays, {}, np.ones(3)) == 5


def test_the_arrays_of_a_call_are_those_of_its_lists_and_options_too() -> None:
    first, second, third = np.ones(1), np.ones(2), np.ones(3)

    assert [id(one) for one in arrays_of(([first, 2.0], second, "x"), {"weight": third})] == [
        id(first), id(second), id(third),
    ]  # fmt: skip


def test_a_function_that_writes_its_other_inputs_does_not_change_them() -> None:
    a, b = np.ones(8), np.ones(8)

    def call(args: Any, kwargs: Any) -> Any:
        args[1][...] = 5
        return args[0] * 2

    assert count_terms(call, (a, b), {}, a * 2) >= 1
    assert (b == 1).all()
