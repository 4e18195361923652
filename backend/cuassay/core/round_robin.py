"""A round-robin pool, from which streams are taken. Each object is made when it is first needed.

Objects are never returned to the pool, so two holders may share one: every `size`-th call returns the same object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["STREAMS_PER_PRIORITY", "RoundRobin"]

#: Streams of one device and priority, as in ``torch.cuda``.
STREAMS_PER_PRIORITY = 32

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Hand out `size` objects in turn. Safe to use from several threads.

    Parameters
    ----------
    make : callable
        Makes one more object. It is called until it has succeeded `size` times.
    size : int
        The number of objects.
    usable : callable, optional
        Returns whether an object may be handed out now. Objects that may not are skipped, unless none may.
    """

    def __init__(
        self,
        make: Callable[[], T],
        size: int = STREAMS_PER_PRIORITY,
        usable: Callable[[T], bool] = lambda thing: True,
    ) -> None:
        self._make = make
        self._size = size
        self._usable = usable
        self._made: list[T] = []
        self._turn = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RoundRobin({len(self._made)} of {self._size} made)"

    def take(self) -> T:
        """Return the next object."""
        with self._lock:
            if len(self._made) < self._size:
                self._made.append(self._make())
                return self._made[-1]
            for _ in range(self._size):
                found = self._advance()
                if self._usable(found):
                    return found
            return self._advance()

    def _advance(self) -> T:
        found = self._made[self._turn]
        self._turn = (self._turn + 1) % self._size
        return found
