"""When a worker of ``pytest --cuassay-isolate`` can be forked from the process that has collected, and the fork itself.

A forked process has the tests, plugins and imports of its parent at the cost of copying a page table. But neither a
CUDA context nor a thread survives a fork. A process is therefore forked only if it has a single thread and has not
initialised CUDA. To the driver, the worker is then a new process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from subprocess import TimeoutExpired

import pytest

from cuassay.core import settings
from cuassay.core.loaded_driver import driver_is_up
from cuassay.testing.node import followers

__all__ = ["Fork", "can_fork", "why_not_by_now", "why_not_forked"]

#: Libraries that start threads in C at import, and document that they do not survive a fork.
_THREADED = ("grpc", "jax", "tensorflow")

#: Seconds between two checks of a process that is waited for.
_POLL_SECONDS = 0.002


def can_fork() -> bool:
    """Whether this system supports forking; on macOS, system libraries forbid it."""
    return sys.platform.startswith("linux")


def why_not_forked(config: pytest.Config) -> str | None:
    """Why workers cannot be forked, for reasons known before collection; None if there are none."""
    if not can_fork():
        return f"processes are not forked on {sys.platform}"
    if settings.get("CUASSAY_START_WORKERS"):
        return "CUASSAY_START_WORKERS is set"
    if config.pluginmanager.hasplugin("_cov") or _is_measured():
        return "coverage is measured"
    names = followers(config)
    return f"{', '.join(names)} talks to workers of pytest-xdist as they are configured" if names else None


def why_not_by_now() -> str | None:
    """Why this process cannot be forked at the moment, for reasons that may arise at any time; None if it can."""
    if driver_is_up():
        return "the process that collects has initialised CUDA"
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        return f"a thread runs in the process that collects: {others[0]}"
    imported = [name for name in _THREADED if name in sys.modules]
    return f"{imported[0]} is imported, whose threads a fork would lose" if imported else None


def _is_measured() -> bool:
    coverage = sys.modules.get("coverage")
    return coverage is not None and coverage.Coverage.current() is not None


class Fork:
    """A forked process with the methods of `subprocess.Popen`.

    Parameters
    ----------
    run : callable
        The function that the child runs; it must end the process. SIGINT is blocked until the function unblocks it.
        Otherwise Ctrl-C would raise in the child before that, and the child would go on with the parent's code.

    Attributes
    ----------
    pid : int
        The process id.
    returncode : int or None
        The exit status, the negative number of the signal that ended the process, or None while it runs.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        for stream in (sys.stdout, sys.stderr):  # otherwise both processes would write what is buffered
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self.returncode: int | None = None
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns even about threads of a BLAS
                self.pid = os.fork()
            if self.pid == 0:
                run()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def __repr__(self) -> str:
        return f"Fork({self.pid}{'' if self.returncode is None else f', ended with {self.returncode}'})"

    def poll(self) -> int | None:
        """The exit status if the process has ended, otherwise None."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait until the process ends, and return its exit status.

        Raises
        ------
        subprocess.TimeoutExpired
            If it runs longer than `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutExpired("a forked worker", timeout)
            time.sleep(_POLL_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)
