"""The launches, allocations and frees of the queue that is ahead, which are entered later and together.

Most programs use one stream most of the time. While every launch of all other queues is ordered before the next launch
of one queue, that queue is *ahead*: its launches cannot race, and it cannot free memory too early. So they are only
noted here. They are entered when another queue launches, and when accesses or blocks are looked at. Most blocks are
allocated and freed before that, and most arrays are accessed again in the same way, so that little is left to enter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

#: The last access of each array and direction: its epoch, how to make its extent, name and site.
_Notes = dict[tuple[Traits, bool], tuple[int, Locate, str, Site]]


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
            batches: dict[str, _Batch] = {}
            for entry in entries:
                memory = entry[1]
                batch = batches.get(memory)
                if batch is None:
                    batch = batches[memory] = self._batch(memory, self.queue)
                batch.take_in(entry)
            for batch in batches.values():
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
        The accesses of each block, by its address.
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
        self.young: dict[int, int] = {}
        self.notes: dict[int, _Notes] = {}

    def take_in(self, entry: tuple[Any, ...]) -> None:
        """Add one entry."""
        kind = entry[0]
        if kind == LAUNCHED:
            self._launch(*entry[2:])
        elif kind == TAKEN:
            self._take(entry[2], entry[3])
        else:
            self.notes.pop(entry[2], None)
            if self.young.pop(entry[2], None) is None:
                self._give_back(self._memory, entry[2], entry[3], self._queue)

    def _take(self, address: int, nbytes: int) -> None:
        if address in self.young or address in self._blocks.by_start:  # its free was not reported
            self.notes.pop(address, None)
            self.young.pop(address, None)
            self._blocks.add(Block(address, address + nbytes, self._queue))
        else:
            self.young[address] = nbytes
        self.notes[address] = {}
        log = self._logs.get(self._memory)
        if log is not None:
            log.forget(Span(address, address + nbytes, True))

    def _launch(
        self, epoch: int, arrays: Sequence[Traits], writes: Sequence[bool], locate: Locate, name: str, site: Site
    ) -> None:
        by_address = self.notes
        for traits, write in zip(arrays, writes):  # noqa: B905  strict= takes longer
            notes = by_address.get(traits[0])
            if notes is None:
                notes = self._notes_at(traits[0])
                if notes is None:
                    self._enter_unknown(epoch, write, traits, locate, name, site)
                    continue
            access = traits, write
            if access in notes:
                del notes[access]  # so that the accesses stay in order
            notes[access] = epoch, locate, name, site

    def _notes_at(self, address: int) -> _Notes | None:
        """Return the accesses of the block that contains `address`; None if there is no such block, or none to keep."""
        if self.young and address not in self._blocks.by_start:
            self._add_young()
        block = self._blocks.at(address)
        return None if block is None or block.is_private else self.notes.setdefault(block.low, {})

    def _add_young(self) -> None:
        for address, nbytes in self.young.items():
            self._blocks.add(Block(address, address + nbytes, self._queue))
        self.young.clear()

    def _enter_unknown(self, epoch: int, write: bool, traits: Traits, locate: Locate, name: str, site: Site) -> None:
        """Enter an access of memory that is in no block or in the private pool of a graph."""
        log = self._logs.get(self._memory)
        if log is None or not log.repeat(self._queue, epoch, write, traits, name, site):
            extent = locate(traits)
            self._enter_elsewhere(self._queue, epoch, write, extent, name, site)
            if log is not None:
                log.note_repeatable(extent, epoch, traits)

    def finish(self) -> None:
        """Enter the accesses that are left."""
        self._add_young()
        for address, notes in self.notes.items():
            block = self._blocks.by_start[address]
            for (traits, write), (epoch, locate, name, site) in notes.items():
                extent = locate(traits)
                if extent.span[0] != extent.span[1]:
                    block.enter(self._queue, epoch, write, extent, name, site, self._host)
