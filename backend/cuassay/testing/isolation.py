"""Detect lost devices and hanging tests, report each once, and keep them from affecting other tests.

After a failed test, its device is asked whether it still works. An illegal access, for example, breaks a CUDA context
for the rest of the process. A lost device is reported as one error of that test, and its later tests are skipped with
the test's name.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from cuassay.core import settings
from cuassay.core.device import Device

__all__ = ["LOST", "HangGuard", "LostDevices", "worker_input"]


def worker_input(config: pytest.Config, name: str, otherwise: Any = None) -> Any:
    """The value that the controller sent to this worker as `name`; `otherwise` if there is none."""
    return getattr(config, "workerinput", {}).get(name, otherwise)


class LostDevices:
    """The devices that this process has lost, each with the test that lost it.

    Parameters
    ----------
    then : str
        What happens to the other tests, for the report.
    """

    def __init__(self, then: str = "its remaining tests are skipped; start a new process") -> None:
        self._then = then
        self._blame: dict[Device, str] = {}  # device to the test that lost it
        self._news: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"LostDevices({', '.join(map(str, self._blame)) or 'none'})"

    def __bool__(self) -> bool:
        return bool(self._blame)

    def why(self, device: Device) -> str | None:
        """Why no test can run on `device` any more, or None if it is not lost."""
        nodeid = self._blame.get(device)
        return None if nodeid is None else f"{device}: device lost after {nodeid}"

    def is_by(self, nodeid: str, device: Device) -> bool:
        """Whether the test `nodeid` lost `device`."""
        return self._blame.get(device) == nodeid

    def check(self, device: Device, nodeid: str) -> None:
        """Check whether `device` still works, after the test `nodeid` failed on it."""
        from cuassay.devices import backend

        if device in self._blame:
            return
        reason = backend(device.kind).health(device.index)
        if reason is not None:
            self._blame[device] = nodeid
            self._news[nodeid] = f"device lost: {device}: {reason}; {self._then}"

    def take_news(self, nodeid: str) -> str | None:
        """The report for the test that lost a device; returned once, and then None."""
        return self._news.pop(nodeid, None)


#: The key under which a session stores its lost devices.
LOST = pytest.StashKey[LostDevices]()


def _own_timeout(config: pytest.Config) -> float:
    return float(config.getini("faulthandler_timeout") or 0) if config.pluginmanager.hasplugin("faulthandler") else 0.0


class HangGuard:
    """Ends the process and prints the stacks of all threads if a test runs too long.

    A thread in C does this, so it works even while a driver call holds the interpreter's lock. It is off unless the
    setting CUASSAY_HANG_SECONDS is above 0. pytest's own ``faulthandler_timeout`` uses the same clock and has priority.

    In the child of a fork the thread is missing, and ``faulthandler`` would wait for it forever, at the latest when the
    child exits. The guard is therefore stopped before a fork, and restarted in both processes.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.seconds = float(settings.get("CUASSAY_HANG_SECONDS"))
        self.yields = self.seconds > 0 and _own_timeout(config) > 0
        self._stderr, self._is_armed = -1, False
        if self.seconds and not self.yields:
            told = worker_input(config, "cuassay_faults")  # the file for crash stacks of an isolated worker
            own = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
            self._stderr = os.dup(own if told is None else told)
            _guards.add(self)
            _watch_forks()

    @contextmanager
    def around(self) -> Iterator[None]:
        """Limit the time of the block."""
        if self._stderr < 0:
            yield
            return
        self._arm()
        self._is_armed = True
        try:
            yield
        finally:
            self._is_armed = False
            faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._stderr)

    def before_fork(self) -> None:
        """Stop the clock until `after_fork`."""
        if self._is_armed:
            faulthandler.cancel_dump_traceback_later()

    def after_fork(self) -> None:
        """Restart the clock with its full time, in the parent and in the child."""
        if self._is_armed:
            self._arm()

    def close(self) -> None:
        """Close the copy of stderr; may be called twice."""
        fd, self._stderr = self._stderr, -1
        if fd >= 0:
            os.close(fd)


_guards: weakref.WeakSet[HangGuard] = weakref.WeakSet()


def _before_fork() -> None:
    for guard in tuple(_guards):
        guard.before_fork()


def _after_fork() -> None:
    for guard in tuple(_guards):
        guard.after_fork()


@cache
def _watch_forks() -> None:
    """Register the fork handlers, once, and only if a guard is on.

    The interpreter keeps these functions until it ends, and with them this module, pytest and its session. Freeing
    5,000 tests that late takes 0.14 s longer.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
