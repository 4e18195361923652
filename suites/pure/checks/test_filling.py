"""The numbers of a call changed: which floats are free, and how far results move with the last digits of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.filling import (
    conditioning,
    free_floats,
    is_changed,
    is_general,
    last_digit_moves,
    near_zero,
    refilled,
    some_tiny,
    span_of,
    with_element,
)
from cuassay.testing.samples import HostArray, Samples

MAKE = Samples(1, "float32")
WIDE = np.array([-2.0, 2, 0, 0, 0, 0, 0, 0, 0], np.float32)


def spec_of(reference: Callable[..., Any]) -> OpSpec:
    return OpSpec(
        fn=lambda xp, *args: reference(*args), reference=reference, name="changed", samples=lambda make: [make(3)]
    )


@pytest.mark.parametrize(
    ("given", "free"),
    [
        pytest.param(MAKE(3), True, id="drawn without a range"),
        pytest.param(MAKE(30, low=-3), False, id="drawn in a range"),
        pytest.param(MAKE(3, dtype="int8"), False, id="integers"),
        pytest.param(HostArray(WIDE), True, id="as if drawn"),
        pytest.param(WIDE, True, id="of NumPy's"),
        pytest.param(WIDE[:8], False, id="eight numbers"),
        pytest.param(WIDE * 0.75, False, id="close to zero"),
        pytest.param(WIDE * 1.5, True, id="up to 3"),
        pytest.param(WIDE * 1.625, False, id="beyond 3"),
        pytest.param(np.maximum(WIDE, -1.5), False, id="none below -1.5"),
        pytest.param(np.minimum(WIDE, 1.5), False, id="none above 1.5"),
        pytest.param(WIDE * 0.78125, True, id="up to 1.5625"),
        pytest.param(WIDE.astype(ml_dtypes.bfloat16), True, id="of 16 bits"),
        pytest.param(np.abs(WIDE), False, id="none negative"),
        pytest.param(-np.abs(WIDE), False, id="none positive"),
    ],
)
def test_floats_are_free_where_they_were_drawn_without_a_range_or_seem_so(given: Any, free: bool) -> None:
    assert bool(free_floats(Sample((given,)))) is free
    assert bool(free_floats(Sample(([given],)))) is free
    assert bool(free_floats(Sample((MAKE((), dtype="int8"),), {"weight": given}))) is free


@pytest.mark.parametrize(
    ("low", "high", "is_near"), [(0, 1, True), (-1, 0, True), (-1, 1, True), (0.5, 1, False), (0, 0, False)]
)
def test_numbers_of_a_range_that_holds_zero_may_be_small(low: float, high: float, is_near: bool) -> None:
    free, ranged = MAKE(3), MAKE(3, low=low, high=high)

    near = near_zero(Sample((free, ranged)))

    assert [id(one) for one in near] == ([id(free.values), id(ranged.values)] if is_near else [])


@pytest.mark.parametrize("has_default", [False, True])
def test_default_samples_take_any_number(has_default: bool) -> None:
    spec = OpSpec(fn=lambda xp, a: a, samples=None if has_default else lambda make: [make(3)])

    assert is_general(spec, Sample((MAKE(3, low=1),))) is has_default
    assert is_general(spec, Sample((MAKE(3),)))
    assert not is_general(spec, Sample((MAKE(3, dtype="int8"),)))


@pytest.mark.parametrize(
    ("options", "changed"),
    [({}, "free"), ({"every": True}, "free ranged"), ({"chosen": "ranged"}, "ranged")],
    ids=["free", "every", "chosen"],
)
def test_chosen_arrays_are_changed_and_others_stay(options: dict[str, Any], changed: str) -> None:
    arrays = {"free": MAKE(3), "ranged": MAKE(3, low=1), "integers": MAKE(3, dtype="int8"), "empty": MAKE(0)}
    if "chosen" in options:
        options = {"chosen": [arrays["ranged"].values]}
    sample = refilled(Sample(tuple(arrays.values()), {"axis": 0}, label="drawn"), np.negative, "negative", **options)

    new = dict(zip(arrays, sample.args, strict=True))
    assert [name for name in arrays if new[name] is not arrays[name]] == changed.split()
    assert all((new[name].values == -arrays[name].values).all() for name in changed.split())
    assert (sample.label, sample.kwargs) == ("drawn, negative", {"axis": 0})


def test_numbers_of_a_changed_array_move_within_the_range_that_was_asked_for_it() -> None:
    at_its_ends = refilled(Sample((MAKE(64, low=-1, high=1),)), np.sign, "at the ends", every=True)
    spec = spec_of(lambda a: np.where(np.abs(a) <= 1, a, 1e6))

    assert 0 < conditioning(spec, at_its_ends) < 1e-6


@pytest.mark.parametrize(
    ("reference", "least", "most"),
    [
        pytest.param(lambda a: 4 * a, 2.0**-21, 2.0**-21, id="by a digit"),
        pytest.param(lambda a: np.exp(100 * a), 1e36, np.inf, id="by much"),
        pytest.param(lambda a: np.sign(a), 0, 0, id="not at all"),
        pytest.param(lambda a: a[a >= 1.0], np.inf, np.inf, id="to another shape"),
        pytest.param(lambda a: a * np.inf, 0, 0, id="from infinity to itself"),
    ],
)
@pytest.mark.parametrize("moves", [conditioning, last_digit_moves])
def test_results_move_with_the_last_digits_of_inputs(
    moves: Callable[..., Any], reference: Callable[..., Any], least: float, most: float
) -> None:
    sample = Sample((np.array([1.0] * 16, np.float32),))
    with np.errstate(all="raise"):
        moved = np.asarray(moves(spec_of(reference), sample))

    assert least <= np.max(moved, where=np.isfinite(moved) | (least == np.inf), initial=0.0) <= most


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zeros_and_sixteen_bits_are_not_moved(dtype: str) -> None:
    numbers = np.array([0.0, 1.0], dtype)

    assert conditioning(spec_of(lambda a: a[:1] * 1e40), Sample((numbers,))) == 0
    assert (conditioning(spec_of(lambda a: a), Sample((numbers,))) > 0) is (dtype != "float16")


def test_two_inputs_move_each_on_its_own() -> None:
    ones = np.ones(64, np.float32)
    spec = OpSpec(
        fn=lambda xp, a, b: a - b, reference=lambda a, b: a - b, name="difference",
        samples=lambda make: [(make(3), make(3))],
    )  # fmt: skip

    assert conditioning(spec, Sample((ones, ones.copy()))) > 2.0**-24


@pytest.mark.parametrize("moves", [conditioning, last_digit_moves])
def test_inputs_of_a_range_are_moved_next_to_free_ones(moves: Callable[..., Any]) -> None:
    free, ranged = MAKE(9), MAKE(9, low=1, high=2)
    spec = OpSpec(
        fn=lambda xp, a, b: b, reference=lambda a, b: b, name="second", samples=lambda make: [(make(3), make(3))]
    )

    assert np.max(moves(spec, Sample((free, ranged)))) > 0


def test_inputs_that_are_refused_when_moved_move_nothing() -> None:
    def exact(a: Any) -> Any:
        if (a != np.round(a)).any():
            raise ValueError("not a whole number")
        return a

    spec = OpSpec(fn=lambda xp, a: exact(a), reference=exact, name="exact", samples=lambda make: [make.full(3, 1.0)])
    sample = Sample((np.ones(3, np.float32),))

    assert conditioning(spec, sample) == 0
    assert last_digit_moves(spec, sample).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("first", "sign"), [(-1.0, -1), (0.0, 1), (1.0, 1), (-0.0, 1)], ids=["negative", "zero", "positive", "minus zero"]
)
def test_every_eighth_number_becomes_tiny(first: float, sign: int) -> None:
    given = np.array([first, *range(2, 18)], np.float64).reshape(17, 1)
    before = given.copy()

    found = some_tiny(given)

    flat = found.reshape(-1)
    assert flat[1::8].tolist() == [sign * 2.0 * 2.0**-70, sign * 10.0 * 2.0**-70]
    assert np.delete(flat, [1, 9]).tolist() == np.delete(given.reshape(-1), [1, 9]).tolist()
    assert (found.shape, (given == before).all()) == ((17, 1), True)
    assert some_tiny(np.zeros(0, np.float32)).shape == (0,)


@pytest.mark.parametrize("place", [0, 3, -1])
def test_one_element_of_a_copy_is_set(place: int) -> None:
    given = np.zeros((2, 3), np.float32)

    changed = with_element(given, place, 5)

    assert np.flatnonzero(changed).tolist() == [place % 6]
    assert (changed.reshape(-1)[place], changed.dtype, given.any()) == (5, np.float32, False)


def test_range_that_was_asked_for_an_array() -> None:
    first, second = MAKE(3, low=1, high=2), MAKE(3)
    sample = Sample((2, [first]), {"weight": second})

    assert span_of(sample, first.values) == (1, 2)
    assert span_of(sample, second.values) is None
    assert span_of(sample, first.values.copy()) is None


def test_array_of_no_elements_and_one_array_in_two_places_are_refilled() -> None:
    free = MAKE(3)
    found = refilled(Sample((free, free), {"more": [free.values]}), np.negative, "negative")

    for one in (*found.args, *found.kwargs["more"]):
        assert (one.values == -free.values).all()
    assert refilled(Sample((MAKE(0),)), np.negative, "").args[0].values.size == 0


def steep(a: Any) -> Any:
    return a * 2**10


def test_results_move_with_the_last_digits_of_their_inputs() -> None:
    sample = Sample((HostArray(np.array([1.5, 0, 3], np.float32)),))
    spec = spec_of(steep)

    assert conditioning(spec, sample) == 2**10 * 2.0**-22
    assert last_digit_moves(spec, sample).tolist()[::2] == [2**10 * 2.0**-23, 2**10 * 2.0**-22]
    assert 0 < last_digit_moves(spec, sample)[1] < 1e-40


def test_last_digits_of_float16_are_not_moved() -> None:
    assert conditioning(spec_of(steep), Sample((HostArray(np.array([1.5, 0, 3], np.float16)),))) == 0.0


def test_moves_are_infinite_where_the_shape_changes_and_zero_where_they_are_refused() -> None:
    def changing(a: Any) -> Any:
        return a[a == 1.5]

    def refusing(a: Any) -> Any:
        if 1.5 not in a and a.size == 3:
            raise ValueError("no")
        return a * 2

    sample = Sample((HostArray(np.array([1.5, 1.5, 1.5], np.float32)),))
    sample_of_ones = Sample((HostArray(np.array([1.5, 2.5, 3.5], np.float32)),))
    spec = OpSpec(fn=lambda xp, a: changing(a), reference=changing, name="given", samples=lambda make: [make(3)])

    assert conditioning(spec, sample) == np.inf
    assert np.isinf(last_digit_moves(spec, sample)).all()
    picky = OpSpec(
        fn=lambda xp, a: a * 2, reference=refusing, name="given", samples=lambda make: [make.of([1.5, 2, 3])]
    )
    assert conditioning(picky, sample_of_ones) == 0.0
    assert last_digit_moves(picky, sample_of_ones).tolist() == [0, 0, 0]


def test_arguments_are_changed_if_one_is_another_object() -> None:
    one, other = np.ones(3), np.ones(3)

    assert not is_changed((one, [other], 5), (one, [other], 5))
    assert is_changed((one, [one], 5), (one, [other], 5))
    assert is_changed((other, 5), (one, 5))
