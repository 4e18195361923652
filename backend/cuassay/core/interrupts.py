"""Interrupts around driver calls: an interrupt handler must know whether the call took effect.

Python raises `KeyboardInterrupt` only after the C function in which Ctrl-C was pressed has returned. The function has
then done its work, but its return value may be lost. An allocation can be undone in that case. A free cannot: code that
assumes that the memory still exists would use it after it was freed.

An exception is therefore marked *late* if the call did all of its work, or *early* if it did none. An unmarked
interrupt may have come at any time and counts as late, which at worst leaks memory but never leads to a use after free.
Any other unmarked exception is an error of the call and means that the call did none of its work.
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
    """Mark `error`: the call that is about to raise it did all of its work."""
    vars(error)[_LATE] = True


def mark_early(error: BaseException) -> None:
    """Mark `error`: the call that is about to raise it did none of its work, or has undone it."""
    vars(error)[_LATE] = False


def is_late(error: BaseException) -> bool:
    """Return whether the call that raised `error` did all of its work, as far as is known."""
    found: bool = vars(error).get(_LATE, not isinstance(error, Exception))
    return found


def is_marked_late(error: BaseException) -> bool:
    """Return whether the call that raised `error` certainly did all of its work."""
    found: bool = vars(error).get(_LATE, False)
    return found


def took_effect(error: BaseException) -> bool:
    """Return `is_late`, and remove the mark, because it says nothing about enclosing calls."""
    found = is_late(error)
    vars(error).pop(_LATE, None)
    return found


@contextmanager
def nothing_done() -> Iterator[None]:
    """Mark exceptions raised inside the block as early. Use it for the part of a call that has no effects."""
    try:
        yield
    except BaseException as error:
        mark_early(error)
        raise


class Attempt(Generic[T]):
    """One call of a driver function that cannot be undone. Exceptions leave the ``with`` block marked early or late.

    Parameters
    ----------
    call : callable
        A C function.
    *arguments
        Its arguments.
    succeeded : callable
        Returns whether a return value of the function says that it did its work.

    Attributes
    ----------
    answers : list
        The return value of the function, once it is known.
    is_lost : bool
        Whether an interrupt was raised inside the function, so that its return value is unknown. The driver had done
        its work by then, because bindings raise interrupts when they convert the return value to Python objects.
    """

    def __init__(self, call: Callable[..., T], *arguments: Any, succeeded: Callable[[T], bool]) -> None:
        self.answers: list[T] = []
        self.is_lost = False
        self._succeeded = succeeded
        self._unused = iter((arguments,))
        self._calls = starmap(call, self._unused)

    @property
    def is_done(self) -> bool:
        """Whether the function has done its work, as far as is known."""
        return self._succeeded(self.answers[0]) if self.answers else self.is_lost

    def __call__(self) -> T:
        """Call the function and return its value."""
        # C code takes the arguments, calls and stores the return value: no interrupt can come between the three.
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
    """Call a driver function that can be undone. An interrupt that arrives after the call took effect undoes it.

    Parameters
    ----------
    call : callable
        A C function.
    *arguments
        Its arguments.
    succeeded : callable
        Returns whether a return value of the function says that it did its work.
    undo : callable
        Undoes the work. It is given the return value, or None if an interrupt lost it.

    Returns
    -------
    object
        The return value of the function.
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
