"""The modes of torch's debug switches, by name and number: do nothing, warn, raise."""

from __future__ import annotations

from cuassay.errors import ArgumentError

__all__ = ["MODES", "mode_number"]

#: The position of a mode is torch's number.
MODES = ("default", "warn", "error")


def mode_number(mode: int | str, what: str) -> int:
    """Return the number of a mode.

    Parameters
    ----------
    mode : int or str
        A name in `MODES`, or its number.
    what : str
        The name of the switch in an error message.

    Raises
    ------
    ArgumentError
        If there is no such mode.
    """
    found = MODES.index(mode) if isinstance(mode, str) and mode in MODES else mode
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < len(MODES):
        known = ", ".join(f"{number} or {name!r}" for number, name in enumerate(MODES))
        raise ArgumentError(f"there is no {what} mode {mode!r}; give one of {known}")
    return found
