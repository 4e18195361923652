"""A pool that hands out the same few things in turn, each made when first asked for: what streams come from.

Nothing is ever given back, so that whoever holds one may share it unknowingly: `size` says how many apart two
holders must be asked for to do so.
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
    """Gives `size` things round robin; safe to ask from several threads.

    Parameters
    ----------
    make : callable
        Makes one more; called at most `size` times in all, once for each success.
    size : int
        How many there will be.
    usable : callable, optional
        Whether a thing may be handed out now; one that may not is passed over, unless none may.
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
        """The next in turn."""
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
