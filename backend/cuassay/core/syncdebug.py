"""What happens when the host waits for a device: nothing, a warning, or an error; ``torch.cuda``'s sync debug mode.

The mode is one for the process and for every kind of device. Whoever is about to make the host wait looks at `state`
first, which costs one comparison in the default mode. A library whose waits happen out of our sight is watched by
`on_change`.
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
    """`mode` is a place in `MODES`; 0 is silent."""

    mode: int = 0
    watchers: list[Callable[[int], None]] = field(default_factory=list)


state = State()


def set_mode(mode: int | str) -> None:
    """Choose what a wait of the host for a device does: nothing (``"default"``, 0), warn (1) or raise (``"error"``, 2).

    Raises
    ------
    ArgumentError
        If `mode` is neither a number nor a name of `MODES`.
    """
    state.mode = mode_number(mode, "sync debug")
    for watcher in state.watchers:
        watcher(state.mode)


def get_mode() -> int:
    """The mode's number: 0 default, 1 warn, 2 error."""
    return state.mode


def on_change(watcher: Callable[[int], None]) -> None:
    """Tell `watcher` the mode now, and whenever it is set."""
    state.watchers.append(watcher)
    watcher(state.mode)


def waits(what: str) -> None:
    """Say, or refuse, that `what` makes the host wait for a device; nothing in the default mode.

    Raises
    ------
    SynchronizationError
        In mode ``"error"``: before anything was waited for.
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
