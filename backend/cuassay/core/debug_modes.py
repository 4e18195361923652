"""The modes of torch's debug switches, by name and number: do nothing, warn, raise."""

from __future__ import annotations

from cuassay.errors import ArgumentError

__all__ = ["MODES", "mode_number"]

#: By torch's numbers.
MODES = ("default", "warn", "error")


def mode_number(mode: int | str, what: str) -> int:
    """The number of `mode`, which is a name in `MODES` or a number; `what` names the switch in an error.

    Raises
    ------
    ArgumentError
        If it is neither.
    """
    found = MODES.index(mode) if isinstance(mode, str) and mode in MODES else mode
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < len(MODES):
        known = ", ".join(f"{number} or {name!r}" for number, name in enumerate(MODES))
        raise ArgumentError(f"there is no {what} mode {mode!r}; give one of {known}")
    return found
