"""How often workers send rows: seldom enough that the scheduler keeps up with all of them."""

from __future__ import annotations

__all__ = ["flush_seconds"]

#: Messages with rows that a scheduler takes in a second; dask's handles some thousands of any kind.
_MESSAGES_A_SECOND = 500

#: Soon enough for a person who watches.
_LEAST_SECONDS = 0.1


def flush_seconds(workers: int) -> float:
    """How long a worker gathers rows before it sends them."""
    return max(_LEAST_SECONDS, workers / _MESSAGES_A_SECOND)
