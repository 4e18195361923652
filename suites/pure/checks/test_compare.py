"""Comparing: what agrees, what does not, and what a failure says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay import from_host
from cuassay.testing import assert_close
from cuassay.testing.compare import (
    HEADROOM,
    Verdict,
    assert_same_bits,
    collecting,
    describe_case,
    is_within_units,
    judge,
)

INF, NAN = np.inf, np.nan


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param(f32(NAN, INF, -INF), f32(NAN, INF, -INF), id="nan-and-inf"),
        pytest.param(f32(1 + 2**-23), f32(1), id="one-ulp"),
        pytest.param(f32(), f32(), id="empty"),
        pytest.param(np.array([1 + 2j], np.complex64), np.array([1 + 2j], np.complex64), id="complex"),
        pytest.param(np.array([2**62 + 1]), np.array([2**62 + 1]), id="int64-beyond-float64"),
        pytest.param(np.array([1.5], ml_dtypes.bfloat16), np.array([1.5], ml_dtypes.bfloat16), id="bfloat16"),
        pytest.param(1.0, 1.0, id="python-numbers"),
        pytest.param(from_host(f32(1), "sim"), f32(1), id="sim-against-numpy"),
    ],
)
def test_what_agrees_passes(actual: Any, expected: Any) -> None:
    assert_close(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        pytest.param(f32(1, 2), f32(1), r"shape is \(2,\); expected \(1,\)", id="shape"),
        pytest.param(f32(1), np.array([1.0]), "dtype is float32; expected float64", id="dtype"),
        pytest.param(f32(1), from_host(f32(1), "sim"), "is on cpu:0, not on sim:0", id="device"),
        pytest.param((1.0,), from_host(f32(1), "sim"), "is a tuple, not on sim:0", id="no-array"),
        pytest.param(f32(NAN), f32(1), "got nan, expected 1.0", id="nan-for-number"),
        pytest.param(f32(1), f32(NAN), "got 1.0, expected nan", id="number-for-nan"),
        pytest.param(f32(INF), f32(-INF), "got inf, expected -inf", id="sign-of-inf"),
        pytest.param(f32(1e30), f32(INF), "expected inf", id="large-for-inf"),
        pytest.param(np.array([2**62 + 1]), np.array([2**62]), "got 4611686018427387905", id="int64-by-one"),
        pytest.param(np.array([1 + 2j]), np.array([1 + 2.1j]), r"got \(1\+2j\)", id="imaginary-part"),
    ],
)
def test_what_differs_fails_and_says_how(actual: Any, expected: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_close(actual, expected)


def test_a_result_that_should_be_on_the_host_and_is_not_fails() -> None:
    with pytest.raises(AssertionError, match="is on sim:0, not on cpu:0"):
        assert_close(from_host(f32(1), "sim"), f32(1), device="cpu")


@pytest.mark.parametrize("got", [1 + 2.5j, 1.5 + 2j], ids=["imaginary", "real"])
def test_the_worse_part_of_a_complex_number_is_told(got: complex) -> None:
    verdict = judge(np.array([got]), np.array([1 + 2j]), 0.25)

    assert (verdict.bad, verdict.ratio, verdict.error) == (1, 2.0, 0.5)


def test_a_complex_result_where_a_real_one_is_expected_has_a_wrong_part() -> None:
    assert judge(np.array([1 + 2j], np.complex64), np.array([1.0]), 0.25).bad == 1
    assert judge(np.array([1.0]), np.array([1 + 2j]), 0.25).bad == 1


@pytest.mark.parametrize("expected", [450.0, -450.0])
def test_nan_passes_where_either_end_of_the_tolerance_rounds_to_it(expected: float) -> None:
    nan = np.array([NAN], ml_dtypes.float8_e4m3fn)

    assert judge(nan, np.array([expected]), 30.0).bad == 0


@pytest.mark.parametrize("wrong", [4, 6], ids=["below", "above"])
def test_a_tolerance_below_one_forgives_no_other_integer(wrong: int) -> None:
    assert judge(np.array([wrong]), np.array([5]), 1e-5).bad == 1
    assert judge(np.array([5]), np.array([5]), 1e-5).bad == 0


def test_booleans_are_compared_exactly_whatever_the_tolerance() -> None:
    got, want = np.array([True, False, True]), np.array([True, False, False])

    verdict = judge(got, want, 2.0)

    assert (verdict.bad, verdict.index) == (1, (2,))


def test_a_failure_names_the_worst_element_its_index_and_the_share() -> None:
    actual = np.zeros((2, 50), np.float32)
    actual[0, 3], actual[1, 7] = 0.5, 3.0

    with pytest.raises(AssertionError) as caught:
        assert_close(actual, np.zeros((2, 50), np.float32), atol=0.25)

    text = str(caught.value)
    assert "2 of 100 elements (2.00%)" in text
    assert "worst at (1, 7): got 3.0, expected 0.0" in text
    assert "error 3.0 against tolerance 0.25 (12x over)" in text


def test_a_failure_ends_with_the_described_case() -> None:
    with describe_case("op: add"), pytest.raises(AssertionError, match="op: add"):
        assert_close(f32(1), f32(2))


def test_headroom_is_the_worst_error_over_its_tolerance() -> None:
    token = HEADROOM.set([])
    try:
        assert_close(np.array([1.0, 1.25]), np.array([1.0, 1.0]), atol=0.5)
        collected = HEADROOM.get()
    finally:
        HEADROOM.reset(token)

    assert collected == [0.5]


@pytest.mark.parametrize(
    ("dtype", "expected", "passes", "fails"),
    [
        ("float16", 65_519.9, 65_504.0, INF),
        ("float16", 65_520.1, INF, 65_504.0),
        ("bfloat16", 1 + 2**-9, 1.0, 1 + 2**-7),
        ("float8_e4m3fn", 500.0, NAN, 448.0),
    ],
)
def test_a_result_must_be_the_rounding_of_the_reference(
    dtype: str, expected: float, passes: float, fails: float
) -> None:
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    right, wrong = (np.array([value]).astype(narrow) for value in (passes, fails))

    assert judge(right, np.array([expected]), 0.0).bad == 0
    assert judge(wrong, np.array([expected]), 0.0).bad == 1


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_an_array_agrees_with_itself(values: list[float]) -> None:
    assert_close(f32(*values), f32(*values), atol=0.0)


@given(st.floats(-1e6, 1e6), st.floats(0.001, 1e3))
def test_twice_the_tolerance_away_is_bad(value: float, tolerance: float) -> None:
    verdict = judge(np.array([value + 2 * tolerance]), np.array([value]), tolerance)

    assert verdict.bad == 1
    assert verdict.ratio > 1


def test_bits_tell_what_values_do_not() -> None:
    assert_close(f32(0.0), f32(-0.0))
    with pytest.raises(AssertionError, match="1 of 1 elements differ in their bits"):
        assert_same_bits(f32(0.0), f32(-0.0))


@pytest.mark.parametrize(
    ("limit", "near", "far"),
    [({"rtol": 1e-2}, 100.9, 101.1), ({"atol": 1e-2}, 100.009, 100.011), ({"rtol": 1e-2, "atol": 1.0}, 101.9, 102.1)],
    ids=["rtol", "atol", "both"],
)
def test_a_limit_that_is_asked_for_is_the_whole_limit(limit: dict[str, float], near: float, far: float) -> None:
    assert_close(np.array([near, -near]), np.array([100.0, -100.0]), **limit)
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(np.array([far]), np.array([100.0]), **limit)


@pytest.mark.parametrize("limit", [{"rtol": 1e-2}, {"atol": 0.0}], ids=["rtol", "atol"])
def test_zero_has_no_limit_unless_one_is_asked_for(limit: dict[str, float]) -> None:
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(np.array([1e-9]), np.array([0.0]), **limit)


def test_the_worst_headroom_and_the_last_map_of_errors_are_collected() -> None:
    told: dict[str, Any] = {}
    with collecting(told):
        assert_close(f32(1), f32(1))
        assert_close(np.array([7]), np.array([7]))
    assert told == {"headroom": 0.0}

    with collecting(told):
        assert_close(np.array([1.5]), np.array([1.0]), atol=1.0)
        assert_close(f32(1), f32(1))
    assert told == {"headroom": 0.5}

    told.clear()
    with collecting(told):
        pass
    assert told == {}


def test_the_error_of_large_integers_is_exact() -> None:
    with pytest.raises(AssertionError, match=r"error 2\.0 "):
        assert_close(np.array([2**30 + 3]), np.array([2**30 + 1]))


@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_nothing_at_all_agrees_without_an_error_or_a_limit(tolerance: float) -> None:
    assert judge(f32(), f32(), tolerance) == Verdict(
        bad=0, total=0, ratio=0.0, index=(), error=0.0, limit=0.0, where=None
    )


@pytest.mark.parametrize(
    ("got", "want", "tolerance", "verdict"),
    [
        pytest.param([1.5, 1, 1.25], [1, 1, 1], 1.0, (0, 3, 0.5, (0,), 0.5, 1.0), id="within"),
        pytest.param([1.0, 1.0], [1, 1], 0.0, (0, 2, 0.0, (0,), 0.0, 0.0), id="equal"),
        pytest.param([1.0, 4.0], [1, 1], 1.5, (1, 2, 2.0, (1,), 3.0, 1.5), id="outside"),
        pytest.param([2.0, 1.0], [1, 1], [1.0, 0.5], (0, 2, 1.0, (0,), 1.0, 1.0), id="at the limit"),
        pytest.param([1.0, 1.25], [1, 1], [2.0, 0.5], (0, 2, 0.5, (1,), 0.25, 0.5), id="each limit at its place"),
        pytest.param(
            [1.0, 2.0], [1, 1], np.inf, (1, 2, np.inf, (1,), 1.0, 0.0), id="an infinite tolerance counts as 0"
        ),
        pytest.param([1.0, 2.0], [1, 1], NAN, (1, 2, np.inf, (1,), 1.0, 0.0), id="nan counts as 0"),
    ],
)
def test_a_verdict_has_the_worst_error_and_its_limit(got: Any, want: Any, tolerance: Any, verdict: Any) -> None:
    found = judge(np.array(got), np.array(want, np.float64), np.asarray(tolerance))

    assert (found.bad, found.total, found.ratio, found.index, found.error, found.limit) == verdict
    assert found.where is not None
    assert np.count_nonzero(found.where) == found.bad


def test_the_worst_of_many_elements_is_found_behind_the_first_block() -> None:
    got = np.zeros((3, 2**15))
    got[1, 7], got[2, 9] = 0.5, 0.75

    verdict = judge(got, np.zeros_like(got), 1.0)

    assert (verdict.total, verdict.ratio, verdict.index, verdict.error) == (3 * 2**15, 0.75, (2, 9), 0.75)


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (f32(1, 2), f32(1), r"is \(2,\) float32; expected \(1,\) float32"),
        (f32(1), np.array([1.0]), r"is \(1,\) float32; expected \(1,\) float64"),
        (
            f32(1, 2, 2),
            f32(1, 3, 3),
            r"2 of 3 elements differ in their bits; the first at \(1,\): got 2.0, expected 3.0",
        ),
        (np.array([[1], [256]]), np.array([[1], [0]]), r"1 of 2 elements differ .* at \(1, 0\): got 256, expected 0"),
        (np.array(1.5), np.array(1.25), r"1 of 1 elements differ .* at \(\): got 1.5, expected 1.25"),
    ],
    ids=["shape", "dtype", "first of two", "one byte", "without axes"],
)
def test_unequal_bits_are_counted_and_the_first_is_shown(got: Any, want: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_same_bits(got, want)
    assert_same_bits(got, got.copy())
    assert_same_bits(f32(), f32())


@pytest.mark.parametrize(
    ("got", "want", "options", "message"),
    [
        (NAN, 1.0, {"atol": 1.0}, "no tolerance applies to nan and infinities"),
        (2.0, 1.0, {"atol": 0.0}, r"error 1.0 against tolerance 0.0 \(none allowed\)"),
        (4.0, 1.0, {"atol": 1.0}, r"error 3.0 against tolerance 1.0 \(3x over\)"),
        (2.0, 1.0, {"atol": 0.0, "note": "computed twice"}, r"\n  note: computed twice"),
        (2.0, 1.0, {"tolerance": np.array(0.5), "atol": 9.0}, r"tolerance 0.5 \(2x over\)"),
        (2.0, 1.0, {"atol": 0.0, "inputs": ((np.array(7.0),), {})}, r"\n  input 0.*: 7.0"),
    ],
    ids=["nan", "none allowed", "over", "note", "its own tolerance", "inputs"],
)
def test_a_failure_says_how_far_off_a_result_is(got: float, want: float, options: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_close(np.array(got), np.array(want), **options)


def test_a_dtype_may_be_asked_for_or_left_open() -> None:
    assert_close(f32(1), np.array([1.0]), dtype="float32")
    assert_close(f32(1), np.array([1.0]), check_dtype=False)
    with pytest.raises(AssertionError, match="dtype is float32; expected float16"):
        assert_close(f32(1), f32(1), dtype=np.float16)


def test_without_a_dtype_the_tolerance_is_that_of_the_result() -> None:
    assert_close(np.float16([1.0]), np.array([1.001]), check_dtype=False)
    with pytest.raises(AssertionError, match="out of tolerance"):
        assert_close(np.array([1.0]), np.float16([1.001]), check_dtype=False)


def test_what_is_collected_inside_is_not_outside() -> None:
    outer: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    with collecting(outer):
        with collecting(inner), pytest.raises(AssertionError):
            assert_close(np.eye(2) * 8, np.zeros((2, 2)), atol=2.0)
        assert_close(f32(1.5), f32(1), atol=2.0)

    assert (inner["headroom"], outer) == (4.0, {"headroom": 0.25})
    assert inner["error_map"]


def test_described_cases_are_told_from_the_outer_one_in() -> None:
    with describe_case("op: add", "seed: 1"), describe_case("sample: 0"), pytest.raises(AssertionError) as caught:
        assert_close(f32(1, 2), f32(1))
    with pytest.raises(AssertionError) as after:
        assert_close(f32(1, 2), f32(1))

    assert str(caught.value).endswith("\n  op: add\n  seed: 1\n  sample: 0")
    assert str(after.value) == "shape is (2,); expected (1,)"


@pytest.mark.parametrize("infinite", [INF, -INF])
def test_a_relative_limit_next_to_infinity_is_that_of_each_number(infinite: float) -> None:
    assert_close(np.array([infinite, 1.25]), np.array([infinite, 1.0]), rtol=0.25)
    with pytest.raises(AssertionError, match="no tolerance applies"):
        assert_close(np.array([0.0, 1.0]), np.array([infinite, 1.0]), rtol=0.25)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("place", "units", "is_within"), [(0, 3, True), (0, 5, False), (99_999, 5, False)])
def test_units_of_large_arrays_are_compared_to_the_last_block(
    dtype: str, place: int, units: float, is_within: bool
) -> None:
    want = np.linspace(1, 2, 100_000)
    got = want.astype(dtype)
    unit = float(np.finfo(dtype).eps)
    got[place] = want[place] * (1 + units * unit)

    assert is_within_units(got, want, 4 * unit) is is_within


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (np.array([np.nan], np.float32), np.array([np.nan])),
        (np.array([np.inf], np.float32), np.array([np.inf])),
        (np.array([0], np.float32), np.array([np.inf])),
        (np.array([-np.inf], np.float32), np.array([np.inf])),
        (np.array([1], np.int32), np.array([1.0])),
        (np.ones((2, 1), np.float32), np.ones((1, 2))),
        (np.ones((3, 2), np.float32).T, np.ones((2, 3))),
    ],
    ids=["nan", "infinity", "no infinity", "other infinity", "integers", "shapes", "strides"],
)
def test_what_needs_the_whole_comparison_is_not_certain(got: Any, want: Any) -> None:
    assert not is_within_units(got, want, 1.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_error_within_a_small_tolerance_has_its_share_of_it(dtype: str) -> None:
    verdict = judge(np.array([1 + 2.0**-8], dtype), np.array([1.0]), 2.0**-6)

    assert (verdict.bad, verdict.ratio) == (0, 0.25)


def test_bits_of_views_in_any_order_are_compared() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)

    assert_same_bits(a.T, np.ascontiguousarray(a.T))
    with pytest.raises(AssertionError):
        assert_same_bits(a.T, np.ascontiguousarray(a.T)[::-1])
