"""Detect a test that ends the process with `os._exit`, after which pytest would report nothing and exit with status 0.

The name of the test is printed, and the status becomes at least 1. Forked children are left alone, and so are workers,
whose end their controller notices. A C library that calls ``exit`` is not detected here, but then the record of the run
says that it is incomplete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

__all__ = ["guard_exits"]


def guard_exits(config: pytest.Config) -> None:
    """Wrap `os._exit` until the session ends."""
    real, process = os._exit, os.getpid()

    def watched(status: int) -> NoReturn:
        test = os.environ.get("PYTEST_CURRENT_TEST")
        if test is None or os.getpid() != process:
            real(status)
        _print_uncaptured(config, f"{test} ended the process by os._exit({status!r}); the tests after it did not run")
        real(status or pytest.ExitCode.TESTS_FAILED)

    os._exit = watched
    config.add_cleanup(_restored(real))


def _restored(real: Any) -> Callable[[], None]:
    def restore() -> None:
        os._exit = real

    return restore


def _print_uncaptured(config: pytest.Config, text: str) -> None:
    """Write to stderr, although pytest captures the running test's output."""
    try:
        if capture := config.pluginmanager.getplugin("capturemanager"):
            capture.suspend_global_capture(in_=True)
        sys.stderr.write(f"\ncuassay: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed; the exit status still shows the failure
        return
