"""How the rows of many attempts become one record: those of an attempt count when all of them have arrived.

Until then they wait here. The record is that of one session: its part is the whole fleet, each test has one row, and
each row of a test says which worker ran it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cuassay.results.part import Part
from cuassay.testing.infrastructure import FAILED_BY_THE_MACHINE

__all__ = ["Arrived", "Merged", "is_failed_by_machine"]

Row = dict[str, Any]

#: Columns that the recorder writes itself.
_COMMON = ("record", "schema", "run")


def is_failed_by_machine(row: Mapping[str, Any]) -> bool:
    """Whether the machine failed the test of a row, and not the test itself."""
    return row["outcome"] == "error" and str(row.get("reason", "")).startswith(FAILED_BY_THE_MACHINE)


@dataclass(slots=True)
class Arrived:
    """The lines of one attempt so far; a line that came twice is kept once."""

    lines: dict[int, str] = field(default_factory=dict)

    def add(self, first: int, lines: Iterable[str]) -> list[Row]:
        """Keep lines by their numbers; gives the rows of those that are new."""
        found = []
        for number, line in enumerate(lines, first):
            if number not in self.lines:
                self.lines[number] = line
                found.append(json.loads(line))
        return found

    def is_whole(self, number: int) -> bool:
        """Whether `number` lines have arrived."""
        return len(self.lines) == number and all(at in self.lines for at in range(number))

    def rows(self) -> list[Row]:
        """All rows, in the order in which they were written."""
        return [json.loads(self.lines[at]) for at in sorted(self.lines)]


class Merged:
    """Writes the record of a fleet.

    Parameters
    ----------
    part : Part
        Of the run.

    Attributes
    ----------
    outcomes : dict
        Test to its outcome, of all that have a row.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._devices: set[tuple[str, str]] = set()
        self.outcomes: dict[str, str] = {}
        self.reasons: list[str] = []

    def __repr__(self) -> str:
        return f"Merged({len(self.outcomes)} outcomes, {self._part!r})"

    def write(self, rows: Iterable[Row], worker: str, tests: Collection[str], without: Collection[str] = ()) -> None:
        """Write the rows of an attempt at `tests`, except those of the tests `without`."""
        for row in rows:
            record = row["record"]
            columns = {name: value for name, value in row.items() if name not in _COMMON}
            if record == "device":
                self._write_device(columns, worker)
            elif record in ("begin", "test"):
                if row["nodeid"] in tests and row["nodeid"] not in without:
                    self._write_test(record, columns, worker)
            elif record == "end":
                self.reasons += [f"{worker}: {columns['reason']}"] if "reason" in columns else []
            elif record != "plan":
                self._part.write(record, **columns, worker=worker)

    def _write_device(self, columns: Row, worker: str) -> None:
        if (worker, columns["device"]) not in self._devices:
            self._devices.add((worker, columns["device"]))
            self._part.write("device", **columns, worker=worker)

    def _write_test(self, record: str, columns: Row, worker: str) -> None:
        if record == "begin":
            self._part.begin(columns["nodeid"])
        elif columns["nodeid"] not in self.outcomes:
            self.outcomes[columns["nodeid"]] = columns["outcome"]
            self._part.write("test", **columns, worker=worker)

    def write_missing(self, nodeid: str, why: str) -> None:
        """Write that a test has no outcome of its own."""
        if nodeid not in self.outcomes:
            self.outcomes[nodeid] = "error"
            self._part.write("test", nodeid=nodeid, outcome="error", reason=why.splitlines()[0], message=why)
