"""The memory of captured graphs on the simulated device: separate from all other memory, shared by graphs of one pool.

A block that is dropped during its capture may be reused by later work of the same capture that comes after it, and by
the next capture of the pool. So two graphs of one pool that run at the same time are a race, and are found as one. The
pool takes ranges from the arena as it needs them, and returns them when no graph and no array holds it. The ranges are
not joined, so graphs share best if they are captured from the largest down, as `make_graphed_callables` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cuassay.core.graph_pools import PoolId
from cuassay.devices.sim.memory import Block, aligned
from cuassay.order.clock import Clock, Queue

if TYPE_CHECKING:
    from cuassay.devices.sim.device import SimDevice

__all__ = ["Pool", "pool"]


class Recorder(Protocol):
    """A capture, as its pool sees it."""

    def clock_of(self, queue: Queue) -> Clock:
        """Return what later work of `queue` waits for within the capture; nothing if it has no part in it."""

    def comes_after(self, queue: Queue, clock: Clock) -> bool:
        """Whether later work of `queue` waits for `clock`."""


@dataclass(slots=True)
class _Free:
    """A free range, with the capture and the clock at its free; other captures may take it at once."""

    low: int
    high: int
    capture: object
    after: Clock


class Pool:
    """Ranges of one device's arena for the captures that share them.

    Parameters
    ----------
    identity : tuple of int
        The token of the pool.
    reserve : callable
        Maps bytes and a queue to a block of the arena.
    """

    def __init__(self, identity: PoolId, reserve: Callable[[int, Queue], Block]) -> None:
        self.id = identity
        self._reserve = reserve
        self._segments: list[Block] = []
        self._free: list[_Free] = []
        self._dropped: deque[tuple[int, int, Queue, bool]] = deque()  # blocks may be dropped at any time in any thread
        self._held: list[tuple[int, int]] = []  # held until the capture ends, for other streams

    def __repr__(self) -> str:
        return f"Pool({self.id[0]}_{self.id[1]}, {self.nbytes:,} bytes)"

    @property
    def nbytes(self) -> int:
        """The bytes taken from the arena."""
        return sum(segment.high - segment.low for segment in self._segments)

    def take(self, nbytes: int, queue: Queue, capture: Recorder) -> Block:
        """Return a block of the smallest free range that captured work of `queue` may use now, or of a new range."""
        self._settle(capture)
        needed = aligned(nbytes)
        fitting = [
            piece
            for piece in self._free
            if piece.high - piece.low >= needed
            and (piece.capture is not capture or capture.comes_after(queue, piece.after))
        ]
        if not fitting:
            self._segments.append(self._reserve(needed, queue))
            low = self._segments[-1].low
            return Block(low, low + needed, queue, self._drop)
        best = min(fitting, key=lambda piece: (piece.high - piece.low, piece.low))
        low, best.low = best.low, best.low + needed
        if best.low == best.high:
            self._free.remove(best)
        return Block(low, low + needed, queue, self._drop)

    def _drop(self, block: Block) -> None:
        self._dropped.append((block.low, block.high, block.queue, bool(block.users)))

    def _settle(self, capture: Recorder) -> None:
        """Free what was dropped, in the order of the queue it was made on."""
        while self._dropped:
            low, high, queue, is_held = self._dropped.popleft()
            if is_held:
                self._held.append((low, high))
            else:
                self._free.append(_Free(low, high, capture, capture.clock_of(queue)))

    def tidy(self) -> None:
        """Free everything dropped between captures, and merge neighbours in a segment."""
        while self._dropped:  # one at a time, because another block may be dropped meanwhile
            low, high, *_ = self._dropped.popleft()
            self._held.append((low, high))
        self._free += [_Free(low, high, None, {}) for low, high in self._held]
        self._held.clear()
        self._merge()

    def _merge(self) -> None:
        starts = {segment.low for segment in self._segments}
        merged: list[_Free] = []
        for piece in sorted(self._free, key=lambda piece: piece.low):
            if merged and merged[-1].high == piece.low and piece.low not in starts:
                merged[-1].high = piece.high
            else:
                merged.append(_Free(piece.low, piece.high, None, {}))
        self._free = merged

    def owns(self, block: Block) -> bool:
        """Whether `block` is memory of this pool."""
        return any(segment.low <= block.low < segment.high for segment in self._segments)

    def used_by(self, queues: Sequence[Queue]) -> None:
        """Record that a replay was submitted to `queues`: the arena gets the ranges back after it."""
        for segment in self._segments:
            for queue in queues:
                segment.used_by(queue)


def pool(sim_device: SimDevice, identity: PoolId) -> Pool:
    """Return the device's pool of that token, made now if nobody holds it."""
    found = sim_device.graph_pools.get(identity)
    if found is None:
        found = sim_device.graph_pools[identity] = Pool(identity, sim_device.reserve)
    return found
