"""Blocks and segments: how a range is split and merged, and the four kinds of segments that blocks cover.

A segment is a range of addresses, and its blocks cover it without gaps. If memory comes in pages, large blocks are in
an `Arena`, a `View` maps scattered pages next to each other, and a `SmallSegment` is a part of an arena that serves
small requests. Other modules decide which block serves a request (`fit`, `block_cutter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
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
    "Arena",
    "Block",
    "Home",
    "QuickList",
    "Run",
    "Segment",
    "SmallSegment",
    "View",
    "merge",
    "run_of",
    "split",
    "withhold",
]


class Home(Protocol):
    """Where a live block goes when it is freed: a quick list, or the queue of blocks that other streams use."""

    def append(self, block: Block, /) -> None:
        """Take the block back."""


class _Freed:
    """The home of a block that is not live."""

    def append(self, block: Block, /) -> NoReturn:
        block.home = self
        raise ArgumentError(f"{block!r} is freed twice; free a block once, and drop every reference to it then")


class _Withheld:
    """The home of a range that no request may get."""

    def __init__(self, why: str) -> None:
        self._why = why

    def append(self, block: Block, /) -> NoReturn:
        block.home = self
        raise ArgumentError(f"{block!r} is {self._why}; free only blocks that `malloc` returned")

    def __repr__(self) -> str:
        return self._why


FREED = _Freed()

#: The home of a block that was merged into a neighbour and is no longer part of any segment.
GONE = _Freed()

#: The home of a range whose memory another segment maps, or is about to map.
LENT = _Withheld("lent to another segment")

#: The home of addresses without memory.
HOLE = _Withheld("without memory")


class Block:
    """A range of one segment; `malloc` returns it and `free` takes it.

    Attributes
    ----------
    address, nbytes : int
        The range.
    requested : int
        The requested bytes, at most `nbytes`.
    home : Home
        Where `free` puts it; `FREED` while it is not live.
    quick_list : QuickList or None
        The quick list of its requested size; None while the block is not cut out for any request.
    uses : int
        How often it has served a request since it was cut out.
    is_oversize : bool
        Whether it was above `max_split_size` when it was cut out.
    users : tuple of int
        Other streams whose work must be done before it is reused (``record_stream``).
    events : tuple
        Markers of those streams' work, recorded when it was freed.
    before, after : Block or None
        Its neighbours in the segment.
    stamp : int
        The allocator's clock when it became free; the oldest blocks are released first.
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
        """The stream that it was allocated for."""
        return self.stream_pool.stream

    @property
    def is_live(self) -> bool:
        """Whether it is between `malloc` and `free`."""
        home = self.home
        return home is self.quick_list or home is self.stream_pool.deferred

    @property
    def is_pending(self) -> bool:
        """Whether it is freed and other streams may still use it."""
        return self.home is FREED and bool(self.users)

    @property
    def is_whole(self) -> bool:
        """Whether it covers its segment."""
        return self.after is None and self.segment.first is self

    @property
    def is_gone(self) -> bool:
        """Whether it was merged into a neighbour."""
        return self.home is GONE

    @property
    def state(self) -> str:
        """Its state, as torch's snapshots name it."""
        if self.is_live:
            return "active_allocated"
        return "active_pending_free" if self.users else "inactive"

    def __repr__(self) -> str:
        state = {"active_allocated": "live", "inactive": "free"}.get(self.state, "waiting for other streams")
        state = "gone into a neighbour" if self.is_gone else state
        return f"Block({format_bytes(self.nbytes)} at {self.address:#x}, stream {self.stream}, {state})"


class QuickList(list[Block]):
    """Free blocks that were cut out for requests of one size, and serve the next request of that size.

    Attributes
    ----------
    cut : int
        The number of blocks that are cut out for the size, free or live; at 0 no block can come back.
    """

    __slots__ = ("cut",)

    def __init__(self) -> None:
        self.cut = 0  # list.__init__ is not called, because it has no effect on an empty list


#: `Block.quick_list` of ranges that are neither free nor cut out for a request.
_NOWHERE = QuickList()


class Segment:
    """A range that blocks cover.

    Attributes
    ----------
    held : int
        The bytes of device memory that belong to it.
    first : Block
        Its lowest block; the others follow by `Block.after`.
    is_small : bool
        Whether it serves requests up to 1 MiB.
    is_oversize : bool
        Whether it was counted as oversize when it was added; later changes of the configuration do not change this.
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
        """The bytes of device memory that belong to it."""
        return self.nbytes

    def __iter__(self) -> Iterator[Block]:
        """Yield its blocks, by address."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.after

    def __repr__(self) -> str:
        return f"Segment({format_bytes(self.nbytes)} at {self.address:#x}, stream {self.stream_pool.stream})"


