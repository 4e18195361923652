"""``pytest --cuassay-sanitize``: a race or an early free on a CUDA device fails the test that makes it.

One sanitizer judges the whole session, fixtures included, so that work which one test leaves unordered is known to the
next. Of workers each process has its own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import pytest

from cuassay.observe.sanitizer import Sanitizer, summary
from cuassay.testing.marks import RACING

__all__ = ["Sanitizing"]


class Sanitizing:
    """Judges from here to the end of the session."""

    def __init__(self) -> None:
        self._sanitizer = Sanitizer()
        self._sanitizer.start()

    def __repr__(self) -> str:
        return f"Sanitizing({self._sanitizer!r})"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """An early free that the test's last lines make is the test's failure."""
        sanitizer = self._sanitizer
        with sanitizer.quiet() if item.get_closest_marker(RACING) is not None else nullcontext():
            result = yield
            sanitizer.finish()
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tell how many were found, and what could not be seen."""
        for line in summary(self._sanitizer):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Judge no more."""
        self._sanitizer.stop()
