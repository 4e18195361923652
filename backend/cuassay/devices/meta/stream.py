"""Streams and events of kind `meta`, so that device code is planned unchanged; no work is ever submitted."""

from __future__ import annotations

from typing import Any

from cuassay.core.device import Device
from cuassay.core.handle import Handle
from cuassay.errors import CapabilityError

__all__ = ["DEVICE", "MetaEvent", "MetaStream"]

DEVICE = Device("meta")
"""The only device of this kind."""


class MetaEvent(Handle):
    """An event of a stream without work."""

    def __repr__(self) -> str:
        return "MetaEvent()"

    @property
    def device(self) -> Device:
        """The device: always ``meta:0``."""
        return DEVICE

    def record(self, stream: Any = None) -> None:
        """Do nothing: there is no work to mark."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing: there is no work to wait for."""

    def query(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Do nothing: there is no work to wait for."""

    def elapsed_time(self, end: Any) -> float:
        """Raise `CapabilityError`, because nothing runs."""
        raise CapabilityError(
            f"{DEVICE}: no timing: nothing runs there; got {end!r}; measure on another kind of device"
        )


class MetaStream(Handle):
    """A stream that is always empty."""

    def __init__(self, number: int = 0) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"MetaStream({self._number})"

    @property
    def device(self) -> Device:
        """The device: always ``meta:0``."""
        return DEVICE

    def query(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Do nothing: there is no work to wait for."""

    def record_event(self, event: MetaEvent | None = None) -> MetaEvent:
        """Return `event`, or a new one."""
        return event or MetaEvent()

    def wait_event(self, event: Any) -> None:
        """Do nothing: there is no work to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: there is no work to wait for."""
