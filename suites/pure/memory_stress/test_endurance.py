"""Long random programs against a model of the machine: what it holds, who reads it, and what is ordered by what.

Several streams and pools, other streams' use, captures, exhaustion, four threads, and driver calls that raise. The
short programs are tests. ``python suites/pure/memory_stress/test_endurance.py [OPERATIONS] [SEED]`` runs the long
ones, as ``ci/run endurance`` does, and tells operations, seeds and faults.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from time import perf_counter
from typing import Any

import pytest

from cuassay.core.interrupts import mark_early, mark_late
from cuassay.errors import OutOfMemoryError
from cuassay.memory import Block, CachingAllocator, HostAllocator, IntegerSource, Pool
from cuassay.memory.host import HOST
from cuassay.memory.trace import ShadowModel

MIB = 2**20
TOTAL = 256 * MIB
PAGE = 2 * MIB
CONFIGS = (
    "",
    "max_split_size_mb:20,garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4,per_process_memory_fraction:0.7",
)
PINNED = "pinned_max_cached_size_mb:100"

#: How many of a stream's pieces of work: what a stream, or the host, knows to be done.
Clock = dict[int, int]


class InjectedError(Exception):
    """What a call of the driver raises."""


class Interrupt(KeyboardInterrupt):
    """Ctrl-C during a call of the driver."""


class Machine(IntegerSource):
    """Frames of physical memory, streams with vector clocks, and calls that raise.

    A frame is what `reserve` gave, or a page: the next at its address is another. Work on bytes of a frame is kept with
    the clock's tick of its stream, and must be ordered before the work of whoever is given these bytes next.

    Parameters
    ----------
    granularity : int
        Bytes of a page; 0: segments alone.
    seed : int
        Decides which calls raise.
    rate : float
        The share of calls that raise.

    Attributes
    ----------
    injected : Counter
        Calls that raised, by name and kind.
    """

    def __init__(self, granularity: int, seed: int, rate: float = 0.0) -> None:
        super().__init__(TOTAL, is_lazy=True, granularity=granularity)
        self.injected: Counter[str] = Counter()
        self.rate = rate
        self.captures = 0
        #: The first breach of a rule: an allocator that makes room goes on where a call raises.
        self.breach = ""
        self._chance = random.Random(seed)  # noqa: S311  # a program, no secret
        self._numbers = count()
        self._frames: dict[int, int] = {}  # by address
        self._readers: Counter[int] = Counter()  # live blocks, by frame, and by the negative start of their range
        self._uses: dict[int, list[tuple[int, int, Clock]]] = {}  # by frame: from, to, and the last work there
        self._shown: dict[int, Clock] = {}  # by the start of a range: the last work through it
        self._clocks: dict[int, Clock] = {HOST: {}}
        self._events: dict[int, Clock] = {}

    @property
    def held(self) -> int:
        """Bytes in use."""
        return self.total - self.free

    def _risk(self, call: str, done: Callable[[], object] | None = None) -> None:
        """Raise now and then; where `done` is given, also when the call is done."""
        if not self.rate or self._chance.random() >= self.rate:
            return
        kinds = [InjectedError, Interrupt, *([OutOfMemoryError] if call in ("reserve", "span", "map", "alias") else ())]
        error = self._chance.choice(kinds)(f"injected into {call}")
        is_late = done is not None and self._chance.random() < 0.3
        self.injected[f"{call}, {type(error).__name__}{', when it was done' if is_late else ''}"] += 1
        if is_late and done is not None:
            done()
            mark_late(error)
        else:
            mark_early(error)
        raise error

    def _demand(self, condition: object, breach: str) -> None:
        if not condition:
            self.breach = self.breach or breach
            raise AssertionError(breach)

    # ---------------------------------------------------------------------------------------------- memory

    def reserve(self, nbytes: int, stream: int) -> int:
        with self._lock:
            self._risk("reserve")
            address = super().reserve(nbytes, stream)
            self._frames[address] = next(self._numbers)
            return address

    def span(self, nbytes: int, stream: int) -> int:
        with self._lock:
            self._risk("span")
            return super().span(nbytes, stream)

    def map(self, address: int, pages: Sequence[int]) -> None:
        with self._lock:
            self._risk("map")
            super().map(address, pages)
            self._frames |= {address + number * PAGE: next(self._numbers) for number in range(len(pages))}

    def alias(self, pages: Sequence[int]) -> int:
        with self._lock:
            self._risk("alias")
            return super().alias(pages)

    def unmap(self, pages: Sequence[int]) -> None:
        with self._lock:
            self._risk("unmap", lambda: self._unmap(pages))
            self._unmap(pages)

    def _unmap(self, pages: Sequence[int]) -> None:
        self._demand_no_capture("unmap")
        super().unmap(pages)
        for page in pages:
            frame = self._frames.pop(page)
            self._demand(not self._readers[frame], f"the page at {page:#x} went back while a block was live in it")
            for _, _, use in self._uses.pop(frame, ()):
                self._demand_ordered(use, HOST, f"the page at {page:#x} went back")

    def release(self, address: int) -> None:
        with self._lock:
            self._risk("release", lambda: self._release(address))
            self._release(address)

    def _release(self, address: int) -> None:
        self._demand_no_capture("release")
        self._demand(not self._readers[-address], f"the range at {address:#x} went back while a block was live in it")
        is_alias = address in self.aliases
        super().release(address)
        self._uses.pop(self._frames.pop(address, -1), None)
        used = self._shown.pop(address, {})
        if is_alias:
            self._demand_ordered(used, HOST, f"the alias at {address:#x} went back")

    def _demand_no_capture(self, call: str) -> None:
        self._demand(not self.captures, f"{call} was called during a capture")

    # ---------------------------------------------------------------------------------------------- order

    def synchronize(self, streams: Sequence[int]) -> None:
        with self._lock:
            self._risk("synchronize")
            self._demand_no_capture("synchronize")
            super().synchronize(streams)
            self.waits = [(stream, event) for stream, event in self.waits if stream not in streams]
            for stream in streams:
                self._join(HOST, self._clock(stream))

    def record(self, stream: int) -> int:
        with self._lock:
            self._risk("record")
            event = super().record(stream)
            self._join(stream, self._clocks[HOST])
            self._events[event] = dict(self._clock(stream))
            return event

    def wait(self, stream: int, event: int) -> None:
        with self._lock:
            self._risk("wait")
            super().wait(stream, event)
            self._join(stream, self._events[event])

    def query(self, event: int) -> bool:
        with self._lock:
            self._risk("query")
            is_reached = super().query(event)
            if is_reached:
                self._join(HOST, self._events[event])
            return is_reached

    def _clock(self, stream: int) -> Clock:
        return self._clocks.setdefault(stream, {})

    def _join(self, stream: int, other: Clock) -> None:
        mine = self._clock(stream)
        mine |= {who: tick for who, tick in other.items() if tick > mine.get(who, 0)}

    def _demand_ordered(self, use: Clock, stream: int, what: str) -> None:
        """Work of the host's and of `stream` from here comes after `use`."""
        mine, host = self._clock(stream), self._clocks[HOST]
        for who, tick in use.items():
            known = max(mine.get(who, 0), host.get(who, 0))
            self._demand(
                tick <= known, f"{what}, and work {tick} of stream {who} is not ordered before (known: {known})"
            )

    # ---------------------------------------------------------------------------------------------- who reads it

    def frames(self, block: Block) -> list[tuple[int, int, int]]:
        """The frames that `block` lies in, and from where to where."""
        found = []
        for low, high in self.physical(block.address, block.nbytes):
            segment = self._start(low)
            if segment in self._held:
                found.append((self._frames[segment], low - segment, high - segment))
                continue
            pages = range(low // PAGE * PAGE, high, PAGE)
            found += [(self._frames[page], max(low - page, 0), min(high - page, PAGE)) for page in pages]
        return found

    def _start(self, address: int) -> int:
        return self._starts[bisect_right(self._starts, address) - 1]

    def took(self, block: Block, stream: int) -> None:
        """`block` was given out; what it holds is ordered before the work of `stream`."""
        for frame, low, high in self.frames(block):
            self._readers[frame] += 1
            left = []
            for begin, end, use in self._uses.get(frame, ()):
                if end <= low or high <= begin:
                    left.append((begin, end, use))
                    continue
                self._demand_ordered(use, stream, f"{block!r} was given out")
                left += [(a, b, use) for a, b in ((begin, low), (high, end)) if a < b]
            self._uses[frame] = left
        self._readers[-self._start(block.address)] += 1

    def gave(self, block: Block, stream: int) -> None:
        """`block` is about to be freed, after work of its stream and of its users."""
        use = {}
        for who in (stream, *block.users):
            clock = self._clock(who)
            use[who] = clock[who] = clock.get(who, 0) + 1
        for frame, low, high in self.frames(block):
            self._readers[frame] -= 1
            self._uses[frame].append((low, high, use))
        start = self._start(block.address)
        self._readers[-start] -= 1
        self._shown[start] = self._shown.get(start, {}) | use


def demand(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of program: the allocator's configuration, its pages, and the share of calls that raise."""

    config: str
    granularity: int = 0
    rate: float = 0.0

    @property
    def is_host(self) -> bool:
        """Whether it is pinned memory."""
        return self.config == PINNED

    def __str__(self) -> str:
        return f"{self.config or 'plain'}, {'pages' if self.granularity else 'segments'}"


class World:
    """What the threads of one program share."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind = kind
        self.source = Machine(kind.granularity, seed, kind.rate)
        self.allocator = (
            HostAllocator(self.source, config=kind.config)
            if kind.is_host
            else CachingAllocator(self.source, total=TOTAL, config=kind.config)
        )
        self.shadow = ShadowModel(self.source)
        self.passed: deque[tuple[Block, int]] = deque()
        self.is_shared = False

    def check(self) -> None:
        """Counters, snapshot and source say the same, and what is live is what was given; nobody is at work."""
        with self.source._lock:
            self.shadow.check(self.allocator, with_peaks=not self.is_shared)
            figures, snapshot = self.allocator.statistics(), self.allocator.snapshot()
            shown = sum(segment["total_size"] for segment in snapshot["segments"])
            reserved = figures.reserved_bytes.all.current
            demand(shown == reserved == self.source.held, f"{shown=}, {reserved=}, {self.source.held=}")

    def end(self) -> None:
        """Everything was freed: nothing is active or held for ever."""
        self.source.rate = 0.0
        self.allocator.empty_cache()  # marks what could not be marked when it was freed
        for event in self.source.pending():
            self.source.complete(event)
        self.allocator.empty_cache()
        self.check()
        figures = self.allocator.statistics()
        demand(figures.active_bytes.all.current == 0, "something is active for ever")
        demand(not self.source.ranges and not self.source.pages, f"the source still has {self.source.ranges}")
        demand(not self.source.held, "the source still holds something")


class Program:
    """The random program of one thread; alone, the same seed gives the same one."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.source, self.allocator = world, world.source, world.allocator
        self.chance = random.Random(seed)  # noqa: S311  # a program, no secret
        self.live: list[tuple[Block, int]] = []
        self.pools: list[Pool | None] = [None]
        self.streams = [HOST] if world.kind.is_host else [0, 1, 2]
        self.refused = self.interrupted = 0
        self.sizes = [self.chance.choice((2000, MIB, 30 * MIB)) * k // 16 for k in range(1, 25)]

    def run(self, operations: int, meet: Callable[[], object], every: int) -> None:
        """This many operations; now and then all threads meet."""
        steps = (self.take, self.give, self.lend, self.reach, self.empty, self.swap_pool, self.capture, self.maintain)
        chosen = self.chance.choices(steps, (500, 480, 30, 30, 1, 1, 1, 2), k=operations)
        for number, step in enumerate(chosen, start=1):
            self.attempt(step)
            if number % every == 0:
                meet()

    def attempt(self, step: Callable[[], object]) -> None:
        """Take a step, which may be interrupted."""
        try:
            step()
        except (InjectedError, Interrupt):
            self.interrupted += 1
        demand(not self.source.breach, self.source.breach)

    def take(self) -> None:
        nbytes, stream = self.chance.choice(self.sizes), self.chance.choice(self.streams)
        stream_pool = self.allocator.stream_pool(stream, self.chance.choice(self.pools))
        try:
            block = stream_pool.malloc(nbytes)
        except OutOfMemoryError:
            self.refused += 1
            for _ in range(len(self.live) // 2):
                self.attempt(self.give)
            return
        with self.source._lock:
            self.world.shadow.took(block, nbytes, stream)
            self.source.took(block, stream)
        self.live.append((block, stream))

    def give(self) -> None:
        if not self.live:
            return
        position = self.chance.randrange(len(self.live))
        self.live[position], self.live[-1] = self.live[-1], self.live[position]
        if self.world.is_shared and self.chance.random() < 0.1:
            self.world.passed.append(self.live.pop())
            self.live.append(self.world.passed.popleft())
        self.free(*self.live.pop())

    def free(self, block: Block, stream: int) -> None:
        with self.source._lock:
            self.source.gave(block, stream)
            self.world.shadow.gave(block)
        try:
            self.allocator.free(block)
        finally:
            demand(not block.is_live or self.world.is_shared, f"{block!r} was freed, and is live")

    def lend(self) -> None:
        if self.live:
            self.allocator.record_stream(self.chance.choice(self.live)[0], self.chance.randrange(5))

    def reach(self) -> None:
        for event in self.source.pending()[: self.chance.randrange(8)]:
            self.source.complete(event)

    def empty(self) -> None:
        self.allocator.empty_cache()

    def swap_pool(self) -> None:
        if len(self.pools) > 1:
            self.leave_pool()
        elif not self.world.kind.is_host:
            self.pools.append(self.allocator.create_pool(use_on_oom=self.chance.random() < 0.5))

    def leave_pool(self) -> None:
        pool = self.pools.pop()
        if pool is not None:
            self.allocator.release_pool(pool)

    def capture(self) -> None:
        """A short capture, in which nothing goes back."""
        with ExitStack() as stack:
            stack.enter_context(self.allocator.capturing())
            stack.callback(self._count_capture, -1)
            self._count_capture(1)
            for step in self.chance.choices((self.take, self.give, self.lend), k=20):
                self.attempt(step)

    def _count_capture(self, change: int) -> None:
        with self.source._lock:
            self.source.captures += change

    def maintain(self) -> None:
        if isinstance(self.allocator, HostAllocator):
            with suppress(OutOfMemoryError):  # there is no room to pin ahead
                self.allocator.maintain()

    def end(self) -> None:
        """Free everything."""
        for block, stream in self.live:
            self.attempt(partial(self.free, block, stream))
        while len(self.pools) > 1:
            self.leave_pool()


def run_alone(kind: Kind, seed: int, operations: int, every: int = 5000) -> tuple[World, list[Program]]:
    """One program; raises what it finds, with the seed."""
    world = World(kind, seed)
    program = Program(world, seed)
    try:
        program.run(operations, world.check, every)
        program.end()
        world.end()
    except BaseException as error:
        error.add_note(f"{kind}, alone, seed {seed}, rate {kind.rate}")
        raise
    return world, [program]


def run_together(kind: Kind, seed: int, operations: int, every: int = 2000) -> tuple[World, list[Program]]:
    """Four programs in four threads, with a number of operations each; raises the first fault, with the seed."""
    world = World(kind, seed)
    world.is_shared = True
    programs = [Program(world, 1000 * seed + number) for number in range(4)]
    faults: list[BaseException] = []
    meeting = threading.Barrier(len(programs), world.check, timeout=600)

    def work(program: Program) -> None:
        try:
            program.run(operations, meeting.wait, every)
            program.end()
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:  # noqa: BLE001  # raised below
            faults.append(error)
            meeting.abort()

    threads = [threading.Thread(target=work, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        raise_first(faults)
        programs[0].live = [*world.passed]
        programs[0].end()
        world.end()
    except BaseException as error:
        error.add_note(f"{kind}, four threads, seed {seed}, rate {kind.rate}")
        raise
    return world, programs


def raise_first(faults: list[BaseException]) -> None:
    if faults:
        raise faults[0]


@pytest.fixture(autouse=True)
def _quick_collections() -> Iterator[None]:
    """Before it gives up the allocator collects garbage: the session's objects need not be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def _often() -> Iterator[None]:
    """Threads change places at nearly every instruction."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(former)


GRANULARITIES = pytest.mark.parametrize("granularity", [0, PAGE], ids=["segments", "pages"])
NAMED = pytest.mark.parametrize("config", CONFIGS, ids=["plain", "unsplit", "rounded"])


@GRANULARITIES
@NAMED
def test_tens_of_thousands_of_operations_leave_no_fault(config: str, granularity: int) -> None:
    _, (program,) = run_alone(Kind(config, granularity), 2026, 10_000)

    assert program.refused > 0


@GRANULARITIES
@NAMED
def test_calls_that_raise_leave_no_fault(config: str, granularity: int) -> None:
    world, (program,) = run_alone(Kind(config, granularity, 0.05), 2027, 4000, every=50)

    assert program.interrupted > 0
    assert {"release", "record", "query", "wait"} <= {name.partition(",")[0] for name in world.source.injected}


@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("rate", [0.0, 0.05], ids=["sound", "faulty"])
@GRANULARITIES
def test_four_threads_leave_no_fault(granularity: int, rate: float) -> None:
    _, programs = run_together(Kind("", granularity, rate), 2028, 1500, every=300)

    assert sum(program.refused for program in programs) > 0


@pytest.mark.parametrize("rate", [0.0, 0.05], ids=["sound", "faulty"])
def test_pinned_memory_leaves_no_fault(rate: float) -> None:
    world, _ = run_alone(Kind(PINNED, 0, rate), 2029, 4000, every=100)

    assert world.source.releases > 0


def test_the_same_seed_is_the_same_program() -> None:
    first, second = (run_alone(Kind("", PAGE, 0.05), 7, 1500)[0].source for _ in range(2))

    assert first.injected == second.injected
    assert (first.driver_calls, first.waits) == (second.driver_calls, second.waits)


# ------------------------------------------------------------------------------------------------ the long ones


def main(operations: int, seed: int) -> None:
    """This many operations alone and by four threads each, and a tenth of them with faults, in every configuration."""
    gc.freeze()
    kinds = [*product(CONFIGS, (0, PAGE)), (PINNED, 0)]
    injected: Counter[str] = Counter()
    sys.setswitchinterval(1e-5)
    runs: tuple[tuple[str, Callable[..., Any], int, float], ...] = (
        ("alone", run_alone, operations // len(kinds), 0.0),
        ("alone, faults", run_alone, operations // 10 // len(kinds), 0.05),
        ("four threads", run_together, operations // 4 // len(kinds), 0.0),
        ("four threads, faults", run_together, operations // 40 // len(kinds), 0.05),
    )
    for (name, run, share, rate), (number, (config, granularity)) in product(runs, enumerate(kinds)):
        begun = perf_counter()
        kind = Kind(config, granularity, rate)
        world, programs = run(kind, seed + number, -(-share // 1000) * 1000)
        injected += world.source.injected
        done = sum(1 for _ in programs) * -(-share // 1000) * 1000
        say(
            f"{name}, {kind}, seed {seed + number}: {done:,} operations, {sum(p.refused for p in programs):,} refused, "
            f"{world.source.aliased:,} ranges stitched, {world.source.releases + world.source.unmaps:,} given back, "
            f"{world.source.injected.total():,} faults, {perf_counter() - begun:.0f} s"
        )
    say(f"{injected.total():,} faults in all")
    for fault, times in sorted(injected.items()):
        say(f"  {fault}: {times:,}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Long random programs against a model of the machine.")
    parser.add_argument("operations", nargs="?", type=int, default=1_000_000)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    main(**vars(parser.parse_args()))
