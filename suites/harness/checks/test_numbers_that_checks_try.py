"""Which numbers generated checks put into samples: kept by a reference that records what it is given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.samples import HostArray, Samples

Array = NDArray[Any]
Make = Callable[[Samples], list[Any]]


def first_doubled(a: Array, *others: Array) -> Array:
    return a + a


def tried(
    check: str, samples: Make | None, dtype: str = "float32", reference: Callable[..., Array] = first_doubled
) -> list[list[Array]]:
    """The inputs of each call that a check asks the reference about, in order, in wide dtypes."""
    calls: list[list[Array]] = []

    def recorded(*args: Array) -> Array:
        calls.append([np.array(one) for one in args])
        return reference(*args)

    function = (lambda xp, a: reference(a)) if samples is None else lambda xp, *args: reference(*args)
    spec = OpSpec(fn=function, reference=recorded, name="recorded", dtypes=(dtype,), samples=samples)
    calls.clear()
    CHECKS[check](spec, "cpu", *((np.dtype(dtype),) if CHECKS[check].per_dtype else ()))
    return calls


def filled(calls: list[list[Array]], place: int = 0, **marks: float) -> set[str]:
    """Each call's input at `place` as text: the letter of each number that has one, a dot for each other number."""
    letters = {number: letter for letter, number in marks.items()}
    return {"".join(letters.get(number, ".") for number in call[place].reshape(-1).tolist()) for call in calls}


# ------------------------------------------------------------------------------------------------ zeros and ends


def test_free_numbers_are_all_zero_or_two_and_every_other_one_zero() -> None:
    found = filled(tried("zeros", lambda make: [make(5)]), z=0, t=2)

    assert found >= {"zzzzz", "z.z.z", "ttttt"}


@pytest.mark.parametrize(
    ("low", "high", "ends"), [(0.5, 4, "lh"), (-4, 4, "lzh"), (-4, 0, "lh")], ids=["positive", "both signs", "negative"]
)
def test_ends_of_a_range_are_put_everywhere_in_the_last_half_and_at_every_other_place(
    low: float, high: float, ends: str
) -> None:
    found = filled(tried("zeros", lambda make: [make(5, low=low, high=high)]), z=0, l=low, h=high)

    assert found >= {text.replace("e", end) for end in ends for text in ("eeeee", "e.e.e", "..eee")}


def test_each_of_two_inputs_is_zero_alone() -> None:
    calls = tried("zeros", lambda make: [(make(3), make(3))])

    assert {(first.any(), second.any()) for first, second in calls} >= {(False, True), (True, False), (False, False)}


def test_zeros_of_an_input_have_either_sign() -> None:
    calls = tried("zeros", lambda make: [(make(3), make(3))])

    signs = {bool(np.signbit(second[0])) for first, second in calls if first.any() and not second.any()}
    assert signs == {True, False}


@pytest.mark.parametrize(("low", "high"), [(-3.0, 3.0), (10.0, 110.0)], ids=["free", "range"])
def test_numbers_of_an_input_are_all_equal_and_in_its_range(low: float, high: float) -> None:
    def normalised(a: Array) -> Array:
        return (a - a.mean()) * 0.0

    calls = tried("zeros", lambda make: [make(7) if low < 0 else make(7, low=low, high=high)], reference=normalised)
    equal = {float(one[0]) for (one,) in calls if np.ptp(one) == 0 and one[0] not in (0, 2, low, high)}

    assert len(equal) >= 4
    assert all(low < number < high for number in equal)


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        pytest.param(lambda make: make(3, dtype="int64", low=-900, high=900), {-900, 900}, id="of its range"),
        pytest.param(lambda make: make(3, dtype="int8", low=-900, high=900), {-128, 127}, id="of its dtype"),
        pytest.param(lambda make: HostArray(np.array([4, -7, 5])), {-7, 5}, id="written down"),
        pytest.param(lambda make: HostArray(np.array([True, False, True])), {0, 1}, id="truth values"),
    ],
)
def test_an_input_of_whole_numbers_is_one_of_its_ends_everywhere(given: Callable[[Any], Any], ends: set[int]) -> None:
    calls = tried("zeros", lambda make: [(make(3), given(make))])

    assert {int(second[0]) for _, second in calls if second.min() == second.max()} == ends


