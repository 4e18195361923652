"""Pinned host memory for reuse: the caching allocator's policy for blocks that the host uses.

Sizes are not rounded to powers of two: blocks are split and merged as device blocks are. A freed block that copies may
still use returns when the events of every stream that used it are reached. The host does not wait for them, but takes
other memory. `HostAllocator.maintain`, which a thread may call, pins memory ahead of the demand.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from time import perf_counter_ns
from typing import Any

from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.core.protocols import MemorySource
from cuassay.errors import OutOfMemoryError
from cuassay.memory.blocks import Block, Segment
from cuassay.memory.caching import CachingAllocator
from cuassay.memory.config import MIB, AllocatorConfig, parse_config
from cuassay.memory.heap import try_each
from cuassay.memory.host_statistics import Duration, HostStatistics
from cuassay.memory.integer_source import Pageless
from cuassay.memory.oom import HOST_LADDER
from cuassay.memory.stream_pool import StreamPool

__all__ = ["HOST", "CaptureKeepAlive", "HostAllocator", "HostSource"]

#: The stream number of host blocks, for the host's own order. No stream of a device has this number.
HOST = -1

#: The bytes pinned at a time when memory is pinned ahead: large enough for the full rate, small enough to be spread
#: over threads.
_SLAB = 256 * MIB

#: The fewest bytes pinned at a time ahead of the demand. A smaller rest is not worth a call, and `segment_size` would
#: round it to 2 or 20 MiB, the steps of device memory.
_LEAST_SLAB = _SLAB // 16

#: The fields of the configuration that apply to host memory; those of device memory keep their defaults.
_FIELDS = tuple(f.name for f in fields(AllocatorConfig) if f.name.startswith("pinned_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules(AllocatorConfig):
    """The configuration as it applies to host memory."""

    def round_size(self, nbytes: int) -> int:
        if MIB <= nbytes <= self.pinned_max_round_threshold:
            return 1 << (nbytes - 1).bit_length()
        # Not super(): a dataclass with slots is a second class, and the zero-argument form still refers to the first
        # one.
        return AllocatorConfig.round_size(self, nbytes)


def _rules(config: AllocatorConfig) -> _Rules:
    return _Rules(**{name: getattr(config, name) for name in _FIELDS})


class HostSource(Pageless):
    """A base for sources of host memory: they have only segments, and the host's stream holds no work."""

    instead = "host memory is pinned in one piece: reserve segments"

    def synchronize(self, streams: Sequence[int]) -> None:
        """Do nothing, because the host's stream has no work."""


