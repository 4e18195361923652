"""Which larger and smaller samples are made, the tolerance of a larger one, and what the check of sizes finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import sizes
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.sizes import MOST_OF_SMALL, check_larger, limit_of_larger
from cuassay.testing.specs import SPECS
from cuassay.testing.tolerance import allowed

CPU = Device("cpu")


def declared(reference: Callable[..., Any], dtype: str = "float32") -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: reference(a), reference=reference, name="larger", dtypes=(dtype,),
        samples=lambda make: [make(4)],
    )  # fmt: skip


def limit(reference: Any, values: Any, times: int = 1, dtype: str = "float32", few: int = 1) -> Any:
    """The tolerance of the first result, of a base and a sample with its numbers several times."""
    base, sample = (Sample((np.tile(np.array(values, dtype), count),)) for count in (1, times))
    spec = declared(reference, dtype)
    found = limit_of_larger(spec, dtype, sample, base, spec.expected(sample), few)
    return None if found is None else float(np.asarray(found).reshape(-1)[0])


def test_the_tolerance_is_relative_to_the_inputs_however_small_they_are() -> None:
    small, large = (limit(lambda a: a - a, [size] * 4) for size in (2.0**-12, 1.0))

    assert large / small == pytest.approx(2.0**12)


def test_the_tolerance_of_a_sum_grows_with_its_terms_and_that_of_an_element_does_not() -> None:
    sums, elements = (
        [limit(reference, [1.0, -1.0], times) for times in (1, 16)] for reference in (np.sum, np.negative)
    )

    assert sums[1] == pytest.approx(4 * sums[0])
    assert elements[1] == elements[0]


@pytest.mark.parametrize(("few", "is_known"), [(7, False), (8, True)])
def test_sums_of_more_than_a_few_terms_in_sixteen_bits_have_no_tolerance(few: int, is_known: bool) -> None:
    assert (limit(np.sum, [1.0] * 8, dtype="float16", few=few) is not None) is is_known
    assert limit(np.sum, [1.0] * 8, few=1) is not None


@pytest.mark.parametrize(("error", "passes"), [(2.0**-21, True), (2.0**-13, False), (2.0**-11, False)])
def test_a_larger_result_is_compared_within_its_tolerance(error: float, passes: bool) -> None:
    base, sample = Sample((np.ones(4, np.float32),)), Sample((np.ones(9, np.float32),))
    wrong = np.where(np.arange(9) == 8, 1 + error, 1).astype(np.float32)
    spec = declared(lambda a: a)
    message = ""
    try:
        check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base, result=wrong)
    except AssertionError as failure:
        message = str(failure)

    assert ("worst at (8,)" in message) is not passes


@pytest.mark.parametrize("size", [2.0**-12, 1.0, 2.0**12])
def test_an_extent_that_nobody_declared_may_have_inexact_positions(size: float) -> None:
    base, sample = (Sample((np.full(count, size, np.float32),)) for count in (4, 9))
    spec = declared(lambda a: a)
    near, far = (np.full(9, size * (1 + error), np.float32) for error in (2.0**-11, 2.0**-9))

    check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base, is_grown=True, result=near)
    with pytest.raises(AssertionError, match="out of tolerance"):
        check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base, is_grown=True, result=far)


@pytest.mark.parametrize(("count", "is_small"), [(MOST_OF_SMALL, True), (MOST_OF_SMALL + 1, False)])
def test_an_input_that_a_small_call_writes_is_found(count: int, is_small: bool) -> None:
    def negated(xp: Any, a: Any) -> Any:
        result = -a
        a[...] = 0
        return result

    spec = OpSpec(
        fn=lambda xp, a: negated(xp, a) if len(a) > 9 else -a, reference=lambda a: -a, name="negated",
        dtypes=("float32",), samples=lambda make: [make(4)],
    )  # fmt: skip
    base, sample = (Sample((np.ones(length, np.float32),)) for length in (4, count))
    message = ""
    try:
        check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base)
    except AssertionError as failure:
        message = "\n".join([str(failure), *getattr(failure, "__notes__", ())])

    assert ("the function writes an input of this size" in message) is is_small


def negated(refuses: Callable[[Any], bool] = lambda a: False, **declared: Any) -> OpSpec:
    """A right function of one array; its reference refuses some arrays."""

    def reference(a: Any) -> Any:
        if refuses(a):
            raise ValueError("not this array")
        return -a

    return OpSpec(fn=lambda xp, a: -a, reference=reference, name="negated", **declared)


def ones(*shape: int) -> Sample:
    return Sample((np.ones(shape, np.float32),))


def stretched(spec: OpSpec, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes of a sample whose first extent is stretched."""
    return [one.args[0].shape for one in sizes._stretched(spec, CPU, ones(*shape), shape[0])]


