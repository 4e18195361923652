"""The figures of an allocator, as frozen records with torch's names; `cuassay.memory.counters` computes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["MemoryStatistics", "PoolStat", "Stat", "flatten"]


@dataclass(frozen=True, slots=True)
class Stat:
    """One quantity: its current value, its peak, and how much was added and removed since the totals were reset."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def since(self, base: Stat | None) -> Stat:
        """Return the same quantity with totals counted from `base` on (None: from the beginning)."""
        if base is None:
            return self
        return Stat(self.current, self.peak, self.allocated - base.allocated, self.freed - base.freed)


@dataclass(frozen=True, slots=True)
class PoolStat:
    """One quantity of the whole allocator, and of its two pools."""

    all: Stat
    small_pool: Stat
    large_pool: Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStatistics:
    """All figures of ``torch.cuda.memory_stats``, with its names.

    Attributes
    ----------
    max_split_size : int
        Bytes; -1 if every block may be split.
    reserved_bytes_by_private_pools : mapping of tuple to int
        The bytes that each private pool holds, by its id.
    """

    allocation: PoolStat
    segment: PoolStat
    active: PoolStat
    inactive_split: PoolStat
    allocated_bytes: PoolStat
    reserved_bytes: PoolStat
    active_bytes: PoolStat
    inactive_split_bytes: PoolStat
    requested_bytes: PoolStat
    oversize_allocations: Stat
    oversize_segments: Stat
    num_alloc_retries: int
    num_ooms: int
    max_split_size: int
    num_sync_all_streams: int
    num_device_alloc: int
    num_device_free: int
    num_oom_rejections: int
    reserved_bytes_by_private_pools: Mapping[tuple[int, int], int]

    def nested(self) -> dict[str, Any]:
        """Return nested dictionaries, like ``torch.cuda.memory_stats_as_nested_dict``."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def flat(self) -> dict[str, int]:
        """Return sorted keys such as ``allocated_bytes.all.peak``, like ``torch.cuda.memory_stats``."""
        return dict(sorted(flatten(self.nested())))


def _plain(value: Any) -> Any:
    if isinstance(value, (PoolStat, Stat)):
        return asdict(value)
    if isinstance(value, Mapping):
        return {"_".join(map(str, key)): number for key, number in value.items()}
    return value


def flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in nested mappings, with its keys joined by dots."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
