"""The allocated blocks of memory, found by any address inside them, each with its accesses.

An array inside a block can only conflict with accesses of the same block. A block usually has few accesses, so they are
kept in a list and compared one by one. A block with many accesses keeps them in an `AccessLog`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from cuassay.order.accesses import Access, AccessLog, Span, race
from cuassay.order.clock import Host, Queue
from cuassay.order.extents import Extent
from cuassay.order.sites import Site

__all__ = ["Block", "Blocks", "Seen"]

#: A block with more accesses than this keeps them sorted.
_FEW = 16

_EVERYTHING = Span(0, 2**64, dense=True)


class Seen(Access):
    """An access of an array that is represented by its extent."""

    __slots__ = ()

    @property
    def place(self) -> str:
        """See `Access`."""
        return str(self.array.place)


class Block:
    """An allocated range ``[low, high)``, in the order of `queue`.

    Attributes
    ----------
    users : tuple of Queue
        The queues whose work is waited for when the block is freed.
    is_private : bool
        Whether it belongs to a graph's private pool, which keeps it for replays. Its accesses are not kept here,
        because other graphs may use the same memory.
    is_live : bool
        Whether it has not been freed yet.
    """

    __slots__ = ("_few", "_many", "high", "is_live", "is_private", "low", "queue", "users")

    def __init__(self, low: int, high: int, queue: Queue, *, is_private: bool = False) -> None:
        self.low, self.high, self.queue = low, high, queue
        self.users: tuple[Queue, ...] = ()
        self.is_private, self.is_live = is_private, True
        self._few: list[Access] = []
        self._many: AccessLog | None = None

    def __len__(self) -> int:
        """How many accesses a later launch could still race with."""
        return len(self._few) if self._many is None else len(self._many)

    def enter(self, queue: Queue, epoch: int, write: bool, extent: Extent, name: str, site: Site, host: Host) -> None:
        """Check and enter an access of `extent`, which is not empty. Raises `RaceError` as `AccessLog.add` does."""
        if self._many is not None:
            self._many.add(Seen(queue, epoch, write, extent.span, extent, name, site))
            return
        few, ordered, finished, spare = self._few, queue.clock, host.clock, None
        low, high, is_dense = span = extent.span
        for place in range(len(few) - 1, -1, -1):
            old = few[place]
            first, last, _ = old.span
            if first >= high or last <= low:
                continue
            number = old.queue.number
            is_finished = finished.get(number, 0) >= old.epoch
            if not is_finished and old.queue is not queue and ordered.get(number, 0) < old.epoch:
                if write or old.write:
                    _raise_on_overlap(old, Seen(queue, epoch, write, span, extent, name, site))
            elif is_finished or (
                (write or not old.write)
                and (low <= first and last <= high if is_dense else old.span == span and _are_alike(old.array, extent))
            ):
                spare = few.pop(place)
        if spare is None:
            few.append(Seen(queue, epoch, write, span, extent, name, site))
            if len(few) > _FEW:
                self._sort(extent.memory, host)
        else:  # reuse the object: making a new one takes as long as everything else here
            spare.queue, spare.epoch, spare.write, spare.span = queue, epoch, write, span
            spare.array, spare.name, spare.site = extent, name, site
            few.append(spare)

    def _sort(self, memory: str, host: Host) -> None:
        self._many = AccessLog(memory, host)
        for old in self._few:
            self._many.insert(old)
        self._few = []

    def unfinished(self, host: Host) -> list[Access]:
        """Return the accesses that the host has not seen finished."""
        if self._many is not None:
            return self._many.users(_EVERYTHING)
        return [old for old in self._few if host.clock.get(old.queue.number, 0) < old.epoch]

    def clear(self) -> None:
        """Drop all accesses."""
        self._few, self._many = [], None


def _raise_on_overlap(old: Access, new: Access) -> None:
    if new.overlaps(old):
        raise race(new.array.memory, old, new)


def _are_alike(one: Extent, other: Extent) -> bool:
    return one.shape == other.shape and one.strides == other.strides and one.itemsize == other.itemsize


class Blocks:
    """The live blocks of one memory; `by_start` finds them by the address at which they begin."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.by_start: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.by_start.values())

    def add(self, block: Block) -> None:
        """Add a block. It replaces a block at the same address, which must have been freed."""
        former = self.by_start.get(block.low)
        if former is None:
            insort(self._starts, block.low)
        else:
            former.is_live = False
        self.by_start[block.low] = block

    def pop(self, low: int) -> Block | None:
        """Remove and return the block that begins at `low`, which was freed; None if there is no such block."""
        block = self.by_start.pop(low, None)
        if block is not None:
            del self._starts[bisect_right(self._starts, low) - 1]
            block.is_live = False
        return block

    def at(self, address: int) -> Block | None:
        """Return the block that contains `address`, or None."""
        found = self.by_start.get(address)
        if found is not None:
            return found
        place = bisect_right(self._starts, address) - 1
        found = self.by_start[self._starts[place]] if place >= 0 else None
        return found if found is not None and address < found.high else None
