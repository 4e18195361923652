"""One stream's part of one pool: its quick lists, its free blocks, and its freed blocks that other streams still use.

A hit is a look-up by the requested size and a `list.pop`: no rounding, no lock, no statistics. `free` is one
`list.append`, so a finaliser may call it at any time and in any thread, even while that thread is inside `malloc`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from cuassay.memory.blocks import FREED, Block, QuickList
from cuassay.memory.fit import BEST_FIT, FitPolicy
from cuassay.memory.free_list import FreeList

if TYPE_CHECKING:
    from cuassay.core.protocols import MemorySource
    from cuassay.memory.history import History
    from cuassay.memory.iteration import IterationDetector
    from cuassay.memory.page_space import PageSpace

__all__ = ["Deferred", "Pool", "StreamPool", "free"]


class Pool:
    """Memory that is separate from the rest: for a graph, or for a user.

    Attributes
    ----------
    id : tuple of int
        ``(0, 0)`` is the default pool.
    use_on_oom : bool
        Whether other pools may take its free blocks when nothing else is left.
    no_split : bool
        Whether each segment serves one request at a time.
    one_handle : bool
        Whether each segment is one piece of memory from the source, as interprocess handles and NCCL's registration
        require; such a segment neither grows nor is stitched.
    use_count : int
        The number of owners; at 0 its free segments are released by the next `empty_cache`.
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
        """Whether its free memory may be released to the device; a private pool's stays while the pool has owners."""
        return self.use_count == 0 or not self.is_private

    def __repr__(self) -> str:
        return f"Pool({self.id[0]}_{self.id[1]}, {self.use_count} owners)"


class Deferred:
    """Freed blocks that other streams may still use, in the order in which they were freed.

    Parameters
    ----------
    stream_pool : StreamPool
        The pool of the blocks.
    is_capturing : callable
        Whether work is being captured: then no event can be recorded, and blocks are held back.

    Attributes
    ----------
    queue : deque of Block
        Blocks with events that mark the end of the other streams' work.
    held : deque of Block
        Blocks that are held back, because events could not be recorded yet.
    """

    __slots__ = ("_is_capturing", "_stream_pool", "held", "history", "queue")

    def __init__(self, stream_pool: StreamPool, is_capturing: Callable[[], bool]) -> None:
        self._stream_pool = stream_pool
        self._is_capturing = is_capturing
        self.queue: deque[Block] = deque()
        self.held: deque[Block] = deque()
        self.history: History | None = None

    def append(self, block: Block) -> None:
        """Take a freed block, and record an event on each stream that uses it.

        If that raises, the block is freed all the same, because the caller may be a finaliser: the block is held back,
        and its events are recorded later.
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
        """Record events for the blocks held back, outside of captures; if that raises, the block stays held back."""
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


#: Where requests look while they are recorded.
_NOTHING: dict[int, QuickList] = {}


class Quick(Protocol):
    """Where a request looks for its quick list."""

    def get(self, nbytes: int, /) -> QuickList | None:
        """Return the quick list for requests of `nbytes`; None makes the request a miss."""


class StreamPool:
    """The memory of one stream in one pool.

    Parameters
    ----------
    pool : Pool
        The pool.
    stream : int
        The stream.
    miss : callable
        Serves a request that no quick list can serve; it gets this object and the bytes.
    is_capturing : callable
        See `Deferred`.
    fit : FitPolicy
        Chooses among the free blocks.

    Attributes
    ----------
    small, large : FreeList
        Free blocks for requests up to 1 MiB, and for larger ones.
    page_space : PageSpace or None
        The arenas of its large blocks, once it has taken memory in pages.
    deferred : Deferred
        Freed blocks that other streams still use.
    last : Block or None
        The block that was cut out last.
    lists : dict of int to QuickList
        The quick lists, by requested size.
    quick : Quick
        Where a request looks for its quick list: `lists`, or `detector` while that observes.
    detector : IterationDetector or None
        Observes the requests after something was stitched.
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
        self,
        pool: Pool,
        stream: int,
        miss: Callable[[StreamPool, int], Block],
        is_capturing: Callable[[], bool],
        fit: FitPolicy = BEST_FIT,
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.small = FreeList(fit)
        self.large = FreeList(fit)
        self.page_space: PageSpace | None = None
        self.deferred = Deferred(self, is_capturing)
        self.last: Block | None = None
        self.detector: IterationDetector | None = None
        self._miss = miss
        self.lists: dict[int, QuickList] = {}
        self.quick: Quick = self.lists

    def malloc(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes` for this stream; see `CachingAllocator.malloc`."""
        try:
            quick_list = self.quick.get(nbytes)  # not [nbytes]: a KeyError would double a miss's cost so far
            if quick_list:
                block = quick_list.pop()
                block.home = quick_list
                block.uses += 1
                return block
        except (IndexError, TypeError):  # another thread took the last one, or `_miss` must reject `nbytes`
            pass
        return self._miss(self, nbytes)

    def reassign(self, block: Block, requested: int) -> None:
        """Cut `block`, which was cut out for another size, out for requests of `requested` bytes; it is live."""
        lists, former = self.lists, block.quick_list
        if former is not None:  # `unassign`, inlined to save a call on every miss at the peak
            former.cut -= 1
            if not former.cut and lists.get(block.requested) is former:
                del lists[block.requested]
        quick_list = lists.get(requested)
        if quick_list is None:
            quick_list = lists.setdefault(requested, QuickList())
        quick_list.cut += 1
        block.requested = requested
        block.uses = 1
        block.quick_list = block.home = quick_list
        self.last = block

    def unassign(self, block: Block) -> None:
        """End that `block` is cut out for a size; a quick list without any block is dropped."""
        quick_list = block.quick_list
        if quick_list is not None:
            quick_list.cut -= 1
            if not quick_list.cut and self.lists.get(block.requested) is quick_list:
                del self.lists[block.requested]
        block.quick_list = None

    def record_to(self, history: History | None) -> None:
        """Record every request and free in `history` from now on (None: nowhere); the caller holds the lock."""
        self.lists = dict(self.lists) if history is None else history.hide(self.lists)
        self.deferred.history = history
        self.observe(self.detector)

    def observe(self, detector: IterationDetector | None) -> None:
        """Let `detector` see every request from now on (None: nobody); the caller holds the lock."""
        self.detector = detector
        self.quick = self.lists if type(self.lists) is dict else _NOTHING  # recorded lists serve no request directly
        if detector is not None:
            detector.lists, self.quick = self.lists, detector

    def drain(self) -> list[Block]:
        """Take every block out of the quick lists."""
        blocks = []
        for quick_list in tuple(filter(None, self.lists.values())):
            try:
                while quick_list:
                    blocks.append(quick_list.pop())
            except IndexError:  # another thread took the last one
                continue
        return blocks

    def free_blocks(self, *, is_small: bool) -> FreeList:
        """Return the free blocks for requests of that size class."""
        return self.small if is_small else self.large

    def __repr__(self) -> str:
        return f"StreamPool(stream {self.stream}, {self.pool!r})"


def free(block: Block) -> None:
    """Free `block`; its reuse is ordered after its stream and after every stream that was recorded for it.

    Raises
    ------
    ArgumentError
        If it is not live.
    """
    home = block.home
    block.home = FREED
    home.append(block)
