"""Save the thread state that calls depend on, so that a computation can be repeated later under the same state.

Precision contexts and autocast regions register here, so `cuassay.autograd.checkpoint` does not need to know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

__all__ = ["Restore", "register", "saved"]

#: Returns a context manager inside which the saved state is in force.
Restore = Callable[[], AbstractContextManager[Any]]

_savers: list[Callable[[], Restore]] = []


def register(save: Callable[[], Restore]) -> None:
    """Register a function that saves state.

    Parameters
    ----------
    save : callable
        Called before a computation that may be repeated. The function that it returns is called for each repetition.
    """
    _savers.append(save)


def saved() -> Restore:
    """Save all registered state, and return a function that restores it."""
    restores = [save() for save in _savers]

    @contextmanager
    def restored() -> Iterator[None]:
        with ExitStack() as entered:
            for restore in restores:
                entered.enter_context(restore())
            yield

    return restored
