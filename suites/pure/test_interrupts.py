"""Interrupts that arrive when a driver call is done: they are undone, or marked as late."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable

import pytest

from cuassay.core.interrupts import finish, is_late, mark_late, take_late

#: A C function that returns 0 when the signal has come: Python raises when it has returned.
_raise: Callable[[int], int] = ctypes.CDLL(None)["raise"]


def is_zero(answer: int) -> bool:
    return answer == 0


def test_the_answer_of_a_call_is_given():
    assert finish(divmod, 7, 2, is_done=bool) == (3, 1)


def test_an_interrupt_during_a_call_that_is_done_is_late():
    with pytest.raises(KeyboardInterrupt) as caught:
        finish(_raise, signal.SIGINT, is_done=is_zero)

    assert is_late(caught.value)


def test_an_interrupt_during_a_call_that_can_be_undone_undoes_it():
    undone: list[int] = []

    with pytest.raises(KeyboardInterrupt) as caught:
        finish(_raise, signal.SIGINT, is_done=is_zero, undo=undone.append)

    assert undone == [0]
    assert not is_late(caught.value)


def test_an_interrupt_during_a_call_that_failed_is_not_late():
    with pytest.raises(KeyboardInterrupt) as caught:
        finish(_raise, signal.SIGINT, is_done=bool)

    assert not is_late(caught.value)


def test_an_error_of_the_call_itself_is_not_late():
    with pytest.raises(ZeroDivisionError) as caught:
        finish(divmod, 1, 0, is_done=bool)

    assert not is_late(caught.value)


def test_the_mark_is_taken_off_once():
    error = RuntimeError()
    mark_late(error)

    assert [take_late(error), take_late(error), is_late(error)] == [True, False, False]