def test_numbers_in_order_keep_their_ends() -> None:
    calls = tried("zeros", lambda make: [(make(5), HostArray(np.array([0, 2, 3, 9])))])

    assert {tuple(second.tolist()) for _, second in calls} == {(0, 2, 3, 9), (0, 0, 0, 9), (0, 9, 9, 9)}


@pytest.mark.parametrize("shape", [(2, 5), (0, 5)], ids=str)
def test_rows_in_order_stay_as_they_are(shape: tuple[int, int]) -> None:
    rows = np.sort(np.arange(shape[0] * 5).reshape(shape) * 7 % 11, axis=-1)
    calls = tried("zeros", lambda make: [(make(3), HostArray(rows))])

    assert all(np.array_equal(second, rows) for _, second in calls)


def test_numbers_of_three_are_drawn_several_times() -> None:
    calls = tried("zeros", lambda make: [make((4, 8))])

    few = [one for (one,) in calls if set(np.unique(one)) == {-1, 0, 1}]
    assert len({one.tobytes() for one in few}) == 6


# ------------------------------------------------------------------------------------------------ units and ranges


def factors(calls: list[list[Array]], base: Array) -> set[float]:
    """By which powers of two all numbers of the base are multiplied, in a call."""
    with np.errstate(all="ignore"):
        logarithms = [np.log2(np.abs(one / base)) for (one,) in calls]
    return {float(one.flat[0]) for one in logarithms if one.shape == base.shape and np.ptp(one) == 0}


def test_units_are_far_below_and_far_above_ordinary_numbers() -> None:
    base = next(OpSpec(fn=lambda xp, a: a, name="recorded", samples=lambda make: [make(9)]).draw(2026, "float32"))

    assert factors(tried("units", lambda make: [make(9)]), base.host()[0][0]) - {0} == {
        -80, -27, -8, 4, 7, 20, 34, 80,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "is_wide"),
    [(1, 100, True), (1, 99, False), (-100, -1, True), (-10, -1, False), (0, 100, False), (-1, 100, False)],
)
def test_a_range_of_one_sign_and_two_orders_of_magnitude_is_tried_in_each(
    low: float, high: float, is_wide: bool
) -> None:
    calls = tried("units", lambda make: [make(50, low=low, high=high)])
    steps = np.sort(np.geomspace(low, high, 50).astype(np.float32)) if low * high > 0 else np.zeros(50)

    assert any(np.array_equal(np.sort(one), steps) for (one,) in calls) is is_wide


# ------------------------------------------------------------------------------------------------ special numbers


@pytest.mark.parametrize(
    ("shape", "places"),
    [((3, 5), {(2, 1), (2, 0), (2, 4)}), ((3, 1), {(2, 0)}), (1, {(0,)}), (9, {(7,), (0,), (8,)})],
    ids=["rows", "column", "one", "few"],
)
def test_the_nan_is_in_the_last_third_and_at_both_ends_of_the_last_row(shape: Any, places: set[Any]) -> None:
    calls = tried("stress", lambda make: [make(shape)])

    assert {tuple(np.argwhere(np.isnan(one))[0].tolist()) for (one,) in calls if np.isnan(one).any()} == places


def test_a_nan_is_at_the_end_of_the_longest_row() -> None:
    calls = tried("stress", lambda make: [make(10), make((3, 150)), make((2, 5, 64))])

    assert {one.shape for (one,) in calls if np.isnan(one.reshape(-1)[-1])} == {(3, 150)}


def test_imaginary_parts_are_zeros_of_either_sign() -> None:
    calls = tried("units", lambda make: [make(5, dtype="complex64")], "complex64")

    assert {bool(np.signbit(one.imag[0])) for (one,) in calls if not one.imag.any()} == {True, False}


@pytest.mark.parametrize(("width", "masked"), [(40, 0), (41, 40), (99, 40)])
def test_forty_numbers_of_longer_rows_are_minus_infinity(width: int, masked: int) -> None:
    calls = tried("stress", lambda make: [make((2, width))])

    assert max(int(np.isneginf(one).sum(axis=-1).max()) for (one,) in calls) == masked


def test_one_part_of_a_complex_number_is_nan_next_to_a_one() -> None:
    calls = tried("stress", lambda make: [make((3, 5), dtype="complex64")], "complex64")
    numbers = [one.reshape(-1)[5] for (one,) in calls if np.isnan(one).sum() == 1]

    assert {str(number) for number in numbers} >= {"(nan+1j)", "(1+nanj)"}


