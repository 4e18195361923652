"""Keeps the memory of freed arrays in this process while candidates are judged.

The C library maps new pages for each large array and unmaps them when it is freed. The first write to each page then
interrupts the program: filling a new array of 32 MB takes three times as long as filling an old one, and a verdict on
such arrays makes hundreds of them.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["keep_memory", "kept_memory"]

#: Parameters of mallopt(3), and their values inside the block and after it. Outside, the values are those that the C
#: library starts with; it does not tell the current ones.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_INSIDE = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1))
_AFTER = ((_MMAP_MAX, 65_536), (_TRIM_THRESHOLD, 128 << 10))

_lock = threading.Lock()
_users = 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Reuse the memory of freed arrays inside the block; give it back to the system after the last such block.

    Without glibc, or with a replacement of its allocator, nothing changes.
    """
    global _users  # noqa: PLW0603  the setting is one of the process
    library = _library()
    with _lock:
        _users += 1
        if _users == 1:
            _set(library, _INSIDE)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _set(library, _AFTER)
                if library is not None:
                    library.malloc_trim(0)


def keep_memory() -> None:
    """Reuse the memory of freed arrays for the rest of this process, which must not be a judge's."""
    _set(_library(), _INSIDE)


def _library() -> Any:
    """Return the C library if it has glibc's functions for this, else None."""
    if sys.platform != "linux":
        return None
    found = ctypes.CDLL(None)
    return found if hasattr(found, "mallopt") and hasattr(found, "malloc_trim") else None


def _set(library: Any, values: tuple[tuple[int, int], ...]) -> None:
    if library is not None:
        for name, value in values:
            library.mallopt(name, value)
