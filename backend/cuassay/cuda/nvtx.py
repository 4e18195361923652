"""Ranges and marks for profilers, by the names of ``torch.cuda.nvtx``; importing this loads no CUDA library.

They reach Nsight Systems and other tools through the package ``nvtx`` (``pip install cuassay[nvtx]``), and
`cuassay.profile` without it. Where neither listens, they do nothing; `is_available` says whether the package is there.
Where we differ from torch: a range without the package is not an error; `range_end` refuses an id that is not open.
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
    """The nested ranges of each thread that are open, by number."""

    def __init__(self) -> None:
        self.open: list[int] = []


_thread = _Thread()
_numbers = count(1)
_started: dict[int, Any] = {}


def is_available() -> bool:
    """Whether the package ``nvtx`` is installed, through which tools see ranges: ``pip install cuassay[nvtx]``."""
    return bool(_room().is_available())


def range_push(msg: str) -> int:
    """Begin a range inside those that are open in this thread; gives its depth, from 0."""
    _room().push(msg)
    number = next(_numbers)
    _tell("range_begun", number, msg)
    _thread.open.append(number)
    return len(_thread.open) - 1


def range_pop() -> int:
    """End the innermost range of this thread; gives its depth, or -1 where none was open."""
    if not _thread.open:
        return -1
    _room().pop()
    _tell("range_ended", _thread.open.pop())
    return len(_thread.open)


def range_start(msg: str) -> int:
    """Begin a range that may end in another thread; gives what `range_end` takes."""
    number = next(_numbers)
    _started[number] = _room().start(msg)
    return number


def range_end(range_id: int) -> None:
    """End the range `range_id`. Raises `ArgumentError` if it is not open."""
    if range_id not in _started:
        raise ArgumentError(f"range {range_id!r} is not open; give what range_start returned, once")
    _room().end(_started.pop(range_id))


def mark(msg: str) -> None:
    """Mark this moment."""
    _room().mark(msg)
    _tell("marked", 0, msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range of the block, called ``msg.format(*args, **kwargs)``."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _tell(event: str, number: int, message: str = "") -> None:
    if watchers.state.watchers:
        watchers.tell(Occurrence(event, "", number, name=message))


def _room() -> Any:
    from cuassay.devices.cuda import annotate

    return annotate
