"""What is a number, of the many types that callers have for it."""

from __future__ import annotations

import operator
from numbers import Real

__all__ = ["as_real", "as_whole"]


def as_whole(value: object) -> int | None:
    """`value` as an int where it is a whole number, of any integer type; None for bool and all else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type] # that is the question
    except TypeError:
        return None


def as_real(value: object) -> float | None:
    """`value` as a float where it is a real number, of any type, that a float can hold; None for all else."""
    try:
        return float(value) if isinstance(value, Real) else None
    except OverflowError:
        return None
