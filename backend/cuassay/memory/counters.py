"""Counts what an allocator does, only at misses, and derives exact figures from that.

A hit in a quick list counts nothing, and yet every figure here but one is exact. Let *cut* be the bytes of all blocks
that are cut out for a request, live or in a quick list. A hit or a free does not change it, and live bytes never exceed
it. Whenever a newly cut block would raise it above the recorded peak, the quick lists are emptied first. Then it equals
the live bytes, and the peak is set to it. So ``live <= cut <= peak`` always holds, and the peak was really reached.
Totals come from each block's count of uses, which is added up when the block is merged. The exception is
``inactive_split``, whose peak and totals are sampled when statistics are requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuassay.memory.blocks import Block
from cuassay.memory.statistics import MemoryStatistics, PoolStat, Stat

__all__ = ["Counters", "Gauge"]


class Gauge:
    """One quantity, counted as it changes."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def move(self, amount: int) -> None:
        """Add `amount`, which is negative for a decrease."""
        self.current += amount
        if amount > 0:
            self.allocated += amount
            self.peak = max(self.peak, self.current)
        else:
            self.freed -= amount

    def sample(self, current: int) -> None:
        """Set the quantity to `current`."""
        self.move(current - self.current)

    def reset_peak(self) -> None:
        """Start a new peak."""
        self.peak = self.current

    def reset_totals(self) -> None:
        """Start new totals."""
        self.allocated = self.freed = 0

    def stat(self) -> Stat:
        """Return the quantity as a frozen record."""
        return Stat(self.current, self.peak, self.allocated, self.freed)


@dataclass(slots=True)
class Tally:
    """A set of blocks: their number, their bytes, and the requested bytes."""

    count: int = 0
    nbytes: int = 0
    requested: int = 0

    def add(self, block: Block, times: int = 1) -> None:
        """Add a block `times` times."""
        self.count += times
        self.nbytes += times * block.nbytes
        self.requested += times * block.requested

    def increase(self, count: int, nbytes: int, requested: int) -> None:
        """Add to each of the three numbers."""
        self.count += count
        self.nbytes += nbytes
        self.requested += requested

    def lift(self, other: Tally) -> None:
        """Raise each of the three numbers to the other's, if that is larger."""
        self.count = max(self.count, other.count)
        self.nbytes = max(self.nbytes, other.nbytes)
        self.requested = max(self.requested, other.requested)

    def become(self, other: Tally) -> None:
        """Copy the other's three numbers."""
        self.count, self.nbytes, self.requested = other.count, other.nbytes, other.requested

    def is_negative(self) -> bool:
        """Whether one of the three numbers is below 0."""
        return self.count < 0 or self.nbytes < 0 or self.requested < 0

    def minus(self, other: Tally) -> Tally:
        """Return the differences of the three numbers."""
        return Tally(self.count - other.count, self.nbytes - other.nbytes, self.requested - other.requested)

    def plus(self, other: Tally) -> Tally:
        """Return the sums of the three numbers."""
        return Tally(self.count + other.count, self.nbytes + other.nbytes, self.requested + other.requested)


@dataclass(slots=True)
class Account:
    """The blocks of one pool.

    Attributes
    ----------
    room : Tally
        What can still be cut out before `peak_live` could be exceeded; only this is counted at each block.
    peak_live, peak_active : Tally
        The peaks of live blocks, and of live blocks and those waiting for other streams.
    folded : Tally
        Uses of blocks that were merged.
    """

    room: Tally = field(default_factory=Tally)
    peak_live: Tally = field(default_factory=Tally)
    peak_active: Tally = field(default_factory=Tally)
    folded: Tally = field(default_factory=Tally)

    def lift(self, waiting: Tally | None) -> None:
        """Raise the peaks to what is cut now; `waiting` is the part of it that waits for other streams."""
        if waiting is None:
            self._lift_to_live()
            return
        cut = self.peak_live.minus(self.room)
        self.peak_active.lift(cut)
        self.peak_live.lift(cut.minus(waiting))
        self.room.become(self.peak_live.minus(cut))

    def _lift_to_live(self) -> None:
        """Do the same if nothing waits: each negative number in `room` raises a peak.

        Makes no object for each tally.
        """
        room, live, active = self.room, self.peak_live, self.peak_active
        if room.count < 0:
            live.count -= room.count
            active.count = max(active.count, live.count)
            room.count = 0
        if room.nbytes < 0:
            live.nbytes -= room.nbytes
            active.nbytes = max(active.nbytes, live.nbytes)
            room.nbytes = 0
        if room.requested < 0:
            live.requested -= room.requested
            active.requested = max(active.requested, live.requested)
            room.requested = 0

    def forget_peaks(self) -> None:
        """Set the peaks to 0."""
        self.room.become(self.room.minus(self.peak_live))
        self.peak_live, self.peak_active = Tally(), Tally()


