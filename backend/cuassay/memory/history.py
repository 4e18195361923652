"""What an allocator did: a ring of events with the callers' stacks, and the stack of every live block.

It costs nothing while it is off. While it is on, `StreamPool.malloc` does not see the quick lists, so each request is a
miss, and misses are recorded. The miss then looks into the quick lists first, so that memory is placed and reused as it
is without a history. The lists that freed blocks go to record each block. A stack is kept as code objects and line
numbers; equal stacks are stored once. `cuassay.memory.snapshot` turns them into text.

Names and meanings follow ``torch.cuda.memory._record_memory_history``.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from time import time_ns
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from cuassay.core import watchers
from cuassay.core.callers import is_ours
from cuassay.errors import ArgumentError
from cuassay.memory.blocks import QuickList

if TYPE_CHECKING:
    from cuassay.memory.blocks import Block, Segment
    from cuassay.memory.stream_pool import StreamPool

__all__ = ["ACTIONS", "Entry", "Frames", "History"]

#: The actions of entries, with torch's names.
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)

#: The events whose stack is kept: none, those of live blocks, also requests in the trace, all.
_CONTEXTS = (None, "state", "alloc", "all")

#: A stack, innermost first: pairs of code and line.
Frames = tuple[tuple[CodeType, int], ...]


class Entry(NamedTuple):
    """One event: `time_ns` since the epoch, sizes in bytes, `frames` empty if no stack was kept.

    In an ``oom`` entry `address` is the number of bytes that were free.
    """

    action: str
    address: int
    nbytes: int
    stream: int
    pool: tuple[int, int]
    time_ns: int
    frames: Frames


class History:
    """The events of one allocator, from the time when it gets this history.

    Parameters
    ----------
    enabled : str
        ``"all"`` keeps events, ``"state"`` only the stacks of live blocks.
    context : str or None
        Which stacks are kept: none, those of live blocks (``"state"``), also requests (``"alloc"``), all (``"all"``).
    stacks : str
        ``"python"`` or ``"all"``: both mean Python's frames, because no C++ of this package allocates.
    max_entries : int
        The most events that are kept; the oldest are dropped.
    skip_actions : collection of str
        Actions that are not kept.

    Raises
    ------
    ArgumentError
        If a value is not allowed.

    Attributes
    ----------
    is_on : bool
        Whether it records, and reports to watchers.
    device : str
        The allocator's name for watchers.
    """

    device = ""

    def __init__(
        self,
        enabled: str = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        skip_actions: Collection[str] = (),
    ) -> None:
        _demand("enabled", enabled, ("state", "all"))
        _demand("context", context, _CONTEXTS)
        _demand("stacks", stacks, ("python", "all"))
        for action in skip_actions:
            _demand("skip_actions", action, ACTIONS)
        if max_entries < 1:
            raise ArgumentError(f"max_entries is a number of events, 1 or more; got {max_entries!r}; correct it")
        level = _CONTEXTS.index(context)
        self._skipped = frozenset(ACTIONS if enabled == "state" else skip_actions)
        self._of_requests, self._of_trace, self._of_all = level >= 1, level >= 2, level >= 3
        self._entries: deque[Entry] = deque(maxlen=min(max_entries, sys.maxsize))
        self._live: dict[int, Frames] = {}
        self._known: dict[Frames, Frames] = {}
        self.is_on = True

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"History({len(self._entries)} events, {'on' if self.is_on else 'off'})"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The events kept, the oldest first."""
        return tuple(self._entries)

    def frames_of(self, address: int) -> Frames:
        """Return the stack that requested the live block at `address`, if it was kept."""
        return self._live.get(address, ())

    def continue_(self, former: History) -> None:
        """Copy what `former` recorded."""
        self._entries.extend(former._entries)
        self._live |= former._live

    # ---------------------------------------------------------------------------------------------------- recording

    def note_malloc(self, block: Block) -> None:
        """Record that `block` was given out."""
        frames = self._stack() if self._of_requests else ()
        self._live[block.address] = frames
        self._add("alloc", block.address, block.nbytes, block.stream_pool, frames if self._of_trace else ())
        self._tell("memory_taken", block)

    def note_free(self, block: Block, *, is_done: bool) -> None:
        """Record that `block` was freed; `is_done` means that no other stream uses it."""
        self._live.pop(block.address, None)
        frames = self._stack() if self._of_all else ()
        self._add("free_requested", block.address, block.nbytes, block.stream_pool, frames)
        if is_done:
            self._add("free_completed", block.address, block.nbytes, block.stream_pool, frames)
        self._tell("memory_returned", block)

    def _tell(self, event: str, block: Block) -> None:
        if self.is_on and watchers.state.watchers:
            watchers.tell_memory(event, self.device, block.address, block.stream_pool.stream, block.nbytes)

    def forget(self, block: Block) -> None:
        """Drop the stack of `block`, which was freed after recording stopped, because its next user is another one."""
        self._live.pop(block.address, None)

    def note_return(self, block: Block) -> None:
        """Record a block about to be merged: other streams are done with it, or its free was not recorded."""
        if block.users:
            self._add("free_completed", block.address, block.nbytes, block.stream_pool, ())
        elif not self.hears(block.quick_list):
            self.note_free(block, is_done=True)

    def note_segment(self, segment: Segment, sign: int) -> None:
        """Record a segment that was added (`sign` 1) or removed (-1)."""
        self.note_range(
            "segment_alloc" if sign > 0 else "segment_free", segment.address, segment.nbytes, segment.stream_pool
        )

    def note_range(self, action: str, address: int, nbytes: int, stream_pool: StreamPool) -> None:
        """Record a range that was added or removed."""
        self._add(action, address, nbytes, stream_pool, self._stack() if self._of_all else ())

    def note_oom(self, nbytes: int, free: int, stream_pool: StreamPool) -> None:
        """Record that there was no room for `nbytes`, with `free` bytes left."""
        self._add("oom", free, nbytes, stream_pool, self._stack() if self._of_trace else ())

    def note_snapshot(self, active: int) -> None:
        """Record that a snapshot was taken, with `active` bytes live or waiting for other streams."""
        if self.is_on and "snapshot" not in self._skipped:
            self._entries.append(Entry("snapshot", 0, active, 0, (0, 0), time_ns(), ()))

    def _add(self, action: str, address: int, nbytes: int, stream_pool: StreamPool, frames: Frames) -> None:
        if self.is_on and action not in self._skipped:
            self._entries.append(
                Entry(action, address, nbytes, stream_pool.stream, stream_pool.pool.id, time_ns(), frames)
            )

    def _stack(self) -> Frames:
        frames = tuple(_frames())
        return self._known.setdefault(frames, frames)

    def hide(self, lists: dict[int, QuickList]) -> dict[int, QuickList]:
        """Wrap `lists` for a stream pool that records: requests find nothing there, and frees to them are recorded."""
        return _HiddenLists(self, lists)

    def serve(self, stream_pool: StreamPool, requested: int) -> Block | None:
        """Serve and record the request without a lock, if a quick list would do so without a history; or return None.

        An `IterationDetector` must see each request under the lock.
        """
        block = self.hit(stream_pool, requested) if stream_pool.detector is None else None
        if block is not None:
            self.note_malloc(block)
        return block

    def hit(self, stream_pool: StreamPool, requested: int) -> Block | None:
        """Make the block live with which a quick list would serve the request without a history; None if none would."""
        lists = stream_pool.lists
        if lists.__class__ is not _HiddenLists:
            return None
        found = dict.get(lists, requested)
        if not found or found.__class__ is not _RecordedList or found.history is not self:
            return None  # the former free of such a block was not recorded
        try:
            block = found.pop()
        except IndexError:  # another thread took the last one
            return None
        block.home = found
        block.uses += 1
        return block

    def hears(self, quick_list: QuickList | None) -> bool:
        """Whether the free of each block in `quick_list` was recorded here."""
        return isinstance(quick_list, _RecordedList) and quick_list.history is self

    def stop(self) -> None:
        """Stop recording; what was recorded stays."""
        self.is_on = False


