"""Format and parse amounts of bytes."""

from __future__ import annotations

import re

__all__ = ["BYTES", "format_bytes", "parse_bytes"]

#: The number of bytes in each unit.
BYTES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

_AMOUNT = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[KMGT]iB|B)?")


def parse_bytes(text: str) -> int:
    """Parse ``1073741824``, ``512MiB`` or ``1.5 GiB`` to bytes, rounded down. Raises `ValueError` for other text."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a number of bytes; write for example 1073741824, 512MiB or 1GiB")
    return int(float(found["number"]) * BYTES[found["unit"] or ""])


def format_bytes(nbytes: int) -> str:
    """Format `nbytes` in the largest binary unit in which it is at least 1, such as ``'2 MiB'``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if nbytes >= BYTES[unit]:
            return f"{nbytes / BYTES[unit]:.4g} {unit}"
    return f"{nbytes} B"
