"""The blocks of memory that allocators have given out, found by any address inside."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from cuassay.order.block_log import BlockLog
from cuassay.order.clock import Queue

__all__ = ["Block", "Blocks"]


@dataclass(slots=True, eq=False)
class Block:
    """Memory that was given out: ``[low, high)``, in the order of `queue`.

    Attributes
    ----------
    users : list of Queue
        Queues whose work its free waits for.
    is_private : bool
        Given out by the pool of a graph, which keeps it for replays.
    is_live : bool
        Not given back yet.
    log : BlockLog, optional
        What accessed it; none of a private block, whose memory other graphs may use.
    """

    low: int
    high: int
    queue: Queue
    users: list[Queue] = field(default_factory=list)
    is_private: bool = False
    is_live: bool = True
    log: BlockLog | None = None


class Blocks:
    """The live blocks of one memory."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, block: Block) -> None:
        """`block` was given out; what was known to begin there is gone."""
        former = self._by_start.get(block.low)
        if former is None:
            insort(self._starts, block.low)
        else:
            former.is_live = False
        self._by_start[block.low] = block

    def pop(self, low: int) -> Block | None:
        """The block that begins at `low`, which was given back; None where it is not known."""
        block = self._by_start.pop(low, None)
        if block is not None:
            del self._starts[bisect_right(self._starts, low) - 1]
            block.is_live = False
        return block

    def at(self, address: int) -> Block | None:
        """The block that `address` is in."""
        found = self._by_start.get(address)
        if found is not None:
            return found
        place = bisect_right(self._starts, address) - 1
        found = self._by_start[self._starts[place]] if place >= 0 else None
        return found if found is not None and address < found.high else None

    def logs(self) -> Iterator[BlockLog]:
        """Those of all blocks."""
        return (block.log for block in self._by_start.values() if block.log is not None)
