"""Other allocators' policies over integers, for comparison in replays: what they reserve, not how fast they are.

Each is best fit with immediate merging among every stream's own free blocks. They differ in how sizes are rounded, how
much is taken from the device at a time, and which remainders are split off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cuassay.memory.blocks import Block, QuickList, Segment, merge, split
from cuassay.memory.config import MIB, MIN_BLOCK, SMALL_REQUEST, SMALL_SEGMENT, AllocatorConfig
from cuassay.memory.fit import BEST_FIT, FitPolicy
from cuassay.memory.free_list import FreeList
from cuassay.memory.integer_source import IntegerSource
from cuassay.memory.stream_pool import Pool, StreamPool

__all__ = ["PEERS", "Peer", "PeerModel"]

_TORCH = AllocatorConfig()

#: The bytes by which torch's expandable segments grow for requests above 1 MiB.
_LARGE_STEP = 20 * MIB

#: The addresses of one stream and pool, as a power of two: more than any device has.
_ROOM = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One policy.

    Attributes
    ----------
    segment_size : callable
        The bytes taken from the device for a block of that size.
    least_rest : callable
        The smallest remainder that is split off; it is called with whether the block is of the small pool.
    has_pools : bool
        Whether requests up to 1 MiB have a separate pool.
    grows : bool
        Whether new memory directly follows the last, so that the two merge.
    fit : FitPolicy
        Chooses among free blocks.
    """

    segment_size: Callable[[int], int]
    least_rest: Callable[[bool], int]
    has_pools: bool = True
    grows: bool = False
    fit: FitPolicy = BEST_FIT


def _rounded(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step


#: The peers, by the names of ``cuassay memory replay --policy``.
PEERS: Mapping[str, Peer] = {
    "segments": Peer(
        segment_size=_TORCH.segment_size,
        least_rest=lambda is_small: MIN_BLOCK if is_small else SMALL_REQUEST + MIN_BLOCK,
    ),
    "expandable": Peer(
        segment_size=lambda nbytes: _rounded(nbytes, SMALL_SEGMENT if nbytes <= SMALL_REQUEST else _LARGE_STEP),
        least_rest=lambda _: MIN_BLOCK,
        grows=True,
    ),
    "cupy": Peer(segment_size=lambda nbytes: nbytes, least_rest=lambda _: MIN_BLOCK, has_pools=False),
}


class PeerModel:
    """An allocator that follows one peer's policy.

    Attributes
    ----------
    live_peak, reserved_peak : int
        The most bytes that were requested, and taken from the device, at the same time.
    driver_calls : int
        How often the device was called.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._pool = Pool(0, IntegerSource())
        self._stream_pools: dict[tuple[int, bool], tuple[StreamPool, FreeList]] = {}
        self._ends: dict[tuple[int, bool], Block] = {}
        self._next: dict[tuple[int, bool], int] = {}
        self._live = 0
        self.live_peak = self.reserved_peak = self.driver_calls = 0

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """Return a block of at least `nbytes`."""
        size = max(_rounded(nbytes, MIN_BLOCK), MIN_BLOCK)
        where = (stream, self._peer.has_pools and size <= SMALL_REQUEST)
        if where not in self._stream_pools:
            self._stream_pools[where] = self._stream_pool(stream), FreeList(self._peer.fit)
        stream_pool, free_blocks = self._stream_pools[where]
        block = free_blocks.take(size, lambda *_: True) or self._grow(where, stream_pool, free_blocks, size)
        if block.nbytes - size >= self._peer.least_rest(where[1]):
            rest = split(block, size)
            free_blocks.add(rest)
            if self._ends.get(where) is block:
                self._ends[where] = rest
        block.requested, block.quick_list = nbytes, QuickList()
        self._live += nbytes
        self.live_peak = max(self.live_peak, self._live)
        return block

    def _stream_pool(self, stream: int) -> StreamPool:
        return StreamPool(
            self._pool,
            stream,
            lambda stream_pool, _: Block(0, 0, stream_pool, Segment(0, 0, stream_pool, is_small=False)),
            lambda: False,
        )

    def _grow(self, where: tuple[int, bool], stream_pool: StreamPool, free_blocks: FreeList, size: int) -> Block:
        end = self._ends.get(where) if self._peer.grows else None
        free_end = 0 if end is None or end.quick_list is not None else end.nbytes
        whole = self._peer.segment_size(size - free_end)
        self.driver_calls += 1
        self.reserved_peak += whole
        address = self._next.setdefault(where, (len(self._next) + 1) << _ROOM)
        self._next[where] += whole + (0 if self._peer.grows else SMALL_SEGMENT)
        block = Segment(address, whole, stream_pool, is_small=where[1]).first
        if end is not None:
            block.segment, block.before, end.after = end.segment, end, block
        if end is not None and free_end:
            free_blocks.remove(end)
            merge(end, block)
            block = end
        self._ends[where] = block
        return block

    def free(self, block: Block) -> None:
        """Free `block`, and merge it with its neighbours."""
        where = (block.stream_pool.stream, block.segment.is_small)
        free_blocks = self._stream_pools[where][1]
        self._live -= block.requested
        block.quick_list = None
        for low, high in ((block, block.after), (block.before, block)):
            if low is not None and high is not None and low.quick_list is None and high.quick_list is None:
                free_blocks.remove(high if low is block else low)
                merge(low, high)
                block = low
                if self._ends.get(where) is high:
                    self._ends[where] = low
        free_blocks.add(block)

    def peaks(self) -> tuple[int, int]:
        """Return the most bytes that were requested, and reserved, at the same time."""
        return self.live_peak, self.reserved_peak
