"""When a worker of ``pytest --cuassay-isolate`` may be forked from the process that has collected, and the fork.

A fork has the tests, the plugins and the imports that this process has, for the price of a page table. A context of
CUDA does not live through it, nor does a thread. So each fork is of a process that has no thread and has not
initialised CUDA: to the driver, the worker is as fresh as a new process.
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

#: Libraries that start threads in C when they are imported, and say that they do not survive a fork.
_THREADED = ("grpc", "jax", "tensorflow")

#: Seconds between two looks at a process that is waited for.
_POLL_SECONDS = 0.002


def can_fork() -> bool:
    """Whether processes are forked on this system: on macOS its libraries forbid it."""
    return sys.platform.startswith("linux")


def why_not_forked(config: pytest.Config) -> str | None:
    """What is known before collecting: why each worker must be a session of its own, or None."""
    if not can_fork():
        return f"processes are not forked on {sys.platform}"
    if settings.get("CUASSAY_START_WORKERS"):
        return "CUASSAY_START_WORKERS is set"
    if config.pluginmanager.hasplugin("_cov") or _is_measured():
        return "coverage is measured"
    names = followers(config)
    return f"{', '.join(names)} talks to workers of pytest-xdist as they are configured" if names else None


def why_not_by_now() -> str | None:
    """What can change at any time: why this process must not be forked as it is, or None."""
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
    """A forked process; its methods are those of `subprocess.Popen`.

    Parameters
    ----------
    run : callable
        What the child does; it must end the process by itself. SIGINT is blocked there until it is ready for it: in
        between, Ctrl-C would let the child go on where its parent is.

    Attributes
    ----------
    pid : int
        Its id.
    returncode : int or None
        Its status, the negative number of the signal that ended it, or None while it runs.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        for stream in (sys.stdout, sys.stderr):  # what is written by now is written once
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self.returncode: int | None = None
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, also for threads of a BLAS
                self.pid = os.fork()
            if self.pid == 0:
                run()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def __repr__(self) -> str:
        return f"Fork({self.pid}{'' if self.returncode is None else f', ended with {self.returncode}'})"

    def poll(self) -> int | None:
        """Its status if it has ended, else None."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end.

        Raises
        ------
        subprocess.TimeoutExpired
            It runs longer than `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutExpired("a forked worker", timeout)
            time.sleep(_POLL_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
