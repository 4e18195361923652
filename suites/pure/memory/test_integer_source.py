"""The source of integers: counts of its calls, aliases, pages that are dropped, and events that are reached."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cuassay.errors import ArgumentError
from cuassay.memory import IntegerSource

PAGE = 2**21


@pytest.fixture
def source() -> IntegerSource:
    return IntegerSource(2**30, is_lazy=True, granularity=PAGE)


def mapped(source: IntegerSource, count: int) -> list[int]:
    """This many pages side by side."""
    span = source.span(count * PAGE, 0)
    source.map(span, [PAGE] * count)
    return [span + number * PAGE for number in range(count)]


def test_each_kind_of_call_is_counted(source: IntegerSource) -> None:
    held = [source.reserve(PAGE, 0) for _ in range(2)]
    pages = [mapped(source, 2) for _ in range(3)]
    aliases = [source.alias(pages[0]) for _ in range(4)]
    for address in (*held, *aliases[1:]):
        source.release(address)
    for some in pages[1:]:
        source.unmap(some)

    found = (source.reserves, source.maps, source.aliased, source.releases, source.unmaps)
    assert found == (2, 3, 4, 5, 2)
    assert source.driver_calls == sum(found)
    assert source.free == source.total - 2 * PAGE


def test_an_alias_may_show_every_page(source: IntegerSource) -> None:
    pages = mapped(source, 2)

    address = source.alias(pages[::-1])

    assert source.physical(address, 2 * PAGE) == [(page, page + PAGE) for page in pages[::-1]]


@pytest.mark.parametrize("which", [(0, 0), (0, 2), (2,)], ids=["twice", "one without memory", "only that"])
def test_an_alias_of_unmapped_or_repeated_pages_is_refused(source: IntegerSource, which: tuple[int, ...]) -> None:
    pages = mapped(source, 2)
    pages.append(pages[-1] + PAGE)

    with pytest.raises(ArgumentError, match="not all mapped, or not all different"):
        source.alias([pages[number] for number in which])

    assert (source.aliases, source.aliased) == ({}, 0)


@pytest.mark.parametrize("which", [(0, 2), (1, 0)], ids=["without memory", "in an alias"])
def test_pages_are_dropped_together_or_not_at_all(source: IntegerSource, which: tuple[int, ...]) -> None:
    pages = mapped(source, 2)
    pages.append(pages[-1] + PAGE)
    if 1 in which:
        source.alias(pages[:1])
    free = source.free

    with pytest.raises(ArgumentError, match="is not a page, or is in an alias"):
        source.unmap([pages[number] for number in which])

    assert (source.free, sorted(source.pages), source.unmaps) == (free, pages[:2], 0)


@pytest.mark.parametrize(("offset", "nbytes"), [(0, PAGE + 1), (PAGE - 512, 1024), (4 * PAGE, 1), (-PAGE, 1)], ids=str)
def test_bytes_outside_every_range_have_no_memory(source: IntegerSource, offset: int, nbytes: int) -> None:
    address = source.reserve(PAGE, 0)

    with pytest.raises(ArgumentError, match="are in no range"):
        source.physical(address + offset, nbytes)


@pytest.mark.parametrize(("offset", "nbytes"), [(512, PAGE), (0, PAGE + 512)], ids=["address", "size"])
def test_pages_that_are_not_aligned_are_rejected(source: IntegerSource, offset: int, nbytes: int) -> None:
    span = source.span(4 * PAGE, 0)

    with pytest.raises(ArgumentError, match="are not all multiples"):
        source.map(span + offset, [nbytes])

    assert (source.pages, source.free) == ({}, source.total)


@pytest.mark.parametrize(
    ("streams", "reached"), [((), ""), ((1,), "a"), ((2,), "b"), ((3,), "bc"), ((1, 3), "abc")], ids=str
)
def test_synchronizing_reaches_events_that_streams_recorded_or_wait_for(
    source: IntegerSource, streams: tuple[int, ...], reached: str
) -> None:
    events = {name: source.record(stream) for stream, name in enumerate("abcd", start=1)}
    source.wait(3, events["b"])

    source.synchronize(streams)

    assert source.pending() == tuple(event for name, event in events.items() if name not in reached)
    assert source.synchronized == list(streams)


def test_calls_of_other_threads_wait_until_a_call_has_ended(source: IntegerSource) -> None:
    thread = threading.Thread(target=source.reserve, args=(PAGE, 0))
    reserves: list[int] = []

    class Pages(list[int]):
        """Lets the thread call the source while its pages are being read."""

        def __iter__(self) -> Iterator[int]:
            if not reserves:
                thread.start()
                thread.join(0.1)  # the thread waits until the pages are dropped
                reserves.append(source.reserves)
            return super().__iter__()

    source.unmap(Pages(mapped(source, 2)))
    thread.join()

    assert (reserves, source.reserves) == ([0], 1)
