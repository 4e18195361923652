"""The sync debug mode of ``torch.cuda``: whether a host wait for a device is silent, warns or raises.

One mode applies to the process and to every kind of device. Code that is about to make the host wait checks `state`
first, which costs one comparison in the default mode. A library that waits without calling us is hooked by `on_change`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from cuassay.core.callers import stacklevel
from cuassay.core.debug_modes import MODES, mode_number
from cuassay.errors import SynchronizationError

__all__ = ["MODES", "State", "get_mode", "on_change", "set_mode", "state", "waits"]


@dataclass(slots=True)
class State:
    """The mode as an index into `MODES` (0 is silent), and the functions that are called when it is set."""

    mode: int = 0
    watchers: list[Callable[[int], None]] = field(default_factory=list)


state = State()


def set_mode(mode: int | str) -> None:
    """Choose what a host wait does: nothing (``"default"``, 0), warn (``"warn"``, 1) or raise (``"error"``, 2).

    Raises
    ------
    ArgumentError
        If `mode` is neither a number nor a name of `MODES`.
    """
    state.mode = mode_number(mode, "sync debug")
    for watcher in state.watchers:
        watcher(state.mode)


def get_mode() -> int:
    """Return the mode's number: 0 default, 1 warn, 2 error."""
    return state.mode


def on_change(watcher: Callable[[int], None]) -> None:
    """Call `watcher` with the mode now, and whenever it is set."""
    state.watchers.append(watcher)
    watcher(state.mode)


def waits(what: str) -> None:
    """Warn or raise, as the mode says, because `what` is about to make the host wait for a device.

    Raises
    ------
    SynchronizationError
        In mode ``"error"``, before the wait.
    """
    if not state.mode:
        return
    message = (
        f"the host waits for the device in {what}, in sync debug mode {MODES[state.mode]!r}; order the work by "
        "streams and events, or set the mode to 'default' around a wait that is meant"
    )
    if state.mode == MODES.index("error"):
        raise SynchronizationError(message)
    warnings.warn(message, UserWarning, stacklevel=stacklevel())
