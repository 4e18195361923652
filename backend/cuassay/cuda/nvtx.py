"""Ranges and marks for profilers, under the names of ``torch.cuda.nvtx``; importing this loads no CUDA library.

They reach Nsight Systems and other tools through the package ``nvtx`` (``pip install nvtx``), and
`cuassay.profile` without it. If neither listens, they do nothing; `is_available` says whether the package is installed.
Differences from torch: a range without the package is not an error; `range_end` rejects an id that is not open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from itertools import count
from typing import Any

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence
from cuassay.errors import ArgumentError

__all__ = ["is_available", "mark", "mark_ops", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Thread(threading.local):
    """The open nested ranges of each thread, by number; 0 for a range that nobody watched when it began."""

    def __init__(self) -> None:
        self.open: list[int] = []


_thread = _Thread()
_numbers = count(1)
_started: dict[int, Any] = {}


class _Unasked:
    """Replaces the tool until the first range or mark, which finds out whether one listens."""

    def __getattr__(self, name: str) -> Any:
        annotate = _annotate()
        _find_listeners(annotate if annotate.is_heard() else None)
        return getattr(annotate, name)


#: The module through which a tool listens, or None without a tool. NVTX decides that once for a process.
_tool: Any = _Unasked()

#: Whether a tool or a watcher listens: all that a range looks at if nobody does.
_is_heard = True


def _find_listeners(tool: Any) -> None:
    global _tool, _is_heard  # noqa: PLW0603  a module's own names are found fastest
    _tool = tool
    _is_heard = tool is not None or bool(watchers.state.watchers)


watchers.on_change(lambda _: _find_listeners(_tool))


def is_available() -> bool:
    """Return whether ``nvtx``, the package that makes ranges visible to tools, is installed."""
    return bool(_annotate().is_available())


def range_push(msg: str) -> int:
    """Begin a range inside this thread's open ranges, and return its depth, from 0."""
    opened = _thread.open
    opened.append(_begin(msg) if _is_heard else 0)
    return len(opened) - 1


def range_pop() -> int:
    """End the innermost range of this thread, and return its depth, or -1 if none was open."""
    opened = _thread.open
    try:
        number = opened.pop()
    except IndexError:
        return -1
    if _is_heard:
        _end(number)
    return len(opened)


def range_start(msg: str) -> int:
    """Begin a range that may end in another thread, and return the id that `range_end` takes."""
    number = next(_numbers)
    _started[number] = None if _tool is None else _tool.start(msg)
    _tell("range_started", number, msg)
    return number


def range_end(range_id: int) -> None:
    """End the range `range_id`. Raises `ArgumentError` if it is not open."""
    if range_id not in _started:
        raise ArgumentError(f"range {range_id!r} is not open; give what range_start returned, once")
    handle = _started.pop(range_id)
    if _tool is not None:
        _tool.end(handle)
    _tell("range_finished", range_id)


def mark(msg: str) -> None:
    """Mark this moment with a message."""
    if _tool is not None:
        _tool.mark(msg)
    _tell("marked", 0, msg)


class range(ContextDecorator):  # noqa: N801  torch's name
    """Make the block, or each call of the decorated function, a range with the name ``msg.format(*args, **kwargs)``."""

    def __init__(self, /, msg: str, *args: Any, **kwargs: Any) -> None:
        self._name = msg.format(*args, **kwargs) if args or kwargs or "{" in msg or "}" in msg else msg

    def __enter__(self) -> None:
        range_push(self._name)

    def __exit__(self, *error: object) -> None:
        range_pop()


#: The domain of the ranges of ops, by which tools tell them from the program's own.
_OPS = "cuassay"


@contextmanager
def mark_ops() -> Iterator[None]:
    """Make each call of an op in this block and this thread a range with the op's name, in the domain ``cuassay``.

    Only tools see these ranges; `cuassay.profile` records ops without them. An op that another one calls has no range
    of its own, nor has a plan. Inside the block a call takes no shortcuts, so it takes the host longer; outside of it
    nothing changes. As ``emit_nvtx`` of torch.
    """
    from cuassay.ops import Call, interpose

    def marked(call: Call, proceed: Callable[[Call], Any]) -> Any:
        if _tool is None:
            return proceed(call)
        _tool.push(call.op.name, _OPS)
        try:
            return proceed(call)
        finally:
            if _tool is not None:
                _tool.pop(_OPS)

    with interpose(marked):
        yield


def _begin(message: str) -> int:
    """Tell the tool and watchers that a nested range begins, and return its number."""
    if _tool is not None:
        _tool.push(message)
    number = next(_numbers)
    _tell("range_begun", number, message)
    return number


def _end(number: int) -> None:
    if _tool is not None:
        _tool.pop()
    _tell("range_ended", number)


def _tell(event: str, number: int, message: str = "") -> None:
    if watchers.state.watchers:
        watchers.tell(Occurrence(event, "", number, name=message))


def _annotate() -> Any:
    from cuassay.devices.cuda import annotate

    return annotate