@pytest.mark.parametrize(
    ("shape", "longer"),
    [
        pytest.param((3,), [(263,), (1_031,), (4_099,), (2**20 + 3,)], id="short"),
        pytest.param((67,), [(263,), (1_031,), (4_099,), (2**20 + 3,)], id="as long as the first that shows the cost"),
        pytest.param((263,), [(1_031,), (4_099,), (2**20 + 3,)], id="longer"),
        pytest.param((4, 16), [(263, 16), (65_537, 16)], id="rows"),
        pytest.param((20_000, 16), [(65_537, 16)], id="many rows"),
        pytest.param((4, 100), [(4_099, 100), (65_537, 5)], id="wide rows"),
        pytest.param((4, 3, 200), [(1_031, 3, 200), (65_537, 3, 5)], id="rows of two widths"),
        pytest.param((4, 300, 300), [], id="narrow rows are too many elements as well"),
    ],
)
def test_an_extent_is_stretched_as_far_as_it_is_affordable(
    shape: tuple[int, ...], longer: list[tuple[int, ...]]
) -> None:
    assert stretched(negated(samples=lambda make: [make(3)]), shape) == longer


def test_an_extent_of_default_samples_is_stretched_once() -> None:
    assert stretched(negated(), (3,)) == [(65_537,)]


def test_rows_stay_wide_where_the_reference_refuses_narrow_ones() -> None:
    spec = negated(lambda a: a.shape[-1] != 100, samples=lambda make: [make((4, 100))])

    assert stretched(spec, (4, 100)) == [(4_099, 100)]


@pytest.mark.parametrize("has_default", [False, True], ids=["samples", "default samples"])
def test_extents_of_arrays_with_the_most_axes_are_stretched(has_default: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "affordable", lambda spec, device, base, longer: list(longer))
    monkeypatch.setattr(sizes, "_stretched", lambda spec, device, sample, extent: [(sample.args[0].shape, extent)])
    drawn = ((3, 1, 2), (4, 2, 2), (7,), (5, 6), (9, 8))
    spec = negated(samples=lambda make: [make(shape) for shape in drawn])
    if has_default:
        object.__setattr__(spec, "has_default_samples", True)

    found: list[Any] = list(sizes._larger(spec, CPU, np.dtype("float32")))

    three, two = [((3, 1, 2), 2), ((3, 1, 2), 3)], [((5, 6), 5), ((5, 6), 6)]
    flat = [{7: length} for length in (4_095, 16_385, 65_537, 131_071, 2**20 + 3)]
    assert found == ([*flat, *three] if has_default else [*three, *two])


@pytest.mark.parametrize(
    ("place", "is_found"), [(65_535, False), (65_536, True)], ids=["the last of 65,536", "the last of 65,537"]
)
def test_a_reduction_that_ends_after_the_sixteenth_bit_fails(place: int, is_found: bool) -> None:
    spec = OpSpec(
        fn=lambda xp, a: (xp.sum(a[:place]) + xp.sum(a[place + 1 :])), reference=np.sum, name="total",
        dtypes=("float32",), samples=lambda make: [make(9)],
    )  # fmt: skip
    message = ""
    try:
        sizes._check_last_number(spec, CPU, ones(9))
    except AssertionError as failure:
        message = str(failure)

    assert message.startswith("the last number has no part") is is_found


