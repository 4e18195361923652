"""The default stream of each thread by its number: stream pools, frees from elsewhere, threads that end; no device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory import order, perthread
from cuassay.devices.cuda.memory.perthread import LEGACY, PER_THREAD
from cuassay.memory import Block, IntegerSource
from cuassay.memory.stream_pool import free

MIB = 2**20

#: The call, the stream as it is called there, the thread, and the marker.
Said = list[tuple[str, int, int, Any]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """What is said to the driver."""
    calls: Said = []

    class Recording(order.Order):
        def record(self, stream: int) -> Any:
            calls.append(("record", perthread.handle(stream), threading.get_ident(), None))
            return f"marker {len(calls)}"

        def wait(self, stream: int, event: Any) -> None:
            if event is not None:
                calls.append(("wait", perthread.handle(stream), threading.get_ident(), event))

    monkeypatch.setattr(order, "Order", Recording)
    return calls


class Source(IntegerSource):
    """Numbers for memory; what is said of streams goes through a device's `Order`."""

    def __init__(self, index: int) -> None:
        super().__init__(64 * MIB)
        self.order = order.Order(index)

    def record(self, stream: int) -> Any:
        return self.order.record(stream)

    def wait(self, stream: int, event: Any) -> None:
        self.order.wait(stream, event)

    def query(self, event: Any) -> bool:
        return False


@pytest.fixture(autouse=True)
def integers(monkeypatch: pytest.MonkeyPatch, said: Said) -> Iterator[None]:
    """Devices whose memory is numbers."""
    monkeypatch.setattr(runtime, "init", lambda: None)
    monkeypatch.setattr(runtime, "get_device_properties", lambda index: SimpleNamespace(total_memory=64 * MIB))
    monkeypatch.setattr(allocators, "_current", {})
    monkeypatch.setattr(allocators, "_former", {})
    monkeypatch.setattr(allocators._State, "source", Source)
    monkeypatch.setattr(perthread, "own", perthread.Own())
    monkeypatch.setattr(perthread, "_devices", {})
    monkeypatch.setattr(perthread, "_idle", idle := dict[int, dict[int, Any]]())
    monkeypatch.setattr(perthread._Lease.__del__, "__defaults__", (idle, lambda: False))
    allocators.malloc_by_stream.clear()
    yield
    allocators.malloc_by_stream.clear()


def taken(nbytes: int = MIB, index: int = 0) -> Block:
    """As CuPy's hook takes a block while each thread's default stream is current."""
    serve = allocators.malloc_by_stream.get(PER_THREAD) or allocators.find_malloc(index, PER_THREAD)
    return serve(nbytes)


def in_a_thread_that_ends(call: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_a_number_is_neither_an_address_nor_a_reserved_handle() -> None:
    mine = order.number(0)

    assert perthread.is_number(mine)
    assert not any(map(perthread.is_number, (0, LEGACY, PER_THREAD, 0x7F00_1230)))
    assert order.number(0) == mine
    assert (perthread.device_of(mine), perthread.device_of(0x7F00_1230)) == (0, None)


def test_each_thread_and_each_device_has_a_lane_of_its_own(elsewhere: Any) -> None:
    blocks = [taken(), taken(index=1), elsewhere(taken), elsewhere(taken)]

    streams = [block.stream for block in blocks]
    assert len(set(streams[:3])) == 3
    assert streams[3] == streams[2]


def test_memory_of_one_thread_is_not_given_to_another(elsewhere: Any) -> None:
    block = taken()
    free(block)

    other = elsewhere(taken)

    assert other.segment is not block.segment
    assert taken().segment is block.segment


def test_a_block_freed_elsewhere_goes_back_to_the_thread_it_is_of(elsewhere: Any) -> None:
    block = elsewhere(taken)

    free(block)

    assert elsewhere(taken).address == block.address
    assert taken().segment is not block.segment


def test_the_short_way_is_taken_by_number_alone(elsewhere: Any) -> None:
    taken(), elsewhere(taken)

    assert PER_THREAD not in allocators.malloc_by_stream
    assert sorted(allocators.malloc_by_stream) == sorted({order.number(0), elsewhere(lambda: order.number(0))})


def test_a_thread_names_its_own_stream_and_for_others_the_legacy_one(elsewhere: Any) -> None:
    mine, other = order.number(0), elsewhere(lambda: order.number(0))

    assert [perthread.handle(stream) for stream in (mine, other)] == [PER_THREAD, LEGACY]
    assert elsewhere(lambda: perthread.handle(mine)) == LEGACY
    assert [perthread.handle(stream) for stream in (0, LEGACY, PER_THREAD, 0x7F00_1230)] == [0, 1, 2, 0x7F00_1230]


@pytest.mark.parametrize("by_its_user", [True, False], ids=["by its user", "by another thread"])
def test_a_block_that_a_thread_has_used_waits_for_that_threads_stream(
    elsewhere: Any, said: Said, by_its_user: bool
) -> None:
    block = taken()
    allocators.allocator(0).record_stream(block, elsewhere(lambda: order.number(0)))

    elsewhere(lambda: free(block)) if by_its_user else free(block)

    assert block.is_pending
    (call,) = said
    assert call[:2] == ("record", PER_THREAD if by_its_user else LEGACY)


def test_the_next_thread_has_the_number_of_one_that_ended_and_waits_for_its_work(said: Said) -> None:
    first, first_thread = in_a_thread_that_ends(lambda: (taken(), threading.get_ident()))
    free(first)

    second, second_thread = in_a_thread_that_ends(lambda: (taken(), threading.get_ident()))

    assert (second.stream, second.address) == (first.stream, first.address)
    assert said[:2] == [("record", PER_THREAD, first_thread, None), ("wait", PER_THREAD, second_thread, "marker 1")]


def test_what_used_a_block_is_known_by_its_last_marker_when_its_thread_has_ended(said: Said) -> None:
    block = taken()
    user = in_a_thread_that_ends(lambda: order.number(0))

    assert perthread.ended(user) == "marker 1"
    assert perthread.ended(block.stream) is None


def test_many_short_threads_share_one_number_and_its_memory() -> None:
    blocks = []
    for _ in range(50):
        blocks.append(in_a_thread_that_ends(taken))
        free(blocks[-1])

    assert len({block.stream for block in blocks}) == 1
    assert len({block.address for block in blocks}) == 1


def test_a_number_whose_stream_cannot_be_marked_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay.errors import DriverError

    def refuse(self: Any, stream: int) -> Any:
        raise DriverError("the stream is being captured")

    monkeypatch.setattr(order.Order, "record", refuse)

    first, second = (in_a_thread_that_ends(lambda: order.number(0)) for _ in range(2))

    assert first != second
