"""A source that takes its time: nobody else waits for it, and what moved meanwhile is read again."""

from __future__ import annotations

import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from failing_source import MIB, PATIENCE, TOTAL, made, stopped

from cuassay.errors import OutOfMemoryError
from cuassay.memory import Block, CachingAllocator, IntegerSource, page_space
from cuassay.memory.page_store import PageStore
from cuassay.memory.trace import ShadowModel


def scattered(allocator: CachingAllocator) -> list[Block]:
    """Twelve blocks of 2 MiB side by side, every second one free; those that stay."""
    blocks = [allocator.malloc(2 * MIB) for _ in range(12)]
    for block in blocks[1::2]:
        allocator.free(block)
    return blocks[::2]


#: What stops, and what to do so that it is called: the pages' size, a preparation, and the call's cause.
STOPS: dict[str, tuple[int, Callable[[CachingAllocator], Any], Callable[[CachingAllocator], object]]] = {
    "reserve": (0, lambda a: None, lambda a: a.malloc(4 * MIB, 1)),
    "release": (0, lambda a: a.free(a.malloc(4 * MIB, 1)), lambda a: a.empty_cache()),
    "span": (2 * MIB, lambda a: None, lambda a: a.malloc(4 * MIB, 1)),
    "map": (2 * MIB, lambda a: None, lambda a: a.malloc(4 * MIB, 1)),
    "alias": (2 * MIB, scattered, lambda a: a.malloc(12 * MIB)),
    "synchronize": (2 * MIB, scattered, lambda a: a.empty_cache()),
    "unmap": (2 * MIB, scattered, lambda a: a.empty_cache()),
}


@pytest.mark.parametrize("call", STOPS)
def test_nobody_else_waits_for_the_driver(call: str) -> None:
    granularity, prepare, cause = STOPS[call]
    source, allocator = made(granularity)
    prepare(allocator)

    with stopped(source, call, lambda: cause(allocator)):
        other = allocator.malloc(4096, 2)
        allocator.free(allocator.malloc(4096, 2))
        figures = allocator.statistics()

    assert other.is_live
    assert figures.allocation.all.current >= 1


@pytest.mark.parametrize("call", ["map", "alias", "unmap"])
def test_memory_on_its_way_is_given_to_nobody_else(call: str) -> None:
    granularity, prepare, cause = STOPS[call]
    source, allocator = made(granularity)
    shadow = ShadowModel(source)
    for block in prepare(allocator) or ():
        shadow.took(block, 2 * MIB, 0)
    stream = 1 if call == "map" else 0

    with stopped(source, call, lambda: cause(allocator)) as outcome:
        others = [allocator.malloc(4 * MIB, stream) for _ in range(3)]

    for block in others:
        shadow.took(block, 4 * MIB, stream)
    if isinstance(outcome[0], Block):
        shadow.took(outcome[0], outcome[0].requested, stream)
    shadow.peak = allocator.statistics().requested_bytes.all.peak
    shadow.most = allocator.statistics().allocation.all.peak
    shadow.given = allocator.statistics().allocation.all.allocated
    shadow.check(allocator)


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_the_limit_counts_what_is_on_its_way(granularity: int) -> None:
    source, allocator = made(granularity)
    allocator.configure("per_process_memory_fraction:0.5")

    call = "map" if granularity else "reserve"
    with stopped(source, call, lambda: allocator.malloc(20 * MIB, 1)), pytest.raises(OutOfMemoryError):
        allocator.malloc(20 * MIB, 2)

    assert allocator.statistics().reserved_bytes.all.peak <= TOTAL // 2


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_the_limit_counts_all_that_is_on_its_way_together(granularity: int) -> None:
    """Each request stays under way while the next is made, until one is refused."""
    outcomes: list[Any] = []

    class Nested(IntegerSource):
        def reserve(self, nbytes: int, stream: int) -> int:
            ask(stream + 1)
            return super().reserve(nbytes, stream)

        def map(self, address: int, pages: Sequence[int]) -> None:
            ask(len(outcomes) + len(under_way))
            super().map(address, pages)

    def ask(stream: int) -> None:
        under_way.append(stream)
        try:
            outcomes.append(allocator.malloc(12 * MIB, stream))
        except OutOfMemoryError as error:
            outcomes.append(error)
        under_way.remove(stream)

    under_way: list[int] = []
    allocator = CachingAllocator(Nested(TOTAL, granularity=granularity), total=TOTAL, config="")
    allocator.configure("per_process_memory_fraction:0.5")
    ask(0)

    assert [type(outcome) for outcome in outcomes] == [OutOfMemoryError, Block, Block]
    assert allocator.statistics().reserved_bytes.all.peak == 24 * MIB


