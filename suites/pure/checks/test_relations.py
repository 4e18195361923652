"""Metamorphic relations: what each one demands, how far two results may be apart, and which samples are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.generated.relations import RELATIONS, _cases, check_relations

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")
A = np.array([[1.0, -2.0, 4.0], [0.5, 3.0, -7.0]], np.float32)


def holds(word: str, call: Callable[[Any], Any], a: Any = A) -> bool:
    try:
        RELATIONS[word](call, a)
    except AssertionError:
        return False
    return True


def given(word: str, a: Any) -> list[Any]:
    """What the relation gives a function whose results are all 0, for which every relation holds."""
    seen: list[Any] = []

    def zeros(array: Any) -> Any:
        seen.append(array)
        return array * 0

    RELATIONS[word](zeros, a)
    return seen


@pytest.mark.parametrize(
    ("word", "right", "wrong"),
    [
        ("even", lambda a: a * a, lambda a: a),
        ("odd", lambda a: a**3, lambda a: a * a),
        ("odd", lambda a: a, lambda a: a + 1),
        ("shift_invariant", lambda a: a - a.max(), lambda a: a),
        ("permutation_of_axis", lambda a: a.sum(axis=-1), lambda a: a[..., 0]),
        ("linear", lambda a: a * 3, lambda a: a + 1),
        ("linear", lambda a: a.sum(axis=-1), lambda a: a.max(axis=-1)),
        ("batch_invariant", lambda a: a * a, lambda a: a - a.max()),
        ("idempotent", np.abs, lambda a: a + 1),
    ],
)
def test_relation_holds_for_right_functions_only(word: str, right: Any, wrong: Any) -> None:
    assert holds(word, right)
    assert not holds(word, wrong)


def test_numbers_are_shifted_by_two_and_rounded_back() -> None:
    shifted, back = given("shift_invariant", np.array([1.5, 2.0**-30], np.float32))

    assert shifted.tolist() == [3.5, 2.0]
    assert back.tolist() == [1.5, 0.0]
    assert (shifted.dtype, back.dtype) == (np.float32, np.float32)


def test_the_last_axis_is_reversed_in_a_contiguous_array() -> None:
    reversed_, same = given("permutation_of_axis", A)

    assert reversed_.tolist() == [[4.0, -2.0, 1.0], [-7.0, 3.0, 0.5]]
    assert reversed_.flags.c_contiguous
    assert same is A


def test_linearity_adds_the_neighbours_and_doubles() -> None:
    a = np.array([1.0, 2.0, 4.0], np.float32)

    whole, rest, other, twice, same = given("linear", a)

    assert other.tolist() == [4.0, 1.0, 2.0]
    assert whole.tolist() == [5.0, 3.0, 6.0]
    assert rest.tolist() == [1.0, 2.0, 4.0]
    assert twice.tolist() == [2.0, 4.0, 8.0]
    assert same is a


def test_what_rounding_leaves_of_a_sum_is_the_other_term() -> None:
    _, rest, *_ = given("linear", np.array([2.0**30, 1.0], np.float32))

    assert rest.tolist() == [2.0**30, 0.0]


def test_a_function_that_adds_only_and_one_that_doubles_only_are_not_linear() -> None:
    a = np.array([1.0, 2.0, 4.0], np.float32)

    assert not holds("linear", lambda b: b + (b.tolist() == [2.0, 4.0, 8.0]), a)
    assert not holds("linear", lambda b: b + (b.tolist() == [5.0, 3.0, 6.0]), a)


@pytest.mark.parametrize(("of", "to"), [("int32", "float64"), ("float16", "float32")])
def test_linear_function_may_give_another_dtype(of: str, to: str) -> None:
    assert holds("linear", lambda a: a.mean(axis=-1, dtype=to), np.array([[1, -2, 4], [0, 3, -7]], of))


def test_first_and_last_row_are_taken_alone() -> None:
    a = np.arange(15, dtype=np.float32).reshape(5, 3)

    whole, first, last = given("batch_invariant", a)

    assert whole is a
    assert first.tolist() == [[0, 1, 2]]
    assert last.tolist() == [[12, 13, 14]]


def test_rows_alone_are_contiguous() -> None:
    _, first, last = given("batch_invariant", np.asfortranarray(np.ones((5, 3), np.float32)))

    assert (first.flags.c_contiguous, last.flags.c_contiguous) == (True, True)


@pytest.mark.parametrize("place", [0, 4])
def test_row_that_differs_alone_is_found_at_either_end(place: int) -> None:
    a = np.arange(15, dtype=np.float32).reshape(5, 3)

    assert holds("batch_invariant", lambda rows: rows + 1, a)
    assert not holds("batch_invariant", lambda rows: rows + (len(rows) == 1 and rows[0, 0] == a[place, 0]), a)


@pytest.mark.parametrize("shape", [(), (4,), (0, 3)], ids=str)
def test_arrays_without_rows_have_no_batch(shape: tuple[int, ...]) -> None:
    assert given("batch_invariant", np.zeros(shape, np.float32)) == []


def test_rows_without_elements_are_a_batch() -> None:
    assert [rows.shape for rows in given("batch_invariant", np.zeros((2, 0), np.float32))] == [(2, 0), (1, 0), (1, 0)]


def test_rows_are_compared_bit_by_bit() -> None:
    assert not holds("batch_invariant", lambda a: a * 0.0 * (1 if len(a) > 1 else -1))


# ------------------------------------------------------------------------------------------------ the tolerance

EPS = float(np.finfo(np.float32).eps)
EPS16, EPS64 = float(np.finfo(np.float16).eps), float(np.finfo(np.float64).eps)


def agree(got: Any, want: Any, of: Any) -> bool:
    """Whether a function may give `got` for -a and `want` for a, where a is `of`."""
    results = iter([got, want])
    return holds("even", lambda _: next(results), of)


def array(*numbers: Any, dtype: Any = np.float32) -> Any:
    return np.array(numbers, dtype)


@pytest.mark.parametrize(
    ("want", "of", "limit"),
    [
        pytest.param(array(1, 0), array(0, 0), 16 * EPS, id="sixteen units"),
        pytest.param(array(-1, 0), array(0, 0), 16 * EPS, id="negative"),
        pytest.param(array(1, 0), array(-8, 0), 128 * EPS, id="of the largest input"),
        pytest.param(array(8, 0), array(1, 0), 128 * EPS, id="of the largest result"),
        pytest.param(array(1, 0), np.ones(8, np.float32), 32 * EPS, id="root of four terms"),
        pytest.param(array(1, 0), array(1), 16 * EPS, id="more results than inputs"),
        pytest.param(array(1, 0), array(1, 1, dtype=np.float16), 16 * EPS16, id="input in float16"),
        pytest.param(array(1, 0, dtype=np.float16), array(1, 1), 16 * EPS16, id="result in float16"),
        pytest.param(array(1, 0, dtype=np.float64), array(1, 1, dtype=np.int64), 16 * EPS64, id="integers"),
        pytest.param(array(1, 0, dtype=np.float64), array(-128, 1, dtype=np.int8), 2048 * EPS64, id="the least int8"),
        pytest.param(array(1j, 0, dtype=np.complex64), array(1, 1), 16 * EPS, id="complex"),
        pytest.param(array(1, 0, dtype=np.float64), array(1j, 0, dtype=np.complex64), 16 * EPS, id="of complex"),
        pytest.param(array(1e300, 0, dtype=np.float64), array(1, 1), 1e300 * 16 * EPS, id="huge"),
        pytest.param(array(2.0**-20, 0), array(1, 1), 2.0**-22, id="a quarter of the largest result"),
        pytest.param(array(0, 0), array(4, 1), EPS, id="a quarter of a unit if the results are 0"),
        pytest.param(array(2.0**-5, 0), array(0, 0), 2.0**-1 * EPS, id="small results"),
        pytest.param(array(2.0**-5, np.inf, 0), array(np.inf, 0), 2.0**-1 * EPS, id="infinities do not count"),
        pytest.param(array(2.0**-5, -np.inf, 0), array(-np.inf, 0), 2.0**-1 * EPS, id="negative ones neither"),
        pytest.param(array(1, np.nan, 0), array(np.nan, 1), 16 * EPS, id="NaN does not count"),
    ],
)
def test_results_agree_up_to_rounding(want: Any, of: Any, limit: float) -> None:
    near, far = want.copy(), want.copy()
    near[-1], far[-1] = 0.998 * limit, 1.002 * limit

    assert agree(near, want, of)
    assert not agree(far, want, of)


def test_single_result_may_be_off_by_the_root_of_all_terms() -> None:
    of, want = np.ones(4, np.float32), array(1, dtype=np.float64)

    assert agree(want + 0.998 * 32 * EPS, want, of)
    assert not agree(want + 1.002 * 32 * EPS, want, of)


def test_integers_agree_if_they_are_equal() -> None:
    many = array(2**40, 1, dtype=np.int64)

    assert agree(many, many.copy(), many)
    assert not agree(many + 1, many, many)


def test_truth_values_agree_if_they_are_equal() -> None:
    assert agree(array(1, dtype=bool), array(1, dtype=bool), A)
    assert not agree(array(1, dtype=bool), array(0, dtype=bool), A)


def test_results_without_elements_agree() -> None:
    assert agree(array(), array(), array(1, 2))
    assert agree(array(), array(), array())


# ------------------------------------------------------------------------------------------------ the check


def spec_of(fn: Callable[..., Any] = lambda xp, a: a * 1, **declared: Any) -> OpSpec:
    return OpSpec(**{
        "fn": fn, "name": "related", "dtypes": ("float32",), "relations": ("even", "odd", "linear", "idempotent"),
        "samples": lambda make: [make((3, 4)), make(7)], "reference": lambda a: a * 1, **declared,
    })  # fmt: skip


def cases(spec: OpSpec, dtype: Any = FLOAT32) -> dict[str, tuple[Sample, tuple[str, ...]]]:
    return {sample.label: (sample, words) for sample, words in _cases(spec, CPU, np.dtype(dtype))}


def test_relations_are_checked_on_ordinary_numbers_ties_and_large_numbers() -> None:
    spec = spec_of()
    found = cases(spec)

    assert list(found) == [
        "0: shape 3x4", "1: shape 7", "0: shape 3x4, multiples of 1/8", "0: shape 3x4, times 65536",
    ]  # fmt: skip
    assert [words for _, words in found.values()] == [spec.relations] * 3 + [("even", "odd", "linear")]
    plain, _, ties, large = (sample.args[0].values for sample, _ in found.values())
    np.testing.assert_array_equal(ties, np.round(plain * 8) / 8)
    np.testing.assert_array_equal(large, plain * 65536)
    assert (ties.dtype, large.dtype) == (np.float32, np.float32)


def test_numbers_are_replaced_in_the_largest_sample_that_is_small() -> None:
    found = cases(spec_of(samples=lambda make: [make(5), make(9000), make(9001)]))

    assert [sample.args[0].shape for sample, _ in list(found.values())[-2:]] == [(9000,), (9000,)]


@pytest.mark.parametrize(
    ("dtype", "low"),
    [
        pytest.param("int32", None, id="integers"),
        pytest.param("float16", None, id="coarse floats"),
        pytest.param("float32", 0, id="numbers of a range"),
    ],
)
def test_only_ordinary_numbers_are_checked_of(dtype: str, low: float | None) -> None:
    spec = spec_of(dtypes=(dtype,), samples=lambda make: [make(5, low=low), make(7, low=low)])

    assert list(cases(spec, dtype)) == ["0: shape 5", "1: shape 7"]


def test_only_ordinary_numbers_are_checked_of_integers_next_to_floats() -> None:
    spec = spec_of(
        lambda xp, a, b: a * b, reference=np.multiply, dtypes=("int32",),
        samples=lambda make: [(make(5), make(5, dtype="float32"))],
    )  # fmt: skip

    assert list(cases(spec, "int32")) == ["0: shapes 5, 5"]


@pytest.mark.parametrize(("most", "left"), [(100, "multiples of 1/8"), (1e9, "times 65536")])
def test_numbers_that_the_reference_rejects_are_left_out(most: float, left: str) -> None:
    def reference(a: Any) -> Any:
        if np.abs(a).max() > most or (most > 100 and (a * 8 == np.round(a * 8)).all()):
            raise ValueError("not these")
        return a * 1

    labels = list(cases(spec_of(reference=reference, samples=lambda make: [make(7)])))

    assert labels == ["0: shape 7", f"0: shape 7, {left}"]


def related(fn: Callable[..., Any], word: str, **declared: Any) -> str:
    """What the check says; empty if it passes."""
    try:
        check_relations(spec_of(fn, relations=(word,), **{"reference": None, **declared}), CPU, FLOAT32)
    except AssertionError as error:
        return str(error)
    return ""


def test_failure_names_the_relation_the_formula_and_the_sample() -> None:
    told = related(lambda xp, a: a + 1, "linear")

    assert told.startswith(
        "relations= declares 'linear', which does not hold: f(a + b) = f(a) + f(b), and f(2 a) = 2 f(a)\n"
    )
    assert "sample: 0: shape 3x4" in told
    assert related(lambda xp, a: a * 2, "linear") == ""


def test_relation_is_one_of_the_first_argument_for_the_others_as_they_are() -> None:
    def scaled(xp: Any, a: Any, b: Any, *, power: int = 2) -> Any:
        return a**power * b

    def samples(make: Any) -> Any:
        return [Sample((make(4), make(4)), {"power": 3})]

    assert related(scaled, "odd", samples=samples) == ""
    assert related(scaled, "even", samples=samples) != ""


def test_results_may_be_numbers_of_python() -> None:
    assert related(lambda xp, a: float(a.sum()), "odd") == ""
    assert related(lambda xp, a: float(a.sum()), "even") != ""


@pytest.mark.parametrize("first", [2.0, np.zeros(0, np.float32)], ids=["a number", "no elements"])
def test_calls_without_numbers_in_the_first_argument_are_left_out(first: Any) -> None:
    def ones(xp: Any, a: Any, b: Any) -> Any:
        return xp.ones(3)

    assert related(ones, "odd", samples=lambda make: [Sample((make(4), make(4)))]) != ""
    assert related(ones, "odd", samples=lambda make: [Sample((first, make(4)))]) == ""


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        pytest.param(spec_of(), True, id="a function"),
        pytest.param(spec_of(relations=()), False, id="no relations"),
        pytest.param(OpSpec(op=ops.exp, reference=np.exp, relations=("even",)), False, id="an op"),
    ],
)
def test_check_is_of_functions_that_declare_relations(spec: OpSpec, applies: bool) -> None:
    assert REGISTERED["relations"].applies(spec) is applies
