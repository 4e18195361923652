"""Out of memory: the ladder of steps that make room, and the error if no step helps.

A step is a function of the allocator and the request. It makes room in one way and returns a block, or None; then the
next step is taken. `DEVICE_LADDER` and `HOST_LADDER` are tuples of steps; an allocator can use another tuple.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from cuassay.memory.blocks import Block
from cuassay.memory.config import least_segment
from cuassay.memory.heap import try_each
from cuassay.memory.oom_report import OomReport, out_of_memory
from cuassay.memory.stream_pool import StreamPool

if TYPE_CHECKING:
    from cuassay.memory.caching import CachingAllocator

__all__ = [
    "DEVICE_LADDER",
    "HOST_LADDER",
    "OomLadder",
    "Request",
    "borrow_from_lending_pools",
    "call_free_memory_callbacks",
    "collect_garbage",
    "give_up",
    "release_cached_memory",
    "release_oversize_segments",
    "wait_for_copies",
]


class Request(NamedTuple):
    """A request that no free memory could serve: `nbytes` were requested, which need a block of `size`."""

    stream_pool: StreamPool
    size: int
    nbytes: int


#: Steps in the order in which they are taken.
OomLadder = tuple[Callable[["CachingAllocator", Request], Block | None], ...]


def call_free_memory_callbacks(allocator: CachingAllocator, request: Request) -> Block | None:
    """Call the owners of other memory (``free_memory_callbacks``), so that they free some."""
    freed = [callback(request.nbytes) for callback in tuple(allocator.free_memory_callbacks)]
    if not any(freed):
        return None
    return allocator.cutter.find(*request) or allocator.reclaimer.reclaim(*request)


def borrow_from_lending_pools(allocator: CachingAllocator, request: Request) -> Block | None:
    """Take a free block of a pool with ``use_on_oom``."""
    stream_pool, size, nbytes = request
    with allocator.heap.lock:
        for pool in allocator.heap.pools.values():
            owner = pool.stream_pools.get(stream_pool.stream)
            if pool.use_on_oom and owner is not None and owner is not stream_pool:
                allocator.cutter.flush(owner)
                block = allocator.cutter.take_free(owner, size, nbytes)
                if block is not None:
                    return block
    return None


def release_oversize_segments(allocator: CachingAllocator, request: Request) -> Block | None:
    """Release free segments above ``max_split_size``, the largest first, until there is enough."""
    config, store = allocator.config, allocator.segment_store
    if config.max_split_size is None:
        return None
    whole, released = config.segment_size(request.size), 0
    with allocator.heap.lock:
        segments = [segment for segment in store.whole_free() if config.is_oversize(segment.nbytes)]
    for segment in sorted(segments, key=lambda s: -s.nbytes):
        if released < whole:
            released += try_each([partial(store.release, segment)])[0]
    return store.grow(*request) if released else None


def release_cached_memory(allocator: CachingAllocator, request: Request) -> Block | None:
    """Release everything free; as a last resort, make a new segment only as large as the block."""
    failure = None
    try:
        allocator.empty_cache()
    except Exception as error:  # noqa: BLE001  # what was released may be enough for the request
        failure = error
    allocator.heap.count("num_alloc_retries")
    found = allocator.cutter.find(*request) or allocator.grow(*request)
    found = found or allocator.segment_store.grow(*request, whole=least_segment(request.size))
    if found is None and failure is not None:
        raise failure
    return found


def collect_garbage(allocator: CachingAllocator, request: Request) -> Block | None:
    """Free the blocks of dead objects in cycles; this step is late because it takes longer than all earlier ones."""
    return release_cached_memory(allocator, request) if gc.collect() else None


def wait_for_copies(allocator: CachingAllocator, request: Request) -> Block | None:
    """Wait until all copies that use freed blocks are done; only host memory does this."""
    if allocator.heap.captures or not request.stream_pool.deferred:
        return None
    failure = allocator.reclaimer.await_all()
    found = release_cached_memory(allocator, request)
    if found is None and failure is not None:
        raise failure
    return found


#: The steps for device memory.
DEVICE_LADDER: OomLadder = (
    call_free_memory_callbacks,
    borrow_from_lending_pools,
    release_oversize_segments,
    release_cached_memory,
    collect_garbage,
)

#: The steps for pinned host memory.
HOST_LADDER: OomLadder = (*DEVICE_LADDER, wait_for_copies)


def give_up(allocator: CachingAllocator, stream_pool: StreamPool, nbytes: int) -> NoReturn:
    """Raise the `OutOfMemoryError`, after the observers and the history have received it."""
    heap = allocator.heap
    with heap.lock:
        heap.counters.count("num_ooms")
        figures = heap.statistics()
        free_lists = stream_pool.small, stream_pool.large
        largest = max((block.nbytes for free_list in free_lists for block in free_list), default=0)
        report = OomReport(
            name=allocator.name,
            asked=nbytes,
            stream=stream_pool.stream,
            allowed=heap.allowed,
            total=heap.total,
            reserved=figures.reserved_bytes.all.current,
            live=figures.allocated_bytes.all.current,
            pending=figures.active_bytes.all.current - figures.allocated_bytes.all.current,
            largest_free=largest,
            private=sum(figures.reserved_bytes_by_private_pools.values()),
            settings=str(heap.config),
            is_paged=heap.config.expandable_segments,
        )
        error = out_of_memory(report, heap.every_segment())
    if heap.history is not None:
        heap.history.note_oom(nbytes, heap.allowed - report.reserved, stream_pool)
    for observer in tuple(allocator.oom_observers):
        observer(error)
    raise error
