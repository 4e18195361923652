"""Which infinities are tried, and which wrong results for them fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import infinities
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.natively import with_row
from cuassay.testing.samples import HostArray

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")
INF = float("inf")


def spec_of(fn: Callable[..., Any], reference: Any, samples: Any = None) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=("float32", "float16"),
        samples=samples or (lambda make: [make((3, 9))]),
    )  # fmt: skip


def of_two(fn: Callable[..., Any], reference: Any, shapes: Any = ((3, 9), (3, 9))) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, b: fn(a, b), reference=reference, name="f", dtypes=("float32",),
        samples=lambda make: [tuple(make(shape) for shape in shapes)],
    )  # fmt: skip


def checked(spec: OpSpec, dtype: str = "float32") -> str:
    return failure(CHECKS["infinities"], spec, "cpu:0", np.dtype(dtype))


def same(a: Any) -> Any:
    return a * 1


@pytest.mark.parametrize(
    ("shape", "low", "part"),
    [((9,), 9, 4), ((3, 4), 4, 1), ((2, 1), 1, 0), ((), 1, 0)],
    ids=["row", "rows", "one", "0-d"],
)
def test_a_row_and_less_than_half_of_it_are_infinite(shape: tuple[int, ...], low: int, part: int) -> None:
    ones = np.ones(shape, np.float32)
    row, half = with_row(-np.inf)(ones), infinities._part_of_row(INF)(ones)

    assert (row.shape, half.shape) == (shape, shape)
    assert np.flatnonzero(np.isneginf(row)).tolist() == list(range(low))
    assert np.flatnonzero(np.isposinf(half)).tolist() == list(range(part))
    assert (ones == 1).all()


@pytest.mark.parametrize("function", [same, np.abs, np.exp, lambda a: a.sum(axis=-1), lambda a: np.median(a, axis=-1)])
def test_a_right_function_of_infinities_passes(function: Any) -> None:
    assert not checked(spec_of(function, function))


#: Functions that are wrong only for these infinities, and what the failure says.
WRONG: dict[str, Any] = {
    "one number is inf": lambda a: (np.isposinf(a).sum() == 1) & ~np.isposinf(a[-1, -1]) & np.isposinf(a),
    "one number is -inf": lambda a: (np.isneginf(a).sum() == 1) & np.isneginf(a),
    "the last number is inf": lambda a: (np.isposinf(a).sum() == 1) & np.isposinf(a[-1, -1]) & np.isposinf(a),
    "a row of minus infinity": lambda a: np.isneginf(a).all(axis=-1, keepdims=True) & ~np.isneginf(a).all(),
    "all numbers are inf": lambda a: np.full(a.shape, np.isposinf(a).all()),
    "all numbers are -inf": lambda a: np.full(a.shape, np.isneginf(a).all()),
    "less than half of a row is inf": lambda a: (np.isposinf(a).sum() == 4) & np.isposinf(a),
    "less than half of a row is -inf": lambda a: (np.isneginf(a).sum() == 4) & np.isneginf(a),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_infinity_that_becomes_a_number_is_found(name: str) -> None:
    found = checked(spec_of(lambda a: np.where(WRONG[name](a), 7, a).astype(a.dtype), same))

    assert name in found


def test_sixteen_bits_are_not_asked() -> None:
    assert not checked(spec_of(lambda a: np.nan_to_num(a), same), "float16")


def test_infinities_are_not_put_into_a_range() -> None:
    assert not checked(spec_of(lambda a: np.clip(a, 0, 9), same, lambda make: [make((3, 9), low=0, high=9)]))


@pytest.mark.parametrize(("place", "is_tried"), [(11, True), (12, False)], ids=["the twelfth", "the thirteenth"])
def test_twelve_samples_get_less_than_half_of_a_row(place: int, is_tried: bool) -> None:
    def wrong(a: Any) -> Any:
        count = np.isposinf(a).sum()
        return np.where((a.size == 20 + place) & (count == (a.size - 1) // 2), 7, a).astype(a.dtype)

    found = checked(spec_of(wrong, same, lambda make: [make(20 + length) for length in (*range(13), 79)]))

    assert ("less than half of a row is inf" in found) is is_tried


def infinite(fn: Any, reference: Any, change: Any, base: Any = None) -> str:
    values = np.linspace(-3, 3, 27, dtype=np.float32).reshape(3, 9) if base is None else base
    spec = spec_of(fn, reference)
    given, changed = (Sample((HostArray(one, is_free=True),), label="drawn") for one in (values, change(values)))
    return failure(infinities._check_infinity, spec, CPU, FLOAT32, changed, given)


def one_of(number: float) -> Any:
    def change(array: Any) -> Any:
        changed = array.copy()
        changed[1, 4] = number
        return changed

    return change


@pytest.mark.parametrize(
    ("fn", "reference", "is_found"),
    [
        pytest.param(same, same, False, id="right"),
        pytest.param(lambda a: np.where(np.isinf(a), 7, a), same, True, id="a number for infinity"),
        pytest.param(lambda a: np.where(np.isinf(a), -a, a), same, True, id="the other infinity"),
        pytest.param(lambda a: np.where(np.isinf(a), np.nan, a), same, True, id="NaN for infinity"),
        pytest.param(lambda a: np.where(np.isinf(a), a, a + 1), same, False, id="other numbers"),
        pytest.param(lambda a: a + np.where(np.arange(9) == 2, a.max(), 0), same, True, id="infinity for a number"),
        pytest.param(lambda a: np.where(np.isinf(a), 7, a), lambda a: a - a * 0, False, id="a number for NaN"),
        pytest.param(lambda a: a - a.max() * 0, same, False, id="NaN everywhere"),
        pytest.param(lambda a: a - a.max(axis=-1, keepdims=True) * 0, same, False, id="NaN in a whole line"),
        pytest.param(lambda a: np.where(np.isinf(a), 7, a)[0], same, False, id="another shape"),
        pytest.param(lambda a: np.where(np.isinf(a), 7, a) > 6, same, False, id="truth values"),
    ],
)
def test_results_are_infinite_where_those_of_the_reference_are(fn: Any, reference: Any, is_found: bool) -> None:
    assert bool(infinite(lambda a: np.asarray(fn(a)), reference, one_of(INF))) is is_found


def softmax(a: Any) -> Any:
    parts = np.exp(a - a.max(axis=-1, keepdims=True))
    return parts / parts.sum(axis=-1, keepdims=True)


def log_sum(a: Any, most: Any) -> Any:
    return np.log(np.exp(a - most).sum(axis=-1)) + most[..., 0]


def test_a_function_that_subtracts_the_maximum_may_give_nan_for_an_infinite_result() -> None:
    def shifted(a: Any) -> Any:
        return log_sum(a, a.max(axis=-1, keepdims=True))

    def safe(a: Any) -> Any:
        most = a.max(axis=-1, keepdims=True)
        return log_sum(a, np.where(np.isfinite(most), most, 0))

    assert not infinite(shifted, safe, one_of(INF))
    assert infinite(lambda a: np.where(np.isposinf(safe(a)), np.nan, safe(a)), safe, one_of(INF))


def test_a_linear_reference_excuses_no_nan() -> None:
    def shifted(a: Any) -> Any:
        most = a.max(axis=-1)
        return (a - most[:, None]).sum(axis=-1) + most * a.shape[-1]

    assert infinite(shifted, lambda a: a.sum(axis=-1), one_of(INF))


@pytest.mark.parametrize(
    ("reference", "is_linear"),
    [
        pytest.param(same, True, id="itself"),
        pytest.param(lambda a: a.sum(axis=-1), True, id="a sum"),
        pytest.param(lambda a: a + 1e-4 * a * a, True, id="nearly"),
        pytest.param(lambda a: a + 1e-2 * a * a, False, id="not nearly"),
        pytest.param(np.abs, False, id="absolute"),
        pytest.param(lambda a: a + 1, False, id="one more"),
        pytest.param(lambda a: a[:0], False, id="nothing"),
        pytest.param(lambda a: a[a > 0], False, id="a shape of the numbers"),
    ],
)
def test_a_linear_reference_is_told_from_others(reference: Any, is_linear: bool) -> None:
    base = Sample((HostArray(np.linspace(-3, 3, 27, dtype=np.float32).reshape(3, 9), is_free=True),))

    assert infinities._is_linear(spec_of(reference, reference), base) is is_linear


def test_a_function_of_two_arrays_is_not_linear() -> None:
    ones = [HostArray(np.ones((3, 9), np.float32), is_free=True) for _ in range(2)]

    assert not infinities._is_linear(of_two(np.add, np.add), Sample(tuple(ones)))


# ------------------------------------------------------------------------------------------------ positions and counts


def last_maximum(a: Any) -> Any:
    return 8 - np.argmax(a[..., ::-1], axis=-1)


@pytest.mark.parametrize(
    ("usual", "expected", "got", "is_found"),
    [
        pytest.param(3, 5, 5, False, id="right"),
        pytest.param(3, 5, 6, True, id="another position"),
        pytest.param(-1, 5, 6, True, id="-1 is a position"),
        pytest.param(9, 5, 6, True, id="the extent is a position"),
        pytest.param(-2, 5, 6, False, id="-2 is not one"),
        pytest.param(10, 5, 6, False, id="more than the extent is not one"),
        pytest.param(3, -1, 6, True, id="-1 is expected"),
        pytest.param(3, 9, 6, True, id="the extent is expected"),
        pytest.param(3, -2, 6, False, id="-2 is expected"),
        pytest.param(3, 10, 6, False, id="more than the extent is expected"),
    ],
)
def test_positions_are_compared(usual: int, expected: int, got: int, is_found: bool) -> None:
    def reference(a: Any) -> Any:
        return np.array([expected if np.isinf(a).any() else usual])

    def fn(a: Any) -> Any:
        return np.array([got if np.isinf(a).any() else usual])

    assert bool(infinite(fn, reference, one_of(INF))) is is_found


def nearest(a: Any, b: Any) -> Any:
    return np.argmin(np.abs(a - b), axis=-1)


def test_positions_of_two_arrays_with_an_infinity_in_one_are_compared() -> None:
    assert not checked(of_two(nearest, nearest))
    for place in range(2):
        found = checked(of_two(lambda a, b: nearest(a, b) * (1 - 2 * np.isinf((a, b)[place]).any()), nearest))  # noqa: B023
        assert f"one number of float array {place} is inf" in found


def test_positions_of_a_function_that_makes_nan_on_the_way_are_not_compared() -> None:
    def expanded(a: Any, b: Any) -> Any:
        return np.argmin(np.abs(a - b) + 0 * a * b, axis=-1)

    assert not checked(of_two(lambda a, b: 8 - expanded(a, b) if np.isinf(a + b).any() else expanded(a, b), expanded))


@pytest.mark.parametrize(
    ("fn", "shapes", "is_found"),
    [
        pytest.param(np.maximum, ((3, 9), (3, 9)), False, id="right"),
        pytest.param(lambda a, b: (a + b + np.abs(a - b)) / 2, ((3, 9), (3, 9)), True, id="by a difference"),
        pytest.param(lambda a, b: np.maximum(a, b) + 0 * (a - b), ((3, 9), (3, 9)), True, id="of one number"),
    ],
)
def test_a_number_must_not_become_nan_by_an_infinity_in_one_of_two_arrays(fn: Any, shapes: Any, is_found: bool) -> None:
    def minimum_and_maximum(a: Any, b: Any) -> Any:
        return np.minimum(np.maximum(a, b), 9)

    spec = of_two(lambda a, b: np.clip(fn(a, b), None, 9), minimum_and_maximum, shapes)

    assert bool(checked(spec)) is is_found


def no_nan(got: Any, expected: Any, among: Any) -> str:
    spec = spec_of(lambda a: np.array(got, np.float32), lambda a: np.array(expected))
    sample = Sample((HostArray(np.ones((3, 9), np.float32), is_free=True),), label="drawn")
    return failure(infinities._check_no_nan, spec, CPU, FLOAT32, sample, sample, np.array(among))


@pytest.mark.parametrize(
    ("got", "expected", "among", "is_found"),
    [
        pytest.param([np.nan, 1, 1, 1], [1.0, 1, 1, 1], [True, True, True, True], True, id="NaN"),
        pytest.param([np.nan, 1, 1, 1], [1.0, 1, 1, 1], [False, True, True, True], False, id="elsewhere"),
        pytest.param([2, 1, 1, 1], [1.0, 1, 1, 1], [True, True, True, True], False, id="another number"),
        pytest.param([np.nan, 1, 1, 1], [np.nan, 1, 1, 1], [True, True, True, True], False, id="NaN in both"),
        pytest.param([np.nan, 1, 1, 1], [INF, 1, 1, 1], [True, True, True, True], False, id="infinity expected"),
        pytest.param([np.nan] * 4, [1.0] * 4, [True] * 4, False, id="spread over a line"),
        pytest.param([np.nan, 1, 1], [1.0, 1, 1, 1], [True] * 4, False, id="another shape"),
    ],
)
def test_numbers_that_became_nan_are_found(got: Any, expected: Any, among: Any, is_found: bool) -> None:
    assert bool(no_nan(got, expected, among)) is is_found


def test_a_reference_that_converts_infinities_to_integers_is_not_asked() -> None:
    def reference(a: Any) -> Any:
        return a.astype(np.int64) * 1.0

    sample = Sample((HostArray(np.full((3, 9), INF, np.float32), is_free=True),), label="drawn")
    spec = spec_of(lambda a: np.where(np.arange(9) == 2, np.nan, 1).astype(np.float32) + 0 * np.ones((3, 9)), reference)
    with np.errstate(all="ignore"):
        found = failure(infinities._check_no_nan, spec, CPU, FLOAT32, sample, sample, np.ones((3, 9), np.bool_))

    assert not found


@pytest.mark.parametrize(
    ("fn", "makes_none"),
    [
        pytest.param(lambda a: a + 1, True, id="none"),
        pytest.param(lambda a: np.nan_to_num(a - a), False, id="on the way"),
        pytest.param(lambda a: 1 / (1 / a), True, id="by a division by zero"),
    ],
)
def test_nan_that_is_made_on_the_way_is_seen(fn: Any, makes_none: bool) -> None:
    spec = OpSpec(fn=lambda xp, a: fn(a), reference=same, name="f", samples=lambda make: [make(3, low=1)])

    assert infinities._makes_no_nan(spec, Sample((np.full(3, INF, np.float32),))) is makes_none


def test_a_function_that_fails_on_the_host_is_not_asked_for_nan() -> None:
    def failing(a: Any) -> Any:
        raise LookupError("only on a device")

    assert not infinities._makes_no_nan(spec_of(failing, same), Sample((np.ones(3, np.float32),)))


def test_minus_infinities_are_subtracted_if_all_results_are_nan() -> None:
    def subtracts(fn: Any, reference: Any) -> bool:
        spec = spec_of(fn, reference)
        return infinities._subtracts_infinities(
            spec, CPU, Sample((HostArray(np.ones((3, 9), np.float32), is_free=True),))
        )

    def less_maximum(a: Any) -> Any:
        return a - a.max()

    assert subtracts(less_maximum, same)
    assert subtracts(less_maximum, less_maximum)
    assert not subtracts(less_maximum, lambda a: np.where(np.isinf(a), 1.0, a))
    assert not subtracts(less_maximum, lambda a: np.where(np.arange(9) == 0, 1.0, a))
    assert not subtracts(same, same)
    assert not subtracts(lambda a: np.where(np.arange(9) == 0, a, less_maximum(a)), same)
    assert not subtracts(lambda a: less_maximum(a)[1:], same)


def test_counts_that_the_reference_refuses_are_not_compared() -> None:
    def refusing(a: Any, b: Any) -> Any:
        if not np.isfinite(a).all() or not np.isfinite(b).all():
            raise RuntimeError("finite numbers")
        return (a > b).sum(axis=-1)

    spec = of_two(lambda a, b: (a > b).sum(axis=-1) * np.isfinite(a).all(), refusing)

    assert not failure(infinities._check_counts, spec, CPU, FLOAT32, next(spec.draw(1, "float32")))


@pytest.mark.parametrize("spoilt", [8, 9])
def test_nan_in_a_line_that_is_infinite_throughout_is_excused(spoilt: int) -> None:
    """Nine of nine results in a row are infinite or NaN, as after an FFT; eight of nine are not a whole line."""

    def right(a: Any) -> Any:
        return np.where(np.isinf(a).any(axis=-1, keepdims=True) & (np.arange(9) < spoilt), np.inf, a).astype(a.dtype)

    def wrong(a: Any) -> Any:
        return np.where(np.isinf(a).any(axis=-1, keepdims=True) & (np.arange(9) == 4), np.nan, right(a)).astype(a.dtype)

    assert bool(infinite(wrong, right, one_of(INF))) is (spoilt == 8)


def test_unused_numbers_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(infinities, "check_unused", lambda spec, device, sample: asked.append(sample))

    assert not checked(spec_of(same, same))
    assert len(asked) == 1


@pytest.mark.parametrize("number", [-1.0, 1.0, 1e300])
def test_numbers_of_one_sign_and_huge_ones_tell_a_linear_reference(number: float) -> None:
    spec = OpSpec(fn=lambda xp, a: a * 2, reference=lambda a: a * 2, name="f", samples=lambda make: [make(3)])

    assert infinities._is_linear(spec, Sample((np.full((3, 4), number),)))


@pytest.mark.parametrize("has_reference", [True, False])
@pytest.mark.parametrize("kind", ["int64", "float32"])
def test_counts_are_compared_with_those_of_a_reference(has_reference: bool, kind: str) -> None:
    def counts(a: Any, b: Any) -> Any:
        return (a > b).sum(axis=-1).astype(kind)

    def wrong(a: Any, b: Any) -> Any:
        return counts(a, b) + (np.isinf(a).any() and a.dtype == np.float32)

    spec = of_two(wrong, counts if has_reference else None)
    found = failure(infinities._check_counts, spec, CPU, FLOAT32, next(spec.draw(1, "float32")))

    assert bool(found) is (has_reference and kind == "int64")
    assert not found or "one number of float array 0 is inf" in found


@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_counts_are_checked_with_infinities_of_both_signs(number: float) -> None:
    def wrong(a: Any, b: Any) -> Any:
        return (a > b).sum(axis=-1) + (a == number).any()

    spec = of_two(wrong, lambda a, b: (a > b).sum(axis=-1))

    assert failure(infinities._check_counts, spec, CPU, FLOAT32, next(spec.draw(1, "float32")))
