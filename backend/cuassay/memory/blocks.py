"""One block and its neighbours: a range of a segment, how it is split and merged, and the free blocks in order.

A segment is what a source gave in one piece; its blocks lie side by side and cover it. Which block to take and when to
split is `cuassay.memory.block_cutter`'s business, when to ask for more `cuassay.memory.caching`'s.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from cuassay.core.units import format_bytes
from cuassay.errors import ArgumentError

if TYPE_CHECKING:
    from cuassay.memory.stream_pool import StreamPool

__all__ = [
    "FREED",
    "GONE",
    "HOLE",
    "LENT",
    "Block",
    "FreeList",
    "Home",
    "QuickList",
    "Segment",
    "merge",
    "split",
    "withhold",
]

#: Orders free blocks by size, then by address, as one integer: C compares it, and `bisect` stays in C.
_ADDRESS_BITS = 64


class Home(Protocol):
    """Where a live block goes when it is freed: its quick list, or the queue of those that other streams use."""

    def append(self, block: Block, /) -> None:
        """Take the block back."""


class _Freed:
    """The home of a block that is not live."""

    def append(self, block: Block, /) -> NoReturn:
        block.home = self
        raise ArgumentError(f"{block!r} is freed twice; free what `malloc` gave once, and forget it then")


class _Withheld:
    """The home of a range that nobody asked for, and that no request may have."""

    def __init__(self, why: str) -> None:
        self._why = why

    def append(self, block: Block, /) -> NoReturn:
        block.home = self
        raise ArgumentError(f"{block!r} is {self._why}; free what `malloc` gave")

    def __repr__(self) -> str:
        return self._why


FREED = _Freed()

#: The home of a block that was merged into a neighbour: nothing is left of it.
GONE = _Freed()

#: Its memory is shown elsewhere: it is the backing of a segment made out of it, or about to be.
LENT = _Withheld("lent to another segment")

#: Addresses without memory.
HOLE = _Withheld("without memory")


class Block:
    """A range of one segment; what `malloc` gives and `free` takes.

    Attributes
    ----------
    address, nbytes : int
        The range.
    requested : int
        Bytes that were asked for, at most `nbytes`.
    home : Home
        Where `free` puts it; `FREED` while it is not live.
    quick_list : QuickList or None
        The quick list of its requested size; None while the block is not cut out for any request.
    uses : int
        How often it was given out since it was cut.
    is_oversize : bool
        Whether it was above the size that is never split when it was cut.
    users : tuple of int
        Other streams whose work its reuse must come after (``record_stream``).
    events : tuple
        Markers of those streams' work, taken when it was freed.
    before, after : Block or None
        Its neighbours in the segment.
    stamp : int
        The allocator's clock when it became free; old ones are collected first.
    """

    __slots__ = (
        "address",
        "after",
        "before",
        "events",
        "home",
        "is_oversize",
        "nbytes",
        "quick_list",
        "requested",
        "segment",
        "stamp",
        "stream_pool",
        "users",
        "uses",
    )

    def __init__(self, address: int, nbytes: int, stream_pool: StreamPool, segment: Segment) -> None:
        self.address = address
        self.nbytes = nbytes
        self.stream_pool = stream_pool
        self.segment = segment
        self.requested = 0
        self.home: Home = FREED
        self.quick_list: QuickList | None = None
        self.uses = 0
        self.is_oversize = False
        self.users: tuple[int, ...] = ()
        self.events: tuple[Any, ...] = ()
        self.before: Block | None = None
        self.after: Block | None = None
        self.stamp = 0

    @property
    def stream(self) -> int:
        """The stream it was allocated for."""
        return self.stream_pool.stream

    @property
    def is_live(self) -> bool:
        """True between `malloc` and `free`."""
        home = self.home
        return home is self.quick_list or home is self.stream_pool.deferred

    @property
    def is_pending(self) -> bool:
        """True when it is freed, and other streams may still be at work on it."""
        return self.home is FREED and bool(self.users)

    @property
    def is_whole(self) -> bool:
        """True when it is all of its segment."""
        return self.after is None and self.segment.first is self

    @property
    def is_gone(self) -> bool:
        """True when it was merged into a neighbour."""
        return self.home is GONE

    @property
    def state(self) -> str:
        """In the words of torch's snapshots."""
        if self.is_live:
            return "active_allocated"
        return "active_pending_free" if self.users else "inactive"

    def __repr__(self) -> str:
        state = {"active_allocated": "live", "inactive": "free"}.get(self.state, "waiting for other streams")
        state = "gone into a neighbour" if self.is_gone else state
        return f"Block({format_bytes(self.nbytes)} at {self.address:#x}, stream {self.stream}, {state})"


class QuickList(list[Block]):
    """A quick list: free blocks that were cut out for requests of one size.

    Attributes
    ----------
    cut : int
        Blocks that are cut out for the size, here or live: 0 when no block can come back.
    """

    __slots__ = ("cut",)

    def __init__(self) -> None:
        self.cut = 0  # list's own constructor is left out: it adds nothing to an empty one, and a miss would pay for it


