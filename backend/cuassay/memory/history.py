"""What an allocator did: a ring of events with the callers' stacks, and the stack of every live block.

It costs nothing while it is off. While it is on, `StreamPool.malloc` does not see the quick lists, so each request is a
miss, and a miss is recorded. The miss then looks into them first, so that memory is placed and reused as it is without
a history. The lists that freed blocks go to record each block. A stack is kept as code objects and line numbers; equal
stacks are kept once. `cuassay.memory.snapshot` turns them into text.

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
from cuassay.core.watchers import Occurrence
from cuassay.errors import ArgumentError
from cuassay.memory.blocks import QuickList

if TYPE_CHECKING:
    from cuassay.memory.blocks import Block, Segment
    from cuassay.memory.stream_pool import StreamPool

__all__ = ["ACTIONS", "Entry", "Frames", "History"]

#: The actions of entries, under torch's names.
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

#: For which events a stack is kept: those of live blocks only, requests in the trace too, everything.
_CONTEXTS = (None, "state", "alloc", "all")

#: A stack, innermost first: code and line.
Frames = tuple[tuple[CodeType, int], ...]


class Entry(NamedTuple):
    """One event: `time_ns` since the epoch, sizes in bytes, `frames` empty if no stack was kept.

    In an ``oom`` `address` is the number of bytes that were free.
    """

    action: str
    address: int
    nbytes: int
    stream: int
    pool: tuple[int, int]
    time_ns: int
    frames: Frames


class History:
    """The events of one allocator, from the moment it is given to it.

    Parameters
    ----------
    enabled : str
        ``"all"`` keeps events, ``"state"`` only the stacks of live blocks.
    context : str or None
        Stacks are kept of: nothing, live blocks (``"state"``), requests too (``"alloc"``), every event (``"all"``).
    stacks : str
        ``"python"`` or ``"all"``: both mean Python's frames, because this package has no C++ that allocates.
    max_entries : int
        Events kept; the oldest go.
    skip_actions : collection of str
        Actions that are not kept.

    Raises
    ------
    ArgumentError
        If a value is none of these.

    Attributes
    ----------
    is_on : bool
        Whether it records, and tells watchers.
    device : str
        How watchers know the allocator.
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
        """The stack that asked for the live block at `address`, where it was kept."""
        return self._live.get(address, ())

    def continue_(self, former: History) -> None:
        """Copy what `former` recorded."""
        self._entries.extend(former._entries)
        self._live |= former._live

    # ---------------------------------------------------------------------------------------------------- recording

    def note_malloc(self, block: Block) -> None:
        """`block` was given out."""
        frames = self._stack() if self._of_requests else ()
        self._live[block.address] = frames
        self._add("alloc", block.address, block.nbytes, block.stream_pool, frames if self._of_trace else ())
        self._tell("memory_taken", block)

    def note_free(self, block: Block, *, is_done: bool) -> None:
        """`block` was freed; `is_done` where no other stream uses it."""
        self._live.pop(block.address, None)
        frames = self._stack() if self._of_all else ()
        self._add("free_requested", block.address, block.nbytes, block.stream_pool, frames)
        if is_done:
            self._add("free_completed", block.address, block.nbytes, block.stream_pool, frames)
        self._tell("memory_returned", block)

    def _tell(self, event: str, block: Block) -> None:
        if self.is_on and watchers.state.watchers:
            watchers.tell(Occurrence(event, self.device, block.address, block.stream_pool.stream, block.nbytes))

    def forget(self, block: Block) -> None:
        """`block` was freed after recording stopped: drop its stack, because the next user is another one."""
        self._live.pop(block.address, None)

    def note_return(self, block: Block) -> None:
        """`block` is about to be merged: other streams are done with it, or its free was not recorded."""
        if block.users:
            self._add("free_completed", block.address, block.nbytes, block.stream_pool, ())
        elif not self.hears(block.quick_list):
            self.note_free(block, is_done=True)

    def note_segment(self, segment: Segment, sign: int) -> None:
        """A segment came (`sign` 1) or went (-1)."""
        self.note_range(
            "segment_alloc" if sign > 0 else "segment_free", segment.address, segment.nbytes, segment.stream_pool
        )

    def note_range(self, action: str, address: int, nbytes: int, stream_pool: StreamPool) -> None:
        """A range came, or went."""
        self._add(action, address, nbytes, stream_pool, self._stack() if self._of_all else ())

    def note_oom(self, nbytes: int, free: int, stream_pool: StreamPool) -> None:
        """There was no room for `nbytes`; `free` bytes were left."""
        self._add("oom", free, nbytes, stream_pool, self._stack() if self._of_trace else ())

    def note_snapshot(self, active: int) -> None:
        """A snapshot was taken; `active` bytes were live, or waited for other streams."""
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
        """`lists` for a stream pool that records: requests find nothing there, and frees to them are recorded."""
        return _HiddenLists(self, lists)

    def hit(self, stream_pool: StreamPool, requested: int) -> Block | None:
        """The block that a quick list serves the request with, as it does where nothing is recorded; None for none."""
        lists = stream_pool.lists
        return lists.take(requested) if isinstance(lists, _HiddenLists) else None

    def hears(self, quick_list: QuickList | None) -> bool:
        """Whether the free of each block in `quick_list` was recorded here."""
        return isinstance(quick_list, _RecordedList) and quick_list.history is self

    def stop(self) -> None:
        """Stop recording; what was recorded stays."""
        self.is_on = False


class _HiddenLists(dict[int, QuickList]):
    """Quick lists that no request finds, so that each is recorded; so is each block that is freed to them."""

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

    def take(self, requested: int) -> Block | None:
        """A block that was freed to the list for `requested` bytes, live from here; None where none is left."""
        found = dict.get(self, requested)
        if not found or not self._history.hears(found):
            return None  # the former free of such a block was not recorded
        try:
            block = found.pop()
        except IndexError:  # another thread took the last one
            return None
        block.home = found
        block.uses += 1
        return block


#: Keys of lists that serve no size any more; they are negative, and no request is.
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
        super().append(block)


def _frames() -> Iterator[tuple[CodeType, int]]:
    """The stack of whoever called into this package, innermost first."""
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
