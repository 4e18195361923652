"""Record the conditions of a device around measurements: its empty interval and clocks, before, during and after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cuassay import devices
from cuassay.benchmarking.empty import empty_interval
from cuassay.core.device import Device

__all__ = ["EVERY_SECONDS", "Watch"]

#: Seconds between two checks of a device while it is measured.
EVERY_SECONDS = 5.0

Write = Callable[..., object]


class Watch:
    """Write ``condition`` rows, and the empty interval as ``limit`` rows, for each device that is checked.

    Parameters
    ----------
    write : callable
        Takes the name of a table and the columns of a row.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._checked: dict[Device, float] = {}

    def __repr__(self) -> str:
        return f"Watch({', '.join(map(str, self._checked)) or 'nothing yet'})"

    def look(self, device: str | Device) -> None:
        """Check `device` before its first timing and every five seconds after that. Call this before each timing."""
        found = Device(device)
        if found not in self._checked:
            self._check(found, "before")
        elif time.monotonic() - self._checked[found] >= EVERY_SECONDS:
            self._check(found, "during")

    def close(self) -> None:
        """Check each device once more. Call this after the last timing."""
        for device in self._checked:
            self._check(device, "after")
        self._checked.clear()

    def _check(self, device: Device, when: str) -> None:
        backend = devices.backend(device.kind)
        self._checked[device] = time.monotonic()
        if (dead := backend.health(device.index)) is not None:
            self._write("condition", device=str(device), when=when, reason=dead)
            return
        conditions: Callable[[int], dict[str, Any]] | None = getattr(backend, "conditions", None)
        if conditions is not None:
            self._write("condition", device=str(device), when=when, **conditions(device.index))
        empty = None if when == "during" else empty_interval(device, fresh=True)
        if empty is not None:
            how = f"two events with nothing between, {when} the timings; quartiles {empty.spread_s * 1e9:.0f} ns apart"
            self._write("limit", device=str(device), limit="empty", value=empty.median_s, unit="s", how=how)
