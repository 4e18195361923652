"""Patterns of numbers: which are drawn, and that each keeps to the range that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing.generated import patterns
from cuassay.testing.generated.patterns import ends_of, may_be_filled, next_to_multiples, path, patterned
from cuassay.testing.samples import HostArray, Samples

MAKE = Samples(1, "float32")


def drawn(given: HostArray, shape: tuple[int, ...] = (6, 40), **options: Any) -> dict[str, list[Any]]:
    """Arrays by the names of their patterns, of many draws."""
    found: dict[str, list[Any]] = {}
    for seed in range(150):
        filled, label = patterned(given, shape, np.random.default_rng(seed), **options)
        found.setdefault(label, []).append(filled.values)
    return found


OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "any numbers": lambda a: len(np.unique(a)) > 6,
    "all numbers equal": lambda a: np.ptp(a) == 0,
    "all numbers the least": lambda a: (a == -50).all(),
    "all numbers the largest": lambda a: (a == 50).all(),
    "the numbers of a row equal": lambda a: (np.ptp(a, axis=-1) == 0).all() and np.ptp(a) > 0,
    "only two numbers": lambda a: len(np.unique(a)) <= 2,
    "numbers in ascending order": lambda a: (np.diff(a) >= 0).all() and (a[:, -1] > a[:, 0]).all(),
    "numbers in descending order": lambda a: (np.diff(a) <= 0).all() and (a[:, -1] < a[:, 0]).all(),
    "all numbers equal but one": lambda a: np.unique(a, return_counts=True)[1].min() in (1, a.size),
    "numbers in runs": lambda a: (np.diff(a.reshape(-1)) == 0).mean() > 0.4,
    "many numbers the least or the largest": lambda a: 0.4 < np.isin(a, (-50, 50)).mean() < 0.9,
    "numbers close to one another, at an end of their range": lambda a: a.dtype.kind == "i" or np.ptp(a) < 2**-9,
}

OF_TRUTH_VALUES: dict[str, Callable[[Any], Any]] = {
    "any numbers": lambda a: 0.3 < a.mean() < 0.7,
    "all false": lambda a: not a.any(),
    "all true": lambda a: a.all(),
    "one true": lambda a: a.sum() == 1,
    "one false": lambda a: (~a).sum() == 1,
    "false at first, any then": lambda a: a.mean() < 0.7,
    "any at first, false then": lambda a: a.mean() < 0.7,
    "in blocks of a power of two": lambda a: (a == a[0]).all(),
}


@pytest.mark.parametrize(
    ("given", "patterns"),
    [
        pytest.param(MAKE(9, low=-50, high=50), OF_NUMBERS, id="floats"),
        pytest.param(MAKE(9, low=-50, high=50, dtype="int32"), OF_NUMBERS, id="integers"),
        pytest.param(MAKE(9, dtype="bool"), OF_TRUTH_VALUES, id="truth values"),
    ],
)
def test_each_pattern_is_drawn_and_is_what_its_name_says(given: HostArray, patterns: dict[str, Any]) -> None:
    found = drawn(given)

    assert set(found) == set(patterns)
    assert [name for name, holds in patterns.items() if not all(holds(one) for one in found[name])] == []
    assert {(one.dtype, one.shape) for arrays in found.values() for one in arrays} == {(given.dtype, (6, 40))}


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
def test_patterns_of_few_numbers_stay_in_their_range(dtype: str, shape: tuple[int, ...]) -> None:
    given = MAKE(9, low=-2, high=2, dtype=dtype)

    arrays = [one for arrays in drawn(given, shape).values() for one in arrays]
    assert {one.shape for one in arrays} == {shape}
    assert all((np.abs(one) <= 3).all() for one in arrays)


def test_range_and_freedom_are_kept() -> None:
    free, ranged = MAKE(3), MAKE(3, low=1, high=2)
    kept = [patterned(given, (4,), np.random.default_rng(0))[0] for given in (free, ranged)]

    assert [(one.span, one.is_free) for one in kept] == [(None, True), ((1, 2), False)]
    assert np.abs(np.stack([one for ones in drawn(free).values() for one in ones])).max() == 3


def test_many_numbers_are_at_the_ends_where_that_is_asked_for() -> None:
    assert set(drawn(MAKE(9, low=0, high=9), at_ends=True)) == {"many numbers the least or the largest"}
    assert set(drawn(MAKE(9, dtype="bool"), at_ends=True)) == set(OF_TRUTH_VALUES)


def test_a_quarter_of_the_draws_of_integers_is_next_to_named_numbers() -> None:
    words = "next to multiples of numbers from the function's code"
    integers, floats = (MAKE(9, low=0, high=900, dtype=dtype) for dtype in ("int32", "float32"))

    assert 20 < len(drawn(integers, named=(60,))[words]) < 60
    assert words not in drawn(floats, named=(60,))
    assert words not in drawn(integers)


@pytest.mark.parametrize(
    ("named", "steps", "share"),
    [((60,), {60}, 0.31), ((60, 7.5, 1, 901), {60}, 0.31), ((2.0, 900), {2, 900}, 0.14), ((), set(), 0)],
    ids=["one", "others left out", "two", "none"],
)
def test_integers_are_moved_next_to_multiples_of_whole_numbers_in_range(
    named: Any, steps: set[int], share: float
) -> None:
    given, chance = MAKE(9, low=3, high=900, dtype="int32"), np.random.default_rng(0)
    before = chance.integers(3, 900, 3000).astype(np.int32)
    after = next_to_multiples(given, before, named, chance).values

    moved = after != before
    near = np.zeros(3000, np.bool_)
    for step in steps:
        near |= np.minimum(after % step, -after % step) <= 1
    assert (near[moved].all(), after.min() >= 3, after.max() <= 900) == (True, True, True)
    if 60 in steps:
        assert set((after[moved] % 60).tolist()) == {0, 1, 59}
    assert moved.mean() == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        (MAKE(9, low=-7, high=9, dtype="int32"), (-7, 9)),
        (MAKE(9, low=-700, high=900, dtype="int8"), (-128, 127)),
        (MAKE(9, low=-7, high=9, dtype="uint8"), (0, 9)),
        (HostArray(np.array([4, -7, 5])), (-7, 5)),
    ],
    ids=["a range", "beyond the dtype", "unsigned", "written down"],
)
def test_ends_of_integers_are_of_the_range_that_the_dtype_holds(given: HostArray, ends: tuple[int, int]) -> None:
    assert ends_of(given) == ends


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (MAKE(3), True),
        (MAKE(3, low=1), True),
        (MAKE(0), False),
        (HostArray(np.ones(3)), False),
        (np.ones(3), False),
        (2.0, False),
        (HostArray(np.array([2, 0, 1]), span=(0, 3)), False),
        (HostArray(np.array([0, 1, 2]), span=(0, 3)), False),
        (HostArray(np.array([0, 2, 2, 1]), span=(0, 3)), True),
        (HostArray(np.array([0.0, 1, 2]), span=(0, 3)), True),
    ],
    ids=[
        "free", "ranged", "nothing", "written down", "of NumPy's", "a number", "a permutation", "integers in order",
        "integers", "floats in order",
    ],
)  # fmt: skip
def test_what_was_drawn_in_no_order_may_be_filled(given: Any, expected: bool) -> None:
    assert may_be_filled(given) is expected


def test_blocks_of_truth_values_are_of_all_powers_of_two_up_to_128() -> None:
    rows = drawn(MAKE(9, dtype="bool"), (256,))["in blocks of a power of two"]

    assert {int(np.argmax(row != row[0])) for row in rows} == {2, 4, 8, 16, 32, 64, 128}


@pytest.mark.parametrize(("label", "end"), [("false at first, any then", 0), ("any at first, false then", -1)])
def test_a_run_of_false_has_any_length_along_the_last_axis(label: str, end: int) -> None:
    runs = drawn(MAKE(9, dtype="bool"), (2, 64))[label]
    lengths = [int(np.argmax(np.append(one.any(axis=0)[:: 1 if end == 0 else -1], True))) for one in runs]

    assert min(lengths) < 12
    assert 40 < max(lengths) <= 64


def test_a_path_has_one_cheap_edge_to_each_node_but_the_first() -> None:
    matrix = path(MAKE((6, 6), low=1, high=9), np.random.default_rng(0))

    assert matrix is not None
    assert sorted(matrix.values.min(axis=1)) == [1, 1, 1, 1, 1, 9]
    assert sorted(matrix.values.min(axis=0)) == [1, 1, 1, 1, 1, 9]
    assert int((matrix.values == 1).sum()) == 5


@pytest.mark.parametrize("given", [MAKE(6), MAKE((6, 5)), MAKE((3, 3)), MAKE((6, 6), dtype="complex64")])
def test_only_large_square_matrices_of_real_numbers_hold_a_path(given: Any) -> None:
    assert path(given, np.random.default_rng(0)) is None


def test_a_path_leads_through_each_matrix_of_a_batch() -> None:
    found = path(MAKE((2, 3, 6, 6), low=1, high=9), np.random.default_rng(0))

    assert found is not None
    assert found.shape == (2, 3, 6, 6)
    assert [int((matrix == matrix.min()).sum()) for matrix in found.values.reshape(6, 6, 6)] == [5] * 6


@pytest.mark.parametrize(("size", "has_ends"), [(4, True), (3, False)])
def test_ends_of_a_range_are_among_four_numbers(size: int, has_ends: bool) -> None:
    found = patterns._with_ends(np.zeros((1, size)), (-7, 9), np.random.default_rng(0))

    assert found.shape == (1, size)
    assert sorted(found.reshape(-1).tolist()) == ([-7, 0, 0, 9] if has_ends else [0, 0, 0])


def test_numbers_close_to_one_another_stay_different() -> None:
    numbers = np.linspace(1, 2, 1_001)

    assert len(np.unique(patterns._at_one_end(numbers, np.random.default_rng(1)))) == 1_001
