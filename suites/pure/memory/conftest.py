"""What the tests of memory share: an allocator of integers, and locks that are held while it changes."""

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
def allocator() -> CachingAllocator:
    """One whose memory does not end, of segments; the environment's configuration does not count."""
    return CachingAllocator(IntegerSource(granularity=0), config="")
