"""One stream's part of one pool: the quick lists in front, the free blocks behind, and those other streams use.

A hit is a look-up by the requested size and a `list.pop`: no rounding, no lock, no statistics. `free` is one
`list.append`, so a finaliser may call it at any moment, from any thread, also within `malloc`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from cuassay.memory.blocks import FREED, Block, FreeList, QuickList

if TYPE_CHECKING:
    from cuassay.core.protocols import MemorySource
    from cuassay.memory.history import History
    from cuassay.memory.iteration import IterationDetector
    from cuassay.memory.page_space import PageSpace

__all__ = ["Deferred", "Pool", "StreamPool", "free"]


class Pool:
    """Memory apart from the rest: for a graph, or for a user.

    Attributes
    ----------
    id : tuple of int
        ``(0, 0)`` is the default pool.
    use_on_oom : bool
        Whether others may take its free blocks when nothing else is left.
    no_split : bool
        Whether each segment serves one request at a time.
    one_handle : bool
        Whether each segment is what the source gave in one piece, as interprocess handles and NCCL's registration need
        it; it neither grows nor is stitched.
    use_count : int
        Owners; at 0 its free segments go back with the next `empty_cache`.
    """

    __slots__ = ("id", "no_split", "one_handle", "source", "stream_pools", "use_count", "use_on_oom")

    def __init__(
        self,
        number: int,
        source: MemorySource,
        *,
        use_on_oom: bool = False,
        no_split: bool = False,
        one_handle: bool = False,
    ) -> None:
        self.id = (0, number)
        self.source = source
        self.use_on_oom = use_on_oom
        self.no_split = no_split
        self.one_handle = one_handle
        self.use_count = 1
        self.stream_pools: dict[int, StreamPool] = {}

    @property
    def is_private(self) -> bool:
        """False for the default pool."""
        return self.id != (0, 0)

    @property
    def may_shrink(self) -> bool:
        """Whether its free memory may go back to the device: a private pool's stays while it has owners."""
        return self.use_count == 0 or not self.is_private

    def __repr__(self) -> str:
        return f"Pool({self.id[0]}_{self.id[1]}, {self.use_count} owners)"


class Deferred:
    """Freed blocks that other streams may still be at work on, in the order they were freed.

    Parameters
    ----------
    stream_pool : StreamPool
        Whose blocks they are.
    is_capturing : callable
        True while work is captured, not run: then no marker can be recorded, and blocks are held back.

    Attributes
    ----------
    queue : deque of Block
        Blocks whose users are marked.
    held : deque of Block
        Blocks that are held back, because their users could not be marked yet.
    """

    __slots__ = ("_is_capturing", "_stream_pool", "held", "history", "queue")

    def __init__(self, stream_pool: StreamPool, is_capturing: Callable[[], bool]) -> None:
        self._stream_pool = stream_pool
        self._is_capturing = is_capturing
        self.queue: deque[Block] = deque()
        self.held: deque[Block] = deque()
        self.history: History | None = None

    def append(self, block: Block) -> None:
        """Take a freed block, and mark how far its users are.

        Where that raises, the block is freed all the same, for its owner may be a finaliser: it is held back, and
        marked later.
        """
        if self.history is not None:
            self.history.note_free(block, is_done=False)
        if self._is_capturing():
            self.held.append(block)
        else:
            self._record(block)

    def _record(self, block: Block) -> None:
        try:
            block.events = tuple(map(self._stream_pool.pool.source.record, block.users))
        except BaseException:
            self.held.append(block)
            raise
        self.queue.append(block)

    def unhold(self) -> None:
        """Mark the users of what is held back, outside of captures; what cannot be marked stays held back."""
        for _ in range(len(self.held)):
            try:
                block = self.held.popleft()
            except IndexError:  # another thread took the last one
                return
            self._record(block)

    def __len__(self) -> int:
        return len(self.queue) + len(self.held)

    def __iter__(self) -> Iterator[Block]:
        yield from tuple(self.queue)
        yield from tuple(self.held)


