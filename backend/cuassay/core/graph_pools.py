"""Tokens that identify memory pools which graphs share."""

from __future__ import annotations

from itertools import count
from typing import Protocol

__all__ = ["GraphMemory", "PoolId", "graph_pool_handle", "is_pool_id"]

PoolId = tuple[int, int]

_numbers = count(1)


class GraphMemory(Protocol):
    """The memory of a graph, which other graphs may share by its `id`."""

    @property
    def id(self) -> PoolId:
        """The token of the memory."""


def graph_pool_handle() -> PoolId:
    """Return a new token for memory that several graphs share. The memory exists while one of the graphs does.

    The second number of the token is 0, so it differs from the number of every allocator pool.
    """
    return next(_numbers), 0


def is_pool_id(pool: object) -> bool:
    """Return whether `pool` has the form of a token: a pair of integers, as allocator pools also have."""
    return isinstance(pool, tuple | list) and len(pool) == 2 and all(isinstance(number, int) for number in pool)