@pytest.mark.parametrize("call", ["map", "alias"])
def test_a_free_meanwhile_is_kept(call: str) -> None:
    granularity, prepare, cause = STOPS[call]
    source, allocator = made(granularity)
    kept = prepare(allocator) or [allocator.malloc(2 * MIB, 0)]

    with stopped(source, call, lambda: cause(allocator)):
        for block in kept:
            allocator.free(block)
        allocator.reset_peak_stats()

    assert allocator.malloc(2 * MIB).is_live
    assert allocator.statistics().allocation.all.current == 2


@pytest.mark.parametrize(("granularity", "call"), [(0, "release"), (2 * MIB, "unmap")], ids=["segments", "pages"])
def test_a_capture_begins_when_a_release_under_way_is_done(granularity: int, call: str) -> None:
    source, allocator = made(granularity)
    allocator.free(allocator.malloc(4 * MIB))
    states: list[str] = []

    def capture() -> None:
        with allocator.capturing():
            states.append(call if source.free == TOTAL else "early")

    with stopped(source, call, allocator.empty_cache):
        thread = threading.Thread(target=capture)
        thread.start()
        thread.join(0.05)
        begun = list(states)
    thread.join(PATIENCE)

    assert (begun, states) == ([], [call])


class Queued:
    """A lock that tells when somebody finds it held."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.is_asked = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_asked.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@pytest.mark.parametrize(("granularity", "call"), [(0, "release"), (2 * MIB, "unmap")], ids=["segments", "pages"])
def test_emptying_the_cache_waits_for_a_release_under_way(granularity: int, call: str) -> None:
    source, allocator = made(granularity)
    allocator.free(allocator.malloc(4 * MIB))
    lock: Any = Queued()
    allocator.heap.releasing = lock
    free: list[int] = []

    def empty() -> None:
        allocator.empty_cache()
        free.append(source.free)
        lock.is_asked.set()

    thread = threading.Thread(target=empty)
    with stopped(source, call, allocator.empty_cache):
        thread.start()
        assert lock.is_asked.wait(PATIENCE)
    thread.join(PATIENCE)

    assert free == [TOTAL]


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> tuple[IntegerSource, CachingAllocator]:
    """Two views are all there may be, two are asleep, and every second page is free."""
    monkeypatch.setattr(page_space, "_MOST_VIEWS", 2)
    source = IntegerSource(TOTAL, granularity=2 * MIB)
    allocator = CachingAllocator(source, total=TOTAL, config="")
    scattered(allocator)
    for pages in (3, 4):
        allocator.free(allocator.malloc(2 * pages * MIB))
    assert source.aliased == 2
    return source, allocator


def test_views_stay_while_frees_are_held_off(crowded: tuple[IntegerSource, CachingAllocator]) -> None:
    source, allocator = crowded
    made: list[Block] = []
    thread = threading.Thread(target=lambda: made.append(allocator.malloc(10 * MIB)))

    with allocator.free_lock():
        thread.start()
        thread.join(0.05)
        released = source.releases
    thread.join(PATIENCE)

    assert (released, len(made)) == (0, 1)
    assert source.releases > 0


def test_views_stay_while_work_is_captured(crowded: tuple[IntegerSource, CachingAllocator]) -> None:
    source, allocator = crowded

    with allocator.capturing():
        assert allocator.malloc(10 * MIB).is_live

    assert source.releases == 0


class Interrupted(PageStore):
    """Where there is a hole, somebody else takes it first, once."""

    meanwhile: Callable[[], object] | None = None

    def _make_hole(self, stream_pool: Any, page_space: Any, nbytes: int) -> bool:
        found = super()._make_hole(stream_pool, page_space, nbytes)
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        return found


@pytest.mark.parametrize("nbytes", [40 * MIB, 24 * MIB], ids=["no room", "room"])
def test_a_hole_that_another_thread_takes_meanwhile_is_not_counted_on(nbytes: int) -> None:
    allocator = CachingAllocator(IntegerSource(TOTAL, granularity=2 * MIB), total=TOTAL, config="")
    allocator.page_store = pages = Interrupted(
        allocator.heap, allocator.cutter, allocator.reclaimer, allocator.segment_store
    )
    allocator.configure("expandable_segments_reserve:40M")
    taken: list[Block] = []
    pages.meanwhile = lambda: taken.append(allocator.malloc(nbytes))

    if nbytes == 40 * MIB:
        with pytest.raises(OutOfMemoryError):
            allocator.malloc(nbytes)
    else:
        assert allocator.malloc(nbytes).is_live
    assert taken[0].is_live


def test_a_block_that_another_thread_returns_meanwhile_is_left_to_it() -> None:
    class Racing(deque[Block]):
        def remove(self, block: Block) -> None:
            theirs.append(self.popleft())
            super().remove(block)

    source = IntegerSource(TOTAL, is_lazy=True, granularity=0)
    allocator = CachingAllocator(source, total=TOTAL, config="")
    block, theirs = allocator.malloc(30 * MIB), list[Block]()
    allocator.record_stream(block, 7)
    allocator.free(block)
    block.stream_pool.deferred.queue = Racing(block.stream_pool.deferred.queue)

    assert allocator.malloc(30 * MIB) is not block
    assert theirs == [block]


def test_a_segment_that_is_taken_in_part_meanwhile_stays() -> None:
    source, allocator = made(0)
    for stream in (1, 2):
        allocator.free(allocator.malloc(24 * MIB, stream))

    with stopped(source, "release", allocator.empty_cache) as given_back:
        low, high = allocator.malloc(11 * MIB, 2), allocator.malloc(11 * MIB, 2)
        allocator.free(low)
        allocator.reset_peak_stats()  # what is free may be had by any request from here

    assert low.segment is high.segment
    assert given_back == [24 * MIB]
    assert high.segment in allocator.segments()


@pytest.mark.parametrize(
    "look", ["statistics", "snapshot", "segments", "reset_peak_stats", "reset_accumulated_stats", "record_history"]
)
def test_whoever_looks_waits_for_a_change_under_way(look: str) -> None:
    _, allocator = made(0)
    thread = threading.Thread(target=getattr(allocator, look))

    with allocator.heap.lock:
        thread.start()
        thread.join(0.05)
        waits = thread.is_alive()
    thread.join(PATIENCE)

    assert waits


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_whoever_holds_frees_off_can_still_allocate(granularity: int) -> None:
    _, allocator = made(granularity)
    allocator.free(allocator.malloc(40 * MIB, 1))
    needy: list[Any] = []
    thread = threading.Thread(target=lambda: needy.append(allocator.malloc(40 * MIB, 2)))

    with allocator.free_lock():
        thread.start()
        thread.join(0.05)
        held = list(needy)
        own = allocator.malloc(40 * MIB, 1)
        allocator.free(own)
    thread.join(PATIENCE)

    assert (held, needy[0].nbytes) == ([], 40 * MIB)


def test_four_threads_with_scattered_pages_never_share_memory() -> None:
    source = IntegerSource(512 * MIB)
    allocator = CachingAllocator(source, total=512 * MIB, config="")
    faults: list[Any] = []

    def work(me: int) -> None:
        live: list[Block] = []
        try:
            for step in range(400):
                live.append(allocator.malloc((1 + step * (me + 3) % 23) * MIB // 2, me % 2))
                if len(live) > 6:
                    allocator.free(live.pop(step * 7 % len(live)))
                if step % 97 == 0:
                    allocator.empty_cache()
            owned.append((me, live))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a fault
            faults.append(error)

    owned: list[tuple[int, list[Block]]] = []
    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    shadow = ShadowModel(source)
    for me, live in owned:
        for block in live:
            shadow.took(block, block.requested, me % 2)
    assert (faults, len(owned)) == ([], 4)


class TestThreadsOnOneStream:
    """Hits take no lock, misses do: whichever meet, no block is two threads' at once, and none changes meanwhile."""

    SIZES = (1000, 5000, 300_000, 3 * MIB, 5 * MIB + 512, 9 * MIB)
    STEPS, THREADS = 4000, 4

    @pytest.fixture(autouse=True)
    def often(self) -> Iterator[None]:
        former = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(former)

    def work(self, allocator: CachingAllocator, seed: int, owners: dict[int, object], faults: list[str]) -> None:
        chance = random.Random(seed)  # noqa: S311  # a program, no secret
        mine: list[tuple[Block, int, int]] = []
        for _ in range(self.STEPS):
            if len(mine) < 8 and chance.random() < 0.55:
                nbytes = chance.choice((*self.SIZES, chance.randrange(1, 12 * MIB)))
                block = allocator.malloc(nbytes)
                if owners.setdefault(id(block), token := object()) is not token or block.requested != nbytes:
                    faults.append(f"{block!r} is given to two, or for another size")
                mine.append((block, block.address, block.nbytes))
            elif mine:
                block, *place = mine.pop(chance.randrange(len(mine)))
                if [block.address, block.nbytes] != place:
                    faults.append(f"{block!r} changed while it was live")
                del owners[id(block)]
                allocator.free(block)
        for block, *_ in mine:
            del owners[id(block)]
            allocator.free(block)

    @pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
    def test_no_block_has_two_owners(self, granularity: int) -> None:
        allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
        owners: dict[int, object] = {}
        faults: list[str] = []
        threads = [
            threading.Thread(target=self.work, args=(allocator, seed, owners, faults))
            for seed in range(1, self.THREADS + 1)
        ]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert faults == []
        assert allocator.statistics().allocated_bytes.all.current == 0
        assert all(sum(block.nbytes for block in segment) == segment.nbytes for segment in allocator.segments()), (
            "a segment is not covered by its blocks"
        )
