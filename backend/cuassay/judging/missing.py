"""GPU libraries that a candidate imports and this machine lacks. Its code did not run, so nothing is known of it."""

from __future__ import annotations

import re
from importlib.util import find_spec

__all__ = ["LIBRARIES", "missing_library"]

#: Any other missing module is the candidate's own fault: otherwise a wrong candidate could import a name that nothing
#: has, and be undecided.
LIBRARIES = frozenset("cuda cupy cupyx jax numba torch triton".split())

_ERROR = re.compile(r"\bModuleNotFoundError: No module named '(\w+)[\w.]*'")


def missing_library(error: str) -> str | None:
    """Return the GPU library that an error of the candidate says is missing; None if it is installed.

    The text comes from the candidate and is not trusted: the library is looked up here, too.
    """
    found = _ERROR.search(error)
    if found is None or found[1] not in LIBRARIES or find_spec(found[1]) is not None:
        return None
    return found[1]