class Quick(Protocol):
    """Where a request looks for its quick list."""

    def get(self, nbytes: int, /) -> QuickList | None:
        """The list of what was cut out for so many bytes; None: the request is a miss."""


class StreamPool:
    """The memory of one stream in one pool.

    Parameters
    ----------
    pool : Pool
        Where it belongs.
    stream : int
        The stream's number, as the source knows it.
    miss : callable
        Gives a block of at least so many bytes when no quick list has one.

    Attributes
    ----------
    lists : dict of int to QuickList
        The quick lists, by the bytes that are asked for.
    quick : Quick
        The same; or the detector, while each request is to be seen.
    last : Block or None
        What was cut out last.
    detector : IterationDetector or None
        What watches the requests, where something was stitched.
    """

    __slots__ = (
        "_miss",
        "deferred",
        "detector",
        "large",
        "last",
        "lists",
        "page_space",
        "pool",
        "quick",
        "small",
        "stream",
    )

    def __init__(
        self, pool: Pool, stream: int, miss: Callable[[StreamPool, int], Block], is_capturing: Callable[[], bool]
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.small = FreeList()
        self.large = FreeList()
        self.page_space: PageSpace | None = None
        self.deferred = Deferred(self, is_capturing)
        self.last: Block | None = None
        self.detector: IterationDetector | None = None
        self._miss = miss
        self.lists: dict[int, QuickList] = {}
        self.quick: Quick = self.lists

    def malloc(self, nbytes: int) -> Block:
        """A block of at least `nbytes` for this stream; see `CachingAllocator.malloc`."""
        try:
            quick_list = self.quick.get(
                nbytes
            )  # not [nbytes]: a KeyError costs as much as the rest of a miss's way here
            if quick_list:
                block = quick_list.pop()
                block.home = quick_list
                block.uses += 1
                return block
        except (IndexError, TypeError):  # another thread took the last one, or `nbytes` is no key: the miss tells
            pass
        return self._miss(self, nbytes)

    def assign(self, block: Block, requested: int) -> None:
        """Cut `block` out for requests of `requested` bytes; it is live."""
        quick_list = self.lists.get(requested)
        if quick_list is None:
            quick_list = self.lists.setdefault(requested, QuickList())
        quick_list.cut += 1
        block.requested = requested
        block.uses = 1
        block.quick_list = block.home = quick_list
        self.last = block

    def unassign(self, block: Block) -> None:
        """`block` serves no size any more; a size that none serves is forgotten."""
        quick_list = block.quick_list
        if quick_list is not None:
            quick_list.cut -= 1
            if not quick_list.cut and self.lists.get(block.requested) is quick_list:
                del self.lists[block.requested]
        block.quick_list = None

    def record_to(self, history: History | None) -> None:
        """Tell `history` of every request and free from here, None: nobody; the caller holds the lock."""
        self.lists = dict(self.lists) if history is None else history.hide(self.lists)
        self.deferred.history = history
        self.watch(self.detector)

    def watch(self, detector: IterationDetector | None) -> None:
        """Let `detector` see every request from here, None: no one; the caller holds the lock."""
        self.detector = detector
        self.quick = self.lists
        if detector is not None:
            detector.lists, self.quick = self.lists, detector

    def drain(self) -> list[Block]:
        """Every block out of the quick lists."""
        blocks = []
        for quick_list in tuple(filter(None, self.lists.values())):
            try:
                while quick_list:
                    blocks.append(quick_list.pop())
            except IndexError:  # another thread took the last one
                continue
        return blocks

    def free_blocks(self, *, is_small: bool) -> FreeList:
        """The free blocks behind requests of that size."""
        return self.small if is_small else self.large

    def __repr__(self) -> str:
        return f"StreamPool(stream {self.stream}, {self.pool!r})"


def free(block: Block) -> None:
    """Give `block` back; in the order of its stream, and of those it was recorded for.

    Raises
    ------
    ArgumentError
        If it is not live.
    """
    home = block.home
    block.home = FREED
    home.append(block)
