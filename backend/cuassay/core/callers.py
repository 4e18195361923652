"""Find the source line of a warning, access, allocation or launch: the nearest caller outside this package."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from pathlib import Path

__all__ = ["Site", "is_ours", "is_shipped", "line", "site", "stacklevel"]

#: A file and a line in it.
Site = tuple[str, int]

_ROOT = f"{Path(__file__).parents[1]}{os.sep}"

#: Subpackages whose code counts as a caller: specs and benchmarks that ship in the wheel.
_CALLERS = (f"{_ROOT}testing{os.sep}", f"{_ROOT}benchmarking{os.sep}")


@cache
def is_ours(filename: str) -> bool:
    """Return whether a file does not count as a caller: this package's, and contextlib's, which enters our blocks."""
    return filename == contextlib.__file__ or (filename.startswith(_ROOT) and not filename.startswith(_CALLERS))


def is_shipped(filename: str) -> bool:
    """Return whether a file is in this package, including the subpackages that count as callers."""
    return filename.startswith(_ROOT)


def stacklevel() -> int:
    """Return the `stacklevel` with which `warnings.warn`, called by the caller, names the nearest outside caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def site(above: int = 0) -> Site:
    """Return the file and line of the nearest outside caller, unformatted: fast enough to call often.

    `above` is how many frames above the caller are certainly of this package; looking at fewer frames is faster.
    """
    frame = sys._getframe(1 + above)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def line(at: Site | None = None) -> str:
    """Format `at`, or the nearest outside caller, as ``file.py:12``."""
    file, number = site() if at is None else at
    return f"{file.rpartition(os.sep)[2]}:{number}"
