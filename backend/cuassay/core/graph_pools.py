"""Tokens for the memory that graphs share."""

from __future__ import annotations

from itertools import count
from typing import Protocol

__all__ = ["GraphMemory", "PoolId", "graph_pool_handle", "is_pool_id"]

PoolId = tuple[int, int]

_numbers = count(1)


class GraphMemory(Protocol):
    """The memory of a graph, which others may share by its `id`."""

    @property
    def id(self) -> PoolId:
        """Its token."""


def graph_pool_handle() -> PoolId:
    """A token for memory that several graphs share; the memory is there while one of them is.

    Its second number is 0, so that no pool of an allocator has the same.
    """
    return next(_numbers), 0


def is_pool_id(pool: object) -> bool:
    """Whether `pool` is such a token, or the number of an allocator's pool in the same form."""
    return isinstance(pool, tuple | list) and len(pool) == 2 and all(isinstance(number, int) for number in pool)
