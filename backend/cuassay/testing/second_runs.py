"""Under xdist a failure of the machine is not reported but runs again, once, in another process.

The worker ends after such a test, as `cuassay.testing.workers` has it, and xdist starts another. This is the
controller's side: it keeps the reports of the first run until the test has been given out again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["SecondRuns"]

Report = Callable[..., None]


class SecondRuns:
    """The tests that the machine failed once.

    Attributes
    ----------
    causes : dict
        By the name of each, what was wrong.
    """

    def __init__(self) -> None:
        self.causes: dict[str, str] = {}
        self._first: dict[str, list[tuple[Any, pytest.TestReport]]] = {}

    def __repr__(self) -> str:
        return f"SecondRuns({len(self.causes)} tests, {len(self._first)} of them to begin)"

    def keeps(self, node: Any, report: pytest.TestReport) -> bool:
        """Whether the report is of a first run that the machine failed; then it is not to be published."""
        cause = getattr(report, "cuassay_infrastructure", None)
        if cause and report.nodeid not in self.causes:
            self.causes[report.nodeid] = cause
            self._first[report.nodeid] = []
        if report.nodeid not in self._first:
            return False
        self._first[report.nodeid].append((node, report))
        return True

    def begin(self, nodeid: str) -> bool:
        """Whether `nodeid` is to run again; asked once, when its worker has ended."""
        return self._first.pop(nodeid, None) is not None

    def publish(self, report: Report) -> None:
        """Report the first runs of tests that could not run again."""
        for nodeid in tuple(self._first):
            for node, kept in self._first.pop(nodeid):
                report(node, kept)
            del self.causes[nodeid]
