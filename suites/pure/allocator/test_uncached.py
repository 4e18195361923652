"""Blocks without a cache: what compute-sanitizer is given."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from cuassay.core.interrupts import mark_early, mark_late
from cuassay.devices.cuda.memory.uncached import UncachedAllocator
from cuassay.errors import ArgumentError
from cuassay.memory import IntegerSource


@pytest.mark.parametrize("nbytes", [-5, 2.5, "3", None], ids=str)
def test_a_size_that_is_none_is_refused_and_changes_nothing(nbytes: Any) -> None:
    source = IntegerSource()
    uncached = UncachedAllocator(source, lambda: nullcontext(True))

    with pytest.raises(ArgumentError, match="the size of a block must be an int"):
        uncached.malloc(nbytes)

    assert (uncached.live, source.reserves) == (0, 0)


@pytest.mark.parametrize("may_release", [True, False])
def test_what_was_freed_goes_back_before_the_next_unless_work_is_captured(may_release: bool) -> None:
    source = IntegerSource()
    uncached = UncachedAllocator(source, lambda: nullcontext(may_release))
    uncached.append(uncached.malloc(1000))

    uncached.malloc(24)

    assert uncached.live == 24
    assert source.releases == may_release


@pytest.mark.parametrize(("is_late", "left"), [(False, 2), (True, 1)], ids=["before", "after"])
def test_a_block_whose_release_raises_is_tried_again_unless_it_is_gone(is_late: bool, left: int) -> None:
    class Failing(IntegerSource):
        error: BaseException | None = KeyboardInterrupt()

        def release(self, address: int) -> None:
            error, self.error = self.error, None
            if error is None or is_late:
                super().release(address)
            if error is not None:
                (mark_late if is_late else mark_early)(error)
                raise error

    source = Failing()
    uncached = UncachedAllocator(source, lambda: nullcontext(True))
    uncached.malloc(24)
    uncached.append(uncached.malloc(1000))

    with pytest.raises(KeyboardInterrupt):
        uncached.release_freed()
    assert len(source.ranges) == left
    uncached.release_freed()

    assert len(source.ranges) == 1
