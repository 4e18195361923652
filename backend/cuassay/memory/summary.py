"""An allocator's figures as a table for people, in the rows and columns of ``torch.cuda.memory_summary``."""

from __future__ import annotations

from collections.abc import Iterator

from cuassay.core.units import format_bytes
from cuassay.memory.statistics import MemoryStatistics, Stat

__all__ = ["summary"]

#: The title, the field of `MemoryStatistics`, and whether it is in bytes. Each is shown by pool unless abbreviated.
_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocs", "active", False),
    ("Reserved segments", "segment", False),
    ("Non-releasable allocs", "inactive_split", False),
)
_OVERSIZE = (("Oversize allocations", "oversize_allocations"), ("Oversize segments", "oversize_segments"))
_POOLS = (("from large pool", "large_pool"), ("from small pool", "small_pool"))
_COLUMNS = ("Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")
_WIDTH = 75


def summary(statistics: MemoryStatistics, name: str, *, abbreviated: bool = False) -> str:
    """Return the table.

    Parameters
    ----------
    statistics : MemoryStatistics
        The figures.
    name : str
        The device.
    abbreviated : bool
        Whether to omit the figures of the two pools.
    """
    errors = f"OOMs: {statistics.num_ooms}", f"device allocation retries: {statistics.num_alloc_retries}"
    head = ["=" * _WIDTH, _centred(f"cuassay device memory summary, {name}"), "-" * _WIDTH]
    head += [f"|{errors[0]:^36}|{errors[1]:^36}|", "=" * _WIDTH, _line(*_COLUMNS)]
    return "\n".join([*head, *_body(statistics, abbreviated=abbreviated), "=" * _WIDTH])


def _body(statistics: MemoryStatistics, *, abbreviated: bool) -> Iterator[str]:
    for title, field, is_bytes in _ROWS:
        quantity = getattr(statistics, field)
        yield "-" * _WIDTH
        yield _row(title, quantity.all, is_bytes=is_bytes)
        for pool, attribute in () if abbreviated else _POOLS:
            yield _row(f"  {pool}", getattr(quantity, attribute), is_bytes=is_bytes)
    for title, field in _OVERSIZE:
        yield "-" * _WIDTH
        yield _row(title, getattr(statistics, field), is_bytes=False)


def _row(title: str, stat: Stat, *, is_bytes: bool) -> str:
    show = format_bytes if is_bytes else str
    return _line(title, *(show(value) for value in (stat.current, stat.peak, stat.allocated, stat.freed)))


def _line(title: str, *values: str) -> str:
    return f"| {title:<23} |" + "|".join(f"{value:>10} " for value in values) + "|"


def _centred(text: str) -> str:
    return f"|{text:^{_WIDTH - 2}}|"
