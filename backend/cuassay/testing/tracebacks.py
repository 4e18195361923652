"""Shorten tracebacks of failures to the user's own lines and the message, without frames of this package.

``pytest --full-trace`` and debuggers show everything.
"""

from __future__ import annotations

from itertools import dropwhile, pairwise
from pathlib import Path
from types import TracebackType

import cuassay
from cuassay.errors import RaceError, SpecError, SynchronizationError

__all__ = ["frames_of_caller", "of_caller", "shorten"]

_PACKAGE = Path(cuassay.__file__).parent

#: Errors raised deep inside this package, about a line of the caller's that the message names.
_ABOUT_THE_CALLER = (RaceError, SynchronizationError)

#: Names of modules and functions. The modules are not imported here, because most projects' failures do not need them.
_STARTS_A_CHECK = ("cuassay.testing.generated.execution", "Check.__call__")
_CALL_THE_FUNCTION = [("cuassay.testing.opspec", "OpSpec.run"), ("cuassay.testing.opspec", "OpSpec.apply")]


def shorten(error: BaseException) -> None:
    """Cut the traceback of `error` at the caller's own line; for a generated check, keep that of the function."""
    steps = _steps(error.__traceback__)
    begin = next((at for at, step in enumerate(steps) if _place(step) == _STARTS_A_CHECK), None)
    if begin is not None:
        _link(_of_a_check(error, steps[: begin + 1], steps[begin + 1 :]))
    elif steps and _is_inside(steps[-1]):
        _link(_outside_checks(error, steps))


def of_caller(error: BaseException | None) -> BaseException | None:
    """`error` without the frames that lead to the caller's code; None if it did not reach any."""
    step = None if error is None else error.__traceback__
    while step is not None and _is_ours(step):
        step = step.tb_next
    return None if error is None or step is None else error.with_traceback(step)


def frames_of_caller(error: BaseException) -> TracebackType | None:
    """The caller's frames in the traceback of `error`, without those of this package around them; None if none."""
    steps = [step for step in _steps(error.__traceback__) if _module(step) != "contextlib"]
    kept = list(dropwhile(_is_ours, _up_to_caller(steps)))
    _link(kept)
    return kept[0] if kept else None


def _outside_checks(error: BaseException, steps: list[TracebackType]) -> list[TracebackType]:
    """The frames up to the caller's own line, if the message names it; a guard's frames without `contextlib`."""
    if isinstance(error, AssertionError):
        return [step for step in steps if _module(step) != "contextlib"]
    if not isinstance(error, _ABOUT_THE_CALLER):
        return steps
    kept = _up_to_caller(steps)
    all_ours = not kept or _module(kept[-1]) in ("_pytest", "pluggy")  # a test of this package
    return steps if all_ours else kept


def _up_to_caller(steps: list[TracebackType]) -> list[TracebackType]:
    """The frames without those at the end that are of this package or of NumPy, which calls our arrays' methods."""
    kept = steps.copy()
    while kept and _is_inside(kept[-1]):
        kept.pop()
    return kept


def _of_a_check(error: BaseException, before: list[TracebackType], inside: list[TracebackType]) -> list[TracebackType]:
    """The frames of a generated check from the user's function on; none if the check or the spec is at fault."""
    for at in reversed(range(1, len(inside))):
        if _place(inside[at - 1]) in _CALL_THE_FUNCTION and not _is_ours(inside[at]):
            _forget_the_same(error)
            return [*before, *(_up_to_caller(inside[at:]) or inside[at:])]
    is_told = isinstance(error, (AssertionError, SpecError, *_ABOUT_THE_CALLER))
    return before if is_told else [*before, *inside]


def _forget_the_same(error: BaseException) -> None:
    """Hide the error during whose handling `error` was raised if both say the same, as where NumPy tries twice."""
    former = error.__context__
    if former is not None and (type(former), str(former)) == (type(error), str(error)):
        error.__suppress_context__ = True


def _link(kept: list[TracebackType]) -> None:
    for step, following in pairwise([*kept, None]):
        if step is not None:
            step.tb_next = following


def _place(step: TracebackType) -> tuple[str, str]:
    return str(step.tb_frame.f_globals.get("__name__", "")), step.tb_frame.f_code.co_qualname


def _steps(traceback: TracebackType | None) -> list[TracebackType]:
    steps = []
    while traceback is not None:
        steps.append(traceback)
        traceback = traceback.tb_next
    return steps


def _is_ours(step: TracebackType) -> bool:
    return _PACKAGE in Path(step.tb_frame.f_code.co_filename).parents


def _is_inside(step: TracebackType) -> bool:
    return _is_ours(step) or _module(step) == "numpy"


def _module(step: TracebackType) -> str:
    return str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