@pytest.mark.parametrize(("count", "is_crossed"), [(1, False), (2, True)])
def test_integers_of_another_sample_are_put_in_from_two_on(count: int, is_crossed: bool) -> None:
    def samples(make: Samples) -> list[Any]:
        near, far = (make(count, dtype="int32", low=low, high=low + 8) for low in (0, 1000))
        return [(make(3), near), (make(7), far)]

    calls = tried("stress", samples)

    assert any(len(first) == 3 and second.min() >= 1000 for first, second in calls) is is_crossed


def test_squares_of_sixty_four_bit_integers_are_beyond_float64() -> None:
    calls = [one for (one,) in tried("full_range", None, "int64") if one.size == 1025]
    numbers = {int(one) + step for array in calls for one in array for step in (-1, 0, 1)}
    roots = {round(one**0.5) for one in numbers if one > 100 and round(one**0.5) ** 2 == one}
    roots -= {10**digits for digits in range(10)}

    assert sum(root & (root - 1) != 0 for root in roots) > 20
    assert min(root for root in roots if root & (root - 1)) >= 2**26


def test_integers_next_to_powers_of_ten_are_tried() -> None:
    calls = [one for (one,) in tried("full_range", None, "int64") if one.size == 1025]
    numbers = {int(one) for array in calls for one in array}

    assert numbers & {10**18 - 1, 10**18, 10**18 + 1}


def test_numbers_are_just_below_powers_of_two() -> None:
    calls = tried("halves", lambda make: [make(40)])
    above = [np.nextafter(one.astype(np.float32), np.copysign(np.inf, one)) for (one,) in calls]

    assert any((np.abs(np.frexp(one)[0]) == 0.5).all() and len(set(np.abs(one).tolist())) > 4 for one in above)


def test_integers_are_at_below_and_above_the_floats_of_another_input() -> None:
    bounds = [2.0**10, 2.0**20, 2.0**30]

    def classes(sizes: Array, edges: Array) -> Array:
        return (sizes[:, None] >= edges).sum(axis=-1)

    def samples(make: Samples) -> list[Any]:
        return [(make(40, dtype="int32", low=0, high=2**31 - 1), make.of(bounds))]

    calls = tried("halves", samples, reference=classes)
    steps = {
        int(number - bound) for sizes, _ in calls for number in sizes for bound in bounds if abs(number - bound) < 2
    }

    assert steps == {-1, 0, 1}


@pytest.mark.parametrize("place", [0, 1])
def test_an_infinity_is_in_one_of_two_inputs_where_results_are_counts(place: int) -> None:
    def equal(a: Array, b: Array) -> Array:
        return (a == b).sum(axis=-1)

    calls = tried("infinities", lambda make: [(make((3, 5)), make((3, 5)))], reference=equal)
    found = {float(call[place][np.isinf(call[place])][0]) for call in calls if np.isinf(call[place]).sum() == 1}

    assert found == {np.inf, -np.inf}
    assert all(np.isfinite(call[1 - place]).all() or np.isfinite(call[place]).all() for call in calls)


def test_less_than_half_of_a_row_is_infinite_in_each_sample() -> None:
    calls = tried("infinities", lambda make: [make((2, 9)), make((2, 6))])

    found = {(one.shape, int(np.isposinf(one[0]).sum())) for (one,) in calls}
    assert found >= {((2, 9), 4), ((2, 6), 2)}


def test_the_last_half_of_the_rows_is_an_end_of_the_range() -> None:
    found = filled(tried("zeros", lambda make: [make((4, 6), low=0.5, high=4)]), h=4)

    assert "." * 12 + "h" * 12 in found


def test_an_input_that_is_zero_alone_holds_no_other_number() -> None:
    calls = tried("zeros", lambda make: [(make(3), make(3))])
    ordinary = calls[0][0]
    equal = {float(second[0]) for first, second in calls if np.ptp(second) == 0 and np.array_equal(first, ordinary)}

    assert equal == {0.0}


def test_masks_are_false_everywhere_while_all_numbers_are_zero() -> None:
    calls = tried("zeros", lambda make: [(make(5), HostArray(np.array([True, False, True, True, False])))])

    assert {(bool(first.any()), bool(mask.any())) for first, mask in calls} >= {(False, True), (False, False)}


