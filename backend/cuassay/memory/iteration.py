"""When memory in use is back at its lowest: where one iteration of a program ends and the next begins.

A range that is stitched costs a call of the driver for each of its pages, and a view serves again only where the same
pages are free again. They are, in each iteration, if each begins with its free memory in the same state. So from the
moment that something is stitched, requests are looked at one by one, until what came since is gone; then everything
free goes home and is merged (`cuassay.memory.page_store`). If the next iteration asks for the same sizes, it gets the
same ranges and finds the views that this one made.

What is in use is known at a request without telling at each free: large blocks are kept in the order they were given
out, and those at the end that are no longer live are dropped. As far as what is given last goes first that is exact;
where it is not, it is too high until all are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cuassay.memory.config import SMALL_REQUEST

if TYPE_CHECKING:
    from cuassay.memory.blocks import Block, QuickList

__all__ = ["IterationDetector"]

#: Falls without a low, after which the lowest level among them is taken for one: twice as many each time.
_PATIENCE = 2**4

#: Requests after which the watch is given up: it makes each of them slower.
_ENOUGH = 2**16

#: More than any level.
_NOT_YET = 2**64

#: A low is lower than the high before it by this share of it.
_LEAST_FALL = 1 / 8


class IterationDetector:
    """The level of one stream's large blocks, while it is watched: requests then look for their quick list here.

    They do so without the allocator's lock. Threads that share a stream may make the level wrong, and with it the
    moment when free memory goes home; nothing else depends on it.

    Attributes
    ----------
    lists : dict of int to QuickList
        The quick lists of the stream.
    is_over : bool
        Whether the low was reached since the watch began.
    level : int
        Bytes in use, or more.
    low : int
        Bytes in use, or less, that are taken for the end of an iteration.
    """

    __slots__ = ("_asked", "_given", "_high", "_left", "_lowest", "_patience", "is_over", "level", "lists", "low")

    def __init__(self) -> None:
        self.lists: dict[int, QuickList] = {}
        self.is_over = False
        self._given: list[tuple[Block, int, int]] = []
        self.level = self.low = self._high = self._asked = 0
        self._lowest = _NOT_YET
        self._patience = self._left = _PATIENCE

    def watch(self, blocks: Iterable[Block]) -> None:
        """Begin with what is in use, in the order it was given out."""
        self.is_over = False
        self._given.clear()
        self.level = self._high = self._asked = 0
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        """`block` was given out."""
        nbytes = block.nbytes
        self._given.append((block, block.uses, nbytes))
        self.level += nbytes

    def get(self, nbytes: int) -> QuickList | None:
        """The quick list for a request, as a dictionary's, and its next block is noted; None at the low."""
        self._asked += 1
        given = self._given
        if given:
            block, uses, _ = given[-1]
            is_over = (
                self._asked > _ENOUGH if block.uses == uses and block.home is block.quick_list else self.drop_gone()
            )
        else:
            is_over = self.drop_gone()
        if is_over:
            self.is_over = True
            return None
        quick_list = self.lists.get(nbytes)
        if quick_list and nbytes > SMALL_REQUEST:
            block = quick_list[-1]
            size = block.nbytes
            given.append((block, block.uses + 1, size))
            self.level += size
        return quick_list

    def drop_gone(self) -> bool:
        """Take what is gone off the level, once what was given out last is; True when that has fallen to its low."""
        given, level, high = self._given, self.level, self._high
        if level > high:
            self._high = high = level
        while given:
            block, uses, nbytes = given[-1]
            if block.uses == uses and block.is_live:
                break
            given.pop()
            level -= nbytes
        self.level = level
        self._lowest = min(self._lowest, level)
        self._left -= 1
        if self._left <= 0:
            self._despair()
        if level > self.low:
            return False
        self.low = self._lowest = level
        self._left = self._patience
        return level < high * (1 - _LEAST_FALL)

    def _despair(self) -> None:
        """The low was not reached for long: something stays, and the lowest level since is the low."""
        self.low, self._lowest = self._lowest, _NOT_YET
        self._patience *= 2
        self._left = self._patience

    def __repr__(self) -> str:
        return f"IterationDetector({self.level:,} bytes, low at {self.low:,})"