class _HiddenLists(dict[int, QuickList]):
    """Quick lists that no request finds, so that requests are recorded; blocks freed to them are recorded too."""

    def __init__(self, history: History, lists: dict[int, QuickList]) -> None:
        super().__init__(lists)
        self._history = history

    def get(self, requested: int, default: Any = None) -> None:  # type: ignore[override]
        return None

    def setdefault(self, requested: int, default: Any = None) -> QuickList:
        found = super().get(requested)
        if found is not None and self._history.hears(found):
            return found
        made = _RecordedList(self._history)
        if found is not None:  # live blocks may still be freed to it, and all lists are searched
            super().__setitem__(-1 - next(_numbers), found)
        super().__setitem__(requested, made)
        return made


#: Keys of lists that no longer serve any size; they are negative, unlike requests.
_numbers = count()


class _RecordedList(QuickList):
    """A quick list that records each block that is freed to it."""

    __slots__ = ("history",)

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history

    def append(self, block: Block) -> None:
        if self.history.is_on:
            self.history.note_free(block, is_done=True)
        else:
            self.history.forget(block)
        list.append(self, block)  # super() takes longer


def _frames() -> Iterator[tuple[CodeType, int]]:
    """Yield the stack of the caller of this package, innermost first."""
    frame = sys._getframe(2)
    is_inside = True
    while frame is not None:
        filename = frame.f_code.co_filename
        is_inside = is_inside and is_ours(filename)
        if not is_inside:
            yield frame.f_code, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


def _demand(name: str, value: object, allowed: Iterable[object]) -> None:
    allowed = tuple(allowed)
    if value not in allowed:
        raise ArgumentError(f"{name} is one of {', '.join(map(repr, allowed))}; got {value!r}; choose one")
