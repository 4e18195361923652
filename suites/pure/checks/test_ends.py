"""Calls with an array at an end of its range: which are made, and which refused ends are noted for the summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.compare import REFUSED_ENDS, collecting
from cuassay.testing.generated.ends import each_end, note_refused_ends, several_arrays, with_input
from cuassay.testing.samples import HostArray

FLOATS = np.array([0.5, 1.5, -2.5], np.float32)


def ends(given: Any) -> list[tuple[str, list[Any]]]:
    """The labels and the numbers of the calls in which the second array is changed."""
    return [(label, sample.args[1].values.tolist()) for label, sample in each_end(Sample((FLOATS, given)))]


def whole(values: Any, dtype: Any = np.int32, span: Any = None, **fields: Any) -> HostArray:
    return HostArray(np.array(values, dtype), span=span, **fields)


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        pytest.param(whole([3, 1, 2]), 1, 3, id="of its own numbers"),
        pytest.param(whole([3, 1, 2], np.uint8), 1, 3, id="unsigned"),
        pytest.param(whole([3, 1, 2], span=(0, 9)), 0, 9, id="of its range"),
        pytest.param(whole([3, 1, 2], np.int8, (-500, 500)), -128, 127, id="of its dtype"),
        pytest.param(whole([True, False, True], bool, (0, 1)), 0, 1, id="of truth values"),
        pytest.param(whole([True, True, True], bool, (0, 1)), 1, 1, id="of equal truth values"),
        pytest.param(whole([[3, 1], [2, 7]]), 1, 7, id="of a matrix"),
        pytest.param(np.array([3, 1, 2]), 1, 3, id="of an array without a range"),
        pytest.param(whole([2, 0]), 0, 2, id="of two numbers"),
        pytest.param(whole([0, 2, 1, 2]), 0, 2, id="of no permutation"),
    ],
)
def test_integers_are_the_least_then_the_largest_everywhere(given: Any, least: int, most: int) -> None:
    first, last = ends(given)

    assert first == (f"input 1 is {least} everywhere", np.full(given.shape, least).tolist())
    assert last == (f"input 1 is {most} everywhere", np.full(given.shape, most).tolist())


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(np.array([2, 0, 1]), id="a permutation"),
        pytest.param(np.zeros(0, np.int32), id="no elements"),
        pytest.param(np.array([2.5, 0.5, 1.0]), id="floats"),
        pytest.param(np.array([1.0, 2.0, 3.0]), id="sorted floats"),
        pytest.param(np.array([1j, 0, 1]), id="complex numbers"),
        pytest.param(np.array([[0, 1, 2], [1, 2, 3]]), id="a matrix of sorted rows"),
        pytest.param(7, id="a number"),
    ],
)
def test_other_inputs_are_left_as_they_are(given: Any) -> None:
    assert ends(given) == []


@pytest.mark.parametrize("dtype", [np.int64, np.uint16], ids=["signed", "unsigned"])
def test_sorted_integers_keep_their_ends(dtype: Any) -> None:
    offsets = np.array([0, 2, 5, 9], dtype)

    assert ends(offsets) == [
        ("all of input 1 but its ends is the first one", [0, 0, 0, 9]),
        ("all of input 1 but its ends is the last one", [0, 9, 9, 9]),
    ]
    assert offsets.tolist() == [0, 2, 5, 9]


def test_sorted_truth_values_are_filled() -> None:
    assert [numbers for _, numbers in ends(np.array([False, True, True]))] == [[False] * 3, [True] * 3]


def test_each_array_is_filled_in_turn_and_the_rest_of_the_call_stays() -> None:
    sample = Sample((whole([3, 1], span=(0, 5), layout="transposed"), 7, np.array([True, False])), {"axis": 0}, "drawn")

    found = dict(each_end(sample))

    assert list(found) == [
        "input 0 is 0 everywhere", "input 0 is 5 everywhere", "input 2 is 0 everywhere", "input 2 is 1 everywhere",
    ]  # fmt: skip
    for place, call in zip((0, 0, 2, 2), found.values(), strict=True):
        assert [call.args[at] is sample.args[at] for at in (0, 1, 2)] == [at != place for at in (0, 1, 2)]
        assert (call.kwargs, call.label) == ({"axis": 0}, "drawn")
    filled, mask = found["input 0 is 5 everywhere"].args[0], found["input 2 is 1 everywhere"].args[2]
    assert (filled.dtype, filled.span, filled.layout) == (np.int32, (0, 5), "transposed")
    assert (mask.dtype, mask.layout, mask.span) == (np.bool_, "contiguous", None)


def test_only_array_of_a_call_is_left_alone() -> None:
    assert list(each_end(Sample((whole([3, 1]), 7)))) == []
    assert several_arrays(Sample((whole([3, 1]), 7))) == []
    assert several_arrays(Sample(())) == []


def test_arrays_are_found_with_their_places() -> None:
    found = several_arrays(Sample((FLOATS, 7, whole([3, 1]), "word")))

    assert [(place, array.tolist()) for place, array in found] == [(0, FLOATS.tolist()), (2, [3, 1])]


def test_input_is_replaced_in_its_place() -> None:
    given = HostArray(FLOATS, "transposed", (-3.0, 3.0))
    sample = Sample((given, FLOATS, 7), {"axis": 0}, "drawn")

    first, second = with_input(sample, 0, FLOATS + 1), with_input(sample, 1, FLOATS + 1)

    assert (first.args[0].layout, first.args[0].span) == ("transposed", (-3.0, 3.0))
    assert first.args[0].values.tolist() == (FLOATS + 1).tolist()
    assert first.args[1:] == sample.args[1:]
    assert (second.args[0], second.args[2]) == (given, 7)
    assert second.args[1].values.tolist() == (FLOATS + 1).tolist()
    assert (second.args[1].layout, second.kwargs, second.label) == ("contiguous", {"axis": 0}, "drawn")


# ------------------------------------------------------------------------------------------------ refused ends

SPEC = OpSpec(
    fn=lambda xp, table, index: xp.take(table, index), name="taken",
    samples=lambda make: [(make(3), make(3, low=0, high=2, dtype="int64"))],
)  # fmt: skip
BASE = Sample((FLOATS, whole([3, 1], span=(0, 9))))


def filled(base: Sample, *numbers: int, place: int = 1) -> Iterator[Sample]:
    for number in numbers:
        yield with_input(base, place, np.array([number], np.int32))


def noted(base: Sample, errors: dict[int, Exception | None], place: int = 1) -> Any:
    """What is noted of calls with these numbers everywhere, each with the error of the reference."""
    told: dict[str, Any] = {}
    with collecting(told):
        tried = list(zip(filled(base, *errors, place=place), errors.values(), strict=True))
        note_refused_ends(SPEC, base, tried)
    return [tuple(one) for one in told.get("refused_ends", [])]


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        pytest.param(
            {0: None, 9: IndexError("too far")}, [("input 1 (index) at high=9", "IndexError: too far")], id="high"
        ),
        pytest.param({0: ValueError("is 0"), 9: None}, [("input 1 (index) at low=0", "ValueError: is 0")], id="low"),
        pytest.param({0: ValueError("equal"), 9: ValueError("equal")}, [], id="both"),
        pytest.param(
            {0: ValueError("equal"), 9: IndexError("far")},
            [("input 1 (index) at high=9", "IndexError: far")],
            id="both, one of them by its index",
        ),
        pytest.param({0: ValueError("alone")}, [], id="the other end was not tried"),
        pytest.param({9: IndexError("alone")}, [("input 1 (index) at high=9", "IndexError: alone")], id="by its index"),
        pytest.param({5: IndexError("between"), 0: None}, [], id="no end"),
        pytest.param({0: None, 9: None}, [], id="neither"),
    ],
)
def test_refused_end_of_a_range_is_noted(errors: Any, expected: Any) -> None:
    assert noted(BASE, errors) == expected


def test_lower_end_of_a_range_of_one_number_is_noted() -> None:
    base = Sample((FLOATS, whole([4, 4], span=(4, 4))))

    assert noted(base, {4: IndexError("4")}) == [("input 1 (index) at low=4", "IndexError: 4")]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(whole([3, 1]), id="without a range"),
        pytest.param(np.array([3, 1], np.int32), id="of NumPy"),
        pytest.param(whole([3, 1], np.float32, (0, 9)), id="of floats"),
        pytest.param(whole([1, 0], bool, (0, 9)), id="of truth values"),
    ],
)
def test_array_has_no_declared_end(given: Any) -> None:
    assert noted(Sample((FLOATS, given)), {0: None, 9: IndexError("far")}) == []


def test_unsigned_integers_have_ends() -> None:
    base = Sample((FLOATS, whole([3, 1], np.uint8, (0, 9))))

    assert noted(base, {0: None, 9: IndexError("far")}) == [("input 1 (index) at high=9", "IndexError: far")]


def test_ends_of_different_arrays_are_told_apart() -> None:
    base = Sample((whole([3, 1], span=(0, 9)), whole([3, 1], span=(0, 9))))
    refused, taken = ValueError("table"), None
    (first,), (second,) = filled(base, 0, place=0), filled(base, 9, place=1)
    told: dict[str, Any] = {}

    with collecting(told):
        note_refused_ends(SPEC, base, [(first, refused), (second, taken)])

    assert "refused_ends" not in told
    assert noted(base, {0: refused, 9: taken}, place=0) == [("input 0 (table) at low=0", "ValueError: table")]


def test_nothing_is_noted_where_nothing_collects() -> None:
    (call,) = filled(BASE, 9)

    note_refused_ends(SPEC, BASE, [(call, IndexError("far"))])

    assert REFUSED_ENDS.get() is None
