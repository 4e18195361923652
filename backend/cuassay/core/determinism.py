"""Control whether ops whose results may differ in bits between runs raise or warn. Names follow ``torch``.

The schema of an op says whether it is deterministic; `cuassay.ops.dispatch` calls `alert` before one that is not.
Matrix products are deterministic, because each call has its own workspace; ``CUBLAS_WORKSPACE_CONFIG`` is not needed.
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
    """Make every op that is not deterministic raise `CapabilityError` or warn, in the whole process.

    Parameters
    ----------
    mode : bool
        True to raise or warn, False to do nothing.
    warn_only : bool
        Warn instead of raising.

    Raises
    ------
    ArgumentError
        If `mode` is not a bool.
    """
    if not isinstance(mode, bool):
        raise ArgumentError(f"mode is True or False; got {shown(mode)}; for words see set_deterministic_debug_mode")
    set_deterministic_debug_mode((1 if warn_only else 2) if mode else 0)


def are_deterministic_algorithms_enabled() -> bool:
    """Return whether ops that are not deterministic raise or warn."""
    return _mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Return whether ops that are not deterministic only warn."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set the mode: 0 or ``"default"`` does nothing, 1 or ``"warn"`` warns, 2 or ``"error"`` raises.

    Raises
    ------
    ArgumentError
        If `debug_mode` is not one of these.
    """
    global _mode  # noqa: PLW0603  one mode a process
    _mode = mode_number(debug_mode, "determinism")


def get_deterministic_debug_mode() -> int:
    """Return the mode as a number: see `set_deterministic_debug_mode`."""
    return _mode


def alert(op: str) -> None:
    """Raise or warn, as the mode says, because `op` is about to run and is not deterministic.

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
