"""Which xdist worker runs what: one accelerator's tests stay on one worker, everything else spreads freely.

Two workers on one accelerator share its memory and disturb each other's times. xdist's own ``--dist loadgroup`` would
say the same by a mark, but pytest 9.2 with xdist 3.8 ignores the mark silently (pytest-xdist issue 1386). This module
is a plugin of its own, registered only where xdist is.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from cuassay.testing.presence import HOST_KINDS, Presence

__all__ = ["DeviceScheduling", "Reporter", "Workers"]


class DeviceScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Splits the tests by accelerator; the others as ``--dist`` asks.

    Parameters
    ----------
    config, log
        xdist's own.
    accelerators : iterable of str
        Names of the devices that one worker at a time may use.
    """

    def __init__(self, config: pytest.Config, log: Any, accelerators: Iterable[str]) -> None:
        super().__init__(config, log)
        self._by = config.getoption("dist")
        names = "|".join(map(re.escape, accelerators))
        self._device = re.compile(rf"[\[-]({names})(?=[-\]])")

    def _split_scope(self, nodeid: str) -> str:
        found = self._device.search(nodeid)
        if found is not None:
            return found[1]
        if self._by == "loadfile":
            return nodeid.partition("::")[0]
        return nodeid.rpartition("::")[0] if self._by == "loadscope" else nodeid


class Reporter:
    """The worker's side: what a report carries must be text that execnet can send, or the worker dies of it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        """Escape lone surrogates, such as a message has that names a file."""
        from cuassay.results.record import sendable  # brings NumPy, which the controller may never need

        return sendable((yield))


class Workers:
    """The controller's side: tells the workers the devices, and chooses the scheduler."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def pytest_configure_node(self, node: Any) -> None:
        """Send the decision to a new worker."""
        node.workerinput["cuassay"] = self._presence.to_worker()

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> DeviceScheduling | None:
        """Ours where several workers meet an accelerator; else None, which leaves it to xdist."""
        accelerators = [str(device) for device in self._presence.devices if device.kind not in HOST_KINDS]
        if not accelerators or config.getoption("dist") in ("no", "each"):
            return None
        return DeviceScheduling(config, log, accelerators)
