"""Find the source line of an access: the nearest caller that is neither this package nor an array library."""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from types import CodeType

import numpy as np

from cuassay.core.callers import is_ours

__all__ = ["Site", "call_site"]

#: Code that is skipped in addition to this package: NumPy, CuPy (installed next to NumPy) and finalizers.
_NUMPY = Path(np.__file__).parent
_LIBRARIES = (
    *(f"{_NUMPY.with_name(name)}{os.sep}" for name in ("numpy", "cupy", "cupyx", "cupy_backends")),
    weakref.__file__,
    "<__array_function__",
)
#: By file name, because a string caches its hash; hashing a code object reads all of its instructions.
_is_library: dict[str, bool] = {}

#: File and line.
Site = tuple[str, int]

#: Known sites, by the id of a code object and the instruction, because computing a line number in a long function takes
#: microseconds. The code object is kept alive so that its id is not reused.
_sites: dict[tuple[int, int], tuple[Site, CodeType]] = {}

#: The size limit of `_sites`, so that a program which generates code does not fill the memory.
_MOST_SITES = 2**14


def call_site() -> Site:
    """Return the file and line of the nearest caller that is neither this package nor NumPy or CuPy."""
    frame = sys._getframe(1)  # inspect.currentframe is the same, and its stack() reads files
    known = _is_library
    while True:
        code = frame.f_code
        library = known.get(code.co_filename)
        if library is None:
            library = known[code.co_filename] = _find_library(code.co_filename)
        if not library or (outer := frame.f_back) is None:
            break
        frame = outer
    place = id(code), frame.f_lasti
    found = _sites.get(place)
    if found is None:
        if len(_sites) >= _MOST_SITES:
            _sites.clear()
        found = _sites[place] = (code.co_filename, frame.f_lineno), code
    return found[0]


def _find_library(filename: str) -> bool:
    return is_ours(filename) or filename.startswith(_LIBRARIES)
