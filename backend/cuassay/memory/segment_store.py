"""What an allocator holds: segments, private pools, and the pools of each stream.

Everything here happens under one lock, and the source is never called with it held. In which order to try what is
`cuassay.memory.caching`'s business.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from cuassay.core import settings
from cuassay.core.interrupts import take_late
from cuassay.core.protocols import MemorySource
from cuassay.errors import ArgumentError, OutOfMemoryError
from cuassay.memory.block_cutter import BlockCutter
from cuassay.memory.blocks import Block, Segment
from cuassay.memory.config import SMALL_REQUEST, AllocatorConfig, parse_config
from cuassay.memory.history import History
from cuassay.memory.page_segments import Arena
from cuassay.memory.snapshot import describe_segment, describe_traces
from cuassay.memory.statistics import MemoryStatistics
from cuassay.memory.stream_pool import Pool, StreamPool

__all__ = ["SegmentStore"]

#: What may be reserved where the device's size is not known.
_UNLIMITED = 2**44


class SegmentStore(BlockCutter, ABC):
    """Segments and blocks of one device; `CachingAllocator` is what callers use."""

    def __init__(
        self,
        source: MemorySource,
        *,
        total: int | None = None,
        config: AllocatorConfig | str | None = None,
        name: str = "the device",
    ) -> None:
        text = settings.get("CUASSAY_ALLOC_CONF") if config is None else config
        super().__init__(source, parse_config(text) if isinstance(text, str) else text)
        self.name = name
        self.total = total
        self.free_memory_callbacks: list[Callable[[int], bool]] = []
        self.oom_observers: list[Callable[[OutOfMemoryError], None]] = []
        self._lock = threading.Lock()
        self._releasing = threading.RLock()
        self._segments: dict[Segment, None] = {}  # in the order they came; by identity: an address can come again
        self._numbers = count(1)
        self._moving = 0  # bytes that are not in the books, and on their way from a source or to it
        self.driver_calls = 0
        self._captures = 0
        self._routes: dict[int, list[Pool]] = {}

    def stream_pool(self, stream: int = 0, pool: Pool | None = None) -> StreamPool:
        """What serves `stream` in `pool` (None: the one in use in this thread); keep it to save the look-up."""
        pool = pool or self._route()
        try:
            return pool.stream_pools[stream]
        except KeyError:
            return self._open(pool, stream)

    def _open(self, pool: Pool, stream: int) -> StreamPool:
        """The stream pool of `stream` in `pool`; under the lock, because others iterate over all of them under it."""
        with self._lock:
            stream_pool = pool.stream_pools.get(stream)
            if stream_pool is None:
                stream_pool = StreamPool(pool, stream, self._miss, self._is_capturing)
                if self.history is not None and self.history.is_on:
                    stream_pool.record_to(self.history)
                pool.stream_pools[stream] = stream_pool
            return stream_pool

    def _route(self) -> Pool:
        route = self._routes.get(threading.get_ident())
        return route[-1] if route else self._default

    @property
    def allowed(self) -> int:
        """Bytes that may be reserved."""
        return _UNLIMITED if self.total is None else int(self.total * self.config.per_process_memory_fraction)

    def _find(self, stream_pool: StreamPool, size: int, nbytes: int | None) -> Block | None:
        """Best fit among free blocks; when none fits, the quick lists are emptied, so that neighbours merge."""
        with self._lock:
            return (
                self._take_free(stream_pool, size, nbytes)
                or (self._flush(stream_pool) and self._take_free(stream_pool, size, nbytes))
                or None
            )

    def _grow_by(self, stream_pool: StreamPool, whole: int, size: int, nbytes: int) -> Block | None:
        with self._lock:
            if not self._admit(whole):
                return None
            self.driver_calls += 1
        try:
            address = stream_pool.pool.source.reserve(whole, stream_pool.stream)
        except BaseException as error:
            with self._lock:
                self._moving -= whole
            if isinstance(error, OutOfMemoryError):
                return None
            raise
        with self._lock:
            self._moving -= whole
            segment = Segment(address, whole, stream_pool, is_small=size <= SMALL_REQUEST)
            self._enter(segment)
            return self._cut_out(segment.first, size, nbytes)

    def _admit(self, nbytes: int) -> bool:
        """Let so many bytes be on their way here, if as many may be reserved."""
        is_allowed = self._counters.reserved + self._moving + nbytes <= self.allowed
        if is_allowed:
            self._moving += nbytes
        else:
            self._counters.count("num_oom_rejections")
        return is_allowed

    def _enter(self, segment: Segment) -> None:
        """Hold `segment` from here."""
        pool = segment.stream_pool.pool
        self._pools.setdefault(pool.id, pool)  # its last owner can have left meanwhile
        self._segments[segment] = None
        self._note_segment(segment, 1)

    def _note_segment(self, segment: Segment, sign: int) -> None:
        if self.history is not None:
            self.history.note_segment(segment, sign)
        if sign > 0:
            segment.is_oversize = self.config.is_oversize(segment.nbytes)
        self._counters.move_segment(
            segment.nbytes, sign=sign, is_small=segment.is_small, is_oversize=segment.is_oversize
        )

    def _whole_free(self) -> list[Segment]:
        """Segments that are free as a whole, of pools whose memory may go; no block is parked afterwards."""
        self._flush_all()
        return [segment for segment in self._segments if self._may_go(segment)]

    def _may_go(self, segment: Segment) -> bool:
        if segment not in self._segments or isinstance(segment, Arena):
            return False
        return segment.first.quick_list is None and segment.first.is_whole and segment.stream_pool.pool.may_shrink

    def _release(self, segment: Segment) -> int:
        """Give `segment` back, if it is still here and free as a whole; its bytes, or 0."""
        with self._releasing:
            with self._lock:
                if self._captures or not self._may_go(segment):
                    return 0
                free_blocks = segment.stream_pool.free_blocks(is_small=segment.is_small)
                free_blocks.remove(segment.first)
                del self._segments[segment]
                self._note_segment(segment, -1)
                self._forget(segment.stream_pool.pool)
                self._moving += segment.nbytes
                self.driver_calls += 1
            try:
                segment.stream_pool.pool.source.release(segment.address)
            except BaseException as error:
                with self._lock:
                    self._moving -= segment.nbytes
                    if not take_late(error):
                        self._enter(segment)
                        free_blocks.add(segment.first)
                raise
            with self._lock:
                self._moving -= segment.nbytes
        return segment.nbytes

    @staticmethod
    def _try_each(steps: Iterable[Callable[[], int | None]]) -> tuple[int, Exception | None]:
        """Take every step, whichever of them fail; gives the bytes they released and the first error."""
        released = 0
        failure: Exception | None = None
        for step in steps:
            try:
                released += step() or 0
            except Exception as error:  # noqa: BLE001  # what it is, is the source's to say
                failure = error if failure is None else failure
        return released, failure

    def _known(self, pool: Pool) -> Pool:
        if not pool.is_private or pool.use_count == 0 or self._pools.get(pool.id) is not pool:
            raise ArgumentError(f"{pool!r} is no private pool in use; give one that `create_pool` gave")
        return pool

    def _forget(self, pool: Pool) -> None:
        if pool.is_private and pool.use_count == 0 and not any(s.stream_pool.pool is pool for s in self._segments):
            self._pools.pop(pool.id, None)

    @abstractmethod
    def _miss(self, stream_pool: StreamPool, nbytes: int) -> Block:
        """A block when no quick list has one."""

    def _is_capturing(self) -> bool:
        return self._captures > 0

    # ------------------------------------------------------------------------------------------------------ figures

    def peaks(self) -> tuple[int, int]:
        """The most bytes that were asked for, and reserved, at once."""
        figures = self.statistics()
        return figures.requested_bytes.all.peak, figures.reserved_bytes.all.peak

    def statistics(self) -> MemoryStatistics:
        """Every figure as of now, as a frozen record."""
        with self._lock:
            return self._statistics()

    def _statistics(self) -> MemoryStatistics:
        private: dict[tuple[int, int], int] = {pool.id: 0 for pool in self._pools.values() if pool.is_private}
        for segment in self._segments:
            if segment.stream_pool.pool.is_private:
                private[segment.stream_pool.pool.id] += segment.held
        plain = (s for s in self._every_segment() if not isinstance(s, Arena))  # as torch: what grows is not split
        split_blocks = (b for s in plain if not s.first.is_whole for b in s)
        return self._counters.statistics(
            tuple(self._cut.values()),
            (block for block in split_blocks if block.state == "inactive"),
            max_split_size=-1 if self.config.max_split_size is None else self.config.max_split_size,
            private=private,
        )

    def reset_peak_stats(self) -> None:
        """From here every peak is a new one."""
        with self._lock:
            self._flush_all()
            self._counters.reset_peaks(self._pending())

    def reset_accumulated_stats(self) -> None:
        """From here ``allocated``, ``freed`` and the counters are new ones."""
        with self._lock:
            self._counters.reset_totals(self._cut.values())

    def snapshot(self) -> dict[str, Any]:
        """Every segment and block as plain data, in the schema of ``torch.cuda.memory._snapshot``."""
        with self._lock:
            history = self.history
            every = self._every_segment()
            segments = [entry for segment in every for entry in describe_segment(segment, history)]
            config = str(self.config)
            traces = [] if history is None else [describe_traces(history)]
            if history is not None:  # for the next one to tell
                history.note_snapshot(sum(entry["active_size"] for entry in segments))
        return {
            "segments": segments,
            "device_traces": traces,
            "allocator_settings": {"CUASSAY_ALLOC_CONF": config},
            "external_annotations": [],
        }

    def record_history(self, enabled: str | None = "all", *, clear_history: bool = False, **options: Any) -> None:
        """Keep what happens from here, with stacks, for `snapshot`; see `cuassay.memory.history.History`.

        Parameters
        ----------
        enabled : str or None
            ``"all"``, ``"state"``, or None to stop: what was kept stays until it is cleared.
        clear_history : bool
            Forget what was kept before.
        **options
            ``context``, ``stacks``, ``max_entries`` and ``skip_actions`` of `History`.

        Raises
        ------
        ArgumentError
            If a value is not one of those there are; nothing is changed then.
        """
        made = None if enabled is None else History(enabled, **options)
        with self._lock:
            self._flush_all()
            former, self.history = self.history, made
            if former is not None:
                former.stop()
                if not clear_history:
                    self.history = former if made is None else made
                    if made is not None:
                        made.continue_(former)
            for pool in self._pools.values():
                for stream_pool in tuple(pool.stream_pools.values()):
                    stream_pool.record_to(made)

    def segments(self) -> tuple[Segment, ...]:
        """The segments held, by address."""
        with self._lock:
            return tuple(self._every_segment())

    def _every_segment(self) -> list[Segment]:
        stream_pools = (stream_pool for pool in self._pools.values() for stream_pool in pool.stream_pools.values())
        over = (
            segment
            for stream_pool in stream_pools
            if stream_pool.page_space is not None
            for segment in stream_pool.page_space.segments()
        )
        return sorted((*self._segments, *over), key=lambda segment: segment.address)
