"""The free blocks of one stream and size class, sorted by size and then address; a fit policy chooses among them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from cuassay.memory.blocks import Block
from cuassay.memory.fit import BEST_FIT, FitPolicy

__all__ = ["FreeList"]

#: Sizes and addresses are combined into one integer, so that C compares them; an address has fewer bits than this.
_ADDRESS_BITS = 64


class FreeList:
    """The free blocks in sorted order.

    Parameters
    ----------
    fit : FitPolicy
        Chooses the block that serves a request.

    Attributes
    ----------
    keys : list of int
        The blocks' sizes and addresses, sorted; a plain attribute, so that readers save a call.
    """

    __slots__ = ("_blocks", "_find", "_fit", "keys")

    def __init__(self, fit: FitPolicy = BEST_FIT) -> None:
        self.keys: list[int] = []
        self._blocks: list[Block] = []
        self._fit = fit
        self._find = fit.find

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Block]:
        """Iterate from the smallest block to the largest."""
        return iter(self._blocks)

    def __reversed__(self) -> Iterator[Block]:
        """Iterate from the largest block to the smallest."""
        return reversed(self._blocks)

    def add(self, block: Block) -> Block:
        """Insert a free block, and return it."""
        key = block.nbytes << _ADDRESS_BITS | block.address
        position = bisect_left(self.keys, key)
        self.keys.insert(position, key)
        self._blocks.insert(position, block)
        return block

    def remove(self, block: Block) -> None:
        """Remove a block; it may be missing if an interrupted release removed it before."""
        position = bisect_left(self.keys, block.nbytes << _ADDRESS_BITS | block.address)
        if position < len(self.keys) and self._blocks[position] is block:
            del self.keys[position], self._blocks[position]

    def at_least(self, nbytes: int) -> list[Block]:
        """Return all blocks of at least `nbytes`, the smallest first."""
        return self._blocks[bisect_left(self.keys, nbytes << _ADDRESS_BITS) :]

    def peek(self, nbytes: int) -> Block | None:
        """Return the block that would serve a request of `nbytes`, without removing it."""
        position = self._find(self.keys, nbytes << _ADDRESS_BITS)
        return self._blocks[position] if position < len(self.keys) else None

    def take(self, nbytes: int, may_serve: Callable[[int, int], bool]) -> Block | None:
        """Remove and return the block that the policy chooses for `nbytes`, if ``may_serve(nbytes, its size)``."""
        position = self._find(self.keys, nbytes << _ADDRESS_BITS)
        if position == len(self.keys) or not may_serve(nbytes, self._blocks[position].nbytes):
            return None
        del self.keys[position]
        return self._blocks.pop(position)

    def cut(self, nbytes: int, unit: int = 1) -> Block | None:
        """Take `nbytes` from the low end of the block that the policy chooses, if `unit` divides its address.

        The remainder stays here. It usually keeps its position, which saves a search.
        """
        keys, blocks = self.keys, self._blocks
        position = self._find(keys, nbytes << _ADDRESS_BITS)
        if position == len(keys):
            return None
        rest = blocks[position]
        address, left = rest.address, rest.nbytes - nbytes
        if address % unit:
            return None
        if not left:
            del keys[position], blocks[position]
            return rest
        block = Block(address, nbytes, rest.stream_pool, rest.segment)
        before = block.before = rest.before
        if before is None:
            rest.segment.first = block
        else:
            before.after = block
        block.after, rest.before = rest, block
        rest.address, rest.nbytes = address + nbytes, left
        key = left << _ADDRESS_BITS | rest.address
        if position and keys[position - 1] > key:
            self._move(position, key)
        else:
            keys[position] = key
        return block

    def refit(self, block: Block, nbytes: int) -> bool:
        """Move the border between `block`, which is in no list, and the free block after it, so that it has `nbytes`.

        Return False without changing anything if there is no free block after it, or if the policy would rather take
        another block for `nbytes` than the two together.
        """
        rest = block.after
        if rest is None or rest.quick_list is not None:
            return False
        keys, blocks, whole = self.keys, self._blocks, block.nbytes + rest.nbytes
        if whole <= nbytes:
            return False
        position = self._find(keys, nbytes << _ADDRESS_BITS)
        if position == len(keys) or blocks[position] is not rest:
            if position < len(keys) and not self._fit.prefers(whole, blocks[position].nbytes):
                return False
            position = bisect_left(keys, rest.nbytes << _ADDRESS_BITS | rest.address)
        block.nbytes = nbytes
        rest.address, rest.nbytes = block.address + nbytes, whole - nbytes
        key = rest.nbytes << _ADDRESS_BITS | rest.address
        if (position and keys[position - 1] > key) or (position + 1 < len(keys) and keys[position + 1] < key):
            self._move(position, key)
        else:
            keys[position] = key
        return True

    def _move(self, position: int, key: int) -> None:
        """Move the block at `position` to the place of its new key."""
        block = self._blocks.pop(position)
        del self.keys[position]
        position = bisect_left(self.keys, key)
        self.keys.insert(position, key)
        self._blocks.insert(position, block)
