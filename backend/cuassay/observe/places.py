"""Find the line that a recorded call or allocation is booked on, as code and instruction; text is made of it later."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from cuassay.core.callers import is_ours

__all__ = ["caller", "known_as_ours", "outside"]

#: Whether a file is part of this package. By its name, because a string caches its hash; hashing a code object reads
#: its instructions.
known_as_ours: dict[str, bool] = {}


def caller() -> tuple[CodeType, int]:
    """Return the code of the nearest caller outside this package, and the offset of its current instruction."""
    frame = outside(sys._getframe(1))
    return frame.f_code, frame.f_lasti


def outside(frame: FrameType) -> FrameType:
    """Return `frame`, or the nearest of its callers that is outside this package."""
    known = known_as_ours
    while known.get(frame.f_code.co_filename, True):
        outer = frame.f_back
        if not _look_up(frame) or outer is None:
            break
        frame = outer
    return frame


def _look_up(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    found = known_as_ours[filename] = is_ours(filename)
    return found
