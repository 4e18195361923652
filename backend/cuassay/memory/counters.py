"""The books of an allocator: what it counts as it goes, and how the exact figures are drawn from that.

A hit in a quick list does no book-keeping, and yet every figure here but one is exact. Let *cut* be the bytes of all
blocks cut out for some request, live or parked in a quick list: a hit and a free leave it as it is, and live bytes
never exceed it. Whenever a newly cut block would lift it above the recorded peak, the quick lists are emptied first,
so that it *is* the live bytes, and the peak is set to that. So ``live <= cut <= peak`` always, and the peak is one
that was reached. Totals come from each block's count of uses, folded in when it is merged away. The exception is
``inactive_split``, whose peak and totals are sampled whenever statistics are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuassay.memory.blocks import Block
from cuassay.memory.statistics import MemoryStatistics, PoolStat, Stat

__all__ = ["Counters", "Gauge"]


class Gauge:
    """One quantity that is counted as it changes."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def move(self, amount: int) -> None:
        """Add `amount`; negative for what went."""
        self.current += amount
        if amount > 0:
            self.allocated += amount
            self.peak = max(self.peak, self.current)
        else:
            self.freed -= amount

    def settle(self, current: int) -> None:
        """Take a sample: `current` is the quantity now."""
        self.move(current - self.current)

    def reset_peak(self) -> None:
        """From here the peak is a new one."""
        self.peak = self.current

    def reset_totals(self) -> None:
        """From here the totals are new ones."""
        self.allocated = self.freed = 0

    def stat(self) -> Stat:
        """Its record."""
        return Stat(self.current, self.peak, self.allocated, self.freed)


@dataclass(slots=True)
class Tally:
    """Blocks: how many, their bytes, and the bytes asked for."""

    count: int = 0
    nbytes: int = 0
    requested: int = 0

    def add(self, block: Block, times: int = 1) -> None:
        """Count a block in, so often."""
        self.count += times
        self.nbytes += times * block.nbytes
        self.requested += times * block.requested

    def increase(self, count: int, nbytes: int, requested: int) -> None:
        """So much more of each."""
        self.count += count
        self.nbytes += nbytes
        self.requested += requested

    def lift(self, other: Tally) -> None:
        """Let each of the three be no less than the other's."""
        self.count = max(self.count, other.count)
        self.nbytes = max(self.nbytes, other.nbytes)
        self.requested = max(self.requested, other.requested)

    def become(self, other: Tally) -> None:
        """Take over the other's three."""
        self.count, self.nbytes, self.requested = other.count, other.nbytes, other.requested

    def is_negative(self) -> bool:
        """Whether one of the three is less than nothing."""
        return self.count < 0 or self.nbytes < 0 or self.requested < 0

    def minus(self, other: Tally) -> Tally:
        """The difference of each of the three."""
        return Tally(self.count - other.count, self.nbytes - other.nbytes, self.requested - other.requested)

    def plus(self, other: Tally) -> Tally:
        """The sum of each of the three."""
        return Tally(self.count + other.count, self.nbytes + other.nbytes, self.requested + other.requested)


@dataclass(slots=True)
class Account:
    """The blocks of one pool.

    Attributes
    ----------
    room : Tally
        What can be cut out before `peak_live` could be passed: all that is counted at each block.
    peak_live, peak_active : Tally
        The most that were live; the same with those that waited.
    folded : Tally
        Uses of blocks that are merged away.
    """

    room: Tally = field(default_factory=Tally)
    peak_live: Tally = field(default_factory=Tally)
    peak_active: Tally = field(default_factory=Tally)
    folded: Tally = field(default_factory=Tally)

    def lift(self, waiting: Tally | None) -> None:
        """Let the peaks be no less than what is cut now; of that, so much waits for other streams."""
        cut = self.peak_live.minus(self.room)
        self.peak_active.lift(cut)
        self.peak_live.lift(cut if waiting is None else cut.minus(waiting))
        self.room.become(self.peak_live.minus(cut))

    def forget_peaks(self) -> None:
        """Let the peaks be nothing."""
        self.room.become(self.room.minus(self.peak_live))
        self.peak_live, self.peak_active = Tally(), Tally()


#: The quantities of blocks: from which tally, and whether blocks that wait for other streams count.
_BLOCK_STATS = {
    "allocation": ("count", False),
    "active": ("count", True),
    "allocated_bytes": ("nbytes", False),
    "active_bytes": ("nbytes", True),
    "requested_bytes": ("requested", False),
}

_METERED = ("segment", "reserved_bytes", "inactive_split", "inactive_split_bytes")

_SCALARS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "num_oom_rejections",
)


