"""An allocator of integers."""

from __future__ import annotations

import pytest

from cuassay.memory import CachingAllocator, IntegerSource


@pytest.fixture
def allocator() -> CachingAllocator:
    """One whose memory does not end, of segments; the environment's configuration does not count."""
    return CachingAllocator(IntegerSource(granularity=0), config="")
