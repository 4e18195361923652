"""Statistics of device and pinned memory under ``torch.cuda.memory``'s names, including deprecated ones."""

from __future__ import annotations

import warnings
from typing import Any

from cuassay.cuda import memory_parts as parts
from cuassay.cuda.naming import DeviceLike
from cuassay.memory.summary import summary

__all__ = [
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
]


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Return every statistic of the allocator of `device` by its dotted name, such as ``allocated_bytes.all.peak``.

    It is empty before the first allocation, as in torch.
    """
    found = parts.opened(device)
    return {} if found is None else found.statistics().flat()


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Return `memory_stats` as nested dicts."""
    found = parts.opened(device)
    return {} if found is None else found.statistics().nested()


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes of live blocks on `device`."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the peak of `memory_allocated` since the start or the last `reset_peak_memory_stats`."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes taken from `device`, in use or cached."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the peak of `memory_reserved` since the start or the last `reset_peak_memory_stats`."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset all peaks to the current values."""
    found = parts.opened(device)
    if found is not None:
        found.reset_peak_stats()


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Reset ``allocated``, ``freed`` and the counters."""
    found = parts.opened(device)
    if found is not None:
        found.reset_accumulated_stats()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return the statistics of `device` as a table; `abbreviated` omits those of the small and the large pool."""
    found = parts.allocator(device)
    return summary(found.statistics(), found.name, abbreviated=abbreviated)


def memory_snapshot(mempool_id: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """Return every segment of every device with its blocks, as plain data; with an id, only those of that pool."""
    segments: list[dict[str, Any]] = []
    for index in parts.allocators().indices():
        for found in parts.allocators().every_allocator(index):
            segments += [{**segment, "device": index} for segment in found.snapshot()["segments"]]
    return [s for s in segments if mempool_id is None or tuple(s["segment_pool_id"]) == tuple(mempool_id)]


# ------------------------------------------------------------------------------------------------ pinned host memory


def host_memory_stats() -> dict[str, Any]:
    """Return every statistic of pinned host memory by its dotted name; empty before the first use."""
    found = parts.pinned()
    return {} if found is None else found.host_statistics().flat()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return `host_memory_stats` as nested dicts."""
    found = parts.pinned()
    return {} if found is None else found.host_statistics().nested()


def reset_accumulated_host_memory_stats() -> None:
    """Reset the accumulated statistics of pinned memory."""
    found = parts.pinned()
    if found is not None:
        found.reset_accumulated_stats()


def reset_peak_host_memory_stats() -> None:
    """Reset the peaks of pinned memory to the current values."""
    found = parts.pinned()
    if found is not None:
        found.reset_peak_stats()


# ------------------------------------------------------------------------------------------------ torch's old names


def _renamed(old: str, new: str) -> None:
    warnings.warn(f"{old} is torch's former name of {new}; call that", FutureWarning, stacklevel=3)


def memory_cached(device: DeviceLike = None) -> int:
    """Return `memory_reserved`, under its deprecated name."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """Return `max_memory_reserved`, under its deprecated name."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Call `reset_peak_memory_stats`, under a deprecated name."""
    _renamed("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Call `reset_peak_memory_stats`, under a deprecated name."""
    _renamed("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)
