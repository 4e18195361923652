"""Samples with other extents: which are tried, in which order, and with which numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.extents import (
    apart,
    around_powers,
    elements_of,
    extents_of,
    has_expected_shape,
    is_quick,
    longest_axis,
    multiples,
    one_each,
    resized,
    seconds_of_reference,
    shape_on_host,
    swapped,
)
from cuassay.testing.samples import Samples

MAKE = Samples(1, "float32")

#: Extents that a set has in another order than a list that is sorted.
ROWS, COLUMNS = 3, 17


def spec_of(reference: Callable[..., Any], **declared: Any) -> OpSpec:
    return OpSpec(**{
        "fn": lambda xp, *args: reference(*args), "reference": reference, "name": "resized",
        "samples": lambda make: [make((ROWS, COLUMNS))], **declared,
    })  # fmt: skip


def shapes(samples: Any) -> list[tuple[int, ...]]:
    return [sample.args[0].shape for sample in samples]


def in_whole_tiles(a: Any) -> Any:
    if a.shape[0] % ROWS or a.shape[1] % COLUMNS:
        raise ValueError("not in tiles")
    return a


def test_extents_that_cannot_be_any_number_are_doubled_and_tripled_the_smaller_one_first() -> None:
    found = multiples(spec_of(in_whole_tiles), Sample((MAKE((ROWS, COLUMNS)),)))

    assert shapes(found) == [(6, 17), (9, 17), (3, 34), (3, 51)]


def test_multiples_stay_small_and_are_not_tried_of_what_may_be_any_number() -> None:
    tiles = Sample((MAKE((ROWS, COLUMNS * 160)),))

    assert shapes(multiples(spec_of(in_whole_tiles), tiles)) == [(6, 2720), (3, 5440)]
    assert shapes(multiples(spec_of(lambda a: a), tiles)) == []


def test_each_extent_is_one_longer_and_one_the_smaller_one_first() -> None:
    sample = Sample((MAKE((ROWS, COLUMNS)),))

    assert shapes(one_each(spec_of(lambda a: a), sample)) == [(4, 17), (1, 17), (3, 18), (3, 1), (1, 1)]
    assert shapes(one_each(spec_of(lambda a: a.sum(axis=1)), sample)) == [(4, 17), (1, 17), (3, 18), (1, 1)]
    assert shapes(one_each(spec_of(np.squeeze), sample)) == [(4, 17), (3, 18)]


def test_extents_of_two_are_changed_and_those_of_one_are_not() -> None:
    assert shapes(one_each(spec_of(lambda a: a), Sample((MAKE((2, 1)),)))) == [(3, 1), (1, 1)]
    assert shapes(around_powers(Sample((MAKE(()),)))) == []
    assert shapes(around_powers(Sample((MAKE(2),))))[:3] == [(1,), (3,), (5,)]


def test_the_longest_extent_is_around_powers_of_two() -> None:
    found = shapes(around_powers(Sample((MAKE((31, 40)),))))

    assert [rows for rows, _ in found] == [31] * len(found)
    assert [columns for _, columns in found] == [
        1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257,
    ]  # fmt: skip
    assert shapes(around_powers(Sample((MAKE((1, 1)),)))) == []


def test_equal_extents_are_made_unequal_where_the_reference_agrees() -> None:
    sample = Sample((MAKE((4, 5)), MAKE((5, 4))))
    spec = spec_of(np.matmul, samples=lambda make: [(make((4, 5)), make((5, 4)))])

    found = [tuple(array.shape for array in one.args) for one in apart(spec, sample)]

    assert found == [((7, 5), (5, 4)), ((4, 5), (5, 7)), ((7, 5), (5, 7)), ((4, 8), (8, 4))]
    first = next(iter(apart(spec, replace(sample, label="drawn"))))
    assert first.label == "drawn, extents apart: 7x5, 5x4"
    assert [array.dtype for array in first.args] == [np.float32, np.float32]


@pytest.mark.parametrize(("shape", "expected"), [((3, 5), (4, 5)), ((5, 3, 3), (5, 4, 4)), ((), ())], ids=str)
def test_extents_are_swapped_wherever_they_are(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert swapped(shape, {3: 4}) == expected


@pytest.mark.parametrize(
    ("values", "length", "expected"),
    [
        pytest.param([2, 0, 1, 3], 9, list(range(9)), id="a permutation"),
        pytest.param([5, 5, 5, 5], 9, [5] * 9, id="its own numbers"),
        pytest.param([0, 1, 1, 2], 9, [0, *[1] * 7, 2], id="in order"),
    ],
)
def test_longer_arrays_keep_their_kind(values: list[int], length: int, expected: list[int]) -> None:
    longer = resized(Sample((np.array(values), MAKE(4))), {4: length}).args[0].values

    assert longer.shape == (length,)
    assert np.sort(longer)[[0, -1]].tolist() == [expected[0], expected[-1]]
    assert set(longer.tolist()) <= set(expected)
    assert (sorted(longer.tolist()) == longer.tolist()) is (expected[1] != 1 or values != [2, 0, 1, 3])


def test_positions_along_an_axis_are_scaled_with_it() -> None:
    offsets = np.array([0, 2, 5, 8])
    longer = resized(Sample((MAKE(8), offsets)), {8: 16})

    assert longer.args[1].values[[0, -1]].tolist() == [0, 16]
    assert (np.diff(longer.args[1].values) >= 0).all()


def test_labels_of_rows_are_not_positions() -> None:
    labels = np.array([0, 1, 1, 4])
    longer = resized(Sample((MAKE((4, 2)), labels)), {4: 9})

    assert longer.args[1].values[[0, -1]].tolist() == [0, 4]
    assert longer.label.endswith(", resized to 9x2, 9")


def test_floats_between_the_given_ones_are_drawn_and_whole_ones_repeated() -> None:
    drawn, whole = (
        resized(Sample((np.array(values),)), {3: 500}).args[0].values for values in ([0.5, 1, 4], [0.0, 1, 4])
    )

    assert len(np.unique(drawn)) > 300
    assert (drawn.min() >= 0.5, drawn.max() <= 4) == (True, True)
    assert set(whole.tolist()) == {0, 1, 4}


def test_a_long_array_repeats_itself_after_a_prime_number_of_elements() -> None:
    values = resized(Sample((MAKE(9),)), {9: 2**17}).args[0].values

    assert (values[:81_915] == values[49_157:]).all()
    assert len(np.unique(values[:49_157])) > 40_000


def test_extents_are_those_of_all_arrays() -> None:
    sample = Sample((np.ones((3, 7)), [np.ones(5)]), {"weight": np.ones((9, 1, 7))})

    assert (extents_of(sample), longest_axis(sample)) == ([3, 5, 7, 9], 9)
    assert (extents_of(Sample((np.ones(1),))), longest_axis(Sample((np.ones(1),)))) == ([], 1)
    assert longest_axis(Sample((np.ones(()), 3))) == 0


def test_the_elements_of_all_arrays_are_counted() -> None:
    assert elements_of(Sample(([np.zeros(3), np.zeros((2, 2))], 5), {"weight": np.zeros(())})) == 8


def test_the_shape_on_the_host_is_that_of_the_function() -> None:
    def refusing(a: Any) -> Any:
        if a.size > 5:
            raise ValueError("too long")
        return a

    spec = spec_of(lambda a: a[:1], fn=lambda xp, a: refusing(a), samples=lambda make: [make(1)])

    assert [shape_on_host(spec, Sample((MAKE(length),))) for length in (1, 5, 6)] == [(1,), (5,), None]
    assert [has_expected_shape(spec, Sample((MAKE(length),))) for length in (1, 5, 6)] == [True, False, False]


def test_a_function_that_breaks_on_the_host_has_no_shape_there() -> None:
    spec = spec_of(lambda a: a, fn=lambda xp, a: a.data.ptr, samples=lambda make: [make(3)])

    assert shape_on_host(spec, Sample((MAKE(3),))) is None


def test_overflow_on_the_host_does_not_warn() -> None:
    spec = spec_of(lambda a: a * 1, fn=lambda xp, a: xp.exp(a * 1e4), samples=lambda make: [make.of([-1.0])])

    with np.errstate(all="raise"):
        assert shape_on_host(spec, Sample((np.array([1.0, 2.0], np.float32),))) == (2,)


def test_positions_are_scaled_in_whole_steps() -> None:
    offsets = np.array([0, 1, 2, 3])
    (_, scaled) = resized(Sample((MAKE(3), offsets)), {3: 5, 4: 9}).args

    assert scaled.dtype == np.int64
    assert set(scaled.values.tolist()) <= {0, 1, 3, 5}
    assert scaled.values[[0, -1]].tolist() == [0, 5]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
def test_scaled_positions_keep_their_dtype(dtype: str) -> None:
    offsets = np.array([0, 20, 100], dtype)
    (_, scaled) = resized(Sample((MAKE(100), offsets)), {100: 200}).args

    assert (scaled.dtype, scaled.values[-1]) == (np.dtype(dtype), 200)


def test_seconds_of_the_reference_are_known_for_calls_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(in_whole_tiles)
    monkeypatch.setattr(OpSpec, "timed", lambda self, sample: (np.ones(sample.args[0].shape), 7.0))
    monkeypatch.setattr(OpSpec, "refusal", lambda self, sample: None if sample.args[0].shape[0] == 3 else ValueError())

    assert seconds_of_reference(spec, Sample((MAKE((3, 17)),))) == 7.0
    assert seconds_of_reference(spec, Sample((MAKE((4, 17)),))) == 0.0


@pytest.mark.parametrize(("seconds", "quick"), [(0.5, True), (0.51, False), (0.0, True)])
def test_time_is_assumed_to_grow_with_the_square_of_the_size(seconds: float, quick: bool) -> None:
    assert is_quick(seconds, Sample((MAKE(5),)), Sample((MAKE(10),))) is quick
    assert is_quick(seconds, Sample((MAKE(0),)), Sample((MAKE(2),))) is quick
    assert is_quick(seconds, Sample((MAKE(1),)), Sample((MAKE(2),))) is quick


def in_pairs(a: Any) -> Any:
    if a.shape[-1] % 2:
        raise ValueError("not in pairs")
    return a


def test_extent_of_two_is_doubled_and_tripled() -> None:
    assert shapes(multiples(spec_of(in_pairs, samples=lambda make: [make((3, 2))]), Sample((MAKE((3, 2)),)))) == [
        (3, 4), (3, 6)
    ]  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), [(2730, [4, 6]), (2731, [4]), (4096, [4]), (4097, [])])
def test_multiples_have_at_most_16384_elements(rows: int, expected: list[int]) -> None:
    found = multiples(spec_of(in_pairs, samples=lambda make: [make((3, 2))]), Sample((MAKE((rows, 2)),)))

    assert [columns for _, columns in shapes(found)] == expected


def test_two_axes_of_one_array_are_not_made_longer_together() -> None:
    square = Sample((MAKE((4, 4)),))

    assert shapes(apart(spec_of(lambda a: a * 1), square)) == [(7, 4), (4, 7)]


def test_extents_of_one_and_large_calls_are_not_made_unequal() -> None:
    spec = spec_of(lambda a, b: a.sum() + b.sum(), samples=lambda make: [(make(3), make(3))])

    assert [one.args[0].shape[0] for one in apart(spec, Sample((MAKE(2**13), MAKE(2**13))))] != []
    assert list(apart(spec, Sample((MAKE(2**13 + 1), MAKE(2**13 + 1))))) == []
    assert list(apart(spec, Sample((MAKE((1, 5)), MAKE((1, 6)))))) == []
    assert list(apart(replace(spec, reference=None), Sample((MAKE(4), MAKE(4))))) == []


def test_added_elements_must_be_read() -> None:
    def first_rows(a: Any, b: Any) -> Any:
        return a[:2] * b.sum()

    spec = spec_of(first_rows, samples=lambda make: [(make(4), make(4))])
    found = [tuple(one.shape[0] for one in call.args) for call in apart(spec, Sample((MAKE(4), MAKE(4))))]

    assert found == [(4, 7), (7, 7)]


def test_longer_permutation_is_one_and_sorted_numbers_stay_sorted() -> None:
    spec = spec_of(lambda a, b: np.concatenate([a, b]), samples=lambda make: [(make(4), make(4))])
    given = Sample((np.array([2, 0, 3, 1]), np.array([1, 2, 2, 7])))
    calls = list(apart(spec, given))

    assert [tuple(one.shape[0] for one in call.args) for call in calls] == [(7, 4), (4, 7), (7, 7)]
    assert sorted(calls[0].args[0].values.tolist()) == list(range(7))
    assert calls[0].args[0].values.tolist() != list(range(7))
    longer = calls[1].args[1].values
    assert longer.tolist() == sorted(longer.tolist())
    assert set(longer.tolist()) <= {1, 2, 7}


def test_longer_axes_have_at_most_as_many_elements_as_small_calls() -> None:
    spec = spec_of(lambda a: a)

    assert (4, 2**12) in shapes(one_each(spec, Sample((MAKE((4, 2**12 - 1)),))))
    assert (4, 2**12 + 1) not in shapes(one_each(spec, Sample((MAKE((4, 2**12)),))))


def test_a_number_among_the_arguments_has_no_extents() -> None:
    def added(a: Any, b: Any, times: int) -> Any:
        return a.sum() + b.sum() * times

    sample = Sample((MAKE(9), MAKE(9), 2))
    found = list(apart(spec_of(added, samples=lambda make: [sample]), sample))

    assert found
    assert all(sample.args[2] == 2 for sample in found)
