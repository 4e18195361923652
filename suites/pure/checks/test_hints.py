"""What a failed comparison says of the cause: equal numbers, the order of the result, a default, a conjugate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import run_sample
from cuassay.testing.generated.hints import _is_close, hint_at

CPU = Device("cpu")
A = np.array([3.0, 1.0, 2.0, 5.0, 4.0], np.float32)
Z = np.array([1 + 2j, 3 - 1j, 2j], np.complex64)


def failure(fn: Any, reference: Any, *args: Any, **kwargs: Any) -> str:
    spec = OpSpec(fn=fn, name="wrong", reference=reference, dtypes=(str(args[0].dtype),))
    sample = Sample(args, kwargs)
    with pytest.raises(AssertionError) as caught:
        compare(spec, CPU, args[0].dtype, sample, run_sample(spec, CPU, sample))
    return str(caught.value)


def test_numbers_in_another_order_are_named() -> None:
    told = failure(lambda xp, a: xp.sort(a)[::-1], np.sort, A)

    assert "the right numbers in another order; the first that differs is at (0,)" in told


@pytest.mark.parametrize("result", [A, np.zeros(5, np.float32)], ids=["other numbers", "equal numbers"])
def test_other_results_are_not_called_another_order(result: Any) -> None:
    assert "another order" not in failure(lambda xp, a: xp.roll(result, 1) + 1, lambda a: result, A)


FEW = np.array([[1, 0, 1, 0], [0, 1, 1, 1]], np.int32)


@pytest.mark.parametrize(
    ("found", "expected"),
    [([[2, 0], [3, 1]], [[0, 2], [1, 2]]), ([2, 3], [0, 1])],
    ids=["largest two", "argmax"],
)
def test_indices_of_equal_numbers_are_named(found: Any, expected: Any) -> None:
    told = failure(lambda xp, a: xp.asarray(found), lambda a: np.array(expected), FEW)

    assert "indices of equal numbers along axis 1 of array 0" in told


@pytest.mark.parametrize("found", [[1, 1], [0, 4], [-1, 1]], ids=["other number", "too large", "negative"])
def test_other_indices_are_not_called_those_of_equal_numbers(found: Any) -> None:
    assert "equal numbers" not in failure(lambda xp, a: xp.asarray(found), lambda a: np.array([0, 1]), FEW)


def clipped(xp: Any, a: Any, most: float = 2.0) -> Any:
    return xp.minimum(a, most)


def test_a_default_that_differs_is_named_where_the_call_leaves_it_out() -> None:
    def reference(a: Any, most: float = 3.0) -> Any:
        return np.minimum(a, most)

    told = failure(clipped, reference, A)
    assert "most is 2.0 by default in the function, 3.0 in reference=, and not given here" in told

    def twice(xp: Any, a: Any, most: float = 2.0) -> Any:
        return 2 * clipped(xp, a, most)

    assert "by default" not in failure(twice, reference, A, most=3.0)
    assert "by default" not in failure(twice, reference, A, 3.0)


def test_a_missing_conjugate_is_named() -> None:
    told = failure(lambda xp, a, b: xp.sum(a * b), lambda a, b: np.sum(a * np.conj(b)), Z, Z[::-1].copy())
    assert "reference= gives this result for the conjugate of array 1" in told

    assert "the result is the conjugate of the expected one" in failure(lambda xp, a: xp.conj(a), lambda a: a + 0, Z)


def test_nothing_is_said_of_a_function_that_is_wrong_by_a_factor() -> None:
    told = failure(lambda xp, a: 2 * a, lambda a: a + 0, A)
    assert not any(word in told for word in ("order", "default", "conjugate"))


def hint(got: Any, expected: Any, *args: Any, reference: Any = np.positive, fn: Any = None) -> str:
    """The hint at the cause of a wrong result; empty if there is none."""
    spec = OpSpec(fn=fn or (lambda xp, a: a), name="wrong", reference=reference)
    return hint_at(spec, Sample(args or (A,)), np.asarray(got), np.asarray(expected)) or ""


ORDER = "the right numbers in another order"


@pytest.mark.parametrize(
    ("got", "expected", "is_order"),
    [
        pytest.param([4, 3, 2, 1], [1, 2, 3, 4], True, id="four integers"),
        pytest.param([3, 2, 1], [1, 2, 3], False, id="three integers"),
        pytest.param([4.0, 3, 2, 1], [1, 2, 3, 4], False, id="floats for integers"),
        pytest.param([1, 2, 3, 4], [1, 2, 3, 4], False, id="right"),
        pytest.param([2, 1, 3, 1], [1, 1, 2, 3], True, id="two equal ones"),
        pytest.param([2, 1, 1, 1], [1, 1, 1, 2], False, id="half as many numbers"),
        pytest.param([2, 1, 2, 1, 2, 2], [1, 1, 2, 2, 2, 2], False, id="two numbers several times"),
        pytest.param(np.float32([0.4, 0.3, 0.2, 0.1]), [0.1, 0.2, 0.3, 0.4], True, id="rounded to float32"),
        pytest.param([1j, 2, 3, 4], [2, 1j, 3, 4], False, id="complex numbers"),
        pytest.param([[1, 3], [2, 4]], [[1, 2], [3, 4]], True, id="matrices"),
    ],
)
def test_another_order_is_seen_among_different_numbers(got: Any, expected: Any, is_order: bool) -> None:
    assert (ORDER in hint(got, expected)) is is_order


def test_the_first_number_out_of_order_is_named() -> None:
    assert hint([1, 2, 4, 3], [1, 2, 3, 4]).endswith("the first that differs is at (2,)")


@pytest.mark.parametrize(("size", "is_sorted"), [(2**20, True), (2**20 + 1, False)])
def test_a_result_of_more_than_a_million_numbers_is_not_sorted(size: int, is_sorted: bool) -> None:
    numbers = np.arange(size, dtype=np.int32)

    assert (ORDER in hint(numbers[::-1], numbers)) is is_sorted


def test_a_function_that_is_its_own_reference_gets_no_hint() -> None:
    assert not hint([4, 3, 2, 1], [1, 2, 3, 4], reference=None)


def test_another_shape_gets_no_hint() -> None:
    assert not hint([4, 3, 2, 1], [[1, 2], [3, 4]])


def test_an_empty_result_is_not_called_a_conjugate() -> None:
    nothing = np.zeros(0, np.complex64)

    assert not hint(nothing, nothing, Z)


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(lambda xp, a, most=2.0: a, lambda a, most=2.0: a, id="the same"),
        pytest.param(lambda xp, a, most=2.0: a, lambda a, least=3.0: a, id="another name"),
        pytest.param(lambda xp, a, most=2.0: a, np.positive, id="no signature of Python's"),
        pytest.param(lambda xp, a, most=A: a, lambda a, most=3.0: a, id="an array"),
    ],
)
def test_other_defaults_are_not_compared(fn: Any, reference: Any) -> None:
    assert "by default" not in hint([1.0], [2.0], fn=fn, reference=reference)


def test_the_second_default_is_compared_if_the_first_is_given() -> None:
    said = hint([1.0], [2.0], A, 1, fn=lambda xp, a, low=0, high=1: a, reference=lambda a, low=2, high=3: a)

    assert said == "high is 1 by default in the function, 3 in reference=, and not given here"


def test_the_default_of_the_reference_s_first_parameter_is_compared() -> None:
    said = hint([1.0], [2.0], fn=lambda xp, a, low=0: a, reference=lambda low=2, a=None: low)

    assert said == "low is 0 by default in the function, 2 in reference=, and not given here"


@pytest.mark.parametrize(
    ("error", "is_close"), [(0.5e-3, True), (3e-3, False)], ids=["half a thousandth", "three thousandths"]
)
def test_a_conjugate_is_seen_within_a_thousandth(error: float, is_close: bool) -> None:
    found = hint(np.conj(Z) * (1 + error), Z, Z)

    assert (found == "the result is the conjugate of the expected one") is is_close


def test_the_error_of_a_conjugate_is_relative_to_the_largest_number() -> None:
    assert hint(np.conj(Z) + 1e-3, Z, Z)
    assert not hint(np.conj(Z) + 1e-2, Z, Z)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_nan_and_infinity_in_a_conjugate_are_compared_as_equal(special: float) -> None:
    numbers, first = np.array([1 + 2j, special, 3j]), np.array([2, 0, 0])

    assert hint(np.conj(numbers), numbers, Z) == "the result is the conjugate of the expected one"
    assert hint(np.conj(numbers) + 1e-4 * first, numbers, Z) == "the result is the conjugate of the expected one"
    assert not hint(numbers + first, numbers, Z)


def test_a_small_number_of_a_conjugate_may_be_off_by_a_thousandth_of_the_largest() -> None:
    assert hint(np.conj(Z * 100) + 0.05, Z * 100, Z)
    assert not hint(np.conj(Z * 100) + 5, Z * 100, Z)
    assert not hint(np.conj(Z / 100) + 1e-3, Z / 100, Z)


def test_results_of_other_shapes_are_not_close() -> None:
    assert _is_close(np.ones(3), np.ones(3))
    assert not _is_close(np.ones(3), np.ones(1))


def test_real_results_are_not_called_conjugates() -> None:
    assert not hint([2.0], [2.0], Z, reference=lambda a: np.abs(a[:1]) + 5)


def test_the_conjugate_of_a_real_array_is_not_tried() -> None:
    real, calls = np.array([1 + 0j, 2, 3]), list[Any]()

    def reference(a: Any) -> Any:
        calls.append(a.dtype.kind)
        return a

    assert not hint([9j, 9, 9], [1, 2, 3j], real, reference=reference)
    assert "c" not in calls


def test_a_reference_that_refuses_the_conjugate_is_not_asked_again() -> None:
    def reference(a: Any) -> Any:
        if (a.imag < 0).any():
            raise LookupError("give numbers above the real axis")
        return a

    assert not hint([9j], [1j], np.array([1j]), reference=reference)


@pytest.mark.parametrize("place", [0, 1])
def test_the_array_whose_conjugate_gives_the_result_is_named(place: int) -> None:
    given = [Z, Z[::-1] * 2]
    got = given[0] + 3 * given[1]
    expected = got.copy()
    got = got + (1, 3)[place] * (np.conj(given[place]) - given[place])

    said = hint(got, expected, *given, fn=lambda xp, a, b: a, reference=lambda a, b: a + 3 * b)

    assert said.startswith(f"reference= gives this result for the conjugate of array {place}:")


def test_infinite_numbers_do_not_warn() -> None:
    def square(a: Any) -> Any:
        return a * a * np.complex64(1e30)

    given = np.array([1 + 2j, 3e20 - 1j, 2j], np.complex64)
    with np.errstate(all="raise"):
        assert hint(np.full(3, 2 - 1j), np.full(3, np.inf + 0j), given, reference=square) == ""


@pytest.mark.parametrize(
    ("got", "other", "close"),
    [
        pytest.param([1000.0, 0.9], [1000.0, 0.0], True, id="a thousandth of the largest"),
        pytest.param([1000.0, 1.1], [1000.0, 0.0], False, id="more than a thousandth of the largest"),
        pytest.param([1000.0, 0.0], [1000.0, 0.9], True, id="in the other order"),
        pytest.param([np.inf, 0.9], [np.inf, 0.0], False, id="of the largest finite number"),
        pytest.param([np.nan, 1.0], [np.nan, 1.0], True, id="NaN"),
        pytest.param([1.0], [1.0, 1.0], False, id="another shape"),
        pytest.param([], [], False, id="nothing"),
    ],
)
def test_results_are_close_within_a_thousandth_of_the_largest(got: Any, other: Any, close: bool) -> None:
    assert _is_close(np.array(got), np.array(other)) is close


@pytest.mark.parametrize(("size", "is_asked"), [(2**20, True), (2**20 + 1, False)])
def test_hints_are_for_at_most_a_million_elements(size: int, is_asked: bool) -> None:
    expected = np.arange(size)

    assert bool(hint(expected[::-1], expected)) is is_asked
