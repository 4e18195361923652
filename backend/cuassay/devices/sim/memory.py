"""The memory of one simulated device: a flat arena, first fit, poisoned on allocation and on free.

A block belongs to the queue it was allocated on and is freed in that queue's order, as in torch's and CuPy's pools:
work of another queue must be waited for first, or the block must be marked by `Block.used_by`. A queue can take a free
range if it comes after everything the range was used for. If there is no such range, the allocator waits for the
device, merges free ranges, and tries again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.units import format_bytes
from cuassay.errors import OutOfMemoryError
from cuassay.order.clock import Clock, Host, Queue, join

__all__ = ["ALIGNMENT", "Arena", "Block", "aligned", "poison"]

#: Blocks start and end at multiples of this, as with `cudaMalloc`, so that neighbours never share a cache line.
ALIGNMENT = 256

#: The byte in freed memory: NaN in every IEEE and fp8 format, and -1 in signed integers.
_FREED = 0xFF


@cache
def poison(dtype: np.dtype[Any]) -> int:
    """Return the byte that fills new memory: NaN in floating point, 0xAA in integers, True in bool."""
    name = dtype_name(dtype)
    return 0x01 if name == "bool" else 0xAA if "int" in name else _FREED


@dataclass(slots=True, eq=False, weakref_slot=True)
class Block:
    """Memory in use, which is freed when the last array on it is gone.

    Attributes
    ----------
    queue : Queue
        The queue in whose order the block is freed.
    users : list of Queue
        Queues whose work the free waits for (``record_stream``).
    """

    low: int
    high: int
    queue: Queue
    on_free: Callable[[Block], None]
    users: list[Queue] = field(default_factory=list)

    def used_by(self, queue: Queue) -> None:
        """Keep the memory from being reused before the work that `queue` has when it is freed."""
        if queue is not self.queue and queue not in self.users:
            self.users.append(queue)

    # The function is kept as a default, because names of modules are None when the interpreter ends.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # at exit nobody is left to report an early free to
            self.on_free(self)

    def __repr__(self) -> str:
        return f"Block({format_bytes(self.high - self.low)} at {self.low}, {self.queue.label})"


@dataclass(slots=True)
class _Free:
    """A free range, and what must be done before it may be taken."""

    low: int
    high: int
    after: Clock

    @property
    def nbytes(self) -> int:
        return self.high - self.low


class Arena:
    """One device's memory.

    Parameters
    ----------
    device : str
        The device's name in messages.
    nbytes : int
        The size of the memory. The host's pages are taken when they are first touched.
    host : Host
        The host, which knows what is finished.
    """

    def __init__(self, device: str, nbytes: int, host: Host) -> None:
        self.total = nbytes // ALIGNMENT * ALIGNMENT
        self.buffer = np.empty(self.total, np.uint8)
        self.base: int = self.buffer.__array_interface__["data"][0]
        self._device = device
        self._host = host
        self._free = [_Free(0, self.total, {})] if self.total else []

    @property
    def free(self) -> int:
        """The bytes in free ranges, whatever they wait for."""
        return sum(piece.nbytes for piece in self._free)

    @property
    def largest(self) -> int:
        """The bytes of the largest free range."""
        return max((piece.nbytes for piece in self._free), default=0)

    def try_take(self, nbytes: int, queue: Queue | None) -> int | None:
        """Return the start of `nbytes` that `queue` (None: anyone) may use now, or None."""
        needed = aligned(nbytes)
        for position, piece in enumerate(self._free):
            if piece.nbytes >= needed and self._done(piece.after, queue):
                low = piece.low
                if piece.nbytes == needed:
                    del self._free[position]
                else:
                    piece.low += needed
                return low
        return None

    def _done(self, after: Clock, queue: Queue | None) -> bool:
        if not after:
            return True
        host, own = self._host.clock, {} if queue is None else queue.clock
        return all(max(host.get(number, 0), own.get(number, 0)) >= epoch for number, epoch in after.items())

    def give_back(self, low: int, high: int, after: Clock) -> None:
        """Free the range; it may be taken after `after`."""
        self.buffer[low:high].fill(_FREED)
        position = next((i for i, piece in enumerate(self._free) if piece.low > low), len(self._free))
        self._free.insert(position, _Free(low, high, after))
        self._merge(max(position - 1, 0), position + 2)

    def merge(self) -> None:
        """Merge free neighbours; the caller has waited for the device."""
        self._merge(0, len(self._free))

    def _merge(self, first: int, last: int) -> None:
        """Merge neighbours in ``[first, last)`` that wait for the same queues, or for nothing any more."""
        merged: list[_Free] = []
        for piece in self._free[first:last]:
            if self._done(piece.after, None):
                piece.after = {}
            former = merged[-1] if merged else None
            if former is not None and former.high == piece.low and former.after.keys() == piece.after.keys():
                former.high = piece.high
                join(former.after, piece.after)
            else:
                merged.append(piece)
        self._free[first:last] = merged

    def no_room(self, nbytes: int) -> OutOfMemoryError:
        """Return the error, which says what was requested and what is free."""
        return OutOfMemoryError(
            f"{self._device} has no room for {nbytes:,} bytes ({format_bytes(nbytes)}); free: {self.free:,} bytes of "
            f"{self.total:,} ({format_bytes(self.free)} of {format_bytes(self.total)}), the largest range "
            f"{self.largest:,}; drop arrays, or set CUASSAY_SIM_MEMORY to more"
        )

    def __repr__(self) -> str:
        return f"Arena({self._device}, {format_bytes(self.free)} free of {format_bytes(self.total)})"


def aligned(nbytes: int) -> int:
    """Round `nbytes` up to `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