class Counters:
    """Every figure of one allocator; it is written under the allocator's lock.

    Attributes
    ----------
    small, large, both : Tally
        What can be cut out before a peak could be passed: of one pool, and of the two together.
    """

    def __init__(self) -> None:
        self._all, self._small, self._large, self._oversize = Account(), Account(), Account(), Account()
        self.small, self.large, self.both = self._small.room, self._large.room, self._all.room
        self._accounts = {
            "all": self._all,
            "small_pool": self._small,
            "large_pool": self._large,
            "oversize": self._oversize,
        }
        self._base: dict[tuple[str, str], Stat] = {}
        self._meters = {name: {pool: Gauge() for pool in self._accounts} for name in _METERED}
        self._scalars = dict.fromkeys(_SCALARS, 0)

    @property
    def reserved(self) -> int:
        """Bytes taken from sources, now."""
        return self._meters["reserved_bytes"]["all"].current

    @property
    def peak_live(self) -> int:
        """The most bytes that were live, since peaks were reset."""
        return self._all.peak_live.nbytes

    def count(self, scalar: str) -> None:
        """One more of `scalar`."""
        self._scalars[scalar] += 1

    def cut(self, block: Block, *, is_small: bool) -> bool:
        """A block was cut out and is live; True when the peaks must be looked at."""
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
        return (  # `is_negative` written out: two calls less on every miss
            own.count < 0
            or both.count < 0
            or own.nbytes < 0
            or both.nbytes < 0
            or own.requested < 0
            or both.requested < 0
        )

    def refit(self, block: Block, nbytes: int, requested: int) -> bool:
        """A parked block of `nbytes` is cut out for `requested` instead, as it is now; True as `cut` tells."""
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

    def is_above(self) -> bool:
        """Whether more is cut than a peak."""
        return self.small.is_negative() or self.large.is_negative() or self.both.is_negative()

    def uncut(self, blocks: Sequence[Block]) -> None:
        """Blocks are no longer cut out for their requests."""
        small = [block for block in blocks if block.segment.is_small]
        large = [block for block in blocks if not block.segment.is_small] if len(small) < len(blocks) else []
        for account, some in ((self._small, small), (self._large, large)):
            if not some:
                continue
            nbytes = requested = count = total = asked = 0  # added up here: each is an attribute of a slower object
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
        """Lift the peaks to what is cut now; no block is parked, and `pending` wait for other streams."""
        waiting = _tallies(pending) if (pending := tuple(pending)) else None
        for pool, account in self._accounts.items():
            account.lift(None if waiting is None else waiting[pool])

    def reset_peaks(self, pending: Iterable[Block]) -> None:
        """From here peaks are new ones; no block is parked."""
        for account in self._accounts.values():
            account.forget_peaks()
        self.mark(pending)
        for meter in self._each_meter():
            meter.reset_peak()

    def reset_totals(self, cut: Iterable[Block]) -> None:
        """From here totals are new ones; `cut` are all blocks that are cut out."""
        self._base = self._block_stats(cut)
        for meter in self._each_meter():
            meter.reset_totals()
        self._scalars = dict.fromkeys(_SCALARS, 0)

    def _each_meter(self) -> Iterable[Gauge]:
        return (meter for meters in self._meters.values() for meter in meters.values())

    def move_segment(self, nbytes: int, *, sign: int, is_small: bool, is_oversize: bool) -> None:
        """A segment came (`sign` 1) or went (-1)."""
        for pool in ("all", "small_pool" if is_small else "large_pool", *(("oversize",) if is_oversize else ())):
            self._meters["segment"][pool].move(sign)
            self._meters["reserved_bytes"][pool].move(sign * nbytes)
        self.count("num_device_alloc" if sign > 0 else "num_device_free")

    def move_pages(self, nbytes: int) -> None:
        """Pages came (more than 0 bytes) or went."""
        for pool in ("all", "large_pool"):
            self._meters["reserved_bytes"][pool].move(nbytes)
        self.count("num_device_alloc" if nbytes > 0 else "num_device_free")

    def move_span(self, sign: int) -> None:
        """A span of addresses came (1) or went (-1): a segment that grows."""
        for pool in ("all", "large_pool"):
            self._meters["segment"][pool].move(sign)

    def move_to_small(self, nbytes: int) -> None:
        """Memory became a segment of the small pool (more than 0 bytes), or went back to the large one."""
        sign = 1 if nbytes > 0 else -1
        for pool in ("all", "small_pool"):
            self._meters["segment"][pool].move(sign)
        self._meters["reserved_bytes"]["small_pool"].move(nbytes)
        self._meters["reserved_bytes"]["large_pool"].move(-nbytes)

    def statistics(
        self,
        cut: Iterable[Block],
        idle: Iterable[Block],
        *,
        max_split_size: int,
        private: Mapping[tuple[int, int], int],
    ) -> MemoryStatistics:
        """The record of now; `cut` are all blocks that are cut out, `idle` the free ones of split segments."""
        for pool, tally in _tallies(idle).items():
            self._meters["inactive_split"][pool].settle(tally.count)
            self._meters["inactive_split_bytes"][pool].settle(tally.nbytes)
        found = {key: stat.since(self._base.get(key)) for key, stat in self._block_stats(cut).items()}
        for name, meters in self._meters.items():
            found |= {(name, pool): meter.stat() for pool, meter in meters.items()}
        pools: dict[str, Any] = {name: _pool_stat(found, name) for name in (*_BLOCK_STATS, *_METERED)}
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
        """By quantity and pool, with totals since the beginning."""
        self._all.folded = self._small.folded.plus(self._large.folded)
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
