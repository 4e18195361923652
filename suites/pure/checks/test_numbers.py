"""Which numbers of samples are replaced, and which wrong results for NaN, ties and large numbers fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import numbers
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.samples import HostArray

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")


def spec_of(fn: Callable[[Any], Any], reference: Any, samples: Any = None, dtype: str = "float32") -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=(dtype,),
        samples=samples or (lambda make: [make(24)]),
    )  # fmt: skip


def free(*shape: int) -> Sample:
    """A call with numbers from -3 to 3 that a check may replace by any others."""
    values = np.linspace(-3, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return Sample((HostArray(values, is_free=True),), label="drawn")


def same(a: Any) -> Any:
    return a * 1


def without_nan(a: Any) -> Any:
    return np.nan_to_num(a, posinf=np.inf, neginf=-np.inf)


# ------------------------------------------------------------------------------------------------ NaN


@pytest.mark.parametrize(("size", "place"), [(1, 0), (2, 1), (3, 2), (9, 7), (24, 17)])
def test_a_nan_is_put_behind_two_thirds(size: int, place: int) -> None:
    found = numbers._with_nan(np.zeros(size, np.float32))

    assert np.flatnonzero(np.isnan(found)).tolist() == [place]


@pytest.mark.parametrize(("shape", "place"), [((4,), 0), ((3, 4), 8), ((), 0)])
def test_the_first_number_of_the_last_row_is_nan(shape: tuple[int, ...], place: int) -> None:
    found = numbers._with_first_nan(np.zeros(shape, np.float32))

    assert np.flatnonzero(np.isnan(found)).tolist() == [place]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_nan_has_all_bits_set(dtype: str) -> None:
    found = numbers._with_all_bits(np.zeros((3, 3), dtype))

    assert np.argwhere(np.isnan(found)).tolist() == [[1, 0]]
    assert set(found[1, :1].tobytes()) == {255}


@pytest.mark.parametrize(
    ("shape", "count"), [((40,), 0), ((41,), 40), ((3, 50), 120), ((), 0)], ids=["short", "just longer", "rows", "0-d"]
)
def test_forty_numbers_of_a_longer_row_are_masked(shape: tuple[int, ...], count: int) -> None:
    found = numbers._masked(np.zeros(shape, np.float32))

    assert int(np.isneginf(found).sum()) == count
    assert not count or np.isneginf(found[..., :40]).all()


def test_ties_leave_three_different_numbers() -> None:
    found = numbers._of_few_numbers(np.arange(30, dtype=np.float32).reshape(5, 6))

    assert found.shape == (5, 6)
    assert set(found.reshape(-1).tolist()) == {0, 10, 29}


def test_a_quarter_of_the_numbers_each_is_infinite() -> None:
    found = numbers._among_infinities(np.nan, np.zeros((8, 5), np.float32))

    assert found.shape == (8, 5)
    counts = [int(some.sum()) for some in (np.isposinf(found), np.isneginf(found), np.isnan(found), found == 0)]
    assert counts == [10, 10, 10, 10]


def test_half_of_the_numbers_are_zeros_of_both_signs() -> None:
    found = numbers._zeros_among(np.ones((40, 5), np.float32), np.random.default_rng(1))
    zeros = found[found == 0]

    assert found.shape == (40, 5)
    assert 70 < zeros.size < 130
    assert 0.3 < np.signbit(zeros).mean() < 0.7


@pytest.mark.parametrize(("size", "is_tried"), [(9000, True), (9001, False)])
def test_a_nan_is_put_at_the_end_of_the_longest_row(size: int, is_tried: bool) -> None:
    def wrong(a: Any) -> Any:
        return without_nan(a) if a.size == size and np.isnan(a[..., -1]).any() else same(a)

    spec = spec_of(wrong, same, lambda make: [make((8, 1000)), make(size), make((2, 20))])
    found = failure(numbers._check_last_nan, spec, CPU, FLOAT32)

    assert ("a NaN is lost" in found) is is_tried
    assert not is_tried or "the last number is NaN" in found


def test_the_longest_row_counts_and_not_the_largest_array() -> None:
    def wrong(a: Any) -> Any:
        return without_nan(a) if a.shape == (50,) else same(a)

    spec = spec_of(wrong, same, lambda make: [make((90, 40)), make(50), make((2, 20))])

    assert "a NaN is lost" in failure(numbers._check_last_nan, spec, CPU, FLOAT32)


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(lambda make: [make(50, low=1)], id="numbers of a range"),
        pytest.param(lambda make: [make(50, dtype="int32")], id="integers"),
    ],
)
def test_a_nan_is_put_among_free_numbers_alone(samples: Any) -> None:
    spec = spec_of(lambda a: np.nan_to_num(a), same, samples)

    assert not failure(numbers._check_last_nan, spec, CPU, FLOAT32)


@pytest.mark.parametrize("forgotten", [0, 1, 2])
@pytest.mark.parametrize(("size", "is_tried"), [(682, True), (683, False)])
def test_a_nan_is_tried_in_each_array(forgotten: int, size: int, is_tried: bool) -> None:
    def total(*given: Any) -> Any:
        return given[0] + given[1] + given[2]

    def wrong(*given: Any) -> Any:
        return total(*(without_nan(a) if place == forgotten else a for place, a in enumerate(given)))

    spec = OpSpec(
        fn=lambda xp, a, b, c: wrong(a, b, c), reference=lambda a, b, c: total(a, b, c), name="total",
        samples=lambda make: [(make(size), make(size), make(size))],
    )  # fmt: skip
    found = failure(numbers._check_nan_in_each, spec, CPU, FLOAT32)

    assert (f"a NaN in array {forgotten + 1} of 3" in found) is is_tried


def nan_check(fn: Any, reference: Any, *shape: int) -> str:
    base = free(*(shape or (24,)))
    given = numbers.refilled(base, numbers._with_nan, "a NaN")
    return failure(numbers._check_nan, spec_of(fn, reference), CPU, FLOAT32, base, given)


def test_a_lost_nan_is_named_with_its_place() -> None:
    found = nan_check(without_nan, same)

    assert "a NaN is lost: 1 of 24 results that depend on it are numbers" in found
    assert "the first at (17,): got 0.0, expected nan" in found
    assert "sample: drawn, a NaN" in found


def test_more_nan_than_the_reference_gives_may_come() -> None:
    assert not nan_check(lambda a: a + np.isnan(a).any() * a.sum(), same)
    assert not nan_check(same, same)


def test_a_number_next_to_a_nan_is_compared() -> None:
    found = nan_check(lambda a: same(a) + np.float32(0.1) * (np.isnan(a).any() & (np.arange(24) == 3)), same)

    assert "wrong for inputs with one NaN, where the reference gives a number" in found
    assert "sample: drawn, a NaN" in found


def test_an_input_written_because_of_a_nan_is_found() -> None:
    def writing(a: Any) -> Any:
        result = same(a)
        if np.isnan(a).any():
            a[:] = 0
        return result

    assert "the function writes an input if a number is NaN" in nan_check(writing, same)


def test_a_nan_that_the_reference_ignores_must_be_ignored() -> None:
    def ignoring(a: Any) -> Any:
        return np.nansum(a, keepdims=True)

    assert not nan_check(ignoring, ignoring)
    assert "a NaN is not ignored: 1 of 1 results are nan, the first at (0,)" in nan_check(
        lambda a: a.sum(keepdims=True), ignoring
    )


def test_a_nan_need_not_be_ignored_where_the_result_does_not_depend_on_it() -> None:
    def first_rows(a: Any) -> Any:
        return np.nansum(a, axis=-1) * np.array([1, 1, 0])

    assert not nan_check(lambda a: np.where([True, True, False], a.sum(axis=-1), np.nan), first_rows, 3, 8)


def test_running_sums_depend_on_a_nan_before_them() -> None:
    spec = spec_of(np.cumsum, np.cumsum)
    given = numbers.refilled(free(6), numbers._with_nan, "a NaN")

    assert numbers._depends(spec, given).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("factor", "depends"),
    [(0.0, False), (1e-12, False), (1e-10, True), (-1.0, True)],
    ids=["no", "little", "so", "yes"],
)
def test_a_result_depends_on_a_number_beyond_rounding(factor: float, depends: bool) -> None:
    def reference(a: Any) -> Any:
        return a[:1] + factor * a[4:5]

    given = numbers.refilled(free(6), lambda array: np.where(np.arange(6) == 4, np.nan, array), "a NaN")

    assert numbers._depends(spec_of(reference, reference), given).tolist() == [depends]


@pytest.mark.parametrize("limited", [np.maximum, np.minimum], ids=["above zero", "below zero"])
def test_a_result_may_depend_on_numbers_of_one_sign(limited: Any) -> None:
    def reference(a: Any) -> Any:
        return limited(a[4:5], 0)

    given = numbers.refilled(free(6), lambda array: np.where(np.arange(6) == 4, np.nan, array), "a NaN")

    assert numbers._depends(spec_of(reference, reference), given).tolist() == [True]


def test_everything_depends_on_a_number_that_the_reference_refuses() -> None:
    def reference(a: Any) -> Any:
        if (np.abs(a) > 100).any():
            raise ValueError("give small numbers")
        return a[:2]

    given = numbers.refilled(free(6), numbers._with_nan, "a NaN")

    assert numbers._depends(spec_of(reference, reference), given).tolist() == [True, True]


def test_nan_taken_for_infinity_is_found() -> None:
    def counted(a: Any) -> Any:
        return np.isnan(a).sum(keepdims=True).astype(np.int64)

    def wrong(a: Any) -> Any:
        return (np.isnan(a) | (np.isinf(a) & np.isnan(a).any())).sum(keepdims=True).astype(np.int64)

    arguments = (CPU, FLOAT32, free(24))
    assert not failure(numbers._check_nan_and_infinities, spec_of(counted, counted), *arguments)
    assert "NaN and infinities" in failure(numbers._check_nan_and_infinities, spec_of(wrong, counted), *arguments)
    assert not failure(
        numbers._check_nan_and_infinities, spec_of(lambda a: counted(a) + np.isinf(a).any(), counted), *arguments
    )


# ------------------------------------------------------------------------------------------------ ties, large numbers


def ties(fn: Any, reference: Any) -> str:
    base = free(24)
    given = numbers.refilled(base, numbers._of_few_numbers, "ties", every=True)
    return failure(numbers._check_ties, spec_of(fn, reference), CPU, FLOAT32, base, given)


def test_the_index_of_a_maximum_is_that_of_the_first_one() -> None:
    def last(a: Any) -> Any:
        return a.size - 1 - np.argmax(a[::-1], keepdims=True)

    def first(a: Any) -> Any:
        return np.argmax(a, keepdims=True)

    assert "ties" in ties(lambda a: last(a)[0], lambda a: first(a)[0])
    assert not ties(lambda a: first(a)[0], lambda a: first(a)[0])


def stable(a: Any) -> Any:
    return np.argsort(a, kind="stable")


def test_equal_numbers_may_come_in_any_order() -> None:
    assert not ties(lambda a: a.size - 1 - stable(-a[::-1])[::-1] * 1, stable)
    assert not ties(lambda a: np.lexsort((-np.arange(a.size), a)), stable)
    assert not ties(stable, stable)


def test_zeros_come_in_the_order_of_other_equal_numbers() -> None:
    def by_sign(a: Any) -> Any:
        return np.lexsort((np.arange(a.size), ~np.signbit(a), a))

    assert "zeros of both signs among the numbers" in ties(by_sign, stable)


def large(fn: Any, reference: Any) -> str:
    return failure(numbers._check_large_at_end, spec_of(fn, reference), CPU, FLOAT32, free(24))


def softmax(a: Any, most: Any) -> Any:
    parts = np.exp(a - most)
    return parts / parts.sum()


def test_a_maximum_must_be_that_of_all_numbers() -> None:
    def right(a: Any) -> Any:
        return softmax(a, a.max())

    assert not large(right, right)
    said = large(lambda a: softmax(a, a[:-1].max()), right)
    assert "right where the first number is 10000, wrong where the last one is" in said
    assert "sample: drawn, the last number is 10000" in said
    assert not large(lambda a: softmax(a, np.float32(0)), right)


@pytest.mark.parametrize(
    ("got", "expected", "is_lost"),
    [
        pytest.param([1, np.inf], [1, 2], True, id="infinite"),
        pytest.param([1, np.nan], [1, 2], True, id="NaN"),
        pytest.param([1, np.inf], [1, np.inf], False, id="infinite in both"),
        pytest.param([1, np.inf], [1, 3.5e38], False, id="out of range"),
        pytest.param([1, np.inf], [1, 3e38], True, id="in range"),
        pytest.param([1, 2], [1, 3], False, id="another number"),
        pytest.param([1, np.inf], [1], False, id="another shape"),
    ],
)
def test_a_result_in_range_that_is_not_finite_is_lost(got: Any, expected: Any, is_lost: bool) -> None:
    spec = spec_of(lambda a: np.array(got, np.float32), lambda a: np.array(expected, np.float64))

    assert (numbers._overflowed(spec, CPU, FLOAT32, free(2)) is not None) is is_lost


@pytest.mark.parametrize(
    ("fn", "spreads"),
    [
        pytest.param(same, False, id="itself"),
        pytest.param(lambda a: a + 0 * a.min(), True, id="a sum of all"),
        pytest.param(lambda a: a[:5], True, id="another shape"),
        pytest.param(lambda a: (a > 0).astype(np.int32), True, id="integers"),
    ],
)
def test_one_minus_infinity_may_spread(fn: Any, spreads: bool) -> None:
    assert numbers._spreads(spec_of(fn, same), CPU, free(24)) is spreads


# ------------------------------------------------------------------------------------------------ the check of stress


def stress(fn: Any, reference: Any, samples: Any = None, dtype: str = "float32") -> str:
    return failure(CHECKS["stress"], spec_of(fn, reference, samples, dtype), "cpu:0", np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_a_right_function_passes(dtype: str) -> None:
    assert not stress(same, same, lambda make: [make(60)], dtype)


def variance(a: Any) -> Any:
    return ((a - a.mean()) ** 2).mean(keepdims=True)


def clipped(a: Any) -> Any:
    return np.maximum(a, -9)


@pytest.mark.parametrize(
    ("fn", "reference", "said"),
    [
        pytest.param(
            lambda a: (a * a).mean(keepdims=True) - a.mean() ** 2, variance, "10000 added", id="a variance of squares"
        ),
        pytest.param(without_nan, same, "a NaN is lost", id="a lost NaN"),
        pytest.param(
            lambda a: np.where(np.isnan(a[0]), without_nan(a), a), same, "the first number of a row is NaN",
            id="a NaN lost at the start",
        ),
        pytest.param(
            lambda a: clipped(a) + np.float32(np.isneginf(a).sum() == 40), clipped, "40 times -inf", id="masked numbers"
        ),
    ],
)  # fmt: skip
def test_a_fault_under_stress_is_found(fn: Any, reference: Any, said: str) -> None:
    assert said in stress(fn, reference, lambda make: [make(60)])


def test_numbers_of_a_range_get_no_offset_and_no_nan() -> None:
    assert not stress(lambda a: np.clip(a, 1, 9), same, lambda make: [make(60, low=1, high=9)])


def test_a_free_sample_is_tried_next_to_a_larger_one_of_a_range() -> None:
    found = stress(without_nan, same, lambda make: [make(60, low=1, high=9), Sample((make(20),), {})])

    assert "a NaN is lost" in found


# ------------------------------------------------------------------------------------------------ the whole range


def full_range(fn: Any, reference: Any, dtype: str = "float32", device: str = "cpu") -> str:
    spec = OpSpec(fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=(dtype,))
    return failure(CHECKS["full_range"], spec, f"{device}:0", np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
def test_a_right_function_of_the_whole_range_passes(dtype: str) -> None:
    assert not full_range(same, same, dtype)


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda a: np.clip(a, -1e30, 1e30), id="large"),
        pytest.param(lambda a: np.where(np.abs(a) < 1e-30, 0, a).astype(a.dtype), id="small"),
        pytest.param(lambda a: np.where(np.abs(a) < 1e-38, 0, a).astype(a.dtype), id="subnormal"),
        pytest.param(lambda a: np.where(a < -1e10, -a, a), id="negative"),
    ],
)
def test_a_fault_at_a_magnitude_is_found(fn: Any) -> None:
    assert "magnitudes over the whole range of the dtype" in full_range(fn, same)


def test_a_device_may_flush_subnormal_numbers() -> None:
    def flushing(a: Any) -> Any:
        return a * (abs(a) > 1.2e-38)

    assert not full_range(flushing, same, device="sim")
    assert full_range(flushing, same)


def test_filled_arrays_are_new_ones_and_offsets_are_precise() -> None:
    given = np.array([0.1, 0.2, 0.3])

    assert numbers._offset(given).tolist() == [1e4 + 0.1, 1e4 + 0.2, 1e4 + 0.3]
    assert np.isnan(numbers._with_all_bits(given)).sum() == 1
    assert given.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("expected", "got", "found"),
    [
        ([np.nan, 1.0], [7.0, 8.0], [7.0, 1.0]),
        ([np.nan, 1.0], [7.0], [np.nan, 1.0]),
        ([np.nan], [7.0, 8.0], [np.nan]),
        ([3, 1], [7.0, 8.0], [3, 1]),
    ],
    ids=["NaN", "fewer", "more", "integers"],
)
def test_what_the_reference_does_not_say_is_taken_as_it_is(expected: Any, got: Any, found: Any) -> None:
    np.testing.assert_array_equal(numbers._or_as_got(np.array(expected), np.array(got)), np.array(found))


@pytest.mark.parametrize(
    ("device", "reference", "least", "floor"),
    [("cpu", same, -149, 0.0), ("sim", same, -126, 2.0**-126), ("cpu", None, -149, 0.0)],
    ids=["cpu", "sim", "its own reference"],
)
def test_magnitudes_reach_over_the_whole_range(
    device: str, reference: Any, least: int, floor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[Any] = []
    monkeypatch.setattr(
        numbers, "compare_values", lambda spec, device, dtype, sample, result, **options: met.append((sample, options))
    )
    numbers._check_magnitudes(spec_of(same, reference), Device(device), FLOAT32, free(24))

    ((sample, options),) = met
    values = sample.args[0].values.astype(np.float64)
    assert options == {"excuse": reference is None, "floor": floor, "each": True}
    assert sample.label == "magnitudes over the whole range of the dtype"
    assert values.shape == (1025,)
    assert least <= np.log2(np.abs(values).min()) < least + 2
    assert 126 < np.log2(np.abs(values).max()) < 128
    assert 400 < (values < 0).sum() < 625


def test_a_nan_is_tried_in_each_of_two_arrays() -> None:
    spec = OpSpec(
        fn=lambda xp, a, b: a + without_nan(b), reference=lambda a, b: a + b, name="total",
        samples=lambda make: [(make(9), make(9))],
    )  # fmt: skip

    assert "a NaN in array 2 of 2" in failure(numbers._check_nan_in_each, spec, CPU, FLOAT32)


@pytest.mark.parametrize(
    ("got", "expected"),
    [([1, 2], [1.0, 2.0]), ([np.inf, 2.0], [1, 2]), ([np.inf], [1.0, 2.0])],
    ids=["integers", "integers of the reference", "another shape"],
)
def test_only_floats_of_one_shape_overflow(got: Any, expected: Any) -> None:
    spec = spec_of(lambda a: np.array(got), lambda a: np.array(expected))

    assert numbers._overflowed(spec, CPU, FLOAT32, free(2)) is None
