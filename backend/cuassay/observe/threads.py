"""What a recording knows of each thread of the program."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["State", "Threads", "close"]


class State:
    """What is known of a thread.

    Attributes
    ----------
    open : list of int
        The numbers of its open spans.
    number : int
        Its own number; 0 if it has none yet.
    is_quiet : bool
        Whether what it does is not recorded.
    booked : list, optional
        The recorded call to whose line memory is booked without a look at the stack.
    tried : list, optional
        The call that is run for the first time, to find out whether its memory may be booked in this way.
    """

    __slots__ = ("booked", "is_quiet", "number", "open", "tried")

    def __init__(self) -> None:
        self.open: list[int] = []
        self.number = 0
        self.is_quiet = False
        self.booked: list[Any] | None = None
        self.tried: list[Any] | None = None


class Threads(threading.local):
    """The state of each thread, in one object because attributes of thread-local objects are slow."""

    def __init__(self) -> None:
        self.state = State()


def close(opened: list[int], number: int) -> None:
    """Remove span `number`, and those inside it that were not ended, from the open ones."""
    while opened and opened.pop() != number:
        pass