#: The quantities of blocks: the field of a tally, and whether blocks that wait for other streams count.
_BLOCK_STATS = {
    "allocation": ("count", False),
    "active": ("count", True),
    "allocated_bytes": ("nbytes", False),
    "active_bytes": ("nbytes", True),
    "requested_bytes": ("requested", False),
}

_GAUGED = ("segment", "reserved_bytes", "inactive_split", "inactive_split_bytes")

_SCALARS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "num_oom_rejections",
)


class Counters:
    """Every figure of one allocator; callers hold the allocator's lock.

    Attributes
    ----------
    small, large, both : Tally
        What can still be cut out before a peak could be exceeded: for each size class, and for both together.
    both_accounts : Account
        All blocks.
    reserved : Gauge
        Bytes taken from sources.
    """

    def __init__(self) -> None:
        self.both_accounts, self._small, self._large, self._oversize = Account(), Account(), Account(), Account()
        self.small, self.large, self.both = self._small.room, self._large.room, self.both_accounts.room
        self._accounts = {
            "all": self.both_accounts,
            "small_pool": self._small,
            "large_pool": self._large,
            "oversize": self._oversize,
        }
        self._base: dict[tuple[str, str], Stat] = {}
        self._gauges = {name: {pool: Gauge() for pool in self._accounts} for name in _GAUGED}
        self.reserved = self._gauges["reserved_bytes"]["all"]
        self._scalars = dict.fromkeys(_SCALARS, 0)

    def count(self, scalar: str) -> None:
        """Increase `scalar` by one."""
        self._scalars[scalar] += 1

    def cut(self, block: Block, *, is_small: bool) -> bool:
        """Count a block that was cut out and is live; return whether a peak may have been exceeded."""
        own, both = self.small if is_small else self.large, self.both
        nbytes, requested = block.nbytes, block.requested
        own.count -= 1
        both.count -= 1
        own.nbytes -= nbytes
        both.nbytes -= nbytes
        own.requested -= requested
        both.requested -= requested
        if block.is_oversize:
            self._oversize.room.add(block, -1)
            return True
        return (  # `is_negative`, inlined to save two calls on every miss
            own.count < 0
            or both.count < 0
            or own.nbytes < 0
            or both.nbytes < 0
            or own.requested < 0
            or both.requested < 0
        )

    def refit(self, block: Block, nbytes: int, requested: int) -> bool:
        """Count a block of `nbytes` that is now cut out for `requested`.

        Return whether a peak may have been exceeded.
        """
        account, both = self._small if block.segment.is_small else self._large, self.both
        own, folded, uses, former = account.room, account.folded, block.uses, block.requested
        more, asked = block.nbytes - nbytes, requested - former
        folded.count += uses
        folded.nbytes += uses * nbytes
        folded.requested += uses * former
        own.nbytes -= more
        both.nbytes -= more
        own.requested -= asked
        both.requested -= asked
        return own.nbytes < 0 or both.nbytes < 0 or own.requested < 0 or both.requested < 0

    def mark_if_above(self, pending: Iterable[Block], *, is_certain: bool) -> None:
        """Call `mark` if more is cut than a peak, or if that `is_certain`."""
        if is_certain or self.small.is_negative() or self.large.is_negative() or self.both.is_negative():
            self.mark(pending)

    def uncut(self, blocks: Sequence[Block]) -> None:
        """Count blocks that are no longer cut out for their requests."""
        small = [block for block in blocks if block.segment.is_small]
        large = [block for block in blocks if not block.segment.is_small] if len(small) < len(blocks) else []
        for account, some in ((self._small, small), (self._large, large)):
            if not some:
                continue
            nbytes = requested = count = total = asked = 0  # local sums: attributes would be slower
            for block in some:
                size, wanted, uses = block.nbytes, block.requested, block.uses
                nbytes += size
                requested += wanted
                count += uses
                total += uses * size
                asked += uses * wanted
                if block.is_oversize:
                    self._oversize.room.add(block)
                    self._oversize.folded.add(block, uses)
            account.room.increase(len(some), nbytes, requested)
            self.both.increase(len(some), nbytes, requested)
            account.folded.increase(count, total, asked)

    def mark(self, pending: Iterable[Block]) -> None:
        """Raise the peaks to what is cut now.

        The quick lists are empty, and `pending` blocks wait for other streams.
        """
        waiting = _tallies(pending) if (pending := tuple(pending)) else None
        for pool, account in self._accounts.items():
            account.lift(None if waiting is None else waiting[pool])

    def reset_peaks(self, pending: Iterable[Block]) -> None:
        """Start new peaks; the quick lists are empty."""
        for account in self._accounts.values():
            account.forget_peaks()
        self.mark(pending)
        for gauge in self._each_gauge():
            gauge.reset_peak()

    def reset_totals(self, cut: Iterable[Block]) -> None:
        """Start new totals; `cut` are all blocks that are cut out."""
        self._base = self._block_stats(cut)
        for gauge in self._each_gauge():
            gauge.reset_totals()
        self._scalars = dict.fromkeys(_SCALARS, 0)

    def _each_gauge(self) -> Iterable[Gauge]:
        return (gauge for gauges in self._gauges.values() for gauge in gauges.values())

    def move_segment(self, nbytes: int, *, sign: int, is_small: bool, is_oversize: bool) -> None:
        """Count a segment that was added (`sign` 1) or removed (-1)."""
        for pool in ("all", "small_pool" if is_small else "large_pool", *(("oversize",) if is_oversize else ())):
            self._gauges["segment"][pool].move(sign)
            self._gauges["reserved_bytes"][pool].move(sign * nbytes)
        self.count("num_device_alloc" if sign > 0 else "num_device_free")

    def move_pages(self, nbytes: int) -> None:
        """Count pages that were added (more than 0 bytes) or removed."""
        for pool in ("all", "large_pool"):
            self._gauges["reserved_bytes"][pool].move(nbytes)
        self.count("num_device_alloc" if nbytes > 0 else "num_device_free")

    def move_span(self, sign: int) -> None:
        """Count an address range that was added (1) or removed (-1): a segment that grows."""
        for pool in ("all", "large_pool"):
            self._gauges["segment"][pool].move(sign)

    def move_to_small(self, nbytes: int) -> None:
        """Count memory that became a segment of the small pool (more than 0 bytes), or returned to the large one."""
        sign = 1 if nbytes > 0 else -1
        for pool in ("all", "small_pool"):
            self._gauges["segment"][pool].move(sign)
        self._gauges["reserved_bytes"]["small_pool"].move(nbytes)
        self._gauges["reserved_bytes"]["large_pool"].move(-nbytes)

    def statistics(
        self,
        cut: Iterable[Block],
        idle: Iterable[Block],
        *,
        max_split_size: int,
        private: Mapping[tuple[int, int], int],
    ) -> MemoryStatistics:
        """Return all current figures; `cut` are all blocks that are cut out, `idle` the free ones of split segments."""
        for pool, tally in _tallies(idle).items():
            self._gauges["inactive_split"][pool].sample(tally.count)
            self._gauges["inactive_split_bytes"][pool].sample(tally.nbytes)
        found = {key: stat.since(self._base.get(key)) for key, stat in self._block_stats(cut).items()}
        for name, gauges in self._gauges.items():
            found |= {(name, pool): gauge.stat() for pool, gauge in gauges.items()}
        pools: dict[str, Any] = {name: _pool_stat(found, name) for name in (*_BLOCK_STATS, *_GAUGED)}
        scalars: dict[str, Any] = dict(self._scalars)
        return MemoryStatistics(
            **pools,
            **scalars,
            oversize_allocations=found["allocation", "oversize"],
            oversize_segments=found["segment", "oversize"],
            max_split_size=max_split_size,
            reserved_bytes_by_private_pools=private,
        )

    def _block_stats(self, cut: Iterable[Block]) -> dict[tuple[str, str], Stat]:
        """Return the statistics by quantity and pool, with totals since the beginning."""
        self.both_accounts.folded = self._small.folded.plus(self._large.folded)
        blocks = tuple(cut)
        uses = _tallies(blocks, by_use=True)
        live = _tallies(block for block in blocks if block.is_live)
        active = _tallies(block for block in blocks if block.is_live or block.is_pending)
        stats = {}
        for name, (of, is_active) in _BLOCK_STATS.items():
            for pool, account in self._accounts.items():
                current = getattr((active if is_active else live)[pool], of)
                peak = getattr(account.peak_active if is_active else account.peak_live, of)
                total = getattr(account.folded, of) + getattr(uses[pool], of)
                stats[name, pool] = Stat(current, peak, total, total - current)
        return stats


def _pool_stat(found: Mapping[tuple[str, str], Stat], name: str) -> PoolStat:
    return PoolStat(*(found[name, pool] for pool in ("all", "small_pool", "large_pool")))


def _tallies(blocks: Iterable[Block], *, by_use: bool = False) -> dict[str, Tally]:
    tallies = {pool: Tally() for pool in ("all", "small_pool", "large_pool", "oversize")}
    for block in blocks:
        times = block.uses if by_use else 1
        tallies["all"].add(block, times)
        tallies["small_pool" if block.segment.is_small else "large_pool"].add(block, times)
        if block.is_oversize:
            tallies["oversize"].add(block, times)
    return tallies