class CaptureKeepAlive:
    """Takes part in captures: keeps what captured copies use while a graph may replay them.

    As in torch, the memory of a copy in a graph is not reused before the graph is gone. This is a
    `cuassay.core.participants.Participant`.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._kept: dict[int, list[object]] = {}

    @property
    def is_open(self) -> bool:
        """Whether something is being captured."""
        return bool(self._open)

    def keep(self, used: object) -> None:
        """Keep an object that a captured copy uses."""
        for capture in tuple(self._open):
            self._kept[capture].append(used)

    def capture_begin(self, capture: object, device: Device) -> None:
        """Start recording copies."""
        del device
        self._open.add(id(capture))
        self._kept[id(capture)] = []

    def capture_end(self, capture: object, device: Device) -> None:
        """Stop recording copies."""
        del device
        self._open.discard(id(capture))

    def capture_forget(self, capture: object, device: Device) -> None:
        """Drop what a graph that is gone used."""
        self.capture_end(capture, device)
        self._kept.pop(id(capture), None)


@dataclass(slots=True)
class _Clocked:
    """A source that measures how long reserves and releases take."""

    source: MemorySource
    reserving: Duration = field(default_factory=Duration)
    releasing: Duration = field(default_factory=Duration)
    buckets: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def reserve(self, nbytes: int, stream: int) -> int:
        begin = perf_counter_ns()
        address = self.source.reserve(nbytes, stream)
        spent = (perf_counter_ns() - begin) // 1000
        with self._lock:
            self.reserving = self.reserving.plus(spent)
            self.buckets[(nbytes - 1).bit_length()] += 1
        return address

    def release(self, address: int) -> None:
        begin = perf_counter_ns()
        self.source.release(address)
        spent = (perf_counter_ns() - begin) // 1000
        with self._lock:
            self.releasing = self.releasing.plus(spent)

    def reset(self) -> None:
        with self._lock:
            self.reserving, self.releasing, self.buckets = Duration(), Duration(), Counter()


class HostAllocator(CachingAllocator):
    """Pinned host memory, kept for reuse, and shared by all devices.

    Parameters
    ----------
    source : MemorySource
        Pins and unpins; its ``wait`` makes the host wait, and is called when memory is out.
    config : AllocatorConfig or str, optional
        Only its ``pinned_*`` keys are used; None reads ``CUASSAY_ALLOC_CONF``.
    name : str
        The name in messages.

    Examples
    --------
    >>> from cuassay.memory import IntegerSource
    >>> allocator = HostAllocator(IntegerSource())
    >>> block = allocator.malloc(1000)
    >>> allocator.record_stream(block, 7)
    >>> allocator.free(block)
    >>> allocator.host_statistics().flat()["active_bytes.peak"]
    1024
    """

    def __init__(
        self, source: MemorySource, *, config: AllocatorConfig | str | None = None, name: str = "pinned host memory"
    ) -> None:
        self._clocked = _Clocked(source)
        self._index: tuple[int, tuple[tuple[int, ...], tuple[Segment, ...]]] | None = None
        self._is_growing = self._is_begun = False
        #: Called after a request that needed new memory; it can wake a thread that calls `maintain`.
        self.on_growth: Callable[[], object] | None = None
        text = settings.get("CUASSAY_ALLOC_CONF") if config is None else config
        parsed = parse_config(text) if isinstance(text, str) else text
        super().__init__(
            self._clocked,
            config=_rules(parsed),
            name=name,
            oom_ladder=HOST_LADDER,
            may_wait=False,  # the host would wait for copies, and pinning other memory is usually faster
        )
        self.segment_store.on_growth = self._note_growth

    # ------------------------------------------------------------------------------------------------ take and free

    def malloc(self, nbytes: int, stream: int = HOST) -> Block:
        """Return a block of at least `nbytes`; ``stream_pool(HOST).malloc`` does the same and is faster."""
        return self.stream_pool(stream).malloc(nbytes)

    def block_at(self, address: int) -> Block | None:
        """Return the live block that contains `address`, or None."""
        with self.heap.lock:
            starts, segments = self._segment_index()
            position = bisect_right(starts, address) - 1
            for block in segments[position] if position >= 0 else ():
                if block.address <= address < block.address + block.nbytes:
                    return block if block.is_live else None
        return None

    def _segment_index(self) -> tuple[tuple[int, ...], tuple[Segment, ...]]:
        changes = self.heap.changes
        if self._index is None or self._index[0] != changes:
            ordered = tuple(self.heap.every_segment())
            self._index = changes, (tuple(segment.address for segment in ordered), ordered)
        return self._index[1]

    # ------------------------------------------------------------------------------------------------------- misses

    def _miss(self, stream_pool: StreamPool, nbytes: int) -> Block:
        if not self._is_begun:
            self._is_begun = True
            with suppress(OutOfMemoryError):  # the memory is for later requests; this one may be small
                self.reserve(self.config.pinned_reserve_segment_size)
        self._trim()
        return super()._miss(stream_pool, nbytes)

    def _note_growth(self) -> None:
        self._is_growing = True
        if self.on_growth is not None:
            self.on_growth()

    # ------------------------------------------------------------------------------------------ ahead of the demand

    def reserve(self, nbytes: int, run: Callable[..., Iterable[None]] = map) -> None:
        """Pin `nbytes` now, in slabs; `run` maps a function over the slabs, possibly in several threads."""
        slabs = [min(_SLAB, nbytes - low) for low in range(0, nbytes, _SLAB)]
        for _ in run(self._add, slabs):
            pass

    def _add(self, nbytes: int) -> None:
        whole, stream_pool = self.config.segment_size(max(nbytes, _LEAST_SLAB)), self.stream_pool(HOST)
        address = stream_pool.pool.source.reserve(whole, HOST)
        with self.heap.lock:
            segment = Segment(address, whole, stream_pool, is_small=False)
            self.segment_store.enter(segment)
            stream_pool.large.add(segment.first)

    def maintain(self) -> None:
        """Do what can be done between requests: take back blocks whose copies are done, trim, and pin ahead."""
        if self.heap.captures:
            return
        self.reclaimer.poll(self.stream_pool(HOST))
        failure = self._trim()
        if self._is_growing:
            self._is_growing = False
            ahead = self._ahead()
            if self._spare() < ahead:
                self.reserve(ahead)
        if failure is not None:
            raise failure

    def _ahead(self) -> int:
        """Return the bytes to keep pinned ahead: no more than are kept when they are free."""
        limit = self.config.pinned_max_cached_size
        return self.config.pinned_ahead if limit is None else min(limit, self.config.pinned_ahead)

    def _spare(self) -> int:
        stream_pool = self.stream_pool(HOST)
        with self.heap.lock:
            return sum(block.nbytes for block in stream_pool.large)

    def _trim(self) -> Exception | None:
        """Release free segments above ``pinned_max_cached_size_mb``; return the first error of the source."""
        limit = self.config.pinned_max_cached_size
        if limit is None:
            return None
        with self.heap.lock:
            segments = [segment for segment in self.segment_store.whole_free() if segment.nbytes > limit]
        return try_each(partial(self.segment_store.release, segment) for segment in segments)[1]

    # ------------------------------------------------------------------------------------------------------ figures

    def host_statistics(self) -> HostStatistics:
        """Return all current figures as a frozen record."""
        found, clocked = self.statistics(), self._clocked
        last = max(clocked.buckets, default=-1)
        return HostStatistics(
            allocations=found.segment.all,
            allocated_bytes=found.reserved_bytes.all,
            active_requests=found.active.all,
            active_bytes=found.active_bytes.all,
            num_host_alloc=found.num_device_alloc,
            num_host_free=found.num_device_free,
            host_alloc_time=clocked.reserving,
            host_free_time=clocked.releasing,
            bucket_allocation=tuple(clocked.buckets[bucket] for bucket in range(last + 1)),
        )

    def reset_accumulated_stats(self) -> None:
        """Start new totals (``allocated``, ``freed``), counters and times."""
        super().reset_accumulated_stats()
        self._clocked.reset()

    def configure(self, text: str) -> None:
        """Change the options that `text` mentions. Raises `SettingError`, and then changes nothing."""
        self.heap.config = _rules(parse_config(text, self.config))