def test_one_number_is_so_large_that_the_others_vanish_next_to_it() -> None:
    found = filled(tried("units", lambda make: [make((3, 5))]), s=2.0**26)

    assert "..s............" in found


def test_numbers_next_to_zero_are_in_each_input_whose_range_has_them() -> None:
    calls = tried("units", lambda make: [(make(9), make(9, low=0, high=1))])
    places = {tuple(bool(((one != 0) & (abs(one) < 2.0**-60)).any()) for one in call) for call in calls}

    assert (True, True) in places


def test_numbers_of_float16_are_just_below_overflow() -> None:
    calls = tried("units", lambda make: [make(9)], "float16")

    assert max(float(one.min()) for (one,) in calls) >= 4094
    assert max(float(one.max()) for (one,) in calls) < 65504


@pytest.mark.parametrize("dtype", ["complex64", "bool"])
def test_magnitudes_are_of_floats_alone(dtype: str) -> None:
    assert all(one.size < 1025 for (one,) in tried("full_range", None, dtype))


def test_magnitudes_cover_the_whole_range_of_the_dtype() -> None:
    calls = [one for (one,) in tried("full_range", None) if one.size == 1025]
    exponents = [np.frexp(np.abs(one))[1] for one in calls]

    assert min(int(one.min()) for one in exponents) < -140
    assert max(int(one.max()) for one in exponents) > 120
    assert all(np.array_equal(one, one.astype(np.float32), equal_nan=True) for one in calls)


# ------------------------------------------------------------------------------------------------ shapes


@pytest.mark.parametrize("check", ["zeros", "units", "stress", "infinities", "halves"])
def test_samples_of_more_than_nine_thousand_elements_are_not_filled(check: str) -> None:
    assert {one.size for (one,) in tried(check, lambda make: [make(9000), make(9001)])} == {9000}


def test_extents_are_tried_in_ascending_order() -> None:
    """Of a set the order would be another one: 17, then 3."""
    calls = tried("sizes", lambda make: [make((3, 17))], "float16")
    shapes = list(dict.fromkeys(one.shape for (one,) in calls))

    for extent in (0, 4100, 9001):
        assert [shape for shape in shapes if extent in shape] == [(extent, 17), (3, extent)]


def test_the_samples_of_most_axes_are_made_largest() -> None:
    calls = tried("sizes", lambda make: [make(5), make((3, 5)), make((2, 3, 5))])

    assert {one.ndim for (one,) in calls if one.size > 10_000} == {2, 3}


def test_only_axes_of_several_elements_are_made_empty() -> None:
    shapes = {one.shape for (one,) in tried("sizes", lambda make: [make((1, 5))])}

    assert (1, 0) in shapes
    assert (0, 5) not in shapes


# ------------------------------------------------------------------------------------------------ what stays as it is


def fixed(make: Samples) -> list[Any]:
    """Arrays that cannot be written."""
    drawn = [
        (make((3, 44)), make((3, 44), low=0, high=1), make(44, dtype="int32", low=-99, high=99)),
        (make(9), make(9, low=0.5, high=1), HostArray(np.arange(9, dtype=np.int32))),
    ]
    for args in drawn:
        for one in args:
            one.values.flags.writeable = False
    return drawn


WEIGHED = OpSpec(
    fn=lambda xp, a, b, c: a * b + c.astype(a.dtype), reference=lambda a, b, c: a * b + c, name="weighed",
    dtypes=("float16", "float32"), samples=fixed,
)  # fmt: skip


@pytest.mark.parametrize("check", [name for name, one in CHECKS.items() if one.applies(WEIGHED) and not one.needs])
def test_no_check_writes_into_a_sample(check: str) -> None:
    with suppress(pytest.skip.Exception):
        CHECKS[check](WEIGHED, "cpu", *((np.dtype("float32"),) if CHECKS[check].per_dtype else ()))


def nan_as_zero(a: Array) -> Array:
    return np.where(np.isnan(a), 0, a)


def test_nan_and_infinities_are_not_written_into_a_sample() -> None:
    spec = OpSpec(
        fn=lambda xp, a, b, c: nan_as_zero(a * b + c.astype(a.dtype)), reference=lambda a, b, c: nan_as_zero(a * b + c),
        name="weighed", dtypes=("float32",), samples=fixed,
    )  # fmt: skip
    CHECKS["stress"](spec, "cpu", np.dtype("float32"))
