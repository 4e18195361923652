"""What a forked child finds of the simulated device: a fresh machine; what the parent made is refused.

A lock that another thread of the parent held would be held for ever in the child, and the work that it guarded would
be half done. So the child makes its locks again, and machines of the parent are marked as lost, as CUDA's contexts are.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from cuassay.errors import ForkError

__all__ = ["Forked", "error", "watch"]


class Forked(Protocol):
    """What is to be told in a child."""

    def lose(self) -> None:
        """Called in a child that was forked from the process that made it."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(one: Forked) -> None:
    """Tell `one` in each child of this process."""
    _watched.add(one)


def error() -> ForkError:
    """What to raise for a thing of the parent's machine."""
    return ForkError(
        f"it was made on a simulated device before this process ({os.getpid()}) was forked, and stayed in the parent; "
        "make arrays, streams and graphs in the child, whose devices are fresh, or send arrays there by .get()"
    )


def _in_child() -> None:
    for one in tuple(_watched):
        one.lose()


os.register_at_fork(after_in_child=_in_child)
