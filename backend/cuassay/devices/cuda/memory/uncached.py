"""An allocator without a cache: each block is a segment, for tools that watch single allocations (compute-sanitizer).

A freed block is released to the driver at the next allocation rather than at once, because a finaliser may run at any
time and releasing waits for the device. Nothing is released while work is captured.
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
    """Blocks of exactly the requested bytes, from `source`.

    They are released inside ``releasing()``, if it yields True.

    `name` is the name of the allocator for watchers.

    Attributes
    ----------
    live : int
        The bytes in use.
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
        """Return a block of `nbytes`, after releasing what was freed. Raises `ArgumentError`, `OutOfMemoryError`."""
        nbytes = checked_nbytes(nbytes)
        with suppress(Exception):  # the next `release_freed` reports errors; this may still succeed
            self.release_freed()
        address = self._source.reserve(nbytes, stream)
        stream_pool = StreamPool(self._pool, stream, _no_miss, lambda: False)
        block = Block(address, nbytes, stream_pool, Segment(address, nbytes, stream_pool, is_small=False))
        block.requested, block.home = nbytes, self
        self.live += nbytes
        if watchers.state.watchers:  # a release is not reported: the driver waits for the device before it
            watchers.tell(Occurrence("memory_taken", self._name, address, stream, nbytes))
        return block

    def append(self, block: Block) -> None:
        """Take a freed block, as a `cuassay.memory.blocks.Home`."""
        self._freed.append(block)
        self.live -= block.nbytes

    def release_freed(self) -> None:
        """Release freed blocks, unless work is being captured."""
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
