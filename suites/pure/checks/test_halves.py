"""Numbers half-way between two results of a rounding, and numbers that two arrays share: which are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.generated.halves import (
    _below_powers,
    _check_halves,
    _dyadic,
    _inside,
    _next_to,
    _next_to_halves,
    _to_127,
    _with_shared,
    _with_steps,
    check_halves,
    eighths,
)
from cuassay.testing.samples import HostArray, Samples

CPU = Device("cpu")
MAKE = Samples(1, "float32")
DRAWN = MAKE(500).values


def test_eighths_are_the_nearest_multiples() -> None:
    given = np.array([0.3, 0.32, -0.3, 1.0625, 2.0, 1e30], np.float32)

    found = eighths(given)

    assert found.tolist() == [0.25, 0.375, -0.25, 1.0, 2.0, float(np.float32(1e30))]
    assert found.dtype == np.float32
    assert eighths(np.array([30000.1], np.float16)).tolist() == [30000.0]
    assert eighths(np.array([2.0**30 + 0.26])).tolist() == [2.0**30 + 0.25]


def levels(array: Any) -> list[float]:
    """For which powers of two some numbers are odd multiples of their inverse."""
    wide = array.astype(np.float64)
    return [
        power for power in 2.0 ** np.arange(-2, 14)
        if ((wide * power == np.floor(wide * power)) & ((wide * power) % 2 == 1)).any()
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_rounded_down_to_multiples_of_powers_of_two(dtype: Any) -> None:
    given = np.abs(DRAWN).astype(dtype) % 1
    found = _dyadic(given)

    assert found.dtype == dtype
    assert ((found <= given) & (given - found < 0.5)).all()
    assert levels(found) == [2.0**power for power in range(1, 10)]
    assert (given - found).max() > 0.25  # down to a half
    assert np.median(given - found) > 2.0**-7


def test_rows_contain_127_and_multiples_of_a_half() -> None:
    given = np.array([[0.3, 1.04, -1.04], [2.5, 3.0, -3.0], [1.0, 127.5, -127.5]], np.float32)

    found = _to_127(given)

    assert found.tolist() == [[127, 33, -33.5], [127, 96, -96], [127, 127, -127]]
    assert found.dtype == np.float32
    assert _to_127(np.array(1.04, np.float32)).tolist() == 33.0
    assert _to_127(np.array(0.75 - 2.0**-40)).tolist() == 23.5
    assert _to_127(np.zeros((2, 0), np.float32)).shape == (2, 0)


def test_numbers_next_to_halves_are_ties_only_in_float32() -> None:
    given = DRAWN.astype(np.float64)
    found, ties = _next_to_halves(given), _dyadic(given)

    assert found.dtype == np.float64
    np.testing.assert_array_equal(found / (1 + 2.0**-30), ties)
    np.testing.assert_array_equal(found.astype(np.float32), ties)
    assert (found != ties).sum() > 400
    assert _next_to_halves(DRAWN).dtype == np.float32


def test_numbers_below_powers_are_far_from_one() -> None:
    found = _below_powers(DRAWN)

    assert found.dtype == np.float32
    assert (np.sign(found) == np.sign(DRAWN)).all()
    powers = np.nextafter(np.abs(found), np.float32(np.inf))
    assert set(np.log2(powers).tolist()) == {-9, -8, -7, -6, -5, -4, -3, 3, 4, 5, 6}


# ------------------------------------------------------------------------------------------------ shared numbers


@pytest.mark.parametrize(
    ("floats", "expected"),
    [
        pytest.param([2.5], [1, 2, 3], id="a number"),
        pytest.param([-2.5], [-4, -3, -2], id="a negative number"),
        pytest.param([3.0, 4.0], [2, 3, 4, 5], id="integers"),
        pytest.param([np.inf, -np.inf, np.nan, 7.0], [6, 7, 8], id="infinities and NaN"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_integers_next_to_floats(floats: Any, expected: Any) -> None:
    assert _next_to(np.array(floats, np.float32)).tolist() == expected


def test_integers_next_to_large_floats_are_exact() -> None:
    assert _next_to(np.array([2.0**30], np.float32)).tolist() == [2**30 - 1, 2**30, 2**30 + 1]
    assert _next_to(np.array([2.0**30 + 5.5])).tolist() == [2**30 + 4, 2**30 + 5, 2**30 + 6]


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        pytest.param(HostArray(np.zeros(2), span=(-1.0, 2.0)), [-1, 0, 2], id="of a range"),
        pytest.param(HostArray(np.zeros(2), is_free=True), [-2, -1, 0, 2, 3], id="of any floats"),
        pytest.param(HostArray(np.array([2, -1])), [-1, 0, 2], id="of integers"),
        pytest.param(HostArray(np.array([2, 2]), span=(-1, 2)), [-1, 0, 2], id="of a range of integers"),
        pytest.param(HostArray(np.array([2, 0], np.uint8), span=(-1, 2)), [0, 2], id="of unsigned integers"),
    ],
)
def test_finite_numbers_in_the_range_remain(drawn: HostArray, expected: Any) -> None:
    assert _inside(np.array([-2, -1, 0, 2, 3, np.inf, -np.inf, np.nan]), drawn).tolist() == expected


def shared(*args: Any) -> dict[str, Any]:
    """The labels, each with the numbers of the array that gets those of another."""
    found: dict[str, Any] = {}
    for sample in _with_shared(Sample(args, {"axis": 0}, "drawn")):
        changed = [place for place, one in enumerate(sample.args) if one is not args[place]]
        assert (len(changed), sample.kwargs) == (1, {"axis": 0})
        assert f"numbers of input {changed[0]} are" in sample.label
        found[sample.label] = sample.args[changed[0]]
    return found


EDGES = MAKE.of([-1.0, 0.0, 2.5])


def test_half_of_the_numbers_are_those_of_a_short_array() -> None:
    drawn = MAKE((6, 7))

    found = shared(drawn, EDGES)

    assert list(found) == ["drawn, half of the numbers of input 0 are also in input 1"]
    (given,) = found.values()
    flat = given.values.reshape(-1)
    assert set(flat[::2].tolist()) == {-1.0, 0.0, 2.5}
    np.testing.assert_array_equal(flat[1::2], drawn.values.reshape(-1)[1::2])
    assert (given.shape, given.dtype, given.is_free) == ((6, 7), np.float32, True)
    assert -1.0 not in drawn.values


def test_integers_are_next_to_floats() -> None:
    drawn = MAKE(40, low=-5, high=1, dtype="int32")

    found = shared(MAKE.of([2.5, -3.5, 0.0]), drawn)

    assert list(found) == ["drawn, half of the numbers of input 1 are next to those of input 0"]
    (given,) = found.values()
    assert set(given.values[::2].tolist()) == {-5, -4, -3, -1, 0, 1}
    np.testing.assert_array_equal(given.values[1::2], drawn.values[1::2])
    assert (given.dtype, given.span) == (np.int32, (-5, 1))


def test_integers_are_those_of_other_integers() -> None:
    (label,) = shared(MAKE.of([4, 1], dtype="int32"), MAKE(9, low=0, high=5, dtype="int32"))

    assert label == "drawn, half of the numbers of input 1 are also in input 0"


def test_numbers_are_shared_in_both_directions() -> None:
    assert list(shared(MAKE(9), 7, MAKE(8))) == [
        "drawn, half of the numbers of input 0 are also in input 2",
        "drawn, half of the numbers of input 2 are also in input 0",
    ]


@pytest.mark.parametrize(("size", "count"), [(1, 0), (2, 1), (64, 1), (65, 0)], ids=["one number", "two", "64", "65"])
def test_short_arrays_have_2_to_64_numbers(size: int, count: int) -> None:
    assert len(shared(MAKE((9, 9)), MAKE.of(range(size)))) == count


@pytest.mark.parametrize(
    ("drawn", "short"),
    [
        pytest.param(MAKE((4, 5)), MAKE.full((3, 1), 2.0), id="a matrix is not short"),
        pytest.param(MAKE(70), MAKE.of([1, 2], dtype="float64"), id="of another dtype"),
        pytest.param(MAKE(70), MAKE.of([1, 2], dtype="int32"), id="integers in floats"),
        pytest.param(MAKE.full(70, 2.0), EDGES, id="fixed numbers"),
        pytest.param(HostArray(np.arange(70, dtype=np.float32), is_free=True), EDGES, id="sorted floats"),
        pytest.param(MAKE(70, low=5, high=6), EDGES, id="no number in the range"),
        pytest.param(MAKE(70), EDGES.values, id="an array of NumPy"),
        pytest.param(MAKE(70, dtype="bool"), EDGES, id="truth values"),
    ],
)
def test_numbers_are_not_shared_with(drawn: Any, short: Any) -> None:
    assert shared(drawn, short) == {}


# ------------------------------------------------------------------------------------------------ steps


def steps(*args: Any) -> dict[str, tuple[Any, ...]]:
    return {sample.label: sample.args for sample in _with_steps(Sample(args, {}, "drawn"))}


def test_scale_is_a_power_of_two_and_the_others_are_multiples_of_its_half() -> None:
    array, scale = MAKE.of([0.3, -0.6, 5.9, 0.0]), MAKE(3, low=0.1, high=0.9)

    found = steps(array, scale, 7, np.ones(2))

    assert list(found) == ["drawn, input 1 is 0.5, the others are multiples of half of it: quotients are ties"]
    numbers, step, *rest = found[next(iter(found))]
    assert numbers.values.tolist() == [0.25, -0.5, 6.0, 0.0]
    assert step.values.tolist() == [0.5] * 3
    assert (numbers.dtype, step.dtype, step.span) == (np.float32, np.float32, (0.1, 0.9))
    assert rest[0] == 7


def test_numbers_whose_multiple_is_out_of_range_stay() -> None:
    array = HostArray(np.array([0.3, 1.6, 0.9, -0.9, -1.6], np.float32), span=(-1.0, 1.0))

    ((numbers, _),) = steps(array, MAKE(3, low=1, high=2.5)).values()

    np.testing.assert_array_equal(numbers.values, np.array([0.0, 1.6, 1.0, -1.0, -1.6], np.float32))


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [(0.1, 0.9, 0.5), (1.0, 4.0, 4.0), (4.0, 7.0, 4.0), (0.001, 0.0025, 2.0**-9), (0.3, 0.30001, None), (5, 7, None),
     (0.0, 1.0, None), (-1.0, 1.0, None), (2.0, 2.0, None), (1.0, np.inf, None)],
    ids=str,
)  # fmt: skip
def test_step_is_the_largest_power_of_two_in_the_range(low: float, high: float, step: float | None) -> None:
    scale = HostArray(np.full(3, low, np.float32), span=(low, high))

    found = [args[1].values[0] for args in steps(MAKE(5), scale).values()]

    assert found == ([] if step is None else [step])


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([], id="no other array"),
        pytest.param([MAKE(5, dtype="float64")], id="another dtype"),
        pytest.param([MAKE(5, low=0, high=9, dtype="int32")], id="integers"),
        pytest.param([MAKE(5).values], id="an array of NumPy"),
    ],
)
def test_no_steps_without_floats_of_the_dtype(others: Any) -> None:
    assert steps(MAKE(3, low=0.1, high=0.9), *others) == {}


def test_integers_are_not_a_scale() -> None:
    assert steps(MAKE(5, dtype="int32"), MAKE(3, low=1, high=9, dtype="int32")) == {}


def test_each_scale_gets_a_power_of_two_in_turn() -> None:
    found = steps(MAKE(3, low=0.1, high=0.9), MAKE(3, low=1, high=5))

    assert [label[:18] for label in found] == ["drawn, input 0 is ", "drawn, input 1 is "]
    first, second = found.values()
    assert (first[0].values.tolist(), second[1].values.tolist()) == ([0.5] * 3, [4.0] * 3)
    assert (first[1].values % 0.25 == 0).all()


# ------------------------------------------------------------------------------------------------ the check


def tried(dtype: str, samples: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """The arrays of each call of the check."""
    calls: list[tuple[Any, ...]] = []

    def fn(xp: Any, *given: Any) -> Any:
        calls.append(tuple(one.copy() for one in given))
        return given[0] + 0

    spec = OpSpec(
        fn=fn, reference=lambda *given: given[0] + 0, name="tried", dtypes=(dtype,),
        samples=samples,
    )  # fmt: skip
    calls.clear()
    check_halves(spec, CPU, np.dtype(dtype))
    return calls


def said(fn: Any, reference: Any, dtype: str = "float32", samples: Any = lambda make: [make(200)]) -> str:
    """What the check says; empty if it passes."""
    spec = OpSpec(fn=fn, reference=reference, name="halves", dtypes=(dtype,), samples=samples)
    try:
        check_halves(spec, CPU, np.dtype(dtype))
    except AssertionError as error:
        return str(error)
    return ""


def upwards(xp: Any, a: Any) -> Any:
    return xp.floor(a + 0.5)


def test_rounding_of_ties_is_checked() -> None:
    assert "multiples of 1/8, some half-way between two results of a rounding" in said(upwards, np.round)
    assert said(lambda xp, a: xp.round(a), np.round) == ""


def test_finer_ties_are_checked() -> None:
    told = said(lambda xp, a: upwards(xp, a * 256) / 256, lambda a: np.round(a * 256) / 256)

    assert "multiples of powers of 1/2, some half-way" in told


def test_quantization_with_a_scale_of_one_is_checked() -> None:
    def levels_of(xp: Any, a: Any, rounded: Any) -> Any:
        scale = xp.max(xp.abs(a), axis=-1, keepdims=True) / 127
        return rounded(a / scale)

    def wrong(xp: Any, a: Any) -> Any:
        return levels_of(xp, a, lambda b: xp.where(xp.max(xp.abs(a)) == 127, upwards(xp, b), xp.round(b)))

    told = said(wrong, lambda a: levels_of(np, a, np.round), samples=lambda make: [make((3, 200))])

    assert "multiples of 1/2, the first is 127" in told


def test_logarithms_just_below_powers_are_checked() -> None:
    def wrong(xp: Any, a: Any) -> Any:
        return xp.floor(xp.log2(xp.abs(a) + (a == 0)))

    def right(a: Any) -> Any:
        return np.frexp(np.abs(a) + (a == 0))[1] - 1.0

    assert "numbers just below powers of two" in said(wrong, right)


def rounds_twice(xp: Any, a: Any) -> Any:
    return xp.round(a.astype("float32")).astype(a.dtype)


def test_double_rounding_is_checked_in_float64() -> None:
    assert "a part of 2^-30 more, which float32 does not hold" in said(rounds_twice, np.round, "float64")
    assert said(rounds_twice, np.round, "float32") == ""


def test_equal_numbers_of_two_arrays_are_checked() -> None:
    def samples(make: Any) -> Any:
        return [(make(50), make.of([-1.0, 0.5, 2.0]))]

    def counts(xp: Any, a: Any, edges: Any, wrong: bool) -> Any:
        compared = a[:, None] >= edges if wrong else a[:, None] > edges
        return compared.sum(axis=-1).astype("int64")

    told = said(lambda xp, a, b: counts(xp, a, b, True), lambda a, b: counts(np, a, b, False), samples=samples)

    assert "half of the numbers of input 0 are also in input 1" in told


def test_integers_next_to_floats_are_checked() -> None:
    def samples(make: Any) -> Any:
        return [(make(50, low=2**30 - 99, high=2**30 + 99), make.of([2.0**30, 0.0, 1.0], dtype="float32"))]

    def wrong(xp: Any, a: Any, b: Any) -> Any:
        return (a.astype("float32")[:, None] >= b).sum(axis=-1)

    def right(a: Any, b: Any) -> Any:
        return (a.astype(float)[:, None] >= b).sum(axis=-1)

    assert "are next to those of input 1" in said(wrong, right, "int32", samples)


def test_quotients_by_a_scale_are_checked() -> None:
    def samples(make: Any) -> Any:
        return [(make(200), make(200, low=0.1, high=0.9))]

    told = said(lambda xp, a, b: upwards(xp, a / b), lambda a, b: np.round(a / b), samples=samples)

    assert "input 1 is 0.5, the others are multiples of half of it: quotients are ties" in told


def test_results_that_rounding_decides_are_not_compared() -> None:
    def steep(a: Any) -> Any:
        return np.round(np.sin(a * 1e6) * 4)

    assert said(lambda xp, a: xp.round(xp.sin(a * 1e6) * 4), steep) == ""


def test_ties_of_float32_are_checked_in_float64_too() -> None:
    assert "multiples of 1/8, some half-way" in said(upwards, np.round, "float64")


EPS = float(np.finfo(np.float32).eps)
A = np.array([1.0, 2.0, 3.0], np.float32)


def compared(got: Any, expected: Any, narrow: Any, a: Any = A) -> bool:
    """Whether the check takes `got`, where the reference gives `expected`, but `narrow` in float32."""

    def reference(given: Any) -> Any:
        if given.dtype == np.float64:
            return np.asarray(expected)
        if narrow is None:
            raise ValueError("float64 only")
        return np.asarray(narrow)

    spec = OpSpec(
        fn=lambda xp, given: np.array(got), reference=reference, name="compared", dtypes=("float32",),
        samples=lambda make: [Sample((HostArray(a),))], result_dtype=str(np.asarray(got).dtype),
    )  # fmt: skip
    try:
        _check_halves(spec, CPU, np.dtype("float32"), Sample((HostArray(a),)))
    except AssertionError:
        return False
    return True


def with_last(number: float, dtype: Any = np.float32, first: float = 8.0) -> Any:
    return np.array([first, 0.5, number], dtype)


def test_results_are_compared_where_the_reference_gives_the_same_in_float32() -> None:
    expected = with_last(1.0, np.float64)

    assert compared(with_last(1.0), expected, with_last(1.0))
    assert not compared(with_last(2.0), expected, with_last(1.0))
    assert compared(with_last(2.0), expected, with_last(3.0))
    assert compared(with_last(2.0), expected, None)
    assert compared(with_last(2.0), expected, with_last(1.0)[:2])
    assert not compared(with_last(2.0, first=9.0), expected, with_last(3.0))


def test_results_of_another_shape_are_left_to_other_checks() -> None:
    assert compared(with_last(2.0)[:2], with_last(1.0, np.float64), with_last(1.0))


@pytest.mark.parametrize(("largest", "size"), [(8.0, 8), (-8.0, 8), (0.5, 1), (np.inf, 1), (-np.inf, 1)], ids=str)
def test_sixty_four_roundings_of_the_largest_result_leave_it_decided(largest: float, size: float) -> None:
    expected = with_last(0.0, np.float64, largest)

    for part, is_decided in ((0.98, True), (1.02, False)):
        narrow = with_last(part * 64 * EPS * size, first=largest)
        assert compared(with_last(0.25, first=largest), expected, narrow) is not is_decided


@pytest.mark.parametrize(("largest", "size"), [(8.0, 8), (-8.0, 8), (0.5, 0.5), (np.inf, 0.5)], ids=str)
def test_sums_may_be_off_by_less_than_a_rounding_step(largest: float, size: float) -> None:
    expected = with_last(0.0, np.float64, largest)

    for part, is_taken in ((0.98, True), (1.02, False)):
        got = with_last(part * 2.0**-14 * size, first=largest)
        assert compared(got, expected, expected.astype(np.float32)) is is_taken


def test_sums_may_be_off_next_to_a_result_that_is_not_decided() -> None:
    expected, got, narrow = with_last(1.0, np.float64), with_last(7.0), with_last(1.001)
    got[1] += 2.0**-12

    assert compared(got, expected, narrow)
    assert not compared(got, expected, with_last(1.0))


def test_steps_are_relative_to_small_results_too() -> None:
    expected = with_last(0.0, np.float64) * 2.0**-7

    for part, is_taken in ((0.98, True), (1.02, False)):
        got = with_last(part * 2.0**-11) * np.float32(2.0**-7)
        assert compared(got, expected, expected.astype(np.float32), A * np.float32(2.0**-7)) is is_taken


def test_integers_may_not_be_off() -> None:
    expected = np.array([2**20, 0, 1])

    assert compared(expected, expected, expected)
    assert not compared(expected + np.array([0, 0, 1]), expected, expected)
    assert compared(expected + np.array([0, 0, 1]), expected, expected + np.array([0, 0, 2**9]))


def test_arrays_without_elements_are_compared() -> None:
    nothing = np.zeros(0, np.float32)

    assert compared(nothing, nothing.astype(np.float64), nothing, nothing)


def test_coarse_floats_are_not_checked() -> None:
    assert tried("float16", lambda make: [make(9)]) == []
    assert len(tried("float32", lambda make: [make(9)])) > 4


def test_numbers_are_shared_in_twelve_samples() -> None:
    calls = tried("int32", lambda make: [(make(9, low=0, high=9), make.of([3, 1])) for _ in range(20)])

    found = {tuple(first[1::2].tolist()) for first, _ in calls}
    assert len(found) == 12


def test_inputs_that_the_reference_rejects_are_left_out() -> None:
    def reference(a: Any) -> Any:
        if (a * 512 == np.round(a * 512)).all() or np.abs(a).max() > 3:
            raise ValueError("ties")
        return np.round(a)

    assert said(upwards, reference) == ""


@pytest.mark.parametrize(("declared", "applies"), [({}, True), ({"reference": None}, False)], ids=["given", "none"])
def test_check_is_of_functions_with_a_reference(declared: Any, applies: bool) -> None:
    spec = OpSpec(**{"fn": lambda xp, a: xp.round(a), "reference": np.round, "name": "rounded", **declared})

    assert REGISTERED["halves"].applies(spec) is applies


def test_check_is_not_of_ops() -> None:
    assert not REGISTERED["halves"].applies(OpSpec(op=ops.exp, reference=np.exp))


def test_multiples_of_half_a_step_keep_the_digits_of_float64() -> None:
    scale = HostArray(np.full(2, 0.7), span=(0.5, 0.9))
    ((numbers, _),) = steps(HostArray(np.array([2.0**30 + 0.3, 0.1])), scale).values()

    assert numbers.values.tolist() == [2.0**30 + 0.25, 0.0]


def test_integers_that_are_off_by_one_at_a_tie_fail() -> None:
    """Integers are not excused as sums of large products are."""
    expected = np.array([2**20, 5], np.int64)

    assert compared(expected, expected, expected, A[:2])
    assert not compared(np.array([2**20, 6]), expected, expected, A[:2])
