"""What a forked child finds of the simulated device: a fresh machine; objects of the parent are rejected.

A lock that another thread of the parent held would be held forever in the child, and the work that it guarded would be
half done. So the child makes new locks, and the parent's machines are marked as lost, as CUDA's contexts are.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from cuassay.errors import ForkError

__all__ = ["Forked", "error", "watch"]


class Forked(Protocol):
    """An object that must be notified in a forked child."""

    def lose(self) -> None:
        """Handle a fork, in the child of the process that made this object."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(one: Forked) -> None:
    """Notify `one` in each child of this process."""
    _watched.add(one)


def error() -> ForkError:
    """Return the exception for an object of the parent's machine."""
    return ForkError(
        f"it was made on a simulated device before this process ({os.getpid()}) was forked, and stayed in the parent; "
        "make arrays, streams and graphs in the child, whose devices are fresh, or send arrays there by .get()"
    )


def _in_child() -> None:
    for one in tuple(_watched):
        one.lose()


os.register_at_fork(after_in_child=_in_child)
