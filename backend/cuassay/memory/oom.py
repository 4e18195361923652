"""Out of memory: what is tried, one means after the other, and what is said when nothing helps."""

from __future__ import annotations

import gc
from abc import abstractmethod
from functools import partial
from typing import NoReturn

from cuassay.memory.blocks import Block
from cuassay.memory.config import least_segment
from cuassay.memory.oom_report import OomReport, out_of_memory
from cuassay.memory.page_store import PageStore
from cuassay.memory.stream_pool import StreamPool

__all__ = ["OomLadder"]


class OomLadder(PageStore):
    """A store that makes room before it gives up."""

    def _make_room_and_retry(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Make room, by one means after the other, and try again after each."""
        steps = (
            self._retry_after_callbacks,
            self._borrow,
            self._retry_after_oversize,
            self._retry_after_all,
            self._retry_after_garbage,
        )
        for step in steps:
            block = step(stream_pool, size, nbytes)
            if block is not None:
                return block
        return None

    def _retry_after_callbacks(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Owners of memory elsewhere were asked to let some go."""
        freed = [callback(nbytes) for callback in tuple(self.free_memory_callbacks)]
        return self._retry(stream_pool, size, nbytes) if any(freed) else None

    def _retry_after_garbage(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Blocks in cycles of dead objects were freed; last, because it takes longer than all the rest."""
        return self._retry_after_all(stream_pool, size, nbytes) if gc.collect() else None

    def _retry(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        return self._find(stream_pool, size, nbytes) or self._reclaim_deferred(stream_pool, size, nbytes)

    def _borrow(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """A free block of a pool that lends them."""
        with self._lock:
            for pool in self._pools.values():
                owner = pool.stream_pools.get(stream_pool.stream)
                if pool.use_on_oom and owner is not None and owner is not stream_pool:
                    self._flush(owner)
                    block = self._take_free(owner, size, nbytes)
                    if block is not None:
                        return block
        return None

    def _retry_after_oversize(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Free segments above `max_split_size` went back, the largest first, until there is enough."""
        if self.config.max_split_size is None:
            return None
        whole, released = self.config.segment_size(size), 0
        with self._lock:
            segments = [segment for segment in self._whole_free() if self.config.is_oversize(segment.nbytes)]
        for segment in sorted(segments, key=lambda s: -s.nbytes):
            if released < whole:
                released += self._try_each([partial(self._release, segment)])[0]
        return self._grow_by(stream_pool, whole, size, nbytes) if released else None

    def _retry_after_all(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """Everything free went back; the new segment may be just large enough."""
        failure = None
        try:
            self.empty_cache()
        except Exception as error:  # noqa: BLE001  # the request may be served by what did go back
            failure = error
        self._counters.count("num_alloc_retries")
        found = self._find(stream_pool, size, nbytes) or self._grow(stream_pool, size, nbytes)
        found = found or self._grow_by(stream_pool, least_segment(size), size, nbytes)
        if found is None and failure is not None:
            raise failure
        return found

    def _give_up(self, stream_pool: StreamPool, nbytes: int) -> NoReturn:
        with self._lock:
            self._counters.count("num_ooms")
            figures = self._statistics()
            largest = max(
                (block.nbytes for blocks in (stream_pool.small, stream_pool.large) for block in blocks), default=0
            )
            shortage = OomReport(
                name=self.name,
                asked=nbytes,
                stream=stream_pool.stream,
                allowed=self.allowed,
                total=self.total,
                reserved=figures.reserved_bytes.all.current,
                live=figures.allocated_bytes.all.current,
                pending=figures.active_bytes.all.current - figures.allocated_bytes.all.current,
                largest_free=largest,
                private=sum(figures.reserved_bytes_by_private_pools.values()),
                settings=str(self.config),
                is_paged=self.config.expandable_segments,
            )
            error = out_of_memory(shortage, self._every_segment())
        if self.history is not None:
            self.history.note_oom(nbytes, self.allowed - shortage.reserved, stream_pool)
        for observer in tuple(self.oom_observers):
            observer(error)
        raise error

    @abstractmethod
    def empty_cache(self) -> int:
        """Give everything free back to the source."""

    @abstractmethod
    def _reclaim_deferred(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """A block that other streams used."""

    @abstractmethod
    def _grow(self, stream_pool: StreamPool, size: int, nbytes: int) -> Block | None:
        """A block of new memory, or None when there is no room."""
