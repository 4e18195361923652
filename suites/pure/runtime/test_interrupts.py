"""Interrupts that arrive when a driver call is done: they are undone, or marked as late."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from typing import Any

import pytest

from cuassay.core.interrupts import Attempt, finish, is_late, mark_early, mark_late, nothing_done, took_effect

#: A C function that returns 0 when the signal has come: Python raises when it has returned.
_raise: Callable[[int], int] = ctypes.CDLL(None)["raise"]


pytestmark = pytest.mark.usefixtures("ctrl_c_raises")


class Lossy:
    """Calls a C function and runs Python code after it, as cuda.bindings does: an interrupt there loses the answer."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        _raise(signal.SIGINT)
        return 0


def is_zero(answer: int) -> bool:
    return answer == 0


def attempted(call: Callable[..., Any], *arguments: Any, succeeded: Callable[[Any], bool] = is_zero) -> Any:
    with Attempt(call, *arguments, succeeded=succeeded) as attempt:
        return attempt()


def test_the_answer_of_a_call_is_given() -> None:
    assert finish(divmod, 7, 2, succeeded=bool, undo=print) == attempted(divmod, 7, 2) == (3, 1)


def test_an_interrupt_during_a_call_that_is_done_is_late() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        attempted(_raise, signal.SIGINT)

    assert is_late(caught.value)


def test_an_interrupt_that_loses_the_answer_is_late() -> None:
    lossy = Lossy()

    with pytest.raises(KeyboardInterrupt) as caught:
        attempted(lossy)

    assert (lossy.calls, is_late(caught.value)) == (1, True)


def test_an_interrupt_before_the_call_is_early() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, Attempt(print, succeeded=bool):
        raise KeyboardInterrupt

    assert not is_late(caught.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()], ids=repr)
def test_what_is_raised_after_the_call_is_late(error: BaseException) -> None:
    def interrupted() -> None:
        with Attempt(int, succeeded=is_zero) as attempt:
            attempt()
            raise error

    with pytest.raises(type(error)) as caught:
        interrupted()

    assert is_late(caught.value)


def test_an_interrupt_during_a_call_that_can_be_undone_undoes_it() -> None:
    undone: list[int | None] = []

    with pytest.raises(KeyboardInterrupt) as caught:
        finish(_raise, signal.SIGINT, succeeded=is_zero, undo=undone.append)

    assert undone == [0]
    assert not is_late(caught.value)


def test_an_interrupt_that_loses_the_answer_undoes_without_it_and_says_so() -> None:
    undone: list[int | None] = []

    with pytest.raises(KeyboardInterrupt) as caught:
        finish(Lossy(), succeeded=is_zero, undo=undone.append)

    assert undone == [None]
    assert "is lost" in caught.value.__notes__[0]


def test_an_interrupt_during_a_call_that_failed_is_not_late() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        attempted(_raise, signal.SIGINT, succeeded=bool)

    assert not is_late(caught.value)


def test_an_error_of_the_call_itself_is_not_late() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        attempted(divmod, 1, 0)

    assert not is_late(caught.value)


def test_the_mark_is_taken_off_once() -> None:
    error = RuntimeError()
    mark_late(error)

    assert [took_effect(error), took_effect(error), is_late(error)] == [True, False, False]


def test_an_interrupt_without_a_mark_is_taken_for_late() -> None:
    error = KeyboardInterrupt()

    assert is_late(error)
    mark_early(error)
    assert not is_late(error)


def test_what_comes_before_anything_is_done_is_early() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, nothing_done():
        raise KeyboardInterrupt

    assert not is_late(caught.value)
