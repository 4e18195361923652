"""NVTX ranges through the package ``nvtx``; without it, or without a listening tool, they do nothing.

Ranges are in a *domain*, by which tools group and filter them: the default one, whose name is empty, or a named one. A
message's attributes are made once, because making them is most of a range's cost. A tool attaches when NVTX is first
used in a process or never, so that `is_heard` is asked once.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["end", "is_available", "is_heard", "mark", "pop", "push", "start"]

#: The most messages whose attributes are kept: a program uses few names, but may put a step's number into each.
_KEPT = 4096


@cache
def is_available() -> bool:
    """Whether the package is installed."""
    return find_spec("nvtx") is not None


@cache
def is_heard() -> bool:
    """Whether a tool listens; the first call loads the package and, through it, the tool."""
    return is_available() and _attributes("") is not None  # without a tool the package gives a domain without content


@cache
def _domain(name: str = "") -> Any:
    nvtx = import_module("nvtx")
    return nvtx.get_domain(name) if name else nvtx.get_domain()


@lru_cache(maxsize=_KEPT)
def _attributes(message: str, domain: str = "") -> Any:
    return _domain(domain).get_event_attributes(message=message)


def push(message: str, domain: str = "") -> None:
    """Begin a nested range of this thread in a domain."""
    if is_heard():
        _domain(domain).push_range(_attributes(message, domain))


def pop(domain: str = "") -> None:
    """End this thread's innermost range in a domain."""
    if is_heard():
        _domain(domain).pop_range()


def start(message: str) -> Any:
    """Begin a range that may end in another thread; return what `end` takes."""
    return _domain().start_range(_attributes(message)) if is_heard() else None


def end(handle: Any) -> None:
    """End the range that `start` began."""
    if is_heard():
        _domain().end_range(handle)


def mark(message: str) -> None:
    """Mark a moment."""
    if is_heard():
        _domain().mark(_attributes(message))
