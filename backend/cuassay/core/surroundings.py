"""What the calls of a thread depend on besides their arguments: saved, to repeat a computation under the same later.

Precision contexts and autocast regions register here; what repeats (`cuassay.autograd.checkpoint`) knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

__all__ = ["Restore", "register", "saved"]

#: Gives a block inside which all is as it was when it was saved.
Restore = Callable[[], AbstractContextManager[Any]]

_savers: list[Callable[[], Restore]] = []


def register(save: Callable[[], Restore]) -> None:
    """`save` is called where a computation begins that may be repeated; what it gives, where it is."""
    _savers.append(save)


def saved() -> Restore:
    """Everything registered, as it is now."""
    restores = [save() for save in _savers]

    @contextmanager
    def restored() -> Iterator[None]:
        with ExitStack() as entered:
            for restore in restores:
                entered.enter_context(restore())
            yield

    return restored
