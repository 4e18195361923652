"""Interrupts that arrive when a driver call is done already: whoever undoes on an exception must know which it was.

Python raises `KeyboardInterrupt` when the C function returns during which Ctrl-C was pressed, so the function did its
work and its answer is lost. A call that took memory can then be undone. One that gave it back cannot: memory that its
caller took for kept would be used after it is gone. Such an exception is marked as late.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any, TypeVar

__all__ = ["finish", "is_late", "mark_late", "take_late"]

_LATE = "_cuassay_is_late"

T = TypeVar("T")


def mark_late(error: BaseException) -> None:
    """Say of `error`, which is about to be raised by a call, that the call did all of its work before."""
    vars(error)[_LATE] = True


def is_late(error: BaseException) -> bool:
    """Whether `error` was marked as late."""
    return _LATE in vars(error)


def take_late(error: BaseException) -> bool:
    """Whether `error` was marked as late; the mark is taken off, because callers further out are not concerned."""
    return bool(vars(error).pop(_LATE, False))


def finish(
    call: Callable[..., T],
    *arguments: Any,
    is_done: Callable[[T], bool],
    undo: Callable[[T], object] | None = None,
) -> T:
    """Call a function of a driver; an interrupt that arrives when it is done undoes it, or is marked as late.

    Parameters
    ----------
    call : callable
        A C function.
    *arguments
        What it is given.
    is_done : callable
        Whether an answer of the function says that it did its work.
    undo : callable, optional
        Undoes the work, given the answer. Without it the work cannot be undone, and the interrupt is marked as late.

    Returns
    -------
    object
        What the function answered.
    """
    answers: list[T] = []
    try:
        answers.extend(starmap(call, (arguments,)))  # the answer is kept by C code: no interrupt comes between the two
    except BaseException as error:
        if answers and is_done(answers[0]):
            if undo is None:
                mark_late(error)
            else:
                undo(answers[0])
        raise
    return answers[0]
