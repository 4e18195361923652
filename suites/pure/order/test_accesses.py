"""What one access covers of another and shares with it, held against the bytes of all pairs of many small arrays."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from cuassay.core.device import Device
from cuassay.order.accesses import Access, AccessLog
from cuassay.order.clock import Host, Queue
from cuassay.order.extents import span_of

BUFFER = np.zeros(48, np.uint8)
QUEUE = Queue(1, "stream 1", Device("sim:0"), blocking=False)


def views() -> list[np.ndarray[Any, Any]]:
    """Arrays of one and two axes over the same bytes: with gaps, backwards, transposed, of other element sizes."""
    found = []
    for dtype, start, step, count in product(("u1", "u2", "u4"), (0, 1, 4), (1, 2, -1), (1, 2, 3, 8)):
        row = BUFFER.view(dtype)[start:][::step][:count]
        if row.size == count:
            found.append(row)
    table = BUFFER.reshape(6, 8)
    return [
        *found,
        table[:2],
        table[:2, :3],
        table[1:, 2:4],
        table[::2, ::2],
        table.T[:3],
        table[:, 1],
        table[2:4, ::3],
    ]


def access(array: np.ndarray[Any, Any]) -> Access:
    address = array.__array_interface__["data"][0]
    return Access(QUEUE, 1, True, span_of(address, array.shape, array.strides, array.itemsize), array, "op", ("f", 1))


def touched(array: np.ndarray[Any, Any]) -> frozenset[int]:
    begin = array.__array_interface__["data"][0]
    starts = [begin + sum(map(int.__mul__, index, array.strides)) for index in np.ndindex(array.shape)]
    return frozenset(start + byte for start in starts for byte in range(array.itemsize))


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Access, Access, frozenset[int], frozenset[int]]]:
    made = [(access(view), touched(view)) for view in views()]
    return [(one, other, mine, its) for (one, mine), (other, its) in product(made, made)]


def test_two_overlap_where_they_share_a_byte(pairs: list[Any]) -> None:
    meeting = [pair for pair in pairs if pair[0].span.low < pair[1].span.high and pair[1].span.low < pair[0].span.high]
    wrong = [(a, b) for a, b, mine, its in meeting if a.overlaps(b) != bool(mine & its)]
    assert (len(meeting) > 1000, wrong) == (True, [])


def test_a_dense_access_covers_what_lies_in_it(pairs: list[Any]) -> None:
    assert [(a, b) for a, b, mine, its in pairs if a.span.dense and a.covers(b) != (its <= mine)] == []


def test_one_with_gaps_covers_no_byte_that_it_does_not_touch_and_all_of_its_own(pairs: list[Any]) -> None:
    gappy = [pair for pair in pairs if not pair[0].span.dense]
    assert [(a, b) for a, b, mine, its in gappy if a.covers(b) and not its <= mine] == []
    assert [a for a, b, *_ in gappy if a.array is b.array and not a.covers(b)] == []


def test_a_span_is_dense_where_it_holds_no_other_byte(pairs: list[Any]) -> None:
    wrong = [a for a, _, mine, _ in pairs if a.span.dense != (a.span.high - a.span.low == len(mine))]
    assert wrong == []


def test_a_log_keeps_nothing_of_a_device_that_the_host_has_waited_for() -> None:
    log = AccessLog("sim:0", Host())
    log.add(access(views()[0]))
    kept = len(log)

    log.clear()

    assert (kept > 0, len(log)) == (True, 0)
