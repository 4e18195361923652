"""What a recording knows of each thread of the program."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any

from cuassay.observe.assembly import CODE, INSTRUCTION, Way
from cuassay.observe.places import caller

__all__ = ["State", "Threads", "close", "place"]


class State:
    """What is known of a thread.

    Attributes
    ----------
    log : list
        The fields of its calls, one call after another, because one list is cheaper than one for each call.
    open : list of int
        The numbers of its open spans.
    number, ident : int
        Its own number, and the low 32 bits of `threading.get_ident`.
    is_quiet : bool
        Whether what it does is not recorded.
    booked : int, optional
        The place in `log` of the call on whose line everything that happens in it is booked, without a look at the
        stack.
    tried : tuple, optional
        Code, instruction and `Way` of the call that is run for the first time, to find out whether this is the line
        that the stack gives.
    """

    __slots__ = ("booked", "ident", "is_quiet", "log", "number", "open", "tried")

    def __init__(self, number: int) -> None:
        self.log: list[Any] = []
        self.open: list[int] = []
        self.number = number
        self.ident = threading.get_ident() & 0xFFFFFFFF
        self.is_quiet = False
        self.booked: int | None = None
        self.tried: tuple[CodeType, int, Way] | None = None


class Threads(threading.local):
    """The state of each thread, in one object because attributes of thread-local objects are slow.

    Parameters
    ----------
    made : list of State
        The states of all threads are appended to it.
    numbers : iterator of int
        Gives each thread its number.
    """

    def __init__(self, made: list[State], numbers: Iterator[int]) -> None:
        self.state = State(next(numbers))
        made.append(self.state)


def close(opened: list[int], number: int) -> None:
    """Remove span `number`, and those inside it that were not ended, from the open ones."""
    while opened and opened.pop() != number:
        pass


def place(state: State) -> tuple[CodeType, int]:
    """Return code and instruction of the line on which what happens now is booked."""
    booked = state.booked
    if booked is not None:
        return state.log[booked + CODE], state.log[booked + INSTRUCTION]
    code, instruction = caller()
    tried = state.tried
    if tried is not None and (code is not tried[0] or instruction != tried[1]):
        tried[2].is_alone = False
    return code, instruction
