"""The caching allocator against a shadow model: random programs, every invariant after every step."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from recount import Recount

from cuassay.errors import ArgumentError, OutOfMemoryError
from cuassay.memory import Block, CachingAllocator, IntegerSource, Pool
from cuassay.memory.trace import ShadowModel

MIB = 2**20
STREAMS = st.integers(0, 2)
#: Few different ones, so that blocks are reused; all classes of them.
SIZES = st.one_of(
    st.sampled_from([0, 1000, MIB, MIB + 1, 3 * MIB, 11 * MIB]),
    st.integers(0, 4096),
    st.integers(MIB, 24 * MIB),
)
CONFIGS = (
    "",
    "max_split_size_mb:20",
    "roundup_power2_divisions:[2:4,>:8]",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
    "large_segment_size_mb:12",
)


class CountingSource(IntegerSource):
    """Counts the calls that are about memory, those that fail too."""

    calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name in {"reserve", "release", "span", "map", "unmap", "alias"}:
            self.calls += 1
        return super().__getattribute__(name)


class Programs(RuleBasedStateMachine):
    """Several streams, private pools, other streams' use, exhaustion, captures and resets, in any order."""

    @initialize(
        config=st.sampled_from(CONFIGS),
        total=st.sampled_from([64 * MIB, 200 * MIB]),
        granularity=st.sampled_from([0, 2 * MIB]),
    )
    def start(self, config: str, total: int, granularity: int) -> None:
        self.source = CountingSource(total, is_lazy=True, granularity=granularity)
        self.allocator = CachingAllocator(self.source, total=total, config=config)
        self.shadow = ShadowModel(self.source)
        self.recount = Recount()
        self.live: list[Block] = []
        self.pools: list[Pool] = []
        self.unsafe: list[tuple[int, int, int, tuple[int, ...]]] = []

    @rule(nbytes=SIZES, stream=STREAMS, pool=st.none() | st.integers(0, 3))
    def take(self, nbytes: int, stream: int, pool: int | None) -> None:
        self.malloc(nbytes, stream, pool)

    def malloc(self, nbytes: int, stream: int, pool: int | None) -> None:
        chosen = None if pool is None or pool >= len(self.pools) else self.pools[pool]
        try:
            block = self.allocator.stream_pool(stream, chosen).malloc(nbytes)
        except OutOfMemoryError:
            return
        self.shadow.took(block, nbytes, stream)
        self.recount.took(block)
        self.live.append(block)
        self._demand_ordered(block)

    def _demand_ordered(self, block: Block) -> None:
        """Work of other streams on these bytes is done, or this stream was told to wait for it."""
        ranges = self.source.physical(block.address, block.nbytes)
        for low, high, stream, events in self.unsafe:
            if any(low < end and begin < high for begin, end in ranges):
                waited = {event for waiter, event in self.source.waits if waiter == stream}
                assert all(self.source.query(event) or event in waited for event in events)

    @rule(seed=st.integers(0, 2**16))
    def many_of_few_sizes_come_and_go(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311  # a program, no secret
        sizes = [chance.choice([chance.randrange(1, 4096), chance.randrange(1, 4 * MIB)]) for _ in range(3)]
        for _ in range(40):
            if self.live and chance.random() < 0.5:
                self._free(chance.randrange(len(self.live)))
            else:
                self.malloc(chance.choice(sizes), chance.randrange(2), None)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: Any) -> None:
        self._free(data.draw(st.integers(0, len(self.live) - 1)))

    def _free(self, position: int) -> None:
        block = self.live.pop(position)
        self.shadow.gave(block)
        self.recount.gave(block)
        self.allocator.free(block)
        if block.events:
            ranges = self.source.physical(block.address, block.nbytes)
            self.unsafe += [(low, high, block.stream, block.events) for low, high in ranges]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), stream=STREAMS)
    def record_stream(self, data: Any, stream: int) -> None:
        self.allocator.record_stream(data.draw(st.sampled_from(self.live)), stream)

    @precondition(lambda self: self.source.pending())
    @rule(data=st.data())
    def an_event_is_reached(self, data: Any) -> None:
        self.source.complete(data.draw(st.sampled_from(self.source.pending())))

    @rule()
    def empty_cache(self) -> None:
        self.allocator.empty_cache()

        assert not any(
            segment.held and segment.first.is_whole and segment.first.state == "inactive"
            for segment in self.allocator.segments()
            if not segment.stream_pool.pool.is_private
        )

    @rule(use_on_oom=st.booleans(), no_split=st.booleans())
    def create_pool(self, use_on_oom: bool, no_split: bool) -> None:
        self.pools.append(self.allocator.create_pool(use_on_oom=use_on_oom, no_split=no_split))

    @precondition(lambda self: self.pools)
    @rule()
    def release_pool(self) -> None:
        self.allocator.release_pool(self.pools.pop())

    @precondition(lambda self: self.live)
    @rule()
    def a_double_free_changes_nothing(self) -> None:
        block = self.live[-1]
        self._free(-1)

        with pytest.raises(ArgumentError, match="freed twice"):
            self.allocator.free(block)

    @rule()
    def reset_peaks(self) -> None:
        self.allocator.reset_peak_stats()
        self.shadow.reset_peaks()
        self.recount.reset_peaks()

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "allocator"):
            self.shadow.check(self.allocator)
            assert self.source.total - self.source.free == self.allocator.statistics().reserved_bytes.all.current
            assert self.source.total - self.source.free <= self.allocator.heap.allowed
            assert self.allocator.driver_calls == self.source.calls

    def teardown(self) -> None:
        """Every figure of every pool, and the snapshot; at the end alone, for both take longer than a step."""
        if hasattr(self, "allocator"):
            self.recount.check(self.allocator)


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
