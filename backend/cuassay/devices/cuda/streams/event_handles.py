"""The driver's handles of events, kept for the next event of the same device and kind."""

from __future__ import annotations

import os
from contextlib import suppress

import cupy

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.context import CUDARuntimeError, at, explained, refused_in_child

__all__ = ["DISABLE_TIMING", "destroy", "give_back", "idle_events", "make", "take"]

DISABLE_TIMING = cupy.cuda.runtime.eventDisableTiming

#: The most idle handles that are kept for one device and kind; further ones are destroyed.
_MOST_IDLE = 1024

#: Idle handles by device and flags; see `idle_events`.
_IDLE: dict[int, list[int]] = {}

_create = cupy.cuda.runtime.eventCreateWithFlags
_destroy = cupy.cuda.runtime.eventDestroy


def idle_events(index: int, flags: int = DISABLE_TIMING) -> list[int]:
    """Return the idle handles of device `index` that were made with `flags`."""
    return _IDLE.setdefault(8 * index + flags, [])


def take(index: int, flags: int = DISABLE_TIMING) -> int:
    """Return a handle for an event of device `index`; the work of its previous record may still be running."""
    try:
        return _IDLE[8 * index + flags].pop()
    except (KeyError, IndexError):
        return make(index, flags)


def make(index: int, flags: int) -> int:
    """Make a new handle on device `index`."""
    runtime.init()
    with at(index), explained(f"making an event on cuda:{index}"):
        return int(_create(flags))


def give_back(index: int, handle: int, flags: int = DISABLE_TIMING) -> None:
    """Keep `handle` for the next event of this kind."""
    idle = idle_events(index, flags)
    if len(idle) < _MOST_IDLE:
        idle.append(handle)
    else:
        destroy(handle)


def destroy(handle: int) -> None:
    """Destroy `handle`, as soon as the recorded work is done."""
    with suppress(CUDARuntimeError):  # the context is dead, or the driver is shutting down
        _destroy(handle)


os.register_at_fork(after_in_child=_IDLE.clear)
refused_in_child(globals(), "_create")