@pytest.mark.parametrize(
    ("reference", "sample"),
    [
        pytest.param(np.negative, ones(9), id="no reduction"),
        pytest.param(np.sum, Sample((np.ones(9, np.int32),)), id="integers"),
        pytest.param(lambda a: a.sum(axis=0), ones(9, 70_000), id="already long"),
    ],
)
def test_the_last_number_of_other_calls_is_not_asked_for(reference: Any, sample: Sample) -> None:
    spec = OpSpec(
        fn=lambda xp, a: reference(a) * 0, reference=reference, name="zeros", samples=lambda make: [make((9, 2))]
    )

    sizes._check_last_number(spec, CPU, sample)


def empty_axes(fn: Any, reference: Any, shape: tuple[int, ...] = (3, 4), **declared: Any) -> str:
    """The failure of a function for which each axis in turn is empty."""
    spec = OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=("float32",),
        samples=lambda make: [make(shape)], **declared,
    )  # fmt: skip
    try:
        sizes._check_empty_axes(spec, CPU, np.dtype("float32"), ones(*shape))
    except AssertionError as failure:
        return "\n".join([str(failure), *getattr(failure, "__notes__", ())])
    return ""


def row_sums(a: Any) -> Any:
    return a.sum(axis=-1)


def test_sums_over_an_empty_axis_that_were_never_written_fail() -> None:
    numbers = iter(range(1, 99))

    def unwritten(a: Any) -> Any:
        return row_sums(a) if a.size else np.full(a.shape[0], next(numbers), np.float32)

    failure = empty_axes(unwritten, row_sums)

    assert (
        "one axis has no elements, and the result has some: does the function return memory it never wrote?" in failure
    )
    assert "an axis without elements: 3x0" in failure


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(row_sums, id="zeros"),
        pytest.param(
            lambda a: row_sums(a) if a.size else np.ones(a.shape[0], np.float32), id="the same ones each time"
        ),
        pytest.param(lambda a: a.max(axis=-1, initial=-9), id="a maximum of nothing"),
    ],
)
def test_defined_results_for_an_empty_axis_pass(fn: Any) -> None:
    assert not empty_axes(fn, row_sums)


@pytest.mark.parametrize("axis", [None, -1], ids=["all", "one axis"])
def test_a_function_that_fails_whichever_axis_is_empty_is_found(axis: int | None) -> None:
    def centred(a: Any) -> Any:
        return a - a.max(axis=axis, keepdims=True)

    failure = empty_axes(centred, lambda a: centred(a) if a.size else a)

    assert ("the reference gives an empty result, and the function fails" in failure) is (axis is None)


def test_a_reference_that_refuses_inputs_without_elements_requires_nothing() -> None:
    assert not empty_axes(lambda a: a - a.max(), lambda a: a - a.max())


def test_a_list_of_no_rows_is_not_an_error() -> None:
    assert not empty_axes(lambda a: list(a * 2), lambda a: list(a * 2))


def test_another_error_for_inputs_without_elements_may_be_meant() -> None:
    def refusing(a: Any) -> Any:
        if not a.size:
            raise ValueError("give some numbers")
        return -a

    assert not empty_axes(refusing, np.negative)


def test_a_result_for_inputs_without_elements_has_the_dtype_of_others() -> None:
    failure = empty_axes(lambda a: row_sums(a) if a.size else np.zeros(a.shape[:-1]), row_sums)

    assert "the result is float64, and float32 for ordinary inputs" in failure


def test_a_result_whose_shape_does_not_depend_on_the_extent_keeps_it() -> None:
    def extrema(a: Any) -> Any:
        return np.stack([a.min(initial=0), a.max(initial=0)])

    failure = empty_axes(lambda a: extrema(a) if a.size else np.zeros(0, np.float32), extrema)

    assert "one axis has no elements, and the result's shape does not depend on it" in failure
    assert not empty_axes(extrema, extrema)


def test_an_empty_result_is_given_where_the_reference_gives_one() -> None:
    failure = empty_axes(lambda a: a[:2] if a.size else np.zeros((2, 2), np.float32), lambda a: a[:2])

    assert "the reference gives an empty result and the function does not" in failure


def positions(a: Any, most: int) -> Any:
    return np.minimum(np.arange(a.size), most).astype(a.dtype) + a * 0


