"""Reports the memory that allocators give out and get back to watchers.

Hits run no code that could report them. While somebody watches requests or frees, an allocator that records no history
gets one that keeps nothing, because every request and every free passes through a history (see `history`), which
reports them. For watchers of other events an allocator stays as fast as it is.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence, state
from cuassay.memory.history import History

if TYPE_CHECKING:
    from cuassay.memory.blocks import Block
    from cuassay.memory.caching import CachingAllocator
    from cuassay.memory.stream_pool import StreamPool

__all__ = ["MuteHistory", "join", "silent_history", "tell_recorded"]

_allocators: weakref.WeakSet[CachingAllocator] = weakref.WeakSet()

#: The events that only a history can report.
_HEARD = ("memory_taken", "memory_returned")


class MuteHistory(History):
    """Reports to watchers, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__("state", context=None)

    def serve(self, stream_pool: StreamPool, requested: int) -> Block | None:
        """Do what `History.serve` does with one call less, because every request comes here."""
        block = self.hit(stream_pool, requested) if stream_pool.detector is None else None
        if block is not None and self.is_on:
            for watcher in state.told_memory.get("memory_taken", ()):  # inlined `note_malloc`
                watcher(self.device, block.address, block.stream_pool.stream, block.nbytes)
        return block

    def note_malloc(self, block: Block) -> None:
        """Report it."""
        if self.is_on:
            for watcher in state.told_memory.get("memory_taken", ()):  # inlined `tell_memory`
                watcher(self.device, block.address, block.stream_pool.stream, block.nbytes)

    def note_free(self, block: Block, *, is_done: bool) -> None:
        """Report it."""
        if self.is_on:
            for watcher in state.told_memory.get("memory_returned", ()):
                watcher(self.device, block.address, block.stream_pool.stream, block.nbytes)


def join(allocator: CachingAllocator) -> None:
    """Report to watchers, from now on, what `allocator` gives out and gets back."""
    allocator.heap.name = allocator.name
    _allocators.add(allocator)
    if _is_watched():
        _listen(allocator, is_watched=True)


def tell_recorded(name: str, block: Block, stream: int) -> None:
    """Report to watchers of allocator `name` that `stream` uses `block` too."""
    if watchers.state.watchers:
        watchers.tell(Occurrence("memory_recorded", name, block.address, stream, block.nbytes))


def silent_history() -> MuteHistory | None:
    """Return what replaces a history that its user ends: None, unless somebody watches requests or frees."""
    return MuteHistory() if _is_watched() else None


def _is_watched() -> bool:
    return not watchers.state.wanted.isdisjoint(_HEARD)


def _listen(allocator: CachingAllocator, *, is_watched: bool) -> None:
    heap = allocator.heap
    with heap.lock:
        history = heap.history
        is_on = history is not None and history.is_on
        if is_watched and not is_on:
            allocator.cutter.flush_all()
            heap.record_to(MuteHistory(), keep=True)
        elif not is_watched and is_on and isinstance(history, MuteHistory):
            allocator.cutter.flush_all()
            heap.record_to(None, keep=len(history) > 0)


def _changed(_: bool) -> None:
    is_watched = _is_watched()
    for allocator in tuple(_allocators):
        _listen(allocator, is_watched=is_watched)


for _event in _HEARD:
    watchers.on_change(_changed, _event)
