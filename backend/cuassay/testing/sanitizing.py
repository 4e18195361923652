"""``pytest --cuassay-sanitize``: a race or an early free on a CUDA device fails the test that causes it.

One sanitizer checks the whole session, fixtures included, so that work which one test leaves unordered is known in the
next. If workers run the tests, each process has its own sanitizer.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import pytest

from cuassay import devices
from cuassay.observe.sanitizer import Sanitizer, summary
from cuassay.testing.marks import RACING

__all__ = ["Sanitizing"]


class Sanitizing:
    """A pytest plugin that runs a sanitizer until the end of the session."""

    def __init__(self) -> None:
        self._sanitizer = Sanitizer()
        self._sanitizer.start()

    def __repr__(self) -> str:
        return f"Sanitizing({self._sanitizer!r})"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run the sanitizer's final checks within the test, so that an early free in its last lines fails it."""
        sanitizer = self._sanitizer
        with sanitizer.quiet() if item.get_closest_marker(RACING) is not None else nullcontext():
            result = yield
            sanitizer.finish()
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print how many faults were found, what the sanitizer cannot see, and whether there was a device to check."""
        for line in summary(self._sanitizer):
            terminalreporter.write_line(line)
        if not self._sanitizer.engine.found and (reason := devices.backend("cuda").why_absent()):
            terminalreporter.write_line(f"cuassay sanitizer: no CUDA device was checked: {reason}")

    def pytest_unconfigure(self) -> None:
        """Stop the sanitizer."""
        self._sanitizer.stop()
