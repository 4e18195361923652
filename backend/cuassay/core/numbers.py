"""Convert the number types that callers pass to int and float."""

from __future__ import annotations

import operator
from numbers import Real

__all__ = ["as_real", "as_whole"]


def as_whole(value: object) -> int | None:
    """Return `value` as an int if it is of any integer type; None for bool and everything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type] # raises if not
    except TypeError:
        return None


def as_real(value: object) -> float | None:
    """Return `value` as a float if it is a real number in a float's range; None for everything else."""
    try:
        return float(value) if isinstance(value, Real) else None
    except OverflowError:
        return None
