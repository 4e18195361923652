"""A lost device and a hanging test: found, named once, and kept from taking the other tests with them.

After a failed test its device is asked whether it is well. A dead one (an illegal access poisons a CUDA context for
the rest of the process) is reported as one error of that test; the device's later tests are skipped with its name.
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
    """What the controller gave this worker by `name`, or `otherwise`; also in a process that is not a worker."""
    return getattr(config, "workerinput", {}).get(name, otherwise)


class LostDevices:
    """The devices found dead in this process, each with the test to blame.

    Parameters
    ----------
    then : str
        What becomes of the other tests, for the report.
    """

    def __init__(self, then: str = "its remaining tests are skipped; start a new process") -> None:
        self._then = then
        self._blame: dict[Device, str] = {}  # by device, the test that lost it
        self._news: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"LostDevices({', '.join(map(str, self._blame)) or 'none'})"

    def __bool__(self) -> bool:
        return bool(self._blame)

    def why(self, device: Device) -> str | None:
        """Why no test can run on `device` any more, or None."""
        nodeid = self._blame.get(device)
        return None if nodeid is None else f"{device}: device lost after {nodeid}"

    def is_by(self, nodeid: str, device: Device) -> bool:
        """Whether the test `nodeid` lost `device`."""
        return self._blame.get(device) == nodeid

    def check(self, device: Device, nodeid: str) -> None:
        """Ask `device` whether it is well, after the test `nodeid` failed on it."""
        from cuassay.devices import backend

        if device in self._blame:
            return
        reason = backend(device.kind).health(device.index)
        if reason is not None:
            self._blame[device] = nodeid
            self._news[nodeid] = f"device lost: {device}: {reason}; {self._then}"

    def take_news(self, nodeid: str) -> str | None:
        """What to report of the test that lost a device; told once."""
        return self._news.pop(nodeid, None)


#: The lost devices of a session.
LOST = pytest.StashKey[LostDevices]()


def _own_timeout(config: pytest.Config) -> float:
    return float(config.getini("faulthandler_timeout") or 0) if config.pluginmanager.hasplugin("faulthandler") else 0.0


class HangGuard:
    """Ends the process, printing every thread's stack, when a test runs too long.

    A thread in C does it, so it fires although a driver call holds the interpreter's lock. Off unless the setting
    CUASSAY_HANG_SECONDS is above 0; pytest's own ``faulthandler_timeout`` uses the same clock and goes first.

    A test may fork. The thread would be missing in the child, and ``faulthandler`` would wait for it there without end,
    at the latest when the child exits. So the guard is off while the process forks, and begins again in both.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.seconds = float(settings.get("CUASSAY_HANG_SECONDS"))
        self.yields = self.seconds > 0 and _own_timeout(config) > 0
        self._stderr, self._is_armed = -1, False
        if self.seconds and not self.yields:
            told = worker_input(config, "cuassay_faults")  # an isolated worker's file for stacks
            own = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
            self._stderr = os.dup(own if told is None else told)
            _guards.add(self)
            _watch_forks()

    @contextmanager
    def around(self) -> Iterator[None]:
        """Watch what runs inside the block."""
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
        """Off, until `after_fork`."""
        if self._is_armed:
            faulthandler.cancel_dump_traceback_later()

    def after_fork(self) -> None:
        """On again, from the start of its time, in the parent and in the child."""
        if self._is_armed:
            self._arm()

    def close(self) -> None:
        """Give the copy of stderr back; twice is allowed."""
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
    """Once, and only for a guard that is on.

    The interpreter keeps these functions to its very end, and with them this module, pytest and its session: freeing
    5,000 tests so late takes 0.14 s longer.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
