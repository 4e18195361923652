"""A test that ends the process: `os._exit` runs nothing afterwards, so that pytest would end with status 0.

In a test it writes which test it was, and the status is 1 at least. Children of a fork are left alone, and so are
workers, whose end their controller sees. A C library that calls ``exit`` is not seen here; the record of the run says
that it is incomplete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

__all__ = ["guard_exits"]


def guard_exits(config: pytest.Config) -> None:
    """Watch `os._exit` until the session ends."""
    real, process = os._exit, os.getpid()

    def watched(status: int) -> NoReturn:
        test = os.environ.get("PYTEST_CURRENT_TEST")
        if test is None or os.getpid() != process:
            real(status)
        _tell(config, f"{test} ended the process by os._exit({status!r}); the tests after it did not run")
        real(status or pytest.ExitCode.TESTS_FAILED)

    os._exit = watched
    config.add_cleanup(_restored(real))


def _restored(real: Any) -> Callable[[], None]:
    def restore() -> None:
        os._exit = real

    return restore


def _tell(config: pytest.Config, text: str) -> None:
    """Write past the capture of the test that runs."""
    try:
        if capture := config.pluginmanager.getplugin("capturemanager"):
            capture.suspend_global_capture(in_=True)
        sys.stderr.write(f"\ncuassay: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # closed: the status still tells
        return
