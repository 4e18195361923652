"""Fit policies: which free block serves a request.

The free blocks of one stream are a sorted list of integers, ``size << 64 | address``. A policy sees only these
integers, so the default policy is a function of the standard library that runs in C.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["BEST_FIT", "BestFit", "FitPolicy"]


class FitPolicy(Protocol):
    """Chooses among free blocks. Another policy is another class with these two methods."""

    @property
    def find(self) -> Callable[[Sequence[int], int], int]:
        """A function of the sorted keys and the least key that is large enough.

        It returns the position of the block to take, or ``len(keys)`` if no block is large enough.
        """

    def prefers(self, nbytes: int, other: int) -> bool:
        """Whether to take a block of `nbytes` rather than one of `other` bytes, if both are free and large enough."""


class BestFit:
    """The smallest block that is large enough; among equal blocks the one at the lowest address."""

    find = staticmethod(bisect_left)

    def prefers(self, nbytes: int, other: int) -> bool:
        """Whether `nbytes` is not larger."""
        return nbytes <= other

    def __repr__(self) -> str:
        return "BestFit()"


#: The default policy.
BEST_FIT = BestFit()
