"""Ranges and marks for profilers, under the names of ``torch.cuda.nvtx``; importing this loads no CUDA library.

They reach Nsight Systems and other tools through the package ``nvtx`` (``pip install nvtx``), and
`cuassay.profile` without it. If neither listens, they do nothing; `is_available` says whether the package is installed.
Differences from torch: a range without the package is not an error; `range_end` rejects an id that is not open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence
from cuassay.errors import ArgumentError

__all__ = ["is_available", "mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Thread(threading.local):
    """The open nested ranges of each thread, by number."""

    def __init__(self) -> None:
        self.open: list[int] = []


_thread = _Thread()
_numbers = count(1)
_started: dict[int, Any] = {}


def is_available() -> bool:
    """Return whether ``nvtx``, the package that makes ranges visible to tools, is installed."""
    return bool(_annotate().is_available())


def range_push(msg: str) -> int:
    """Begin a range inside this thread's open ranges, and return its depth, from 0."""
    _annotate().push(msg)
    number = next(_numbers)
    _tell("range_begun", number, msg)
    _thread.open.append(number)
    return len(_thread.open) - 1


def range_pop() -> int:
    """End the innermost range of this thread, and return its depth, or -1 if none was open."""
    if not _thread.open:
        return -1
    _annotate().pop()
    _tell("range_ended", _thread.open.pop())
    return len(_thread.open)


def range_start(msg: str) -> int:
    """Begin a range that may end in another thread, and return the id that `range_end` takes."""
    number = next(_numbers)
    _started[number] = _annotate().start(msg)
    return number


def range_end(range_id: int) -> None:
    """End the range `range_id`. Raises `ArgumentError` if it is not open."""
    if range_id not in _started:
        raise ArgumentError(f"range {range_id!r} is not open; give what range_start returned, once")
    _annotate().end(_started.pop(range_id))


def mark(msg: str) -> None:
    """Mark this moment with a message."""
    _annotate().mark(msg)
    _tell("marked", 0, msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Make the block a range with the name ``msg.format(*args, **kwargs)``."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _tell(event: str, number: int, message: str = "") -> None:
    if watchers.state.watchers:
        watchers.tell(Occurrence(event, "", number, name=message))


def _annotate() -> Any:
    from cuassay.devices.cuda import annotate

    return annotate
