"""What answers become: one array, in wide dtypes, with a magnitude that its errors are relative to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host
from cuassay.errors import SpecError
from cuassay.testing import Sample
from cuassay.testing.answers import LastAnswers, as_arrays, as_one, magnitude_of, members, one_on, single, widened


@pytest.mark.parametrize(
    ("inputs", "size", "terms", "expected"),
    [
        pytest.param([2.0, 4.0], [8.0, 8.0], 1, [8.0, 8.0], id="a large result"),
        pytest.param([2.0, 4.0], [0.0, 0.0], 1, [2.0, 4.0], id="the input of each element"),
        pytest.param([0.5, 0.25], [0.0, 0.0], 1, [1.0, 1.0], id="a one on the way"),
        pytest.param([2.0**-9, 0.0], [0.0, 0.0], 1, [0.5, 0.5], id="tiny numbers"),
        pytest.param([2.0, -4.0], [1.0, 8.0], 2, [4.0, 8.0], id="sums"),
        pytest.param([2.0, np.inf], [1.0, 1.0], 2, [2.0, 2.0], id="infinity left out"),
        pytest.param([], [], 1, [], id="nothing"),
    ],
)
def test_errors_are_relative_to_what_may_be_rounded_on_the_way(
    inputs: list[float], size: list[float], terms: int, expected: list[float]
) -> None:
    assert magnitude_of([np.array(inputs)], np.array(size), terms).tolist() == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param((np.ones((2, 2)), np.zeros(1)), [1, 1, 1, 1, 0], id="a tuple"),
        pytest.param([2.0, np.float32(3)], [2, 3], id="numbers"),
        pytest.param(np.ones(2), [1, 1], id="one array"),
    ],
)
def test_several_arrays_are_joined_in_order(answer: Any, expected: list[float]) -> None:
    assert as_one(answer).tolist() == expected
    assert single("f", answer).tolist() == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((np.ones(1), np.array([1])), "f gives a tuple of float64, int64; a spec compares one array"),
        ([], "f gives a list of nothing"),
        ([None, 1.0], "f gives a list of NoneType, float;"),
        ([[1.0], [2.0]], r"f gives a nested list of Python objects; give an array: omit \.tolist\(\)"),
        ([[1.0], 2.0], "f gives a list of list, float;"),
        (((1.0,), 2.0), "f gives a tuple of tuple, float;"),
    ],
    ids=["two kinds", "nothing", "none", "nested", "a list in a list", "a tuple in a tuple"],
)
def test_an_answer_that_is_not_of_one_kind_says_what_it_is(answer: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        as_one(answer, "f")


def test_an_answer_is_copied_and_an_object_is_refused() -> None:
    kept = np.ones(2)

    assert not np.shares_memory(single("f", kept), kept)
    with pytest.raises(SpecError, match=r"f gives \{\}; a spec compares one array or number, or a list of arrays"):
        single("f", {})


def test_python_numbers_become_arrays_of_the_first_dtype() -> None:
    array, number, truth, name = as_arrays((np.ones(2, np.float32), 2, True, "x"))

    assert (array.dtype, number.dtype, number.shape, truth, name) == (np.float32, np.float32, (), True, "x")


def test_arrays_of_a_sample_are_widened_those_in_lists_too() -> None:
    args, kwargs = widened(Sample(([np.ones(1, np.float16)], 2), {"weight": np.ones(1, np.float32)}))

    assert (args[0][0].dtype, args[1], kwargs["weight"].dtype) == (np.float64, 2, np.float64)


@pytest.mark.parametrize("in_place", [False, True])
def test_no_result_is_told_with_what_to_return(in_place: bool) -> None:
    message = "return the input that it writes" if in_place else "return the array that it makes"

    with pytest.raises(SpecError, match=f"the function returned None; .*{message}"):
        one_on(Device("cpu"), None, in_place=in_place)
    assert one_on(Device("cpu"), 2.0, in_place=in_place) == 2.0


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_arrays_of_a_device_are_joined_there(device: str) -> None:
    first, second = (from_host(np.full(2, number, np.float32), device) for number in (1, 2))
    joined = one_on(Device(device), (first, second))

    assert type(joined) is type(first)
    assert joined.tolist() == [1, 1, 2, 2]
    with_number = one_on(Device(device), [first, 3.0])
    assert (with_number.tolist(), with_number.dtype) == ([1, 1, 3], np.float64 if device == "cpu" else np.float32)
    assert one_on(Device(device), [first, np.ones(1, np.float32)]).tolist() == [1, 1, 1]


def test_the_last_four_small_answers_are_kept() -> None:
    answers, asked = LastAnswers(), list[int]()
    samples = [Sample((np.full(3, place),)) for place in range(5)]

    def ask(place: int, *, keeps: bool = True) -> None:
        answers.of(samples[place], lambda: (asked.append(place), np.ones(3))[1], keeps=keeps)

    for place in (0, 1, 2, 3, 0, 4, 1, 0):
        ask(place)

    assert asked == [0, 1, 2, 3, 4, 0]


@pytest.mark.parametrize(
    ("elements", "keeps", "times"),
    [(2**21 - 1, True, 1), (2**21, True, 2), (1, False, 2)],
    ids=["small", "large", "of itself"],
)
def test_large_answers_and_those_of_the_function_itself_are_not_kept(elements: int, keeps: bool, times: int) -> None:
    answers, asked, sample = LastAnswers(), list[int](), Sample((np.zeros(1),))
    for _ in range(2):
        answers.of(sample, lambda: (asked.append(1), np.zeros(elements))[1], keeps=keeps)

    assert len(asked) == times


def test_a_kept_answer_cannot_be_written() -> None:
    answers, sample = LastAnswers(), Sample((np.zeros(1),))
    kept, seconds = answers.of(sample, lambda: np.ones(3), keeps=True)

    assert (kept.flags.writeable, seconds >= 0) == (False, True)
    assert answers.of(Sample((np.zeros(1),)), lambda: np.ones(3), keeps=False)[0].flags.writeable


@pytest.mark.parametrize(
    ("answer", "count"), [((1.0, 2.0), 2), ([1.0, 2.0, 3.0], 3), (np.ones(3), 1), (2.0, 1)], ids=str
)
def test_the_members_of_an_answer_are_those_of_a_list_or_tuple(answer: Any, count: int) -> None:
    assert len(members(answer)) == count


def test_an_answer_to_large_inputs_is_not_kept() -> None:
    answers, asked, sample = LastAnswers(), list[int](), Sample((np.zeros(2**21),))
    for _ in range(2):
        answers.of(sample, lambda: (asked.append(1), np.zeros(1))[1], keeps=True)

    assert len(asked) == 2
