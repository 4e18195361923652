"""What a recording knows of each thread of the program."""

from __future__ import annotations

import threading
from types import CodeType
from typing import Any

from cuassay.observe.assembly import CODE, INSTRUCTION, WAY
from cuassay.observe.places import caller

__all__ = ["State", "Threads", "close", "place"]


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
        The recorded call on whose line everything is booked that happens in it, without a look at the stack.
    tried : list, optional
        The call that is run for the first time, to find out whether this is the line that the stack gives.
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


def place(state: State) -> tuple[CodeType, int]:
    """Return code and instruction of the line on which what happens now is booked."""
    booked = state.booked
    if booked is not None:
        return booked[CODE], booked[INSTRUCTION]
    code, instruction = caller()
    tried = state.tried
    if tried is not None and (code is not tried[CODE] or instruction != tried[INSTRUCTION]):
        tried[WAY].is_alone = False
    return code, instruction
