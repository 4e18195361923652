"""Waits of the host inside CuPy, made visible to the sync debug mode.

CuPy tells one hook of its own of `ndarray.get`, of what reads a value (`float`, `bool`, `tolist`) and of
`Device.synchronize`. It has no public place to listen there: the hook is replaced while a mode is set, and put back.
Waits of CuPy's own streams and events, and of other libraries, are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuassay.core import syncdebug

__all__ = ["watch"]


def watch(mode: int) -> None:
    """Listen to CuPy in every mode but the default."""
    from cupy._core import syncdetect

    hook: Callable[[], None] | None = getattr(syncdetect, "_declare_synchronize", None)
    if hook is not None:
        theirs = getattr(hook, "theirs", hook)
        syncdetect._declare_synchronize = _telling(theirs) if mode else theirs  # noqa: SLF001  no public hook


def _telling(theirs: Callable[[], None]) -> Any:
    def declare() -> None:
        syncdebug.waits("a read of a CuPy array by the host, or Device.synchronize")
        theirs()

    declare.theirs = theirs  # type: ignore[attr-defined]
    return declare