class Arena(Segment):
    """A range of addresses where pages are mapped; its blocks cover it, and blocks without memory are holes.

    Attributes
    ----------
    page : int
        The bytes of each page; each begins at a multiple of them.
    mapped : int
        The bytes of all its pages.
    """

    __slots__ = ("mapped", "page")

    def __init__(self, address: int, nbytes: int, stream_pool: StreamPool, page: int) -> None:
        super().__init__(address, nbytes, stream_pool, is_small=False)
        self.page = page
        self.mapped = 0
        withhold(self.first, HOLE)

    @property
    def held(self) -> int:
        """The bytes of its pages."""
        return self.mapped

    def whole_pages(self, low: int, high: int) -> range:
        """Return the pages that are entirely in ``[low, high)``."""
        return range(-(-low // self.page) * self.page, high // self.page * self.page, self.page)

    def touched_pages(self, low: int, high: int) -> range:
        """Return the pages that ``[low, high)`` touches."""
        return range(low // self.page * self.page, high, self.page)


#: A part of an arena: the arena, the beginning of the part, and the address after its end.
Run = tuple[Arena, int, int]


class SmallSegment(Segment):
    """A lent range of an arena that serves small requests.

    Attributes
    ----------
    backing : Block
        The lent range.
    """

    __slots__ = ("backing",)

    def __init__(self, backing: Block) -> None:
        super().__init__(backing.address, backing.nbytes, backing.stream_pool, is_small=True)
        self.backing = backing

    @property
    def held(self) -> int:
        """0, because the memory belongs to the arena."""
        return 0


class View(Segment):
    """Ranges of arenas, mapped next to each other at an alias.

    Attributes
    ----------
    alias : int
        The alias's address; the view begins in its first page.
    pages : tuple of int
        The pages that the alias maps, by their addresses in arenas, in order.
    runs : tuple of Run
        Where each of its parts is in an arena.
    starts : tuple of int
        Where each run begins in the view.
    pieces : list of (int, Block)
        The blocks that arenas lent to it, each with its address in the view.
    stamp : int
        The allocator's clock when it last served a request.
    """

    __slots__ = ("alias", "pages", "pieces", "runs", "stamp", "starts")

    def __init__(self, alias: int, pages: Sequence[int], blocks: Sequence[Block]) -> None:
        begin = alias + blocks[0].address - pages[0]
        super().__init__(begin, sum(block.nbytes for block in blocks), blocks[0].stream_pool, is_small=False)
        self.alias = alias
        self.pages = tuple(pages)
        self.runs = tuple(map(run_of, blocks))
        self.starts = tuple(accumulate((block.nbytes for block in blocks[:-1]), initial=begin))
        self.pieces = list(zip(self.starts, blocks, strict=True))
        self.stamp = 0

    @property
    def held(self) -> int:
        """0, because the memory belongs to arenas."""
        return 0

    @property
    def is_unused(self) -> bool:
        """Whether it serves no request."""
        return self.first.home is HOLE and self.first.is_whole

    def surrender(self, block: Block) -> list[Block]:
        """Give up the blocks lent for `block`; return them, so that the caller can set them free."""
        low, high, kept, given = block.address, block.address + block.nbytes, [], []
        for at, piece in self.pieces:
            begin, end, behind = max(at, low), min(at + piece.nbytes, high), at + piece.nbytes
            if begin >= end:
                kept.append((at, piece))
                continue
            middle = piece
            if begin > at:
                middle = split(piece, begin - at)
                kept.append((at, piece))
            if end < behind:
                kept.append((end, split(middle, end - begin)))
            given.append(middle)
        self.pieces = kept
        return given


def run_of(block: Block) -> Run:
    """Return where a lent block is. Raises `TypeError` if that is not an arena."""
    arena = block.segment
    if not isinstance(arena, Arena):
        raise TypeError(f"{block!r} lies in {arena!r}, which is not an arena; give a block that an arena lent")
    return arena, block.address, block.address + block.nbytes


def split(block: Block, nbytes: int) -> Block:
    """Shorten `block` to its first `nbytes`; return the rest as a block that is free, or withheld as `block` is."""
    rest = Block(block.address + nbytes, block.nbytes - nbytes, block.stream_pool, block.segment)
    if block.quick_list is _NOWHERE:
        rest.home, rest.quick_list = block.home, _NOWHERE
    rest.before, rest.after = block, block.after
    if block.after is not None:
        block.after.before = rest
    block.after = rest
    block.nbytes = nbytes
    return rest


def withhold(block: Block, why: _Withheld) -> Block:
    """Keep `block`, which is in no list, from all requests: it is `LENT`, or a `HOLE`; return it."""
    block.home, block.quick_list = why, _NOWHERE
    return block


def merge(low: Block, high: Block) -> None:
    """Merge `high`, the neighbour right after `low`, into `low`."""
    low.nbytes += high.nbytes
    low.after = high.after
    if high.after is not None:
        high.after.before = low
    high.before = high.after = None
    high.home = GONE
