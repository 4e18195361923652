"""The line to blame for an access: the nearest caller that is neither this package nor an array library."""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from types import CodeType

import numpy as np

from cuassay.core.callers import is_ours

__all__ = ["Site", "call_site"]

#: What is passed over in addition to this package: NumPy, and finalizers; CuPy, by its place next to NumPy.
_NUMPY = Path(np.__file__).parent
_LIBRARIES = (
    *(f"{_NUMPY.with_name(name)}{os.sep}" for name in ("numpy", "cupy", "cupyx", "cupy_backends")),
    weakref.__file__,
    "<__array_function__",
)
_is_library: dict[CodeType, bool] = {}

#: File and line.
Site = tuple[str, int]


def call_site() -> Site:
    """File and line of the nearest caller that is neither this package nor NumPy or CuPy."""
    frame = sys._getframe(1)  # inspect.currentframe is the same, and its stack() reads files
    while (library := _is_library.get(frame.f_code)) is not False and frame.f_back is not None:
        if library is None:
            filename = frame.f_code.co_filename
            library = _is_library[frame.f_code] = is_ours(filename) or filename.startswith(_LIBRARIES)
        if not library:
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
