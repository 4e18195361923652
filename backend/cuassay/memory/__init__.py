"""Allocator policy over plain integers: which block serves a request, when to take more memory, when to release it.

Nothing here sees a driver: memory comes from a `cuassay.core.protocols.MemorySource`. Who holds whom (an arrow points
from the holder to what it holds):

```text
CachingAllocator                caching      malloc, free, private pools, empty_cache, figures
 |-> FitPolicy                  fit          which free block serves a request; every FreeList asks it
 |-> oom ladder                 oom          a tuple of functions, each makes room by one means; they are given the
 |                                           allocator when they are called, and hold nothing
 |-> PageStore (or None)        page_store   grows and shrinks page by page, where the source has pages
 |    |-> SegmentStore          segment_store  takes segments from the source, gives them back
 |    '-> Reclaimer             reclaimer    takes back blocks that other streams used
 |         '-> BlockCutter      block_cutter cuts out, splits, flushes and merges blocks; held by both stores too
 |              '-> Counters    counters     every figure
 '-> Heap                       heap         shared by all parts: configuration, limits, locks, segments and
      |                                      Pool -> StreamPool (by stream)
      |-> Segment -> Block      blocks       ranges and their kinds: Segment, Arena, SmallSegment, View
      '-> StreamPool            stream_pool  quick lists, Deferred, and
           |-> FreeList (two)   free_list    free blocks in order, small and large
           '-> PageSpace        page_space   the arenas of one stream, and the views that are stitched of their pages
                '-> IterationDetector  iteration  sees where an iteration of the program ends
```

`UncachedAllocator` (no reuse) and the memory of CuPy's arrays are in `cuassay.devices.cuda.memory`. `HostAllocator` is
a `CachingAllocator` for pinned memory. `PeerModel` imitates other allocators' policies in replays.
"""

from __future__ import annotations

from cuassay.memory.blocks import Block, Segment
from cuassay.memory.caching import CachingAllocator
from cuassay.memory.config import AllocatorConfig, parse_config
from cuassay.memory.fit import BestFit, FitPolicy
from cuassay.memory.host import HostAllocator
from cuassay.memory.integer_source import IntegerSource
from cuassay.memory.statistics import MemoryStatistics, PoolStat, Stat
from cuassay.memory.stream_pool import Pool, StreamPool

__all__ = [
    "AllocatorConfig",
    "BestFit",
    "Block",
    "CachingAllocator",
    "FitPolicy",
    "HostAllocator",
    "IntegerSource",
    "MemoryStatistics",
    "Pool",
    "PoolStat",
    "Segment",
    "Stat",
    "StreamPool",
    "parse_config",
]
