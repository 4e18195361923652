"""How far a reference is off that loses digits in float64, where extended precision does not show it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import reference_errors as reference_errors_
from cuassay.testing.generated.reference_errors import for_long_sums, reference_errors
from cuassay.testing.tolerance import FUNCTION, allowed

SMALL = Sample((np.array([3e-9, -2e-9, 5e-9, 1e-9, -4e-9, 2.5e-9]),))


def errors_of(reference: Any, sample: Sample = SMALL) -> Any:
    spec = OpSpec(fn=lambda xp, a: a, name="same", dtypes=("float64",), reference=reference)
    return reference_errors(spec, sample, spec.expected(sample))


def in_float64(formula: Any) -> Any:
    """The formula as a library computes it that turns every input into float64."""
    return lambda a: formula(np.asarray(a, np.float64))


def test_digits_that_cancel_are_seen_as_scatter() -> None:
    cancelling = in_float64(lambda a: 1 - (1 - a))
    true = np.abs(cancelling(SMALL.args[0]) - SMALL.args[0])

    found = errors_of(cancelling)

    assert (found >= true).all()
    assert (found <= 1e-6 * np.abs(SMALL.args[0])).all()


@pytest.mark.parametrize(
    "formula", [np.sin, np.exp, lambda a: a * 3, lambda a: a**2], ids=["sin", "exp", "times", "square"]
)
def test_a_precise_reference_is_off_by_a_few_roundings(formula: Any) -> None:
    found = errors_of(in_float64(formula))

    limit = 64 * np.finfo(np.float64).eps * np.maximum(np.abs(formula(SMALL.args[0])), np.abs(SMALL.args[0]))
    assert found is None or (found <= limit).all()


@pytest.mark.parametrize("formula", [np.floor, np.sign, lambda a: a > 1], ids=["floor", "sign", "comparison"])
def test_a_step_is_not_taken_for_scatter(formula: Any) -> None:
    at_steps = Sample((np.array([1.0, 2.0, -1.0, 3.0, 0.5]),))

    assert errors_of(in_float64(lambda a: formula(a) + 4.0), at_steps) is None


@pytest.mark.parametrize(("exact", "share"), [(1, 8e-9), (2, 4e-9), (3, 0.0)], ids=str)
def test_results_that_are_exact_by_chance_are_as_far_off_as_most(exact: int, share: float) -> None:
    """The reference is off by 1e-9 of a result, but for those of the four that it happens to give exactly."""
    sample = Sample((np.array([1.0, -2.0, 3.0, -4.0]),))
    off = np.where(np.arange(4) < exact, 0.0, 1e-9)

    def reference(a: Any) -> Any:
        return a if a.dtype == np.longdouble else a * (1 + off)

    found = errors_of(reference, sample)

    assert found == pytest.approx(np.abs(sample.args[0]) * np.maximum(np.where(off > 0, 4e-9, 0.0), share), rel=1e-6)


def test_results_that_lost_their_digits_say_nothing_of_the_exact_one() -> None:
    sample = Sample((np.array([1.0, -2.0, 3.0, -4.0]),))
    off = np.array([0.0, 1e-3, 1e-3, 1e-3])

    found = errors_of(lambda a: a if a.dtype == np.longdouble else a * (1 + off), sample)

    assert found == pytest.approx(4 * np.abs(sample.args[0]) * off, rel=1e-6)


@pytest.mark.parametrize(
    ("times", "is_asked"), [(2, True), (4, True), (4.5, False), (np.inf, False), (np.nan, True)], ids=str
)
def test_a_reference_is_asked_for_its_sums_only_if_these_may_excuse_the_result(times: float, is_asked: bool) -> None:
    """The order of a sum excuses at most four times the tolerance."""
    asked = list[str]()
    sample = Sample((np.linspace(1, 2, 512, dtype=np.float32),))
    spec = OpSpec(
        fn=lambda xp, a: a, name="total", terms=lambda a: 512,
        reference=lambda a: (asked.append(a.dtype.name), np.cumsum(a)[-1:])[1],
    )  # fmt: skip
    expected = spec.expected(sample)
    asked.clear()

    wider = for_long_sums(spec, sample, expected + times * 0.25, expected, 0.25)

    assert asked == ["float32"] * is_asked
    assert wider is None  # the reference's own error is far smaller


# ------------------------------------------------------------------------------------------------ scatter

ONES = Sample((np.ones(3),))


def spec_of(reference: Any, **fields: Any) -> OpSpec:
    return OpSpec(fn=lambda xp, a: a * 1.0, name="same", dtypes=("float64",), reference=reference, **fields)


def scattered(off: Any, sample: Sample = ONES, expected: Any = None) -> Any:
    """The bound for a reference that is its input, off by this at inputs that are not 1."""
    reference = lambda a: np.asarray(a, np.float64) + np.where(a == 1, 0, off)  # noqa: E731
    spec = spec_of(reference)
    return reference_errors_._scatter(spec, sample, np.ones(3) if expected is None else expected)


def test_scatter_is_five_times_the_largest_distance_from_the_line() -> None:
    assert scattered(2.0**-40) == pytest.approx(np.full(3, 5 * 2.0**-40))
    assert scattered(np.array([0.0, 2.0**-40, 2.0**-42])) == pytest.approx(np.full(3, 5 * 2.0**-40))
    assert scattered(-(2.0**-40)) == pytest.approx(np.full(3, 5 * 2.0**-40))


def test_exact_reference_has_no_scatter() -> None:
    assert scattered(0.0) is None


@pytest.mark.parametrize(("off", "is_scatter"), [(2.0**-20, True), (1.001 * 2.0**-20, False), (np.nan, False)])
def test_larger_differences_are_steps(off: float, is_scatter: bool) -> None:
    assert (scattered(off) is not None) is is_scatter


def test_smaller_scatter_next_to_a_step_counts() -> None:
    assert scattered(np.array([1.0, 2.0**-40, np.inf])) == pytest.approx(np.full(3, 5 * 2.0**-40))


def test_scatter_is_relative_to_the_larger_of_inputs_and_results() -> None:
    large = lambda a: np.asarray(a, np.float64) * 8 + np.where(a == 1, 0, 2.0**-40)  # noqa: E731
    found = reference_errors_._scatter(spec_of(large), ONES, np.array([8.0, 8.0, np.inf]))

    assert found.tolist() == pytest.approx([5 * 2.0**-40, 5 * 2.0**-40, 0.0])


@pytest.mark.parametrize("step", [1, 3])
def test_inputs_are_changed_by_two_small_steps(step: int) -> None:
    reference = lambda a: np.asarray(a, np.float64) + np.where(a == 1 + step * 2.0**-30, 2.0**-40, 0)  # noqa: E731

    found = reference_errors_._scatter(spec_of(reference), ONES, np.ones(3))

    assert found.tolist() == pytest.approx([2.5 * 2.0**-40] * 3)


@pytest.mark.parametrize(
    ("reference", "sample", "expected"),
    [
        pytest.param(None, ONES, np.ones(3), id="its own reference"),
        pytest.param(lambda a: a + (a != 1) * 2.0**-40, Sample((np.ones(0),)), np.ones(0), id="nothing"),
        pytest.param(lambda a: a + 2.0**-40, Sample((np.ones(3, np.int64),)), np.ones(3), id="integers"),
        pytest.param(lambda a: a + (a != 1) * 2.0**-40, ONES, np.ones(4), id="another shape"),
        pytest.param(lambda a: a * 1.0 if (a <= 1).all() else 1 // 0, ONES, np.ones(3), id="an error above"),
        pytest.param(lambda a: a * 1.0 if (a >= 1).all() else 1 // 0, ONES, np.ones(3), id="an error below"),
    ],
)
def test_other_references_have_no_scatter(reference: Any, sample: Sample, expected: Any) -> None:
    assert reference_errors_._scatter(spec_of(reference), sample, expected) is None


# ------------------------------------------------------------------------------------------------ extended precision


def beyond(reference: Any, *values: float, expected: Any = None, **fields: Any) -> Any:
    spec = spec_of(reference, **fields)
    sample = Sample((np.array(values),))
    return reference_errors_._beyond_float64(
        spec, sample, np.asarray(spec.expected(sample) if expected is None else expected)
    )


def test_bound_is_four_times_the_difference_to_extended_precision() -> None:
    assert beyond(lambda a: a * 1, 1.0, 2.0, expected=[1.25, 2.0]).tolist() == [1.0, 0.0]
    assert beyond(lambda a: a * 1, 1.0, 2.0, expected=[0.75, 2.0]).tolist() == [1.0, 0.0]
    assert beyond(lambda a: a * 1, 1.0, 2.0) is None


@pytest.mark.parametrize(
    ("value", "bound"), [(0.5, 1.0), (1.0, 1.0), (8.0, 8.0), (-8.0, 8.0), (np.inf, 1.0), (np.nan, 1.0)], ids=str
)
def test_result_of_zero_may_be_off_by_a_rounding_of_the_input_or_of_1(value: float, bound: float) -> None:
    assert beyond(lambda a: np.zeros(1), value, expected=[0.0]).tolist() == [bound * 2.0**-52]


def test_result_of_zero_may_be_off_by_more() -> None:
    assert beyond(lambda a: a * 1, 0.25, expected=[0.0]).tolist() == [1.0]


def test_differences_that_are_not_finite_count_as_none() -> None:
    found = beyond(lambda a: a * 1, 1.0, 2.0, np.nan, expected=[1.25, np.inf, 1.0])

    assert found.tolist() == [1.0, 0.0, 0.0]


COUNT: list[None] = []


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param(None, [1.25], id="its own reference"),
        pytest.param(lambda a: a[None] * 1, [1.25], id="another shape"),
        pytest.param(lambda a: (a * 1).astype("int64"), [1.25], id="integers"),
        pytest.param(lambda a: a * 1 if a.dtype == np.float64 else 1 // 0, [1.25], id="an error"),
        pytest.param(lambda a: (COUNT.append(None), a * len(COUNT))[1], [1.25], id="state"),
    ],
)
def test_other_references_do_not_run_in_extended_precision(reference: Any, expected: Any) -> None:
    assert beyond(reference, 1.0, expected=expected) is None


@pytest.mark.parametrize(("terms", "is_run"), [(2**26, True), (2**26 + 1, False)])
def test_at_most_2_to_the_27_terms_are_added_up(terms: int, is_run: bool) -> None:
    found = beyond(lambda a: a * 1, 1.0, 2.0, expected=[1.25, 2.0], terms=lambda a: terms)

    assert (found is not None) is is_run


def test_reference_runs_in_extended_precision_and_at_other_sizes() -> None:
    met: list[Any] = []

    def reference(a: Any, k: Any, *, b: Any) -> Any:
        met.append((a.dtype, a.tolist(), k.dtype, b.dtype))
        warnings.warn("a warning", RuntimeWarning, stacklevel=1)
        a[:] = 7
        return a / 0

    sample = Sample((np.array([2.0], np.float32), np.arange(3)), {"b": np.ones(1, np.float16)})
    with np.errstate(all="raise"):
        results = [reference_errors_._again(reference, sample), reference_errors_._again(reference, sample, 1.5)]

    wide, long, integer = np.dtype("float64"), np.dtype("longdouble"), np.dtype("int64")
    assert met == [(long, [2.0], integer, long), (wide, [3.0], integer, wide)]
    assert [one.dtype for one in results if one is not None] == [long, wide]
    assert sample.args[0].tolist() == [2.0]


@pytest.mark.parametrize(
    ("shapes", "shape", "sizes"),
    [
        ([[1.0, -3.0], [2.0, 2.0]], (2,), [2.0, 3.0]),
        ([[1.0, np.nan], [-np.inf, 2.0]], (2,), [1.0, 2.0]),
        ([[1.0, 2.0, 3.0]], (2,), [0.0, 0.0]),
        ([[5, 6]], (2,), [0.0, 0.0]),
        ([], (2,), [0.0, 0.0]),
    ],
    ids=["two arrays", "not finite", "another shape", "integers", "none"],
)
def test_sizes_are_those_of_the_inputs_at_the_same_places(shapes: Any, shape: Any, sizes: Any) -> None:
    sample = Sample(tuple(np.array(one) for one in shapes))

    assert reference_errors_._sizes(sample, shape).tolist() == sizes


# ------------------------------------------------------------------------------------------------ angles, all errors


def test_angles_are_believed_to_fewer_digits() -> None:
    turned = lambda a: np.sin(a * np.pi)  # noqa: E731
    spec = spec_of(turned)
    magnitude, terms = spec.scale(SMALL, spec.expected(SMALL))

    found = reference_errors_._of_angles(spec, SMALL, spec.expected(SMALL))

    assert found == pytest.approx(7 * allowed(FUNCTION, np.float64, terms=terms, magnitude=magnitude))
    assert reference_errors_._of_angles(spec_of(np.sin), SMALL, np.ones(6)) is None


def test_errors_are_added() -> None:
    spec = spec_of(lambda a: np.sin(a * np.pi) + 0.0)
    expected = spec.expected(SMALL) + 1e-9
    parts = [
        reference_errors_._beyond_float64(spec, SMALL, expected),
        reference_errors_._of_angles(spec, SMALL, expected),
    ]

    assert reference_errors(spec, SMALL, expected) == pytest.approx(sum(parts))


@pytest.mark.parametrize(
    ("reference", "expected"), [(None, np.ones(6)), (lambda a: a * 1, np.ones(6, np.float32))], ids=["none", "float32"]
)
def test_errors_of_other_references_are_not_asked_for(reference: Any, expected: Any) -> None:
    assert reference_errors(spec_of(reference), SMALL, expected) is None
    assert reference_errors(spec_of(lambda a: a * 1), SMALL, np.ones(6)) is not None


# ------------------------------------------------------------------------------------------------ long sums

LONG = Sample((np.full(512, 1 + 2.0**-20),))


def accumulated(
    reference: Any, dtype: str = "float32", terms: int = 256, sample: Sample = LONG, **fields: Any
) -> float:
    spec = spec_of(reference, **{"terms": lambda a: terms, **fields})
    return reference_errors_.accumulated_error(spec, sample, np.array([512.0]), dtype)


def in_float32(off: float) -> Any:
    """512, off by this in float32."""
    return lambda a: np.array([512 + off * (a.dtype == np.float32)], a.dtype)


def test_error_of_a_long_sum_is_three_times_that_in_float32() -> None:
    assert accumulated(in_float32(0.5)) == 1.5
    assert accumulated(in_float32(-0.5)) == 1.5
    assert accumulated(in_float32(0.5), "float64") == 1.5 * 2.0**-29
    assert accumulated(in_float32(np.nan)) == 0.0
    assert accumulated(in_float32(np.inf)) == 0.0


def test_difference_to_float32_is_taken_in_float64() -> None:
    spec = spec_of(in_float32(0.0), terms=lambda a: 256)

    assert reference_errors_.accumulated_error(spec, LONG, np.array([512 + 2.0**-30]), "float32") == 3 * 2.0**-30


@pytest.mark.parametrize(("terms", "error"), [(256, 1.5), (255, 0.0)])
def test_sums_of_256_terms_are_long(terms: int, error: float) -> None:
    assert accumulated(in_float32(0.5), terms=terms) == error


@pytest.mark.parametrize(
    "reference",
    [
        lambda a: np.array([512.5]),
        lambda a: np.full((1, 1), 512.5, a.dtype),
        lambda a: np.array([512.0]) if a.dtype == np.float64 else 1 // 0,
    ],
    ids=["float64", "another shape", "an error"],
)
def test_reference_that_does_not_compute_in_float32_tells_nothing(reference: Any) -> None:
    assert accumulated(reference) == 0.0


def test_result_in_float32_has_no_error_of_a_long_sum() -> None:
    spec = spec_of(in_float32(0.5), terms=lambda a: 256)

    assert reference_errors_.accumulated_error(spec, LONG, np.array([512.0], np.float32), "float32") == 0.0


def test_function_without_a_reference_is_asked_itself() -> None:
    spec = OpSpec(
        fn=lambda xp, a: xp.full(1, 512.5 if a.dtype == np.float32 else 512, a.dtype), name="f", terms=lambda a: 256,
        dtypes=("float64",),
    )  # fmt: skip

    assert reference_errors_.accumulated_error(spec, LONG, np.array([512.0]), "float32") == 1.5


def test_only_floats_are_given_in_float32() -> None:
    met: list[Any] = []

    def reference(a: Any, k: Any) -> Any:
        met.append((a.dtype.name, k.dtype.name))
        warnings.warn("a warning", RuntimeWarning, stacklevel=1)
        return np.array([512 + 0.5 * (a.dtype == np.float32)], a.dtype) + 0 / a[0]

    sample = Sample((np.zeros(512), np.arange(3)))
    spec = OpSpec(
        fn=lambda xp, a, k: a, reference=lambda a, k: a, name="f", dtypes=("float64",), terms=lambda a, k: 256,
        samples=lambda make: [(make(3), make(3, dtype="int64"))],
    )  # fmt: skip
    object.__setattr__(spec, "reference", reference)

    with np.errstate(all="raise"):
        assert reference_errors_.accumulated_error(spec, sample, np.array([512.0]), "float32") == 0.0
    assert met == [("float32", "int64")]


def widened(limit: float, error: float, off: float = 0.0, dtype: str = "float32") -> Any:
    """The tolerance of a long sum with this error in float32, whose result is off."""
    spec = spec_of(in_float32(error / 3), terms=lambda a: 256)
    sample = Sample((np.ones(512, dtype),))
    return for_long_sums(spec, sample, np.array([512 + off], np.float64), np.array([512.0]), limit)


@pytest.mark.parametrize(("error", "wider"), [(1.5, 1.5), (3.0, 3.0), (4.5, 4.0), (0.75, None), (0.0, None)], ids=str)
def test_tolerance_is_widened_to_the_error_but_at_most_fourfold(error: float, wider: float | None) -> None:
    found = widened(1.0, error)

    assert (None if found is None else float(found)) == (None if wider is None else pytest.approx(wider))


def test_sixteen_bits_have_no_long_sums() -> None:
    assert widened(1.0, 3.0, dtype="float16") is None
    assert widened(1.0, 3.0, off=4.5) is None


@pytest.mark.parametrize(
    ("got", "expected", "is_further"),
    [
        (np.array([1.5]), np.array([1.0]), False),
        (np.array([1.75]), np.array([1.0]), True),
        (np.array([0.25]), np.array([1.0]), True),
        (np.array([9.0, 9.0]), np.array([1.0]), False),
        (np.array([9]), np.array([1.0]), False),
        (np.array([9.0]), np.array([1]), False),
        (np.array([9j]), np.array([1.0 + 0j]), True),
        (np.array([np.nan]), np.array([1.0]), False),
        (np.array([np.inf]), np.array([1.0]), True),
    ],
    ids=["at the limit", "above", "below", "shape", "integers got", "integers", "complex", "NaN", "infinity"],
)
def test_number_is_further_off_than_the_limit(got: Any, expected: Any, is_further: bool) -> None:
    assert reference_errors_._is_further_off(got, expected, np.array(0.5)) is is_further
