"""Allocator policy over plain integers: which block serves a request, when to ask for more, when to give back.

No driver is seen here: memory comes from a `cuassay.core.protocols.MemorySource`.
"""

from __future__ import annotations

from cuassay.memory.blocks import Block, Segment
from cuassay.memory.caching import CachingAllocator
from cuassay.memory.config import AllocatorConfig, parse_config
from cuassay.memory.host import HostAllocator
from cuassay.memory.integer_source import IntegerSource
from cuassay.memory.statistics import MemoryStatistics, PoolStat, Stat
from cuassay.memory.stream_pool import Pool, StreamPool

__all__ = [
    "AllocatorConfig",
    "Block",
    "CachingAllocator",
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
