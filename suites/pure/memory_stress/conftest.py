"""Every allocator here is watched: it must hold its lock while it changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from watched_lock import locks_are_watched


@pytest.fixture(autouse=True, scope="module")
def watched() -> Iterator[None]:
    with locks_are_watched():
        yield
