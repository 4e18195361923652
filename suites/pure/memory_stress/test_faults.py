"""A source whose calls raise, or last while other threads go on: nothing is lost, given twice, or active for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from failing_source import MIB, PATIENCE, TOTAL, Driver, made, stopped

from cuassay.errors import ArgumentError, OutOfMemoryError
from cuassay.memory import Block, CachingAllocator, HostAllocator, page_space, page_store


def reserved(allocator: CachingAllocator) -> int:
    return allocator.statistics().reserved_bytes.all.current


def shown(allocator: CachingAllocator) -> int:
    """Bytes of all segments in a snapshot."""
    return sum(segment["total_size"] for segment in allocator.snapshot()["segments"])


# ------------------------------------------------------------------------------------------------ blocks that are gone


@pytest.mark.parametrize("live", [1, 2], ids=["half of it live", "nothing free"])
def test_a_segment_whose_block_was_merged_away_meanwhile_stays(live: int) -> None:
    source, allocator = made()
    allocator.free(allocator.malloc(32 * MIB))
    allocator.free(allocator.malloc(1000))  # a segment of 2 MiB

    with stopped(source, "release", allocator.empty_cache) as given_back:
        two = allocator.malloc(600 * 1024), allocator.malloc(600 * 1024)  # what was all of the segment is its rest
        for block in two:
            allocator.record_stream(block, 1)
            allocator.free(block)
        kept = [allocator.malloc(MIB) for _ in range(live)]  # the others came back, and took the rest in

    assert given_back == [32 * MIB]
    assert all(source.physical(block.address, block.nbytes) for block in kept)
    assert reserved(allocator) == source.held == 2 * MIB


def test_a_new_segment_at_the_address_of_one_that_is_gone_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def listing() -> list[Any]:
        found = whole_free()
        if threading.current_thread() is second:
            listed.set()
        return found

    class Reused(Driver):
        def release(self, address: int) -> None:
            is_last = self.ranges[address] == 30 * MIB
            super().release(address)
            if is_last and not taken:  # before the thread that released it goes on
                taken.append(allocator.malloc(30 * MIB))

    source, listed, taken = Reused(), threading.Event(), list[Block]()
    allocator = CachingAllocator(source, config="")
    whole_free = allocator.segment_store.whole_free
    monkeypatch.setattr(allocator.segment_store, "whole_free", listing)
    second = threading.Thread(target=allocator.empty_cache)
    first, _between, last = allocator.malloc(12 * MIB), allocator.malloc(12 * MIB), allocator.malloc(30 * MIB)
    for block in (first, last):
        allocator.free(block)

    with stopped(source, "release", allocator.empty_cache):
        second.start()
        assert listed.wait(PATIENCE)  # it knows of both segments
    second.join(PATIENCE)

    assert taken[0].address == last.address
    assert source.physical(taken[0].address, 30 * MIB)
    assert reserved(allocator) == source.held == 42 * MIB


def test_only_the_segment_that_was_asked_for_is_released() -> None:
    source, allocator = made()
    old = allocator.malloc(30 * MIB)
    gone = old.segment
    allocator.free(old)
    allocator.empty_cache()
    new = allocator.malloc(30 * MIB)
    allocator.free(new)
    allocator.reset_peak_stats()

    assert new.address == old.address
    assert allocator.segment_store.release(gone) == 0
    assert reserved(allocator) == source.held == 30 * MIB


@pytest.mark.parametrize("users", [(), (7,)], ids=["one stream", "used by another"])
def test_a_block_that_was_merged_into_its_neighbour_says_so(users: tuple[int, ...]) -> None:
    _, allocator = made()
    low, high = allocator.malloc(600 * 1024), allocator.malloc(600 * 1024)
    for block in (low, high):
        for user in users:
            allocator.record_stream(block, user)
        allocator.free(block)
    allocator.reclaimer.await_all()
    allocator.reset_peak_stats()

    assert (low.is_gone, high.is_gone) == (False, True)
    assert (low.is_whole, high.is_whole) == (True, False)
    assert "gone" in repr(high)
    with pytest.raises(ArgumentError, match="freed twice"):
        allocator.free(high)
    assert high.is_gone


def test_trimming_pinned_memory_leaves_what_was_taken_meanwhile() -> None:
    source = Driver()
    source.total = 2**30
    allocator = HostAllocator(source, config="pinned_max_cached_size_mb:1")
    for block in [allocator.malloc(24 * MIB), allocator.malloc(1000)]:
        allocator.free(block)

    with stopped(source, "release", allocator.maintain) as outcome:
        allocator.configure("pinned_max_cached_size_mb:1000")  # or each request would trim, too, and wait
        two = allocator.malloc(600 * 1024), allocator.malloc(600 * 1024)
        for block in two:
            allocator.record_stream(block, 7)
            allocator.free(block)
        live = allocator.malloc(MIB)

    assert outcome == [None]
    assert live.segment in allocator.segments()
    assert reserved(allocator) == source.held


# ------------------------------------------------------------------------------------------------ calls that raise

INTERRUPTS = [RuntimeError("the driver failed"), KeyboardInterrupt(), OutOfMemoryError("no room; free something")]


def interrupts(function: Callable[..., None]) -> Callable[..., None]:
    named = pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
    return named(function)


def scattered(allocator: CachingAllocator, nbytes: int = 16 * MIB) -> None:
    """Everything free, with a sleeping view of `nbytes` over every second page."""
    blocks = [allocator.malloc(2 * MIB) for _ in range(28)]
    for block in blocks[1::2]:
        allocator.free(block)
    view = allocator.malloc(nbytes)
    allocator.free(view)
    for block in blocks[::2]:
        allocator.free(block)


def is_whole_again(source: Driver, allocator: CachingAllocator) -> bool:
    """Whether all of the memory can be had by another stream, and goes back from there."""
    assert reserved(allocator) == shown(allocator) == source.held
    block = allocator.malloc(TOTAL, 1)
    source.physical(block.address, block.nbytes)
    allocator.free(block)
    allocator.empty_cache()
    assert allocator.statistics().active_bytes.all.current == 0
    return reserved(allocator) == shown(allocator) == source.held == 0 and not source.ranges


@interrupts
def test_a_segment_that_cannot_be_released_is_kept(error: BaseException) -> None:
    source, allocator = made()
    allocator.free(allocator.malloc(32 * MIB))
    source.raises, source.error = "release", error

    with pytest.raises(type(error)):
        allocator.empty_cache()

    assert reserved(allocator) == shown(allocator) == source.held == 32 * MIB
    assert allocator.empty_cache() == 32 * MIB
    assert is_whole_again(source, allocator)


def test_a_segment_of_a_pool_without_owners_that_cannot_be_released_is_kept() -> None:
    source, allocator = made()
    pool = allocator.create_pool()
    allocator.free(allocator.stream_pool(0, pool).malloc(32 * MIB))
    allocator.release_pool(pool)
    source.raises = "release"

    with pytest.raises(RuntimeError):
        allocator.empty_cache()

    assert allocator.statistics().reserved_bytes_by_private_pools == {pool.id: 32 * MIB}
    assert allocator.empty_cache() == 32 * MIB
    assert allocator.statistics().reserved_bytes_by_private_pools == {}


@interrupts
def test_an_interrupt_after_the_release_does_not_bring_the_segment_back(error: BaseException) -> None:
    source, allocator = made()
    allocator.free(allocator.malloc(32 * MIB))
    source.raises, source.error, source.is_late = "release", error, True

    with pytest.raises(type(error)):
        allocator.empty_cache()

    assert reserved(allocator) == shown(allocator) == source.held == 0
    assert is_whole_again(source, allocator)


def test_a_segment_that_never_goes_back_does_not_keep_the_others() -> None:
    class Stubborn(Driver):
        def release(self, address: int) -> None:
            if address == stuck.address:
                raise RuntimeError("this one stays")
            super().release(address)

    source = Stubborn()
    allocator = CachingAllocator(source, total=TOTAL, config="")
    stuck, other = allocator.malloc(20 * MIB), allocator.malloc(30 * MIB)
    for block in (stuck, other):
        allocator.free(block)

    with pytest.raises(RuntimeError, match="this one stays"):
        allocator.empty_cache()

    assert source.held == reserved(allocator) == 20 * MIB
    allocator.free(allocator.malloc(30 * MIB, 1))
    assert allocator.malloc(44 * MIB, 2).is_live  # the memory of stream 1 goes back, whatever stays


@interrupts
@pytest.mark.parametrize("call", ["synchronize", "release", "unmap"])
@pytest.mark.parametrize("skipped", [0, 1], ids=["first", "second"])
def test_pages_that_cannot_be_given_back_are_kept(call: str, skipped: int, error: BaseException) -> None:
    source, allocator = made(2 * MIB)
    first = allocator.malloc(6 * MIB, 1)
    scattered(allocator)
    allocator.free(first)
    source.raises, source.error, source.skipped = call, error, skipped

    with pytest.raises(type(error)):
        allocator.empty_cache()

    assert source.raises == ""
    assert is_whole_again(source, allocator)


@interrupts
@pytest.mark.parametrize("call", ["release", "unmap"])
def test_an_interrupt_after_pages_were_given_back_is_no_reason_to_use_them(call: str, error: BaseException) -> None:
    source, allocator = made(2 * MIB)
    scattered(allocator)
    source.raises, source.error, source.is_late = call, error, True

    with pytest.raises(type(error)):
        allocator.empty_cache()

    assert is_whole_again(source, allocator)


def test_a_view_whose_release_failed_serves_again() -> None:
    source, allocator = made(2 * MIB)
    blocks = [allocator.malloc(2 * MIB) for _ in range(30)]
    for block in blocks[1::2]:
        allocator.free(block)
    view = allocator.malloc(16 * MIB)
    address = view.address
    allocator.free(view)
    source.raises = "release"
    with pytest.raises(RuntimeError):
        allocator.empty_cache()

    again = allocator.malloc(16 * MIB)

    assert (again.address, source.aliased) == (address, 1)


@interrupts
def test_views_that_make_place_for_a_new_one_are_kept_where_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(page_space, "_MOST_VIEWS", 2)
    source, allocator = made(2 * MIB)
    blocks = [allocator.malloc(2 * MIB) for _ in range(24)]
    for block in blocks[1::2]:
        allocator.free(block)
    for nbytes in (6 * MIB, 8 * MIB):
        allocator.free(allocator.malloc(nbytes))
    source.raises, source.error = "release", error

    if isinstance(error, OutOfMemoryError):
        allocator.free(allocator.malloc(10 * MIB))
    else:
        with pytest.raises(type(error)):
            allocator.malloc(10 * MIB)

    for block in blocks[::2]:
        allocator.free(block)
    assert is_whole_again(source, allocator)


@interrupts
@pytest.mark.parametrize("call", ["span", "map", "alias", "reserve"])
def test_a_request_that_fails_takes_nothing(call: str, error: BaseException) -> None:
    source, allocator = made(0 if call == "reserve" else 2 * MIB)
    blocks = [allocator.malloc(2 * MIB) for _ in range(12)] if call == "alias" else []
    for block in blocks[1::2]:
        allocator.free(block)
    source.raises, source.error = call, error

    if isinstance(error, OutOfMemoryError):
        allocator.free(allocator.malloc(12 * MIB))
    else:
        with pytest.raises(type(error)):
            allocator.malloc(12 * MIB)

    for block in blocks[::2]:
        allocator.free(block)
    assert is_whole_again(source, allocator)


def test_a_span_without_pages_that_cannot_be_given_back_is_kept() -> None:
    source, allocator = made(2 * MIB)
    allocator.free(allocator.malloc(4 * MIB))
    source.raises = "release"

    with pytest.raises(RuntimeError):
        allocator.empty_cache()

    assert len(source.ranges) == len(allocator.segments()) == 1
    assert is_whole_again(source, allocator)


def test_a_segment_that_a_small_one_was_made_of_goes_back_in_the_same_call() -> None:
    class Pageless(Driver):
        def map(self, address: int, pages: Any) -> None:
            raise OutOfMemoryError("no page is left; free something")

    source = Pageless(2 * MIB)
    allocator = CachingAllocator(source, total=TOTAL, config="")
    allocator.free(allocator.malloc(4 * MIB))  # a segment, because there are no pages
    allocator.free(allocator.malloc(1000))

    assert allocator.empty_cache() == 4 * MIB
    assert source.held == 0


# ------------------------------------------------------------------------------------------------ other streams' use


@interrupts
def test_a_block_whose_users_cannot_be_marked_after_a_capture_is_marked_later(error: BaseException) -> None:
    source, allocator = made()
    block = allocator.malloc(32 * MIB)
    allocator.record_stream(block, 1)

    def capture() -> None:
        with allocator.capturing():
            allocator.free(block)
            source.raises, source.error = "record", error

    with pytest.raises(type(error)):
        capture()

    assert allocator.statistics().active_bytes.all.current == 32 * MIB
    assert allocator.empty_cache() == 32 * MIB
    assert is_whole_again(source, allocator)


@interrupts
def test_a_block_whose_users_cannot_be_marked_is_freed_all_the_same(error: BaseException) -> None:
    source, allocator = made()
    block = allocator.malloc(32 * MIB)
    allocator.record_stream(block, 1)
    source.raises, source.error = "record", error

    with pytest.raises(type(error)):
        allocator.free(block)

    assert not block.is_live  # nobody may be left to free it: the caller can be a finaliser
    assert allocator.malloc(32 * MIB).is_live
    assert allocator.statistics().allocation.all.current == 1
    assert reserved(allocator) == source.held == 32 * MIB


def test_a_block_whose_users_can_never_be_marked_does_not_keep_the_others() -> None:
    class Deaf(Driver):
        def record(self, stream: int) -> int:
            if stream == 9:
                raise RuntimeError("there is no such stream")
            return super().record(stream)

    source = Deaf()
    allocator = CachingAllocator(source, total=TOTAL, config="")
    lost, other = allocator.malloc(20 * MIB), allocator.malloc(30 * MIB)
    allocator.record_stream(lost, 9)
    allocator.record_stream(other, 1)

    def capture() -> None:
        with allocator.capturing():
            allocator.free(lost)
            allocator.free(other)

    with pytest.raises(RuntimeError):
        capture()

    assert allocator.empty_cache() == 30 * MIB
    assert allocator.malloc(40 * MIB, 2).is_live


@interrupts
@pytest.mark.parametrize("call", ["query", "wait"])
def test_a_block_whose_users_cannot_be_asked_is_asked_for_later(call: str, error: BaseException) -> None:
    source, allocator = made(is_lazy=True)
    block = allocator.malloc(48 * MIB)
    allocator.record_stream(block, 1)
    allocator.free(block)
    source.raises, source.error = call, error

    with pytest.raises(type(error)):
        allocator.malloc(48 * MIB)

    assert is_whole_again(source, allocator)


def test_a_stream_that_cannot_wait_does_not_keep_the_memory_of_others() -> None:
    class Deaf(Driver):
        def wait(self, stream: int, event: int) -> None:
            if stream == 1:
                raise RuntimeError("it cannot wait")
            super().wait(stream, event)

    source = Deaf(is_lazy=True)
    allocator = CachingAllocator(source, total=TOTAL, config="")
    waiting, other = allocator.malloc(20 * MIB, 1), allocator.malloc(30 * MIB, 2)
    allocator.record_stream(waiting, 3)
    for block in (waiting, other):
        allocator.free(block)

    assert allocator.malloc(40 * MIB, 4).is_live
    with pytest.raises(RuntimeError, match="it cannot wait"):
        allocator.empty_cache()
    assert allocator.statistics().active_bytes.all.current == 60 * MIB


def test_a_capture_that_ends_while_a_block_is_held_back_loses_no_block() -> None:
    _, allocator = made()
    block = allocator.malloc(32 * MIB)
    allocator.record_stream(block, 1)
    with allocator.capturing():
        allocator.free(block)
        held = block.stream_pool.deferred.held.popleft()
    # As by a thread that was told of the capture, and was slower than its end.
    block.stream_pool.deferred.held.append(held)

    assert allocator.empty_cache() == 32 * MIB


# ------------------------------------------------------------------------------------------------ pinned memory


@interrupts
def test_pinned_memory_that_cannot_be_unpinned_is_kept(error: BaseException) -> None:
    source = Driver()
    allocator = HostAllocator(source, config="pinned_max_cached_size_mb:1")
    allocator.free(allocator.malloc(24 * MIB))
    source.raises, source.error = "release", error

    with pytest.raises(type(error)):
        allocator.maintain()

    assert reserved(allocator) == source.held == 24 * MIB
    assert allocator.empty_cache() == 24 * MIB
    assert reserved(allocator) == source.held == 0


# ------------------------------------------------------------------------------------------------ threads


def test_two_threads_that_need_their_first_pages_share_one_territory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what one of the two made is in no snapshot, and never goes back."""
    begun = threading.Barrier(2)

    class Slow(page_space.PageSpace):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            with suppress(threading.BrokenBarrierError):
                begun.wait(0.2)

    monkeypatch.setattr(page_store, "PageSpace", Slow)
    source, allocator = made(2 * MIB)
    blocks: list[Block] = []
    threads = [threading.Thread(target=lambda: blocks.append(allocator.malloc(1000))) for _ in range(2)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert shown(allocator) == reserved(allocator) == source.held
    for block in blocks:
        allocator.free(block)
    allocator.empty_cache()
    assert source.held == 0


def test_a_stream_that_begins_while_others_look_does_not_disturb_them() -> None:
    _, allocator = made()
    faults: list[Exception] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                allocator.segments()
                allocator.empty_cache()
        except RuntimeError as error:
            faults.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for stream in range(3000):
        allocator.stream_pool(stream)
    done.set()
    thread.join(PATIENCE)

    assert faults == []


def test_what_leaves_is_counted_until_it_has_left() -> None:
    source, allocator = made()
    allocator.configure("per_process_memory_fraction:0.5")
    allocator.free(allocator.malloc(20 * MIB))
    waiting: list[Block] = []

    with stopped(source, "release", allocator.empty_cache):
        thread = threading.Thread(target=lambda: waiting.append(allocator.malloc(20 * MIB, 1)))
        thread.start()
        thread.join(0.05)
        assert source.held <= TOTAL // 2
    thread.join(PATIENCE)

    assert waiting[0].is_live
    assert source.held == reserved(allocator) == 20 * MIB
