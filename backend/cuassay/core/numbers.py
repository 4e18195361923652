"""What is a number, of the many types that callers have for it."""

from __future__ import annotations

import operator

__all__ = ["as_whole"]


def as_whole(value: object) -> int | None:
    """`value` as an int where it is a whole number, of any integer type; None for bool and all else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type] # that is the question
    except TypeError:
        return None
