"""Under xdist, a test that the machine failed is not reported but runs once more, in another process.

Its worker ends after such a test (`cuassay.testing.workers`), and xdist starts another. This is the controller's side:
it holds the reports of the first run back until the test has been scheduled again.
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
        Node id to what was wrong.
    """

    def __init__(self) -> None:
        self.causes: dict[str, str] = {}
        self._first: dict[str, list[tuple[Any, pytest.TestReport]]] = {}

    def __repr__(self) -> str:
        return f"SecondRuns({len(self.causes)} tests, {len(self._first)} of them to begin)"

    def keeps(self, node: Any, report: pytest.TestReport) -> bool:
        """Whether the report belongs to a first run that the machine failed; then it must not be published."""
        cause = getattr(report, "cuassay_infrastructure", None)
        if cause and report.nodeid not in self.causes:
            self.causes[report.nodeid] = cause
            self._first[report.nodeid] = []
        if report.nodeid not in self._first:
            return False
        self._first[report.nodeid].append((node, report))
        return True

    def begin(self, nodeid: str) -> bool:
        """Whether `nodeid` must run again; called once, when its worker has ended."""
        return self._first.pop(nodeid, None) is not None

    def publish(self, report: Report) -> None:
        """Report the first runs of tests that could not run again."""
        for nodeid in tuple(self._first):
            for node, kept in self._first.pop(nodeid):
                report(node, kept)
            del self.causes[nodeid]
