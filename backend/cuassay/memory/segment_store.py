"""Takes segments from sources and releases them.

A segment that is being released first leaves the heap and its free list. It returns only if it is certain that the
source did not take it: if an interrupt arrives so late that nobody can tell, the segment does not return.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cuassay.core.interrupts import took_effect
from cuassay.core.units import format_bytes
from cuassay.errors import OutOfMemoryError
from cuassay.memory.block_cutter import BlockCutter
from cuassay.memory.blocks import Arena, Block, Segment
from cuassay.memory.config import SMALL_REQUEST
from cuassay.memory.heap import Heap, try_each
from cuassay.memory.stream_pool import StreamPool

__all__ = ["SegmentStore"]


class SegmentStore:
    """The segments of one heap, each of which came from a source in one piece.

    Attributes
    ----------
    on_growth : callable or None
        Called after each request for a segment.
    """

    def __init__(self, heap: Heap, cutter: BlockCutter) -> None:
        self._heap = heap
        self._cutter = cutter
        self.on_growth: Callable[[], object] | None = None

    def grow(self, stream_pool: StreamPool, size: int, nbytes: int, whole: int | None = None) -> Block | None:
        """Return a block in a new segment of `whole` bytes (None: as configured), or None when there is no room."""
        heap = self._heap
        whole = heap.config.segment_size(size) if whole is None else whole
        with heap.lock:
            is_admitted = heap.admit(whole)
        block = self._grow(stream_pool, whole, size, nbytes) if is_admitted else None
        if self.on_growth is not None:
            self.on_growth()
        return block

    def _grow(self, stream_pool: StreamPool, whole: int, size: int, nbytes: int) -> Block | None:
        heap = self._heap
        try:
            address = stream_pool.pool.source.reserve(whole, stream_pool.stream)
        except BaseException as error:
            with heap.lock:
                heap.moving -= whole
            if isinstance(error, OutOfMemoryError):
                return None
            raise
        with heap.lock:
            heap.moving -= whole
            segment = Segment(address, whole, stream_pool, is_small=size <= SMALL_REQUEST)
            self.enter(segment)
            return self._cutter.cut_out(segment.first, size, nbytes)

    def enter(self, segment: Segment) -> None:
        """Add and count `segment`; the caller holds the lock."""
        self._heap.enter(segment)
        segment.is_oversize = self._heap.config.is_oversize(segment.nbytes)
        self._note(segment, 1)

    def _note(self, segment: Segment, sign: int) -> None:
        """Count a segment that was added (`sign` 1) or removed (-1)."""
        if self._heap.history is not None:
            self._heap.history.note_segment(segment, sign)
        self._heap.counters.move_segment(
            segment.nbytes, sign=sign, is_small=segment.is_small, is_oversize=segment.is_oversize
        )

    def whole_free(self) -> list[Segment]:
        """Return the segments without a block in use whose memory may be released; the quick lists are flushed."""
        self._cutter.flush_all()
        return [segment for segment in self._heap.segments if self._may_go(segment)]

    def _may_go(self, segment: Segment) -> bool:
        if segment not in self._heap.segments or isinstance(segment, Arena):
            return False
        return segment.first.quick_list is None and segment.first.is_whole and segment.stream_pool.pool.may_shrink

    def release(self, segment: Segment) -> int:
        """Release `segment`, if it is still held and no block of it is in use; return its bytes, or 0."""
        heap = self._heap
        with heap.releasing:
            with heap.lock:
                if heap.captures or not self._may_go(segment):
                    return 0
                self._let_go(segment)
            try:
                segment.stream_pool.pool.source.release(segment.address)
            except BaseException as error:
                self._judge(segment, error)
                raise
            with heap.lock:
                heap.moving -= segment.nbytes
        return segment.nbytes

    def _let_go(self, segment: Segment) -> None:
        """Remove `segment`; from the first line on no request can get it, even if an interrupt occurs."""
        segment.stream_pool.free_blocks(is_small=segment.is_small).remove(segment.first)
        self._heap.leave(segment)
        self._note(segment, -1)
        self._heap.moving += segment.nbytes
        self._heap.driver_calls += 1

    def _judge(self, segment: Segment, error: BaseException) -> None:
        """Handle an `error` of the release of `segment`: add it again if the source did not take it back."""
        is_gone = took_effect(error)
        with self._heap.lock:
            self._heap.moving -= segment.nbytes
            if not is_gone:
                self.enter(segment)
                segment.stream_pool.free_blocks(is_small=segment.is_small).add(segment.first)
        if is_gone and not isinstance(error, Exception):
            error.add_note(
                f"It interrupted the release of {format_bytes(segment.nbytes)} at {segment.address:#x}. The range is "
                "not used again; if the source had not yet released it, it stays reserved until the process ends."
            )

    def release_old(self, coming: int) -> bool:
        """Release free segments of at least average age until `coming` more bytes stay below the threshold.

        Return whether they do not. Errors of sources are left to `empty_cache`, because there may still be room.
        """
        heap = self._heap
        target = int(heap.config.garbage_collection_threshold * heap.allowed)
        while (excess := heap.counters.reserved.current + coming - target) > 0:
            with heap.lock:
                ages = {one: heap.clock - one.first.stamp for one in self.whole_free() if not one.is_small}
            mean = sum(ages.values()) / max(len(ages), 1)
            old = [partial(self.release, segment) for segment, age in ages.items() if age >= mean]
            if not try_each(old)[0]:
                break
        return excess > 0
