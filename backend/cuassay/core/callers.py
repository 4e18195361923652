"""Find the line to blame for a warning, an access, an allocation or a launch: the nearest caller that is not us."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

__all__ = ["Site", "is_ours", "is_shipped", "line", "site", "stacklevel"]

#: A file and a line in it.
Site = tuple[str, int]

_ROOT = f"{Path(__file__).parents[1]}{os.sep}"

#: Rooms of ours whose code is a caller like any other: specs and benchmarks that ship in the wheel.
_CALLERS = (f"{_ROOT}testing{os.sep}", f"{_ROOT}benchmarking{os.sep}")


@cache
def is_ours(filename: str) -> bool:
    """Whether a file is this package's, and no caller of it."""
    return filename.startswith(_ROOT) and not filename.startswith(_CALLERS)


def is_shipped(filename: str) -> bool:
    """Whether a file is in this package, those that call it like anybody else included."""
    return filename.startswith(_ROOT)


def stacklevel() -> int:
    """What `warnings.warn` takes, given to it by the function that asks, to name the nearest caller that is not us."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def site() -> Site:
    """Where the nearest caller is that is not us: for what is called often, and told seldom."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def line(at: Site | None = None) -> str:
    """The nearest caller that is not us, or `at`, as ``file.py:12``."""
    file, number = site() if at is None else at
    return f"{file.rpartition(os.sep)[2]}:{number}"
