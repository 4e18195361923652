"""Every figure of an allocator's statistics, counted again from the blocks that it gave and from those it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cuassay.memory import Block, CachingAllocator
from cuassay.memory.blocks import Arena, Segment, View

#: Statistics of blocks.
NAMES = ("allocation", "allocated_bytes", "requested_bytes")
POOLS = ("all", "small_pool", "large_pool")


class Tally:
    """What live blocks of one pool come to, by `NAMES`: now, at most, and in total."""

    def __init__(self) -> None:
        self.current = self.peak = self.total = (0, 0, 0)

    def add(self, amounts: tuple[int, int, int]) -> None:
        count, nbytes, requested = self.current
        self.current = count, nbytes, requested = count + 1, nbytes + amounts[1], requested + amounts[2]
        most, total = self.peak, self.total
        if count > most[0] or nbytes > most[1] or requested > most[2]:
            self.peak = max(count, most[0]), max(nbytes, most[1]), max(requested, most[2])
        self.total = total[0] + 1, total[1] + amounts[1], total[2] + amounts[2]

    def drop(self, amounts: tuple[int, int, int]) -> None:
        count, nbytes, requested = self.current
        self.current = count - 1, nbytes - amounts[1], requested - amounts[2]


class Recount:
    """What statistics must say, pool by pool: current values, peaks and totals."""

    def __init__(self) -> None:
        self._tallies = {pool: Tally() for pool in (*POOLS, "oversize")}

    def took(self, block: Block) -> None:
        """`block` was given."""
        amounts = 1, block.nbytes, block.requested
        for pool in _pools_of(block):
            self._tallies[pool].add(amounts)

    def gave(self, block: Block) -> None:
        """`block` is about to be freed."""
        amounts = 1, block.nbytes, block.requested
        for pool in _pools_of(block):
            self._tallies[pool].drop(amounts)

    def reset_peaks(self) -> None:
        """New peaks were started."""
        for tally in self._tallies.values():
            tally.peak = tally.current

    def check(self, allocator: CachingAllocator) -> None:
        """All figures are these, or those of the blocks that are held."""
        figures, segments = allocator.statistics(), allocator.segments()
        for pool, tally in self._tallies.items():
            for index, name in enumerate(("oversize_allocations",) if pool == "oversize" else NAMES):
                stat = _stat(figures, name, pool)
                wanted = tally.current[index], tally.peak[index], tally.total[index]
                assert (stat.current, stat.peak, stat.allocated) == wanted, (name, pool)
        blocks = [block for segment in segments for block in segment]
        for pool in POOLS:
            self._check_held(figures, pool, segments, blocks)
        assert figures.oversize_segments.current == sum(segment.is_oversize for segment in segments)
        held = dict.fromkeys(figures.reserved_bytes_by_private_pools, 0)
        for segment in segments:
            if segment.stream_pool.pool.is_private:
                held[segment.stream_pool.pool.id] += _reserved(segment, "all")
        assert figures.reserved_bytes_by_private_pools == held
        for found in allocator.heap.stream_pools():
            if found.detector is not None:  # it sees every large block that serves a request
                live = [block for block in blocks if block.is_live and block.stream_pool is found]
                assert found.detector.level >= sum(block.nbytes for block in live if not block.segment.is_small)
        _check_snapshot(allocator.snapshot()["segments"], figures)

    def _check_held(self, figures: Any, pool: str, segments: Iterable[Segment], blocks: Iterable[Block]) -> None:
        mine = [block for block in blocks if pool == "all" or block.segment.is_small == (pool == "small_pool")]
        active = [block for block in mine if block.is_live or block.is_pending]
        idle = [
            block for block in mine
            if block.state == "inactive" and not block.is_whole and not isinstance(block.segment, Arena)
        ]  # fmt: skip
        here = [segment for segment in segments if not isinstance(segment, View)]
        here = [segment for segment in here if pool == "all" or segment.is_small == (pool == "small_pool")]
        wanted = {
            "active": len(active),
            "active_bytes": sum(block.nbytes for block in active),
            "inactive_split": len(idle),
            "inactive_split_bytes": sum(block.nbytes for block in idle),
            "segment": len(here),
            "reserved_bytes": sum(_reserved(segment, pool) for segment in segments),
        }
        found = {name: _stat(figures, name, pool) for name in wanted}
        assert {name: stat.current for name, stat in found.items()} == wanted, pool
        for name, stat in found.items():
            assert stat.current == stat.allocated - stat.freed, (name, pool)
            assert stat.peak >= stat.current, (name, pool)


def _check_snapshot(entries: list[dict[str, Any]], figures: Any) -> None:
    for entry in entries:
        position = entry["address"]
        for block in entry["blocks"]:
            assert block["address"] == position, entry
            position += block["size"]
        assert position == entry["address"] + entry["total_size"]
    sums = {name: sum(entry[name] for entry in entries) for name in ("allocated_size", "active_size", "requested_size")}
    assert sums == {
        "allocated_size": figures.allocated_bytes.all.current,
        "active_size": figures.active_bytes.all.current,
        "requested_size": figures.requested_bytes.all.current,
    }


def _reserved(segment: Segment, pool: str) -> int:
    """Its memory, that of an arena without what it lent to small segments, which have it themselves."""
    if pool == "all":
        return segment.held
    if pool == "small_pool":
        return segment.nbytes if segment.is_small else 0
    return segment.held - (segment.nbytes if segment.is_small else 0)


def _pools_of(block: Block) -> tuple[str, ...]:
    size_class = "small_pool" if block.segment.is_small else "large_pool"
    return ("all", size_class, "oversize") if block.is_oversize else ("all", size_class)


def _stat(figures: Any, name: str, pool: str) -> Any:
    return getattr(figures, name) if pool == "oversize" else getattr(getattr(figures, name), pool)
