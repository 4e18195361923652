"""Interrupts around driver calls: whoever handles one must know whether the call was done.

Python raises `KeyboardInterrupt` only after the C function in which Ctrl-C was pressed has returned. The function did
its work, and its answer can be lost. A call that took memory is then undone. A call that gave memory back cannot be:
whoever believes that the memory is still there would use it after it is gone.

So an exception carries what is known: *late*, the call did all of its work; or *early*, it did none. An interrupt that
carries nothing may have come at any time, and counts as late: memory is then lost at worst, and never used after it is
gone. Any other exception that carries nothing is an error of the call, which did none of its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap
from operator import length_hint
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["Attempt", "finish", "is_late", "is_marked_late", "mark_early", "mark_late", "nothing_done", "took_effect"]

_LATE = "_cuassay_is_late"

T = TypeVar("T")


def mark_late(error: BaseException) -> None:
    """Note in `error` that the call which is about to raise it did all of its work."""
    vars(error)[_LATE] = True


def mark_early(error: BaseException) -> None:
    """Note in `error` that the call which is about to raise it did none of its work, or has undone it."""
    vars(error)[_LATE] = False


def is_late(error: BaseException) -> bool:
    """Whether the call that raised `error` did all of its work, as far as is known."""
    found: bool = vars(error).get(_LATE, not isinstance(error, Exception))
    return found


def is_marked_late(error: BaseException) -> bool:
    """Whether it is certain that the call that raised `error` did all of its work."""
    found: bool = vars(error).get(_LATE, False)
    return found


def took_effect(error: BaseException) -> bool:
    """`is_late`; the mark is removed, because it says nothing about calls further out."""
    found = is_late(error)
    vars(error).pop(_LATE, None)
    return found


@contextmanager
def nothing_done() -> Iterator[None]:
    """Mark what is raised inside as early: it is the part of a call that comes before anything is done."""
    try:
        yield
    except BaseException as error:
        mark_early(error)
        raise


class Attempt(Generic[T]):
    """One call of a driver's function that cannot be undone. Exceptions leave the ``with`` block marked early or late.

    Parameters
    ----------
    call : callable
        A C function.
    *arguments
        Its arguments.
    succeeded : callable
        Whether an answer of the function says that it did its work.

    Attributes
    ----------
    answers : list
        The function's answer, once it is known.
    is_lost : bool
        Whether an interrupt was raised inside the function, so that nobody knows its answer. The driver had done its
        work by then: bindings make Python objects of the answer afterwards, and there interrupts are raised.
    """

    def __init__(self, call: Callable[..., T], *arguments: Any, succeeded: Callable[[T], bool]) -> None:
        self.answers: list[T] = []
        self.is_lost = False
        self._succeeded = succeeded
        self._unused = iter((arguments,))
        self._calls = starmap(call, self._unused)

    @property
    def is_done(self) -> bool:
        """Whether the function did its work, as far as is known."""
        return self._succeeded(self.answers[0]) if self.answers else self.is_lost

    def __call__(self) -> T:
        """Call the function; returns its answer."""
        # C code takes the arguments, calls and keeps the answer: no interrupt can come between the three.
        self.answers.extend(self._calls)
        return self.answers[0]

    def __enter__(self) -> Attempt[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            has_begun = not length_hint(self._unused)
            self.is_lost = has_begun and not self.answers and not isinstance(error, Exception)
            (mark_late if self.is_done else mark_early)(error)


def finish(
    call: Callable[..., T],
    *arguments: Any,
    succeeded: Callable[[T], bool],
    undo: Callable[[T | None], object],
) -> T:
    """Call a driver's function that can be undone; an interrupt that arrives when it is done undoes it.

    Parameters
    ----------
    call : callable
        A C function.
    *arguments
        Its arguments.
    succeeded : callable
        Whether an answer of the function says that it did its work.
    undo : callable
        Undoes the work, given the answer, or None where an interrupt lost the answer.

    Returns
    -------
    object
        What the function answered.
    """
    attempt = Attempt(call, *arguments, succeeded=succeeded)
    try:
        with attempt:
            return attempt()
    except BaseException as error:
        if attempt.is_lost:
            error.add_note(f"It interrupted {getattr(call, '__name__', call)}; what that took, if anything, is lost.")
        if attempt.is_done:
            undo(attempt.answers[0] if attempt.answers else None)
        mark_early(error)
        raise
