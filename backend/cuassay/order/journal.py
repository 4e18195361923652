"""The launches, allocations and frees of the queue that is ahead, which are entered later and together.

Most programs use one stream most of the time. While every launch of all other queues is ordered before the next launch
of one queue, that queue is *ahead*: its launches cannot race, and it cannot free memory too early. So they are only
noted here. They are entered when another queue launches, and when accesses or blocks are looked at. Most blocks are
allocated and freed before that, and most arrays are accessed again in the same way, so that little is left to enter.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any

from cuassay.order.accesses import AccessLog, Span
from cuassay.order.clock import Host, Queue
from cuassay.order.extents import Extent
from cuassay.order.memory import Block, Blocks
from cuassay.order.sites import Site

__all__ = ["GIVEN_BACK", "LAUNCHED", "MOST_ENTRIES", "TAKEN", "Journal", "Traits"]

#: A journal with more entries than this is entered.
MOST_ENTRIES = 512

#: What decides the extent of an array: its address, the index of its device, and what the device kind adds. It is
#: hashable and does not keep the array alive.
Traits = tuple[Any, ...]

#: Makes an extent.
Locate = Callable[[Traits], Extent]

#: The first item of an entry. The second is the name of the memory. For the allocation and the free of a block the
#: address and the size follow, for a launch: epoch, traits of the arrays, whether each is written, how to make their
#: extents, name and site.
TAKEN, GIVEN_BACK, LAUNCHED = range(3)

#: The accesses of a block: the newest read and the newest write; the last ones of other arrays in it, by traits and
#: whether they are writes, or None; the block's address; whether it was not freed in this batch. Most blocks are
#: accessed in one way again and again, so that comparing traits with the newest ones replaces hashing them, which takes
#: longer than the rest. An access is traits, place in the order of all accesses of a batch, epoch, how to make its
#: extent, name and site. A list, because making an object of a class takes longer.
_Notes = list[Any]
_OLDER, _LOW, _IS_LIVE = 2, 3, 4


class Journal:
    """What the queue that is ahead has done since the last `enter`.

    Parameters
    ----------
    host : Host
        What the host has seen finished.
    blocks, logs : dict
        Of each memory, as in `Engine`.
    enter_elsewhere, give_back : callable
        `Engine` methods that enter an access of memory in no known block, and a free, at once.

    Attributes
    ----------
    queue : Queue or None
        The queue that is ahead.
    entries : list of tuple
        What it did, in order. Call `enter` when there are more than `MOST_ENTRIES`.
    """

    def __init__(
        self,
        host: Host,
        blocks: dict[str, Blocks],
        logs: dict[str, AccessLog],
        enter_elsewhere: Callable[[Queue, int, bool, Extent, str, Site], None],
        give_back: Callable[[str, int, int, Queue], None],
    ) -> None:
        self.queue: Queue | None = None
        self.entries: list[tuple[Any, ...]] = []
        self._host, self._blocks, self._logs = host, blocks, logs
        self._enter_elsewhere, self._give_back = enter_elsewhere, give_back
        self._last: Queue | None = None
        self._streak = 0

    # -------------------------------------------------------------------------------------------- who is ahead

    def look(self, queue: Queue, every: Iterable[Queue]) -> None:
        """Find out whether `queue` is ahead of every other, when it has launched 2, 4, 8... times in a row."""
        if queue is not self._last:
            self._last, self._streak = queue, 0
        self._streak += 1
        if self._streak > 1 and not self._streak & (self._streak - 1):
            ordered, finished = queue.clock, self._host.clock
            if all(max(ordered.get(one.number, 0), finished.get(one.number, 0)) >= one.epoch for one in every):
                self.queue = queue

    def end(self) -> None:
        """Enter everything. No queue is known to be ahead afterwards."""
        self.enter()
        self.queue = self._last = None

    # -------------------------------------------------------------------------------------------- entering

    def enter(self) -> None:
        """Enter the noted launches, allocations and frees."""
        if self.entries and self.queue is not None:
            entries, self.entries = self.entries, []  # a finalizer may add others meanwhile
            while entries:
                batch = self._batch(entries[0][1], self.queue)
                entries = batch.take_in(entries)
                batch.finish()

    def _batch(self, memory: str, queue: Queue) -> _Batch:
        blocks = self._blocks.setdefault(memory, Blocks())
        return _Batch(memory, queue, blocks, self._logs, self._host, self._enter_elsewhere, self._give_back)


class _Batch:
    """The entries of one memory that are entered together.

    Attributes
    ----------
    young : dict of int to int
        The size of each block that was allocated in this batch, by its address.
    notes : dict of int to _Notes
        The accesses of each block, by its address and by every other address at which an array in it begins.
    """

    def __init__(
        self,
        memory: str,
        queue: Queue,
        blocks: Blocks,
        logs: dict[str, AccessLog],
        host: Host,
        enter_elsewhere: Callable[[Queue, int, bool, Extent, str, Site], None],
        give_back: Callable[[str, int, int, Queue], None],
    ) -> None:
        self._memory, self._queue, self._blocks, self._logs, self._host = memory, queue, blocks, logs, host
        self._enter_elsewhere, self._give_back = enter_elsewhere, give_back
        self._forgotten: dict[int, int] = {}
        self._unknown: list[int] = []  # addresses in no block whose accesses are kept, in order
        self.young: dict[int, int] = {}
        self.notes: dict[int, _Notes] = {}

    def take_in(self, entries: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Add the entries of this memory, and return the others."""
        memory, others = self._memory, []
        for number, entry in enumerate(entries):
            kind = entry[0]
            if entry[1] != memory:
                others.append(entry)
            elif kind == LAUNCHED:
                self._launch(number << 16, entry)
            elif kind == TAKEN:
                self._take(entry[2], entry[3])
            else:
                self._drop(entry[2])
                if self.young.pop(entry[2], None) is None:
                    self._forgotten.clear()
                    self._give_back(memory, entry[2], entry[3], self._queue)
        return others

    def _take(self, address: int, nbytes: int) -> None:
        self._drop(address)
        if address in self.young or address in self._blocks.by_start:  # its free was not reported
            self.young.pop(address, None)
            self._blocks.add(Block(address, address + nbytes, self._queue))
        else:
            self.young[address] = nbytes
        self.notes[address] = [None, None, None, address, True]
        unknown = self._unknown
        if unknown and unknown[-1] >= address:
            place = bisect_left(unknown, address)
            if unknown[place] < address + nbytes:
                unknown.clear()
        log = self._logs.get(self._memory)
        if log is not None and self._forgotten.get(address) != nbytes:
            log.forget(Span(address, address + nbytes, True))
            self._forgotten[address] = nbytes

    def _drop(self, address: int) -> None:
        """Forget the accesses of the block that begins at `address`, because it was freed."""
        notes = self.notes.pop(address, None)
        if notes is not None and notes[_LOW] == address:
            notes[_IS_LIVE] = False

    def _launch(self, place: int, entry: tuple[Any, ...]) -> None:
        _, _, epoch, arrays, writes, locate, name, site = entry
        by_address = self.notes
        for traits, write in zip(arrays, writes):  # noqa: B905  strict= takes longer
            notes = by_address.get(traits[0])
            if notes is None or not notes[_IS_LIVE]:
                notes = self._notes_at(traits[0])
                if notes is None:
                    self._enter_unknown(epoch, write, traits, locate, name, site)
                    continue
            former = notes[write]
            if former is not None and former[0] != traits:
                if notes[_OLDER] is None:
                    notes[_OLDER] = {}
                notes[_OLDER][former[0], write] = former
            place += 1
            notes[write] = traits, place, epoch, locate, name, site

    def _notes_at(self, address: int) -> _Notes | None:
        """Return the accesses of the block that contains `address`; None if there is no such block, or none to keep."""
        unknown = self._unknown
        if unknown:
            place = bisect_left(unknown, address)
            if place < len(unknown) and unknown[place] == address:
                return None
        if self.young and address not in self._blocks.by_start:
            self._add_young()
        block = self._blocks.at(address)
        if block is None or block.is_private:
            insort(unknown, address)
            return None
        notes = self.notes.get(block.low)
        if notes is None:
            notes = self.notes[block.low] = [None, None, None, block.low, True]
        self.notes[address] = notes
        return notes

    def _add_young(self) -> None:
        for address, nbytes in self.young.items():
            self._blocks.add(Block(address, address + nbytes, self._queue))
        self.young.clear()

    def _enter_unknown(self, epoch: int, write: bool, traits: Traits, locate: Locate, name: str, site: Site) -> None:
        """Enter an access of memory that is in no block or in the private pool of a graph."""
        log = self._logs.get(self._memory)
        if log is None or not log.repeat(self._queue, epoch, write, traits, name, site):
            extent = locate(traits)
            self._forgotten.clear()
            self._enter_elsewhere(self._queue, epoch, write, extent, name, site)
            if log is not None:
                log.note_repeatable(extent, epoch, traits)

    def finish(self) -> None:
        """Enter the accesses that are left."""
        self._add_young()
        for address, notes in self.notes.items():
            if not notes[_IS_LIVE] or notes[_LOW] != address:
                continue
            block = self._blocks.by_start[address]
            for (traits, _, epoch, locate, name, site), write in _in_order(notes):
                extent = locate(traits)
                if extent.span[0] != extent.span[1]:
                    block.enter(self._queue, epoch, write, extent, name, site, self._host)


def _in_order(notes: _Notes) -> list[tuple[tuple[Any, ...], bool]]:
    """Return the last access of each array and direction, each with whether it is a write."""
    found = notes[_OLDER] or {}
    for write in (False, True):
        note = notes[write]
        if note is not None:
            found[note[0], write] = note
    return sorted(((note, write) for (_, write), note in found.items()), key=lambda pair: pair[0][1])