#: What `Block.quick_list` is for ranges that are not free, and cut out for no request either.
_NOWHERE = QuickList()


class Segment:
    """A range that blocks cover: what a source gave in one piece, or what stitching made (`cuassay.memory.page_space`).

    Attributes
    ----------
    held : int
        Bytes of the device that are its own.
    first : Block
        Its lowest block; the others follow by `Block.after`.
    is_small : bool
        True in the pool of requests up to 1 MiB.
    is_oversize : bool
        True where it was counted so when it came, whatever the configuration says by now.
    """

    __slots__ = ("address", "first", "is_oversize", "is_small", "nbytes", "stream_pool")

    def __init__(self, address: int, nbytes: int, stream_pool: StreamPool, *, is_small: bool) -> None:
        self.address = address
        self.nbytes = nbytes
        self.stream_pool = stream_pool
        self.is_small = is_small
        self.is_oversize = False
        self.first = Block(address, nbytes, stream_pool, self)

    @property
    def held(self) -> int:
        """Bytes of the device that are its own."""
        return self.nbytes

    def __iter__(self) -> Iterator[Block]:
        """Its blocks, by address."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.after

    def __repr__(self) -> str:
        return f"Segment({format_bytes(self.nbytes)} at {self.address:#x}, stream {self.stream_pool.stream})"


class FreeList:
    """Free blocks of one stream and pool, ordered by size and then address."""

    __slots__ = ("_blocks", "_keys")

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._blocks: list[Block] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Block]:
        """From the smallest to the largest."""
        return iter(self._blocks)

    def __reversed__(self) -> Iterator[Block]:
        """From the largest to the smallest."""
        return reversed(self._blocks)

    def add(self, block: Block) -> Block:
        """Put a free block in its place; gives it."""
        key = block.nbytes << _ADDRESS_BITS | block.address
        position = bisect_left(self._keys, key)
        self._keys.insert(position, key)
        self._blocks.insert(position, block)
        return block

    def remove(self, block: Block) -> None:
        """Take this block out; it is here."""
        position = bisect_left(self._keys, block.nbytes << _ADDRESS_BITS | block.address)
        del self._keys[position]
        del self._blocks[position]

    def candidates(self, nbytes: int, count: int | None = None) -> list[Block]:
        """The smallest blocks of at least `nbytes`, so many (None: all)."""
        position = bisect_left(self._keys, nbytes << _ADDRESS_BITS)
        return self._blocks[position : None if count is None else position + count]

    def take_best(self, nbytes: int, may_serve: Callable[[int, int], bool]) -> Block | None:
        """Take out the smallest block of at least `nbytes`, the lowest among equals, if it may serve so few."""
        position = bisect_left(self._keys, nbytes << _ADDRESS_BITS)
        if position == len(self._keys) or not may_serve(nbytes, self._blocks[position].nbytes):
            return None
        del self._keys[position]
        return self._blocks.pop(position)

    def cut(self, nbytes: int, unit: int = 1) -> Block | None:
        """Take `nbytes` from the low end of the smallest block that has them, if `unit` divides its address.

        What is left stays here, mostly in its place: that saves the search for a new one.
        """
        keys, blocks = self._keys, self._blocks
        position = bisect_left(keys, nbytes << _ADDRESS_BITS)
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
        """Make `block`, which is in no list, `nbytes` long at the cost of the free block behind it, or to its good.

        Where there is none, or what both make together is not the best fit, False, and nothing is changed.
        """
        rest = block.after
        if rest is None or rest.quick_list is not None:
            return False
        keys, blocks, whole = self._keys, self._blocks, block.nbytes + rest.nbytes
        position = bisect_left(keys, nbytes << _ADDRESS_BITS)
        if whole <= nbytes:
            return False
        if position == len(keys) or blocks[position] is not rest:
            if position < len(keys) and blocks[position].nbytes < whole:
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
        """The block there has another key now."""
        block = self._blocks.pop(position)
        del self._keys[position]
        position = bisect_left(self._keys, key)
        self._keys.insert(position, key)
        self._blocks.insert(position, block)


def split(block: Block, nbytes: int) -> Block:
    """Shorten `block` to its first `nbytes`; gives the rest as a block of its own."""
    rest = Block(block.address + nbytes, block.nbytes - nbytes, block.stream_pool, block.segment)
    rest.before, rest.after = block, block.after
    if block.after is not None:
        block.after.before = rest
    block.after = rest
    block.nbytes = nbytes
    return rest


def withhold(block: Block, why: _Withheld) -> None:
    """Let no request have `block`, which is in no list: it is `LENT`, or a `HOLE`."""
    block.home, block.quick_list = why, _NOWHERE


def merge(low: Block, high: Block) -> None:
    """Let `low` take in `high`, the neighbour right after it."""
    low.nbytes += high.nbytes
    low.after = high.after
    if high.after is not None:
        high.after.before = low
    high.before = high.after = None
    high.home = GONE
