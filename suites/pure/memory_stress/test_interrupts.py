"""Ctrl-C at every line of the way back to the device: what is handed out afterwards is memory that the source holds."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import CodeType, FrameType
from typing import Any, Self

import pytest

from cuassay.core import interrupts
from cuassay.core.interrupts import Attempt
from cuassay.errors import OutOfMemoryError
from cuassay.memory import Block, CachingAllocator, IntegerSource, Segment
from cuassay.memory.counters import Counters, Gauge
from cuassay.memory.free_list import FreeList
from cuassay.memory.heap import Heap
from cuassay.memory.oom import release_cached_memory
from cuassay.memory.page_store import PageStore
from cuassay.memory.segment_store import SegmentStore
from cuassay.memory.trace import ShadowModel

MIB = 2**20
TOTAL = 64 * MIB

#: Without the step that collects garbage: that takes long, and here none is left.
LADDER = (release_cached_memory,)


class Driver(IntegerSource):
    """Gives back as the sources of a device do: by a binding that runs Python code when the driver has answered."""

    def release(self, address: int) -> None:
        with Attempt(self._release, address, succeeded=lambda answer: not answer) as release:
            release()

    def unmap(self, pages: Any) -> None:
        with Attempt(self._unmap, pages, succeeded=lambda answer: not answer) as unmap:
            unmap()

    def _release(self, address: int) -> int:
        super().release(address)
        return binding(0)

    def _unmap(self, pages: Any) -> int:
        super().unmap(pages)
        return binding(0)


def binding(status: int) -> int:
    """Make a Python object of a status: an interrupt here loses it."""
    return status


#: The way of a segment, and of pages, back to the source; what merges blocks before is not part of it.
PATH = (
    *(SegmentStore.release, SegmentStore._let_go, SegmentStore._judge, SegmentStore.enter, SegmentStore._note),
    *(PageStore.release, PageStore._unmap, PageStore._release_views, PageStore._release_ranges, PageStore._undo_all),
    *(PageStore._set_all_free, PageStore._drop_arenas),
    *(Heap.enter, Heap.leave, Heap.forget, FreeList.remove, Counters.move_segment, Counters.move_pages, Gauge.move),
    *(Driver.release, Driver.unmap, binding),
    *(Attempt.__init__, Attempt.__call__, Attempt.__enter__, Attempt.__exit__),
    *(interrupts.mark_early, interrupts.mark_late, interrupts.took_effect, interrupts.is_late),
)
CODES = {function.__code__ for function in PATH}


class Interrupter:
    """Raises `KeyboardInterrupt` before the line of `PATH` with this number is run; `struck` says where that was."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.struck = ""
        self._entered: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        self._former = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._former)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in CODES:
            return None
        if event == "line" and not self._leaves_with(frame):
            self.left -= 1
            if self.left == 0:
                self.struck = f"line {frame.f_lineno}, {frame.f_code.co_qualname}"
                raise KeyboardInterrupt
        return self._trace

    def _leaves_with(self, frame: FrameType) -> bool:
        """The line of a ``with`` statement comes again at the end of its block, where Python raises no interrupt."""
        key = id(frame), frame.f_lineno
        if frame.f_lineno not in with_lines(frame.f_code):
            return False
        self._entered ^= {key}
        return key not in self._entered


@cache
def with_lines(code: CodeType) -> set[int | None]:
    """The lines of ``with`` statements."""
    found = (one for one in dis.get_instructions(code) if one.opname in ("BEFORE_WITH", "LOAD_SPECIAL"))
    return {one.positions.lineno for one in found if one.positions is not None}


State = Callable[[], tuple[Driver, CachingAllocator]]


def interruptions(state: State) -> Iterator[tuple[str, Driver, CachingAllocator]]:
    """What is left of `state`, after `empty_cache` was interrupted at each line of its way in turn."""
    for number in range(1, 2000):
        source, allocator = state()
        with Interrupter(number) as interrupter, suppress(KeyboardInterrupt):
            allocator.empty_cache()
        if not interrupter.struck:
            return
        yield interrupter.struck, source, allocator


def segments() -> tuple[Driver, CachingAllocator]:
    """Two free segments, and a live block."""
    source = Driver(TOTAL, granularity=0)
    allocator = CachingAllocator(source, total=TOTAL, config="", oom_ladder=LADDER)
    allocator.malloc(1000)
    for block in [allocator.malloc(12 * MIB), allocator.malloc(16 * MIB, 1)]:
        allocator.free(block)
    return source, allocator


def pages() -> tuple[Driver, CachingAllocator]:
    """Free pages, an unused view of some, and a live block."""
    source = Driver(TOTAL, granularity=2 * MIB)
    allocator = CachingAllocator(source, total=TOTAL, config="", oom_ladder=LADDER)
    blocks = [allocator.malloc(2 * MIB) for _ in range(12)]
    for block in blocks[1::2]:
        allocator.free(block)
    allocator.free(allocator.malloc(8 * MIB))
    for block in blocks[2::2]:
        allocator.free(block)
    return source, allocator


def everything(allocator: CachingAllocator) -> Iterator[Block]:
    """Blocks until there is no room."""
    for nbytes in (16 * MIB, 12 * MIB, 8 * MIB, 2 * MIB, MIB):
        for stream in (0, 1):
            with suppress(OutOfMemoryError):
                while True:
                    yield allocator.malloc(nbytes, stream)


@pytest.mark.parametrize("state", [segments, pages], ids=["segments", "pages"])
def test_no_interrupt_makes_the_allocator_hand_out_what_is_gone(state: State) -> None:
    struck = []
    for where, source, allocator in interruptions(state):
        struck.append(where)
        shadow = ShadowModel(source)
        for block in everything(allocator):
            try:
                shadow.took(block, block.requested, block.stream)
            except Exception as error:
                raise AssertionError(f"interrupted at {where}: {block!r}: {error}") from error
        assert all(one.address in source.ranges for one in allocator.segments() if type(one) is Segment), where

    assert len(struck) > 50
    assert any("binding" in where for where in struck)


def test_an_interrupt_that_loses_the_drivers_answer_leaves_books_that_are_true() -> None:
    seen = 0
    for where, source, allocator in interruptions(segments):
        if "binding" in where:
            seen += 1
            held = source.total - source.free
            assert allocator.statistics().reserved_bytes.all.current == held
            assert sum(segment.held for segment in allocator.segments()) == held

    assert seen == 2


def test_an_interrupt_before_the_driver_is_asked_keeps_the_segment() -> None:
    source, allocator = segments()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "release", interrupted)
        with pytest.raises(KeyboardInterrupt):
            allocator.empty_cache()

    assert allocator.empty_cache() == 28 * MIB
    assert source.total - source.free == 2 * MIB


def interrupted(address: int) -> None:
    """Ctrl-C comes while the device is waited for, before the driver is asked to take the segment."""
    with Attempt(int, succeeded=bool):
        raise KeyboardInterrupt(address)
