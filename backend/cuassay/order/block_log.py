"""The accesses of one block of memory: mostly a few, so that they are kept in a list and looked at one by one."""

from __future__ import annotations

from cuassay.order.accesses import Access, AccessLog, Span, race
from cuassay.order.clock import Host, Queue
from cuassay.order.extents import Extent
from cuassay.order.sites import Site

__all__ = ["BlockLog", "Seen"]

#: More of them are kept sorted.
_FEW = 16

_EVERYTHING = Span(0, 2**64, dense=True)


class Seen(Access):
    """An access of an array that is known by its extent."""

    __slots__ = ()

    @property
    def place(self) -> str:
        return str(self.array.place)


class BlockLog:
    """The accesses of one block that a later launch could still race with; `memory` is what it lies in."""

    __slots__ = ("_few", "_host", "_many", "_memory")

    def __init__(self, memory: str, host: Host) -> None:
        self._memory, self._host = memory, host
        self._few: list[Access] = []
        self._many: AccessLog | None = None

    def __len__(self) -> int:
        return len(self._few) if self._many is None else len(self._many)

    def enter(self, queue: Queue, epoch: int, write: bool, extent: Extent, name: str, site: Site) -> None:
        """Enter an access of `extent`, which is not empty. Raises `RaceError` as `AccessLog.add` does."""
        if self._many is not None:
            self._many.add(Seen(queue, epoch, write, extent.span, extent, name, site))
            return
        few, ordered, finished, spare = self._few, queue.clock, self._host.clock, None
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
                    self._meet(old, Seen(queue, epoch, write, span, extent, name, site))
            elif is_finished or (
                (write or not old.write)
                and (low <= first and last <= high if is_dense else old.span == span and _are_alike(old.array, extent))
            ):
                spare = few.pop(place)
        if spare is None:
            few.append(Seen(queue, epoch, write, span, extent, name, site))
            if len(few) > _FEW:
                self._sort()
        else:  # to make another object takes as long as all the rest
            spare.queue, spare.epoch, spare.write, spare.span = queue, epoch, write, span
            spare.array, spare.name, spare.site = extent, name, site
            few.append(spare)

    def _meet(self, old: Access, new: Access) -> None:
        if new.overlaps(old):
            raise race(self._memory, old, new)

    def _sort(self) -> None:
        self._many = AccessLog(self._memory, self._host)
        for old in self._few:
            self._many.insert(old)
        self._few = []

    def users(self) -> list[Access]:
        """The accesses that the host has not seen finished."""
        if self._many is not None:
            return self._many.users(_EVERYTHING)
        finished = self._host.clock
        return [old for old in self._few if finished.get(old.queue.number, 0) < old.epoch]

    def clear(self) -> None:
        """Drop everything."""
        self._few, self._many = [], None


def _are_alike(one: Extent, other: Extent) -> bool:
    return one.shape == other.shape and one.strides == other.strides and one.itemsize == other.itemsize
