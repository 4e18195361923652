"""Detects where one iteration of a program ends: memory in use is back at its lowest level.

Stitching a range costs a driver call for each of its pages, and a view can serve again only when the same pages are
free again. That happens in each iteration if free memory is in the same state whenever an iteration begins. So once
something was stitched, the detector observes every request until the memory that was taken since then is free again.
Then everything free is merged (`cuassay.memory.page_store`). If the next iteration requests the same sizes, it gets the
same ranges and finds the existing views.

The detector learns what is in use only at requests, so frees cost nothing. It keeps large blocks in the order in which
they were taken, and drops those at the end that are no longer live. If the block taken last is freed first, the level
is exact. Otherwise it is too high until all later blocks are free.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cuassay.memory.config import SMALL_REQUEST

if TYPE_CHECKING:
    from cuassay.memory.blocks import Block, QuickList

__all__ = ["IterationDetector"]

#: How often the level may fall without reaching the low. Then the lowest level since becomes the low, and this number
#: doubles.
_PATIENCE = 2**4

#: The number of requests after which the detector gives up, because it makes each of them slower.
_ENOUGH = 2**16

#: A number above any level.
_NOT_YET = 2**64

#: A low is lower than the preceding high by at least this share.
_LEAST_FALL = 1 / 8


class IterationDetector:
    """Observes the level of one stream's large blocks; meanwhile requests look for their quick list here.

    They do so without the allocator's lock. Threads that share a stream may make the level wrong; then free memory is
    merged at another time, and nothing else depends on it.

    Attributes
    ----------
    lists : dict of int to QuickList
        The quick lists of the stream.
    is_over : bool
        Whether the level was at its low since `watch`.
    level : int
        The bytes in use, or more.
    low : int
        The level, or less, at which an iteration is considered to end.
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
        """Start with the blocks in use, in the order in which they were taken."""
        self.is_over = False
        self._given.clear()
        self.level = self._high = self._asked = 0
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        """Add a block that serves a request from now on."""
        nbytes = block.nbytes
        self._given.append((block, block.uses, nbytes))
        self.level += nbytes

    def get(self, nbytes: int) -> QuickList | None:
        """Return a request's quick list, as ``dict.get``, and note its next block; None at the end of an iteration."""
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
        """Subtract freed blocks from the level, if the last one is free; return whether the level fell to its low."""
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
            self._raise_low()
        if level > self.low:
            return False
        self.low = self._lowest = level
        self._left = self._patience
        return level < high * (1 - _LEAST_FALL)

    def _raise_low(self) -> None:
        """Set the low to the lowest level since, because it was not reached for long: something new stays in use."""
        self.low, self._lowest = self._lowest, _NOT_YET
        self._patience *= 2
        self._left = self._patience

    def __repr__(self) -> str:
        return f"IterationDetector({self.level:,} bytes, low at {self.low:,})"
