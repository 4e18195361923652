"""What a failure shows of the way to it: for errors whose message names the caller's line, that line, not our insides.

``pytest --full-trace`` shows all of it, and so does a debugger.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import TracebackType

import cuassay
from cuassay.errors import RaceError, SynchronizationError

__all__ = ["shorten"]

_PACKAGE = Path(cuassay.__file__).parent

#: Raised deep inside, about a line of the caller's that the message names.
_ABOUT_THE_CALLER = (RaceError, SynchronizationError)


def shorten(error: BaseException) -> None:
    """Let the traceback of `error` end at the caller's own line; that of a guard is left without its `contextlib`."""
    steps = _steps(error.__traceback__)
    if not steps or not _is_ours(steps[-1]):
        return
    if isinstance(error, _ABOUT_THE_CALLER):
        kept = steps.copy()
        while kept and _is_ours(kept[-1]):
            kept.pop()
        if not kept or _module(kept[-1]) in ("_pytest", "pluggy"):  # all of it is ours: a test of this package
            return
    elif isinstance(error, AssertionError):
        kept = [step for step in steps if _module(step) != "contextlib"]
    else:
        return
    for step, following in pairwise([*kept, None]):
        if step is not None:
            step.tb_next = following


def _steps(traceback: TracebackType | None) -> list[TracebackType]:
    steps = []
    while traceback is not None:
        steps.append(traceback)
        traceback = traceback.tb_next
    return steps


def _is_ours(step: TracebackType) -> bool:
    return _PACKAGE in Path(step.tb_frame.f_code.co_filename).parents


def _module(step: TracebackType) -> str:
    return str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
