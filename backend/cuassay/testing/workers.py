"""Which xdist worker runs what: one accelerator's tests stay on one worker, everything else spreads freely.

A worker that has lost a device ends after the test that lost it, and xdist starts another.

Two workers on one accelerator share its memory and disturb each other's times. xdist's own ``--dist loadgroup`` would
say the same by a mark, but pytest 9.2 with xdist 3.8 ignores the mark silently (pytest-xdist issue 1386). This module
is a plugin of its own, registered only where xdist is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from cuassay.testing.isolation import LOST
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

    def remove_node(self, node: Any) -> str | None:
        """The test that ended the worker, if one did; xdist itself would give it to the next worker, and so on."""
        units = self.assigned_work.get(node, {}).values()
        crashed = next(((unit, name) for unit in units for name, is_done in unit.items() if not is_done), None)
        if crashed is not None:
            unit, name = crashed
            unit[name] = True
        super().remove_node(node)
        return None if crashed is None else str(crashed[1])

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

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """End this process after a test that has lost its device, if it is replaced: `Workers` knows of the test."""
        result = yield
        told = item.config.workerinput  # type: ignore[attr-defined]
        if told.get("cuassay_replaced_by") == "xdist" and item.config.stash[LOST]:
            os._exit(1)
        return result


class Workers:
    """The controller's side: tells the workers the devices, chooses the scheduler, and sees workers replaced."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._reported: set[str] = set()

    def pytest_configure_node(self, node: Any) -> None:
        """Send the decision to a new worker."""
        node.workerinput["cuassay"] = self._presence.to_worker()
        if node.config.getoption("maxworkerrestart", default=None) != "0":
            node.workerinput["cuassay_replaced_by"] = "xdist"

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> DeviceScheduling | None:
        """Ours where several workers meet an accelerator; else None, which leaves it to xdist."""
        accelerators = [str(device) for device in self._presence.devices if device.kind not in HOST_KINDS]
        if not accelerators or config.getoption("dist") in ("no", "each"):
            return None
        return DeviceScheduling(config, log, accelerators)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the tests after which their worker ends."""
        if hasattr(report, "cuassay_lost"):
            self._reported.add(report.nodeid)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Report no test twice, and count no worker that a test has ended, unless ``--max-worker-restart`` asks for it.

        xdist has a hook for the report of a crash, which can change it but not prevent it.
        """
        distributed = session.config.pluginmanager.getplugin("dsession")
        report = getattr(distributed, "handle_crashitem", None)
        is_counted = session.config.getoption("maxworkerrestart", default=None) is not None
        if distributed is None or report is None:
            return

        def handle(nodeid: str, worker: Any) -> None:
            if not is_counted:
                distributed._failed_nodes_count -= 1  # noqa: SLF001  it counts each one after this call
            if nodeid not in self._reported:
                report(nodeid, worker)

        distributed.handle_crashitem = handle
