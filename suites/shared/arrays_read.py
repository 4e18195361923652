"""Arrays of any device as plain numbers."""

from __future__ import annotations

from typing import Any

from cuassay import to_host


def values(array: Any) -> list[float]:
    """The elements of an array, in C order."""
    return [float(value) for value in to_host(array).ravel()]
