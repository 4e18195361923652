"""Which results agree with the reference, within which limits, and how often a comparison asks the reference."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, from_host, ops
from cuassay.testing import OpSpec, Sample, Tolerance
from cuassay.testing.compare import collecting
from cuassay.testing.generated import comparison
from cuassay.testing.generated.comparison import compare, compare_values, of_reference
from cuassay.testing.samples import HostArray

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")
X = np.linspace(-3, 3, 101, dtype=np.float32)


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, a: Any) -> Any:
        self.calls += 1
        return np.cumsum(a)


def made() -> tuple[OpSpec, Counted]:
    reference = Counted()
    spec = OpSpec(
        fn=lambda xp, a: xp.cumsum(a),
        name="cumsum",
        dtypes=("float32",),
        samples=lambda make: [make(101)],
        reference=reference,
    )
    reference.calls = 0  # the declaration itself is checked by a call
    return spec, reference


@pytest.mark.parametrize("compared", [compare, compare_values])
def test_result_next_to_the_right_one_costs_no_further_call_of_the_reference(compared: Any) -> None:
    spec, reference = made()
    right = np.cumsum(X.astype(np.float64))

    compared(spec, CPU, "float32", Sample((X,)), right.astype(np.float32), expected=right)

    assert reference.calls == 0


@pytest.mark.parametrize("compared", [compare, compare_values])
def test_whole_tolerance_is_found_for_one_further_off(compared: Any) -> None:
    spec, reference = made()
    right = np.cumsum(X.astype(np.float64))
    off = (right + 20 * np.finfo(np.float32).eps).astype(np.float32)  # the sums of 101 terms near 0 may be as far off

    compared(spec, CPU, "float32", Sample((X,)), off, expected=right)

    assert reference.calls > 0


@pytest.mark.parametrize("compared", [compare, compare_values])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda right: right + np.float32(0.01), "out of tolerance"),
        (lambda right: right.astype(np.float64), "dtype is float64"),
        (lambda right: right[:-1], "shape is"),
    ],
)
def test_wrong_result_is_refused(compared: Any, changed: Any, message: str) -> None:
    spec, _ = made()

    with pytest.raises(AssertionError, match=message):
        compared(spec, CPU, "float32", Sample((X,)), changed(np.cumsum(X)))


def test_ratio_of_the_whole_tolerance_is_kept_where_it_is_asked_for() -> None:
    spec, _ = made()
    right = np.cumsum(X.astype(np.float64)).astype(np.float32)
    plain: dict[str, Any] = {}
    asked: dict[str, Any] = {}

    with collecting(plain):
        compare(spec, CPU, "float32", Sample((X,)), right)
    with collecting(asked):
        compare(spec, CPU, "float32", Sample((X,)), right, keeps_ratio=True)

    assert plain == {}
    assert 0 < asked["headroom"] < 1


@pytest.mark.parametrize(
    ("given", "declared"), [("float32", "float64"), ("float64", "float32"), ("float16", "float32")]
)
def test_right_numbers_in_another_dtype_than_the_declared_one_are_wrong(given: str, declared: str) -> None:
    spec = OpSpec(fn=lambda xp, a: a.astype(given), name="cast", result_dtype=declared, reference=lambda a: a)
    result = np.arange(9).astype(given)

    with pytest.raises(AssertionError, match=f"dtype is {given}"):
        compare(spec, CPU, np.dtype("float32"), Sample((np.arange(9, dtype=np.float32),)), result)


# ------------------------------------------------------------------------------------------------ the reference


def spec_of(fn: Any, reference: Any = None, dtypes: Any = ("float32",), **fields: Any) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, name="given", dtypes=dtypes, samples=lambda make: [make(3)], **fields)


def sample_of(numbers: Any, dtype: str = "float32") -> Sample:
    return Sample((HostArray(np.array(numbers, dtype)),))


@pytest.mark.parametrize(
    ("reference", "numbers", "fails"),
    [
        pytest.param(lambda a: a * 2, [1, 2], "", id="right"),
        pytest.param(np.exp, [1e4, 1], "raise", id="overflow"),
        pytest.param(lambda a: a / 0, [1, 2], "raise", id="division by zero"),
        pytest.param(lambda a: np.sqrt(-np.abs(a)), [1, 2], "raise", id="an invalid number"),
        pytest.param(lambda a: a.astype(np.int32), [1e30, 2], "raise, of casts", id="an invalid cast"),
        pytest.param(lambda a: a.reshape(5), [1, 2], "ignore, raise, of casts", id="an error"),
    ],
)
def test_reference_runs_in_the_dtype_of_the_sample(reference: Any, numbers: Any, fails: str) -> None:
    spec = spec_of(lambda xp, a: a, lambda a: reference(a) if a.dtype == np.float32 else a)
    modes: list[Any] = ["ignore", "raise", "of casts"]
    found = {mode: of_reference(spec, sample_of(numbers), errors=mode) for mode in modes}

    assert ", ".join(mode for mode, result in found.items() if result is None) == fails
    assert all(result.shape == (2,) for result in found.values() if result is not None)
    assert (of_reference(spec, sample_of(numbers)) is None) is ("ignore" in fails)


def test_reference_gives_the_dtype_of_the_sample_and_nothing_without_one() -> None:
    found = of_reference(spec_of(lambda xp, a: a, lambda a: [a * 2, a]), sample_of([1, 2]))

    assert found is not None
    assert (found.tolist(), found.dtype) == ([2, 4, 1, 2], np.float32)
    assert of_reference(spec_of(lambda xp, a: a), sample_of([1, 2])) is None


def test_result_is_brought_to_the_host() -> None:
    for result in (2.5, np.float32(2.5), np.full((), 2.5), from_host(np.full((), 2.5), "sim")):
        found = comparison.on_host(result)

        assert (type(found), found.shape, found.item()) == (np.ndarray, (), 2.5)


@pytest.mark.parametrize(("result", "place"), [(1.0, None), (1, None), (True, None), (1j, None), (np.ones(2), CPU)])
def test_python_numbers_are_on_no_device(result: Any, place: Any) -> None:
    assert comparison._place_of(result, CPU) == place


# ------------------------------------------------------------------------------------------------ quick comparisons


@pytest.mark.parametrize(
    ("dtype", "units"),
    [("float32", 8 * 2.0**-23), ("float64", 8 * 2.0**-52), ("bfloat16", 8 * 2.0**-7), ("float8_e4m3fn", 0.25)],
)
def test_eight_units_or_a_quarter_are_within_each_tolerance(dtype: str, units: float) -> None:
    assert comparison._units_of(dtype) == units


def is_within(actual: Any, expected: Any, wanted: Any = None, device: Any = CPU, **fields: Any) -> bool:
    spec = spec_of(lambda xp, a: a, lambda a: a, **fields)
    return comparison._is_within_units(spec, device, actual, np.asarray(expected), "float32", wanted)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("units", "is_inside"), [(0, True), (8, True), (9, False), (-8, True), (-9, False)])
def test_eight_units_of_each_element_are_allowed(device: str, units: int, is_inside: bool) -> None:
    result = from_host(np.array([4.0, 1 + units * 2.0**-23], np.float32), device)
    told: dict[str, Any] = {}
    with collecting(told):
        assert is_within(result, [4.0, 1.0], device=Device(device)) is is_inside
        assert is_within(result, [4.0, 1.0], np.dtype("float32"), Device(device)) is is_inside
        assert not is_within(result, [4.0, 1.0], np.dtype("float64"), Device(device))

    assert told == {}


def test_number_and_integers_are_compared_quickly() -> None:
    assert is_within(1.0, 1.0)
    assert not is_within(1.001, 1.0)
    assert not is_within(np.ones(2, np.float32), np.ones(3))
    assert is_within(np.ones(2, np.int64), np.ones(2, np.int64))
    assert not is_within(np.ones(2, np.int64), np.full(2, 2))


def test_declared_magnitude_and_ops_are_not_compared_quickly() -> None:
    assert not is_within(np.ones(2, np.float32), np.ones(2), magnitude=lambda a: abs(a))
    op = OpSpec(op=ops.exp, samples=lambda make: [make(3)], reference=np.exp, dtypes=("float32",))
    assert not comparison._is_within_units(op, CPU, np.ones(2, np.float32), np.ones(2), "float32", None)


# ------------------------------------------------------------------------------------------------ integers of floats


@pytest.mark.parametrize(
    ("got", "expected", "narrow", "accepted"),
    [
        pytest.param([1, 2], [1, 3], [1, 2], [1, 2], id="the next integer in the dtype itself"),
        pytest.param([1, 2], [1, 3], [1, 4], None, id="neither"),
        pytest.param([1, 2], [1, 2], [1, 2], None, id="the same"),
        pytest.param([1, 2], [1, np.nan], [1, 5], [1, 2], id="NaN"),
        pytest.param([1, 2], [-np.inf, 3], [1, 5], [1, 3], id="infinity"),
        pytest.param([True, False], [True, True], [True, False], [True, False], id="truth values"),
        pytest.param([True, False], [1.0, np.nan], [True, True], None, id="a truth value for NaN"),
        pytest.param([1.0, 2.0], [1, 3], [1, 2], None, id="floats"),
        pytest.param([1, 2], [1, 3, 3], [1, 2], None, id="another shape"),
        pytest.param([1, 2], [1, 3], [1, 2, 3], None, id="another shape in the dtype itself"),
        pytest.param([1, 2], [1, 3], None, None, id="an error in the dtype itself"),
        pytest.param([1, 2], [1, np.nan], None, [1, 2], id="NaN and an error in the dtype itself"),
    ],
)
def test_integers_that_the_reference_gives_in_the_dtype_itself_are_accepted(
    got: Any, expected: Any, narrow: Any, accepted: Any
) -> None:
    def reference(a: Any) -> Any:
        if a.dtype == np.float64:
            return np.array(expected)
        if narrow is None:
            raise ValueError("float64 only")
        return np.array(narrow)

    spec, sample = spec_of(lambda xp, a: np.array(got), reference), sample_of([1, 2])
    found = comparison._accepting_own_dtype(spec, sample, np.array(got), np.array(expected))
    integers = comparison._accepting_own_dtype(spec, sample_of([1, 2], "int32"), np.array(got), np.array(expected))

    assert (None if found is None else found.tolist()) == accepted
    assert integers is None


# ------------------------------------------------------------------------------------------------ rounding errors


NUMBERS = [1.1, 2.3, 4.7]


def error_of(spec: OpSpec, dtype: str = "float32") -> Any:
    sample = sample_of(NUMBERS, dtype)
    return comparison.explained_rounding(spec, dtype, sample, spec.expected(sample))


def test_integers_are_exact_and_float64_has_no_wider_dtype() -> None:
    assert error_of(spec_of(lambda xp, a: a.astype("int64"), lambda a: a.astype(np.int64))) == 0.0
    with_error = spec_of(lambda xp, a: a + (a.dtype == np.float64) * xp.float64(1e-3), lambda a: a, ("float64",))
    found = error_of(with_error, "float64")
    assert (found < 1e-13).all()
    assert (found >= 8 * np.array(NUMBERS) * 2.0**-52).all()


def test_units_of_each_result_and_three_times_the_rounding_error_are_allowed() -> None:
    units = 8 * np.array(NUMBERS) * 2.0**-23
    exact = error_of(spec_of(lambda xp, a: a * 1, lambda a: a * 1))
    rounding = error_of(spec_of(lambda xp, a: (a + 2**10) - 2**10, lambda a: a * 1))

    assert (exact >= 1.99 * units).all()
    assert (exact < 2 * units + 3 * 2.0**-21).all()
    assert (rounding - 2 * units > 2.0**-15).all()
    assert (rounding - 2 * units < 2.0**-11).all()


def test_function_of_16_bits_may_be_eight_times_less_precise_than_its_reference() -> None:
    def rough(xp: Any, a: Any) -> Any:
        return (a + 512) - 512

    known = error_of(spec_of(rough, lambda a: a * 1, ("float16",)), "float16")
    unknown = error_of(spec_of(rough, None, ("float16",)), "float16")
    sample = sample_of(NUMBERS, "float16")
    own = comparison.reference_rounding(spec_of(rough, lambda a: a * 1, ("float16",)), sample)

    units = 2 * 8 * np.array(NUMBERS) * 2.0**-10
    assert known == pytest.approx(units + 3 * 8 * own, rel=1e-3)
    assert (unknown > known + 0.01).all()
    rough_reference = spec_of(lambda xp, a: a * 1, lambda a: rough(np, a), ("float16",))
    assert (error_of(rough_reference, "float16") < units + 3 * 8 * 2.0**-10).all()


def test_rounding_of_the_reference_is_infinite_if_it_does_not_run() -> None:
    def wide(a: Any) -> Any:
        if a.dtype == np.float32:
            raise ValueError("float64 only")
        return a

    sample = sample_of(NUMBERS)
    assert comparison.reference_rounding(spec_of(lambda xp, a: a), sample) == np.inf
    assert comparison.reference_rounding(spec_of(lambda xp, a: a, wide), sample) == np.inf
    assert 0 < comparison.reference_rounding(spec_of(lambda xp, a: a, lambda a: a), sample) <= 5 * 2.0**-23
    assert comparison.reference_rounding(spec_of(lambda xp, a: a, lambda a: (a + 2**10) - 2**10), sample) > 2.0**-16


def test_rounding_on_the_host_is_0_if_the_function_does_not_run_there() -> None:
    def elsewhere(xp: Any, a: Any) -> Any:
        if a.size == 3:
            raise RuntimeError("another library")
        return a

    sample = sample_of(NUMBERS)
    assert comparison.host_rounding(spec_of(elsewhere, lambda a: a), sample) == 0.0
    assert comparison.host_rounding(spec_of(lambda xp, a: (a + 2**10) - 2**10, lambda a: a), sample) > 2.0**-16


def in_single(xp: Any, a: Any) -> Any:
    return (a.astype("float32") * np.float32(1 / 3)).astype(a.dtype)


def third(a: Any) -> Any:
    return a / 3


@pytest.mark.parametrize(
    ("fn", "reference", "dtype", "expected"),
    [
        pytest.param(in_single, third, "float32", True, id="in float32"),
        pytest.param(in_single, third, "float64", False, id="of float64"),
        pytest.param(in_single, None, "float32", False, id="without a reference"),
        pytest.param(lambda xp, a: a / 3, third, "float32", False, id="in float64"),
        pytest.param(lambda xp, a: a * 2, lambda a: a * 2, "float32", False, id="exact"),
        pytest.param(lambda xp, a: in_single(xp, a)[1:], third, "float32", False, id="another shape"),
        pytest.param(lambda xp, a: in_single(xp, a).astype("float32"), third, "float32", False, id="a float32 result"),
        pytest.param(lambda xp, a: xp.where(a == 1, np.inf, a * 2), lambda a: a * 2, "float32", False, id="infinity"),
        pytest.param(
            lambda xp, a: a * 2, lambda a: np.where(a == 1, np.inf, a * 2), "float32", False, id="infinity expected"
        ),
        pytest.param(
            lambda xp, a: xp.where(a == 1, np.nan, in_single(xp, a)), third, "float32", True, id="NaN next to others"
        ),
        pytest.param(
            lambda xp, a: xp.where(a == 1, a / 3, in_single(xp, a)), third, "float32", False, id="one in float64"
        ),
    ],
)
def test_function_that_computes_in_float32_whatever_it_is_given(
    fn: Any, reference: Any, dtype: str, expected: bool
) -> None:
    spec = spec_of(fn, reference, ("float32", "float64"))

    assert comparison._computes_in_float32(spec, sample_of([1.0, 2.0, 5.0], dtype)) is expected


def test_rounding_errors_of_the_reference_count_for_a_function_in_float32() -> None:
    sample = sample_of([1.0, 2.0, 5.0])
    rough = lambda a: (a + 2**10) / 3 - 2**10 / 3  # noqa: E731
    single = lambda xp, a: rough(a.astype("float64")).astype("float32").astype(a.dtype)  # noqa: E731

    own = comparison._rounding_errors(spec_of(single, rough), sample)[0]
    wide = comparison._rounding_errors(spec_of(lambda xp, a: rough(a.astype("float64")), rough), sample)[0]

    assert own.max() > 2.0**-17
    assert wide.max() < 2.0**-19


def test_rounding_error_of_the_reference_in_float32() -> None:
    def only_wide(a: Any) -> Any:
        if a.dtype == np.float32:
            raise ValueError("float64 only")
        return a

    sample, halves = sample_of([1.0, 2.0]), sample_of([1.0, 2.0], "float16")
    of = lambda reference, given: comparison._in_float32(spec_of(lambda xp, a: a, reference), given)  # noqa: E731

    assert of(None, sample) is None
    assert of(only_wide, sample) is None
    assert of(only_wide, halves) is None
    assert 0 < of(lambda a: a / 3, halves).max() < 2.0**-20
    assert of(lambda a: a.astype(np.float64) * 3, sample).tolist() == [3 * 2.0**-23, 6 * 2.0**-23]
    assert of(lambda a: np.array([np.inf, np.nan, 3.0]), sample).tolist() == [0, 0, 3 * 2.0**-23]


def test_largest_error_of_none_is_0() -> None:
    assert comparison._largest(np.zeros(0)) == 0.0
    assert comparison._largest(np.array([1.0, 3.0])) == 3.0


# ------------------------------------------------------------------------------------------------ narrowed limits


def capped(limit: Any, expected: Any, dtype: str = "float64", fn: Any = None) -> Any:
    spec = spec_of(fn or (lambda xp, a: a * 1), lambda a: a * 1, ("float32", "float64"))
    return comparison._capped(np.asarray(limit), spec, sample_of([1.0, 2.0], dtype), dtype, np.asarray(expected))


@pytest.mark.parametrize(
    ("limit", "expected", "found"),
    [
        pytest.param([0.5, 0.25], [8.0, -2.0], [0.5, 0.25], id="a sixteenth"),
        pytest.param([0.25, 0.5], [2.0, -8.0], [0.25, 0.5], id="a sixteenth of a negative number"),
        pytest.param([9.0, 0.25], [8.0, np.nan], [2.0, 0.25], id="more than a sixteenth"),
        pytest.param([0.5001, 1.0], [8.0, np.inf], [0.5001, 1.0], id="up to a quarter"),
        pytest.param([3.0, 1.0], [0.0, np.inf], [3.0, 1.0], id="no results"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_limit_of_float64_is_at_most_a_quarter_of_the_results(limit: Any, expected: Any, found: Any) -> None:
    assert capped(limit, expected).tolist() == found


def test_limit_of_float32_is_explained_by_rounding_errors() -> None:
    small, large = capped([0.25, 0.25], [4.0, 1.0], "float32"), capped([0.26, 1e-9], [4.0, 1.0], "float32")
    refused = capped([9.0, 9.0], [4.0, 1.0], "float32", lambda xp, a: a.reshape(5) if a.size == 2 else a)

    assert small.tolist() == [0.25, 0.25]
    assert 8 * 4 * 2.0**-23 <= large[0] < 1e-5
    assert large[1] == 1e-9
    assert refused.tolist() == [1.0, 1.0]


# ------------------------------------------------------------------------------------------------ chosen numbers


def values(got: Any, expected: Any, dtype: str = "float32", fn: Any = None, **options: Any) -> str:
    declared = {name: options.pop(name) for name in ("tolerance",) if name in options}
    spec = spec_of(fn or (lambda xp, a: a * 1), lambda a: a * 1, (dtype,), **declared)
    sample = sample_of([1.0, 2.0], dtype)
    return failure(
        compare_values, spec, CPU, np.dtype(dtype), sample, np.array(got, dtype), expected=np.array(expected), **options
    )


@pytest.mark.parametrize(
    ("options", "off", "is_found"),
    [
        ({}, 0.0, False),
        ({}, 0.01, True),
        ({"limit": 0.02}, 0.01, False),
        ({"limit": 0.005}, 0.01, True),
        ({"limit": 0.005, "floor": 0.006}, 0.01, False),
        ({"floor": 0.02}, 0.01, False),
        ({"floor": 0.005}, 0.01, True),
        ({"tolerance": Tolerance(ulps=2.0**18)}, 0.01, False),
        ({"tolerance": Tolerance(ulps=2.0**15)}, 0.01, True),
        ({"limit": 0.0, "tolerance": Tolerance(ulps=2.0**18)}, 0.01, False),
    ],
    ids=str,
)
def test_numbers_of_a_check_are_compared_within_its_limit(options: Any, off: float, is_found: bool) -> None:
    assert bool(values([1.0, 2.0 + off], [1.0, 2.0], **options)) is is_found


def test_another_shape_is_found_whatever_the_limit_is() -> None:
    assert "shape is" in values([1.0], [1.0, 2.0], limit=9.0)


def overflowing(xp: Any, a: Any) -> Any:
    return xp.where(a == 2, (a * xp.asarray(2.0**127, a.dtype)) / xp.asarray(2.0**127, a.dtype), a)


def test_numbers_that_leave_the_range_on_the_host_too_are_excused() -> None:
    assert values([1.0, np.inf], [1.0, 2.0], fn=overflowing)
    assert not values([1.0, np.inf], [1.0, 2.0], fn=overflowing, excuse=True)
    assert values([3.0, np.inf], [1.0, 2.0], fn=overflowing, excuse=True)
    assert values([1.0, np.inf], [1.0, 2.0], excuse=True)


def roughly(xp: Any, a: Any) -> Any:
    """The numbers; in float32 the second one of two is off by a tenth of 2^-11."""
    large = xp.asarray([0, 2**14], dtype=a.dtype) / 3
    return (a + large) - large if a.size == 2 else a


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limit_of_many_terms_is_narrowed_to_what_rounding_errors_explain(dtype: str) -> None:
    """10,000 terms may be off by 800 units, unless the function is exact on the host, which float64 cannot show."""
    right = np.array([1.0, 2.1], dtype).astype(np.float64)

    def found(fn: Any, units: float) -> bool:
        spec = spec_of(fn, lambda a: a * 1, (dtype,), terms=lambda a: 10_000)
        got = (right * [1, 1 + units * np.finfo(dtype).eps]).astype(dtype)
        sample = sample_of([1.0, 2.1], dtype)
        return bool(failure(compare_values, spec, CPU, np.dtype(dtype), sample, got, expected=right))

    exact = [found(lambda xp, a: a * 1, units) for units in (7, 100, 790, 810)]
    assert exact == [False, dtype == "float32", dtype == "float32", True]
    assert [found(roughly, units) for units in (7, 100, 790, 810)] == [False, False, False, True]


def test_rounding_error_of_each_element_counts_if_asked_for() -> None:
    spec, sample = spec_of(roughly, lambda a: a * 1, terms=lambda a: 2**20), sample_of([1.0, 2.1])
    right = sample.args[0].values

    def found(place: int, each: bool) -> bool:
        got = right.copy()
        got[place] += 2.0**-12
        return bool(failure(compare_values, spec, CPU, FLOAT32, sample, got, expected=right.astype(float), each=each))

    assert [found(place, each) for place in (0, 1) for each in (False, True)] == [False, True, False, False]


def test_declared_tolerance_does_not_narrow_a_limit() -> None:
    assert not values([1.0, 2.01], [1.0, 2.0], limit=0.02, tolerance=Tolerance(ulps=1))


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_declared_tolerance_of_infinity_allows_nothing_else(number: float) -> None:
    assert values([1.0, 5.0], [1.0, number], tolerance=Tolerance(ulps=2.0**18))
    assert not values([1.01, number], [1.0, number], tolerance=Tolerance(ulps=2.0**18))


def test_tolerance_of_an_op_does_not_widen_a_limit() -> None:
    fields: dict[str, Any] = {"samples": lambda make: [make(2)], "reference": np.exp, "dtypes": ("float32",)}
    spec = OpSpec(op=ops.exp, tolerance=Tolerance(ulps=2.0**18), **fields)
    right = np.exp(np.array([1.0, 2.0]))
    got, limit = (right + 0.01).astype(np.float32), np.full(2, 0.001)

    assert failure(
        compare_values, spec, CPU, FLOAT32, sample_of([1.0, 2.0]), got, expected=right, limit=limit
    )  # fmt: skip


def test_integers_are_compared_exactly() -> None:
    spec = spec_of(lambda xp, a: a.astype("int64"), lambda a: a * 0 + 1, result_dtype="int64")

    def found(expected: Any) -> str:
        got = np.array([1, 2], np.int64)
        return failure(compare_values, spec, CPU, FLOAT32, sample_of([1.0, 2.0]), got, expected=expected, limit=0.5)

    assert not found(np.array([1.0, 2.0]))
    assert found(np.array([1.0, 1.0]))


def test_complex_results_are_compared_quickly() -> None:
    spec, near = spec_of(lambda xp, a: a, lambda a: a), np.array([1 + 2.0**-22, 2j], np.complex64)

    assert comparison._is_within_units(spec, CPU, near, np.array([1, 2j]), "complex64", None)
    assert not comparison._is_within_units(spec, CPU, near + np.complex64(1e-3), np.array([1, 2j]), "complex64", None)


def test_own_reference_is_doubted_in_a_failure() -> None:
    spec = spec_of(lambda xp, a: a * 1)

    found = failure(compare, spec, CPU, FLOAT32, sample_of([1.0, 2.0]), np.array([1.0, 2.5], np.float32))
    assert "note: expected is what the same function gives for NumPy arrays in a wide dtype" in found
    declared = spec_of(lambda xp, a: a * 1, lambda a: a * 1)
    assert "the same function" not in failure(
        compare, declared, CPU, FLOAT32, sample_of([1.0, 2.0]), np.array([1.0, 2.5], np.float32)
    )


def test_errors_of_the_reference_in_float64_are_allowed() -> None:
    spec = spec_of(lambda xp, a: a * 1, lambda a: (a + 1e6) - 1e6, ("float64",))
    sample = sample_of([0.1, 0.7], "float64")

    assert not failure(compare, spec, CPU, np.dtype("float64"), sample, sample.args[0].values)
    assert failure(compare, spec, CPU, np.dtype("float64"), sample, sample.args[0].values + 1e-8)


def test_rounding_error_on_the_host_is_measured_once() -> None:
    calls: list[str] = []

    def fn(xp: Any, a: Any) -> Any:
        calls.append(str(a.dtype))
        return a * 1

    spec, sample = spec_of(fn, lambda a: a * 1), sample_of([1.0, 2.0])
    calls.clear()
    comparison.host_rounding(spec, sample)

    assert sorted(calls) == ["float32", "float64"]


def test_filters_of_warnings_stay() -> None:
    before = list(warnings.filters)

    of_reference(spec_of(lambda xp, a: a, lambda a: a), sample_of([1.0]), errors="of casts")

    assert warnings.filters == before


@pytest.mark.parametrize("is_own", [True, False], ids=["the function's own", "the reference's"])
def test_larger_of_both_rounding_errors_counts_for_a_function_in_float32(is_own: bool) -> None:
    """Of a function that gives numbers of float32 for float64, too."""
    rough = lambda a: (a + 2**10) / 3 - 2**10 / 3  # noqa: E731
    formula, reference = (rough, third) if is_own else (third, rough)

    def single(xp: Any, a: Any) -> Any:
        return formula(a) if a.dtype == np.float32 else third(a).astype("float32").astype(a.dtype)

    errors, is_beyond = comparison._rounding_errors(spec_of(single, reference), sample_of([1.0, 2.0, 5.0]))
    assert errors.max() > 2.0**-17
    assert not np.asarray(is_beyond).any()


def test_integers_that_the_reference_gives_in_the_dtype_itself_are_right() -> None:
    """Just below 1 in float64, and 1 in float32."""
    spec = spec_of(lambda xp, a: xp.floor(a * 1).astype("int64"), lambda a: np.floor(a - a * 1e-9).astype("int64"))
    sample = sample_of([1.0, 2.5])

    compare(spec, CPU, FLOAT32, sample, np.array([1, 2]))
    assert "worst at (1,)" in failure(compare, spec, CPU, FLOAT32, sample, np.array([1, 7]))