@pytest.mark.parametrize(
    ("most", "dtypes", "is_found"),
    [
        pytest.param(2**14, ("float16",), False, id="counted in integers"),
        pytest.param(2048, ("float16",), True, id="counted in float16"),
        pytest.param(8192, ("float16", "float32"), True, id="counted up to 8,192"),
        pytest.param(2048, ("float32",), False, id="not declared for float16"),
    ],
)
def test_positions_counted_in_float16_fail(most: int, dtypes: tuple[str, ...], is_found: bool) -> None:
    spec = OpSpec(
        fn=lambda xp, a: positions(a, most), reference=lambda a: np.arange(a.size) + a * 0, name="positions",
        dtypes=dtypes, samples=lambda make: [make(9)],
    )  # fmt: skip
    message = ""
    try:
        sizes._check_places(spec, CPU)
    except AssertionError as failure:
        message = str(failure)

    assert ("out of tolerance" in message) is is_found


@pytest.mark.parametrize(("name", "applies"), [("add", True), ("exp", True), ("where", False), ("sum", False)], ids=str)
def test_sizes_are_checked_of_functions_and_of_elementwise_ops_of_two_arrays(name: str, applies: bool) -> None:
    spec = next(one for one in SPECS if one.name == name)

    assert CHECKS["sizes"].applies(spec) is applies
    assert CHECKS["sizes"].applies(negated())


@pytest.mark.parametrize(("times", "terms"), [(1, 8), (2, 16), (16, 128)])
def test_the_tolerance_of_a_sum_is_that_of_its_terms(times: int, terms: int) -> None:
    base, sample = (Sample((np.ones(8 * count, np.float32),)) for count in (1, times))
    spec = declared(np.sum)
    expected = spec.expected(sample)

    found = limit_of_larger(spec, "float32", sample, base, expected)

    assert found == pytest.approx(allowed(spec.rule, "float32", terms=terms, magnitude=np.maximum(expected, 1.0)))


def test_the_reference_itself_is_asked_how_precise_positions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    precise: list[bool] = []
    monkeypatch.setattr(sizes, "check_larger", lambda *args, is_precise: precise.append(is_precise))
    spec = OpSpec(
        fn=lambda xp, a: a * 1, reference=lambda a: a * 1, name="f", dtypes=("float16",), samples=lambda make: [make(9)]
    )

    sizes._check_places(spec, CPU)

    assert precise == [True, True]


def test_samples_are_yielded_while_the_reference_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "seconds_of_reference", lambda spec, sample: 0.5)
    spec = negated()

    found = [one.args[0].size for one in sizes._quick(spec, [ones(4), ones(8), ones(17), ones(16), ones(40), ones(9)])]

    assert found == [4, 8, 16, 9]


def test_extents_are_stretched_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_stretched", lambda spec, device, sample, extent: [extent])
    spec = negated(samples=lambda make: [make((16, 9))])

    assert list(sizes._larger(spec, CPU, np.dtype("float32"))) == [9, 16]


@pytest.mark.parametrize(("dtype", "precise"), [("int32", "float32"), ("float64", "float64")])
def test_floats_of_integers_are_as_precise_as_the_result(dtype: str, precise: str) -> None:
    spec = OpSpec(
        fn=lambda xp, a: (a / 3).astype("float32"), reference=lambda a: a / 3, name="third", dtypes=(dtype,),
        samples=lambda make: [make(4)],
    )  # fmt: skip
    sample = Sample((np.full(4, 6, dtype),))

    found = limit_of_larger(spec, np.dtype(dtype), sample, sample, spec.expected(sample))

    assert found == pytest.approx(allowed(spec.rule, precise, terms=1, magnitude=np.full(4, 6.0)), rel=1e-9)


def test_empty_axes_are_tried_in_the_order_of_their_extents() -> None:
    found = empty_axes(lambda a: np.zeros(2, np.float32), lambda a: a.sum(axis=-1)[:0], (64, 9))

    assert "an axis without elements: 64x0" in found


def test_an_axis_of_one_element_is_not_emptied() -> None:
    assert not empty_axes(lambda a: row_sums(a) + np.float32(a.shape[0] == 0), row_sums, (1, 4))
