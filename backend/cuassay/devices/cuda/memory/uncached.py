"""An allocator without a cache: each block is a segment, for tools that watch single allocations (compute-sanitizer).

A freed block goes back to the driver at the next allocation rather than at once: a finaliser may run at any moment,
and giving back waits for the device. While work is captured nothing goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from cuassay.core import watchers
from cuassay.core.interrupts import took_effect
from cuassay.core.protocols import MemorySource
from cuassay.core.watchers import Occurrence
from cuassay.errors import StateError
from cuassay.memory import Block, Pool, Segment, StreamPool
from cuassay.memory.config import checked_nbytes

__all__ = ["UncachedAllocator"]


class UncachedAllocator:
    """Blocks of exactly the bytes asked for, from `source`; they go back inside ``releasing()``, if that yields True.

    `name` is how watchers know it.

    Attributes
    ----------
    live : int
        Bytes in use.
    """

    def __init__(
        self, source: MemorySource, releasing: Callable[[], AbstractContextManager[bool]], name: str = ""
    ) -> None:
        self._source, self._name = source, name
        self._releasing = releasing
        self._pool = Pool(0, source)
        self._freed: deque[Block] = deque()
        self.live = 0

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """A block of `nbytes`; what was freed before goes back first. Raises `ArgumentError`, `OutOfMemoryError`."""
        nbytes = checked_nbytes(nbytes)
        with suppress(Exception):  # errors are left to the next `release_freed`; there may be room all the same
            self.release_freed()
        address = self._source.reserve(nbytes, stream)
        stream_pool = StreamPool(self._pool, stream, _no_miss, lambda: False)
        block = Block(address, nbytes, stream_pool, Segment(address, nbytes, stream_pool, is_small=False))
        block.requested, block.home = nbytes, self
        self.live += nbytes
        if watchers.state.watchers:  # the end is not told: the driver waits for the device before it takes memory back
            watchers.tell(Occurrence("memory_taken", self._name, address, stream, nbytes))
        return block

    def append(self, block: Block) -> None:
        """Take a freed block: what a `cuassay.memory.blocks.Home` does."""
        self._freed.append(block)
        self.live -= block.nbytes

    def release_freed(self) -> None:
        """Give back what was freed, unless work is captured."""
        with self._releasing() as may_release:
            while may_release and self._freed:
                block = self._freed.popleft()
                try:
                    self._source.release(block.address)
                except BaseException as error:
                    if not took_effect(error):
                        self._freed.append(block)
                    raise


def _no_miss(stream_pool: StreamPool, nbytes: int) -> Block:
    raise StateError(f"{stream_pool!r} keeps no blocks to serve {nbytes:,} bytes from; ask `UncachedAllocator.malloc`")
