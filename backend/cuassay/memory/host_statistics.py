"""The figures of an allocator of pinned memory, as a frozen record with torch's names."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from cuassay.memory.statistics import Stat, flatten

__all__ = ["Duration", "HostStatistics"]


@dataclass(frozen=True, slots=True)
class Duration:
    """Times of one kind of call, in microseconds, and the number of calls."""

    total: int = 0
    max: int = 0
    min: int = 0
    count: int = 0

    @property
    def avg(self) -> int:
        """The mean in whole microseconds."""
        return self.total // max(self.count, 1)

    def plus(self, spent: int) -> Duration:
        """Return the times with one more call of `spent` microseconds."""
        least = spent if not self.count else min(self.min, spent)
        return Duration(self.total + spent, max(self.max, spent), least, self.count + 1)

    def plain(self) -> dict[str, int]:
        """Return the figures by torch's names."""
        return {"total": self.total, "max": self.max, "min": self.min, "count": self.count, "avg": self.avg}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatistics:
    """All figures of ``torch.cuda.host_memory_stats``, with its names.

    Attributes
    ----------
    allocations, allocated_bytes : Stat
        What was pinned, in pieces and bytes, in use or free.
    active_requests, active_bytes : Stat
        Blocks in use, by the host or by copies that still run.
    num_host_alloc, num_host_free : int
        The numbers of calls that pinned and unpinned.
    host_alloc_time, host_free_time : Duration
        The times they took.
    bucket_allocation : tuple of int
        The numbers of calls that pinned, by the logarithm to base 2 of the bytes, rounded up.
    """

    allocations: Stat
    allocated_bytes: Stat
    active_requests: Stat
    active_bytes: Stat
    num_host_alloc: int
    num_host_free: int
    host_alloc_time: Duration
    host_free_time: Duration
    bucket_allocation: tuple[int, ...]

    def nested(self) -> dict[str, Any]:
        """Return nested dictionaries, like ``torch.cuda.host_memory_stats_as_nested_dict``."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def flat(self) -> dict[str, Any]:
        """Return sorted keys such as ``allocated_bytes.peak``, like ``torch.cuda.host_memory_stats``."""
        return dict(sorted(flatten(self.nested())))


def _plain(value: Any) -> Any:
    if isinstance(value, Duration):
        return value.plain()
    if isinstance(value, Stat):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value
