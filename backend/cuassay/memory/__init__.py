"""Allocator policy over plain integers: which block serves a request, when to ask for more, when to give back.

No driver is seen here: memory comes from a `cuassay.core.protocols.MemorySource`.
"""

from __future__ import annotations

from cuassay.memory.blocks import Block, Segment
from cuassay.memory.caching import CachingAllocator
from cuassay.memory.config import AllocatorConfig, parse_config
from cuassay.memory.host import HostAllocator
from cuassay.memory.lane import Lane, Pool
from cuassay.memory.source import IntegerSource
from cuassay.memory.statistics import MemoryStatistics, PoolStat, Stat

__all__ = [
    "AllocatorConfig",
    "Block",
    "CachingAllocator",
    "HostAllocator",
    "IntegerSource",
    "Lane",
    "MemoryStatistics",
    "Pool",
    "PoolStat",
    "Segment",
    "Stat",
    "parse_config",
]
