"""Whether ops that may give other bits at the next run are refused. Names follow ``torch``.

An op says in its schema whether it is deterministic; `cuassay.ops.dispatch` asks `alert` before one that is not.
Matrix products are: each call has a workspace of its own, so ``CUBLAS_WORKSPACE_CONFIG`` need not be set for that.
"""

from __future__ import annotations

import warnings

from cuassay.core.callers import stacklevel
from cuassay.core.debug_modes import mode_number
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CapabilityError

__all__ = [
    "alert",
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "is_deterministic_algorithms_warn_only_enabled",
    "set_deterministic_debug_mode",
    "use_deterministic_algorithms",
]

_mode = 0


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Make every op that is not deterministic raise `CapabilityError`, or warn; for the whole process.

    Raises
    ------
    ArgumentError
        If `mode` is not a bool.
    """
    if not isinstance(mode, bool):
        raise ArgumentError(f"mode is True or False; got {shown(mode)}; for words see set_deterministic_debug_mode")
    set_deterministic_debug_mode((1 if warn_only else 2) if mode else 0)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether such ops raise or warn."""
    return _mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether they only warn."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set the mode: 0 or ``"default"`` does nothing, 1 or ``"warn"`` warns, 2 or ``"error"`` raises.

    Raises
    ------
    ArgumentError
        If it is not one of these.
    """
    global _mode  # noqa: PLW0603  one mode a process
    _mode = mode_number(debug_mode, "determinism")


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return _mode


def alert(op: str) -> None:
    """`op`, which is not deterministic, is about to run: raise or warn as the process asked.

    Raises
    ------
    CapabilityError
        In mode "error".
    """
    if not _mode:
        return
    text = (
        f"{op} does not have a deterministic implementation, but use_deterministic_algorithms(True) was called; "
        "use another op, or allow it with use_deterministic_algorithms(True, warn_only=True)"
    )
    if _mode == 2:
        raise CapabilityError(text)
    warnings.warn(text, UserWarning, stacklevel=stacklevel())
