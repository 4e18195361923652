"""What the tests of the allocator share: one over the file's own source, which holds its lock while it changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from watched_lock import locks_are_watched

from cuassay.memory import CachingAllocator, IntegerSource


@pytest.fixture(autouse=True, scope="module")
def watched() -> Iterator[None]:
    with locks_are_watched():
        yield


@pytest.fixture
def source() -> IntegerSource:
    """Memory that does not end; files whose tests need an end have their own."""
    return IntegerSource()


@pytest.fixture
def allocator(source: IntegerSource) -> CachingAllocator:
    """An allocator that may take the whole of `source`; the environment's configuration does not count."""
    return CachingAllocator(source, total=source.total, config="", name="cuda:0")
