"""What a device was like while it was measured: its empty interval and its clocks, before, during and after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cuassay import devices
from cuassay.benchmarking.empty import empty_interval
from cuassay.core.device import Device

__all__ = ["EVERY_SECONDS", "Watch"]

#: Seconds between two looks at a device while it is measured.
EVERY_SECONDS = 5.0

Write = Callable[..., object]


class Watch:
    """Writes ``condition`` rows, and the empty interval as ``limit`` rows, for each device that it looks at.

    Parameters
    ----------
    write : callable
        Takes the name of a table and the columns of a row.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._looked: dict[Device, float] = {}

    def __repr__(self) -> str:
        return f"Watch({', '.join(map(str, self._looked)) or 'nothing yet'})"

    def look(self, device: str | Device) -> None:
        """Call it before each timing of `device`: it looks before the first one, and every five seconds after that."""
        found = Device(device)
        if found not in self._looked:
            self._look(found, "before")
        elif time.monotonic() - self._looked[found] >= EVERY_SECONDS:
            self._look(found, "during")

    def close(self) -> None:
        """Call it after the last timing: each device is looked at once more."""
        for device in self._looked:
            self._look(device, "after")
        self._looked.clear()

    def _look(self, device: Device, when: str) -> None:
        backend = devices.backend(device.kind)
        self._looked[device] = time.monotonic()
        if (dead := backend.health(device.index)) is not None:
            self._write("condition", device=str(device), when=when, reason=dead)
            return
        told: Callable[[int], dict[str, Any]] | None = getattr(backend, "conditions", None)
        if told is not None:
            self._write("condition", device=str(device), when=when, **told(device.index))
        empty = None if when == "during" else empty_interval(device, fresh=True)
        if empty is not None:
            how = f"two events with nothing between, {when} the timings; quartiles {empty.spread_s * 1e9:.0f} ns apart"
            self._write("limit", device=str(device), limit="empty", value=empty.median_s, unit="s", how=how)
