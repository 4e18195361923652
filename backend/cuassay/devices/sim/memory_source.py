"""The arena as a source of memory for `cuassay.memory`'s allocator, with pages that can be mapped at several addresses.

The policy sees virtual addresses; a table translates each to the arena, as a device's memory management unit does. So
blocks that share memory by mistake can be found by what is written into them; see `SimSource.write`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuassay.devices.sim.memory import aligned
from cuassay.errors import ArgumentError, CapabilityError
from cuassay.order.clock import Clock, Queue

if TYPE_CHECKING:
    from cuassay.devices.sim.device import SimDevice

__all__ = ["SimSource"]

#: Where addresses begin, far from any offset into the arena, and the gap between ranges.
_FIRST, _GAP = 2**44, 2**21

#: A stream's clock, and the virtual time at which it is reached.
Marker = tuple[Clock, float]


class SimSource:
    """A `cuassay.core.protocols.MemorySource` of one simulated device; streams are the numbers of its queues.

    Parameters
    ----------
    device : SimDevice
        The device whose arena it uses.
    granularity : int
        Page sizes are multiples of this many bytes; 0 for a device without pages.
    """

    def __init__(self, device: SimDevice, granularity: int = 2**21) -> None:
        self.device = device
        self.granularity = granularity
        self._next = _FIRST
        self._ranges: dict[int, int] = {}
        self._aliases: set[int] = set()
        self._table: dict[int, tuple[int, int]] = {}  # by start address: the offset in the arena, bytes
        self._starts: list[int] = []

    def __repr__(self) -> str:
        return f"SimSource({self.device.device}, {len(self._ranges)} ranges)"

    # ---------------------------------------------------------------------------------------------- memory

    def reserve(self, nbytes: int, stream: int) -> int:
        """Reserve a segment in one piece. Raises `OutOfMemoryError`."""
        del stream
        with self.device.machine.working():
            (low,) = self._taken([nbytes])
            address = self._addresses(nbytes)
            self._show(address, low, nbytes)
            return address

    def span(self, nbytes: int, stream: int) -> int:
        """Reserve addresses without memory."""
        del stream
        with self.device.machine.working():
            self._demand_pages()
            return self._addresses(nbytes)

    def map(self, address: int, pages: Sequence[int]) -> None:
        """Map new pages consecutively from `address` on. Raises `OutOfMemoryError`."""
        with self.device.machine.working():
            for low, nbytes in zip(self._taken(pages), pages, strict=True):
                self._show(address, low, nbytes)
                address += nbytes

    def unmap(self, pages: Sequence[int]) -> None:
        """Release the pages at these addresses to the arena."""
        with self.device.machine.working():
            for address in pages:
                low, nbytes = self._hide(address)
                self.device.arena.give_back(low, low + aligned(nbytes), {})

    def alias(self, pages: Sequence[int]) -> int:
        """Map these pages a second time, to a new range."""
        with self.device.machine.working():
            self._demand_pages()
            shown = [self._table[page] for page in pages]
            address = at = self._addresses(sum(nbytes for _, nbytes in shown))
            self._aliases.add(address)
            for low, nbytes in shown:
                self._show(at, low, nbytes)
                at += nbytes
            return address

    def release(self, address: int) -> None:
        """Release a segment, for which the host waits as for ``cudaFree``, a span without pages, or an alias."""
        with self.device.machine.working():
            if address not in self._ranges:
                raise ArgumentError(f"{address:#x} is not in use here; release what `reserve` gave, once")
            end = address + self._ranges.pop(address)
            shown = [start for start in self._starts if address <= start < end]
            for start in shown:
                low, nbytes = self._hide(start)
                if address not in self._aliases:
                    self.device.wait_all()
                    self.device.arena.give_back(low, low + aligned(nbytes), {})
            self._aliases.discard(address)

    def _demand_pages(self) -> None:
        if not self.granularity:
            raise CapabilityError(f"{self!r} has no pages; make it with a granularity")

    def _addresses(self, nbytes: int) -> int:
        address = self._next
        self._next += -(-nbytes // _GAP) * _GAP + _GAP
        self._ranges[address] = nbytes
        return address

    def _taken(self, sizes: Sequence[int]) -> list[int]:
        """Take offsets in the arena for all sizes, or for none."""
        arena, taken = self.device.arena, list[tuple[int, int]]()
        for nbytes in sizes:
            low = arena.try_take(nbytes, None)
            if low is None:
                for start, size in taken:
                    arena.give_back(start, start + aligned(size), {})
                raise arena.no_room(nbytes)
            taken.append((low, nbytes))
        return [low for low, _ in taken]

    def _show(self, address: int, low: int, nbytes: int) -> None:
        self._table[address] = low, nbytes
        insort(self._starts, address)

    def _hide(self, address: int) -> tuple[int, int]:
        self._starts.remove(address)
        return self._table.pop(address)

    # ---------------------------------------------------------------------------------------------- contents

    def write(self, address: int, data: bytes) -> None:
        """Write `data` at `address`; it may cross pages."""
        for view, begin in self._pieces(address, len(data)):
            view[...] = np.frombuffer(data, np.uint8, view.size, begin)

    def read(self, address: int, nbytes: int) -> bytes:
        """Return the bytes at `address`."""
        return b"".join(view.tobytes() for view, _ in self._pieces(address, nbytes))

    def _pieces(self, address: int, nbytes: int) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
        """Yield views of the arena, and the position of each in the whole."""
        done = 0
        while done < nbytes:
            position = bisect_right(self._starts, address + done) - 1
            start = self._starts[position] if position >= 0 else -1
            low, size = self._table.get(start, (0, 0))
            offset = address + done - start
            if start < 0 or offset >= size:
                raise ArgumentError(f"{address + done:#x} has no memory; a real device would stop with a fault")
            length = min(size - offset, nbytes - done)
            yield self.device.arena.buffer[low + offset : low + offset + length], done
            done += length

    # ---------------------------------------------------------------------------------------------- order

    def synchronize(self, streams: Sequence[int]) -> None:
        """Make the host wait for these streams."""
        with self.device.machine.working():
            for stream in streams:
                queue = self._queue(stream)
                self.device.machine.host.joins(queue.clock, queue.finished)

    def record(self, stream: int) -> Marker:
        """Return a marker of the work submitted to `stream` so far."""
        with self.device.machine.working():
            queue = self._queue(stream)
            return dict(queue.clock), queue.finished

    def wait(self, stream: int, event: Marker) -> None:
        """Make later work of `stream` wait for `event`."""
        with self.device.machine.working():
            self._queue(stream).waits(*event)

    def query(self, event: Marker) -> bool:
        """Return True if virtual time has passed `event`; the query itself takes time."""
        with self.device.machine.working():
            return self.device.machine.is_reached(*event)

    def _queue(self, number: int) -> Queue:
        """Return the queue of that number; a queue that is gone has nothing left to wait for."""
        found = (queue for queue in self.device.queues if queue.number == number)
        return next(found, Queue(number, "a stream that is gone", self.device.device))
