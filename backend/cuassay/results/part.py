"""Record one process's part of a run: its plan, the tests it begins, its results and its end.

These rows let a report distinguish a run that died from a complete one; see `cuassay_reports.endings`. Rows that cannot
be recorded are counted and reported at the end, so that a full disk does not stop the tests.
"""

from __future__ import annotations

import os

from cuassay.errors import ResultError
from cuassay.results.record import Recorder

__all__ = ["TESTS", "TIMES", "Part"]

#: The names of the part that tests and of the part that measures.
TESTS = "tests"
TIMES = "times"


class Part:
    """Write the rows of one part of a run. A row that cannot be written is counted.

    A forked child of the process writes nothing, because its rows would be attributed to its parent.

    Parameters
    ----------
    recorder : Recorder
        The recorder of the run. The caller closes it.
    name : str
        The name of the part, such as ``tests 2/4``.

    Attributes
    ----------
    lost : int
        The number of rows that could not be written.
    why : str
        Why the first of them could not be written.
    """

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._process = os.getpid()
        self.lost = 0
        self.why = ""

    def __repr__(self) -> str:
        return f"Part({self._name!r}, {self._recorder!r}, {self.lost} rows lost)"

    def plan(self, *, tests: int | None = None, times: int | None = None, parts: str | None = None) -> None:
        """Record how many outcomes and timings to expect, and the parts of other processes. The last plan counts."""
        self._write_own("plan", tests=tests, times=times, parts=parts)

    def begin(self, nodeid: str) -> None:
        """Record which test begins."""
        self._write_own("begin", nodeid=nodeid)

    def end(self, reason: str | None = None) -> None:
        """Record that this part finished, or the reason why it ended early."""
        self._write_own("end", reason=reason, lost=self.lost or None)

    def write(self, record: str, /, **columns: object) -> None:
        """Append one row, like `Recorder.write`; a row that cannot be written is counted."""
        if os.getpid() != self._process:
            return
        try:
            self._recorder.write(record, **columns)
        except ResultError as error:
            self.lost += 1
            self.why = self.why or str(error)

    def _write_own(self, record: str, **columns: object) -> None:
        self.write(record, part=self._name, process=self._process, **columns)

    def told(self) -> str:
        """Return a sentence about the rows that could not be written; empty if there were none."""
        return (
            f"{self.lost:,} {'row was' if self.lost == 1 else 'rows were'} not recorded: {self.why}"
            if self.lost
            else ""
        )
