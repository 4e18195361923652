"""What is found out once: for large calls of one form, and for a sample whose answer is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.testing.once import keeping, once_for, once_if_large


class Spec:
    """What is known of it goes with it."""


LARGE = 2**20
FIRST = ([np.zeros(LARGE // 2), np.zeros(LARGE // 2)], {"axis": 0})


@pytest.mark.parametrize(
    ("what", "args", "kwargs", "finds"),
    [
        pytest.param("terms", *FIRST, 1, id="the same form"),
        pytest.param("dtype", *FIRST, 2, id="another question"),
        pytest.param("terms", [np.ones(LARGE // 2)] * 2, {"axis": 0}, 1, id="other numbers"),
        pytest.param("terms", [np.zeros(LARGE // 2)] * 2, {"axis": 1}, 2, id="another option"),
        pytest.param("terms", [np.zeros(LARGE), np.zeros(0)], {"axis": 0}, 2, id="other shapes"),
        pytest.param("terms", [np.zeros(LARGE // 2, np.float32)] * 2, {"axis": 0}, 2, id="another dtype"),
        pytest.param("terms", [[np.zeros(LARGE // 2)] * 2], {"axis": 0}, 2, id="a list"),
    ],
)
def test_a_large_call_is_asked_about_once_for_its_form(what: str, args: Any, kwargs: Any, finds: int) -> None:
    spec, found = Spec(), iter("ab")
    answers = [
        once_if_large(spec, "terms", *FIRST, lambda: next(found)),
        once_if_large(spec, what, args, kwargs, lambda: next(found)),
    ]

    assert answers == ["a", "a" if finds == 1 else "b"]


@pytest.mark.parametrize(("elements", "finds"), [(LARGE - 1, 2), (LARGE, 1)])
def test_only_calls_of_a_million_elements_are_large(elements: int, finds: int) -> None:
    spec, asked = Spec(), list[int]()
    for _ in range(2):
        once_if_large(spec, "terms", [np.zeros(elements)], {}, lambda: asked.append(1))

    assert len(asked) == finds


def test_what_is_known_of_a_spec_is_not_known_of_another() -> None:
    first, second = Spec(), Spec()

    assert [once_if_large(one, "terms", *FIRST, lambda one=one: one) for one in (first, second)] == [first, second]


def test_small_calls_of_a_block_share_what_is_found() -> None:
    spec, known, asked = Spec(), dict[Any, Any](), list[int]()

    def find() -> int:
        asked.append(1)
        return len(asked)

    for _ in range(2):
        with keeping(known):
            assert once_if_large(spec, "terms", [np.zeros(3)], {}, find) == 1
            assert once_if_large(spec, "terms", [np.zeros(4)], {}, lambda: 7) == 7
    assert once_if_large(spec, "terms", [np.zeros(3)], {}, find) == 2


def kept(*numbers: float) -> Any:
    """An answer that cannot be written, as those that are kept."""
    answer = np.array(numbers)
    answer.flags.writeable = False
    return answer


SAMPLE, OTHER = object(), object()


@pytest.mark.parametrize(
    ("sample", "is_same_answer", "what", "finds"),
    [
        pytest.param(SAMPLE, True, "terms", 1, id="the same"),
        pytest.param(OTHER, True, "terms", 2, id="another sample"),
        pytest.param(SAMPLE, False, "terms", 2, id="an equal answer"),
        pytest.param(SAMPLE, True, "errors", 2, id="another question"),
    ],
)
def test_a_sample_is_asked_about_once_for_its_answer(sample: Any, is_same_answer: bool, what: str, finds: int) -> None:
    answer, found = kept(1, 2), iter("ab")
    second = answer if is_same_answer else kept(1, 2)

    assert once_for(SAMPLE, answer, "terms", lambda: next(found)) == "a"
    assert once_for(sample, second, what, lambda: next(found)) == ("a" if finds == 1 else "b")


def test_an_answer_that_may_be_written_is_asked_about_each_time() -> None:
    answer, found = np.ones(2), iter("ab")

    assert [once_for(SAMPLE, answer, "terms", lambda: next(found)) for _ in range(2)] == ["a", "b"]


def test_what_is_known_of_an_answer_goes_with_it() -> None:
    """The next array may have its address."""
    for number in range(20):
        assert once_for(SAMPLE, kept(number), "terms", lambda number=number: number) == number
