"""How the rows of many attempts become one record: those of an attempt count when all of them have arrived.

Until then they wait here. The record is that of one session: its part is the whole fleet, each test has one row, and
each row of a test says which worker ran it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cuassay.fleet.book import Attempt
from cuassay.results.part import Part
from cuassay.testing.infrastructure import FAILED_BY_THE_MACHINE

__all__ = ["Arrived", "Merged", "is_failed_by_machine", "measured"]

Row = dict[str, Any]

#: Columns that the recorder writes itself.
_COMMON = ("record", "schema", "run")

#: What each process of a worker tells of its device; the first of a worker is kept.
_ONCE = ("device", "limit")


def is_failed_by_machine(row: Mapping[str, Any]) -> bool:
    """Whether the machine failed the test of a row, and not the test itself."""
    return row["outcome"] == "error" and str(row.get("reason", "")).startswith(FAILED_BY_THE_MACHINE)


def measured(rows: Iterable[Mapping[str, Any]], *, is_whole: bool) -> list[str]:
    """The benchmarks that a process measured to their end, of those that it began."""
    begun = [str(row["nodeid"]) for row in rows if row["record"] == "begin"]
    return begun if is_whole else begun[:-1]


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
        Test to its outcome, of all that have a row; of benchmarks that were measured it is ``measured``.
    timings : int
        Timings that were written.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._written: set[tuple[object, ...]] = set()
        self.outcomes: dict[str, str] = {}
        self.reasons: list[str] = []
        self.timings = 0

    def __repr__(self) -> str:
        return f"Merged({len(self.outcomes)} outcomes, {self._part!r})"

    def write(self, rows: Iterable[Row], worker: str, tests: Collection[str], without: Collection[str] = ()) -> None:
        """Write the rows of an attempt at `tests`, except those of the tests `without`."""
        for row in rows:
            record = row["record"]
            columns = {name: value for name, value in row.items() if name not in _COMMON}
            if record in _ONCE:
                self._write_once(record, columns, worker)
            elif record in ("begin", "test"):
                if row["nodeid"] in tests and row["nodeid"] not in without:
                    self._write_test(record, columns, worker)
            elif record == "end":
                self.reasons += [f"{worker}: {columns['reason']}"] if "reason" in columns else []
            elif record != "plan":
                self.timings += record == "time"
                self._part.write(record, **columns, worker=worker)

    def _write_once(self, record: str, columns: Row, worker: str) -> None:
        key = (worker, record, *(columns.get(name) for name in ("device", "limit", "dtype", "how")))
        if key not in self._written:
            self._written.add(key)
            self._part.write(record, **columns, worker=worker)

    def _write_test(self, record: str, columns: Row, worker: str) -> None:
        if record == "begin":
            self._part.begin(columns["nodeid"])
        elif columns["nodeid"] not in self.outcomes:
            self.outcomes[columns["nodeid"]] = columns["outcome"]
            self._part.write("test", **columns, worker=worker)

    def write_shard(self, attempt: Attempt, how: str, seconds: float) -> None:
        """Write how long a shard waited, who had it, and how that ended."""
        shard = attempt.shard
        self._part.write(
            "shard", attempt=attempt.number, worker=attempt.worker, kind=shard.kind, tests=len(shard.tests),
            waited=attempt.waited_s, duration=seconds, how=how,
        )  # fmt: skip

    def count_measured(self, names: Iterable[str]) -> None:
        """Count benchmarks as measured; their timings are written as they come."""
        self.outcomes |= dict.fromkeys(names, "measured")

    def write_missing(self, nodeid: str, why: str) -> None:
        """Write that a test has no outcome of its own."""
        if nodeid not in self.outcomes:
            self.outcomes[nodeid] = "error"
            self._part.write("test", nodeid=nodeid, outcome="error", reason=why.splitlines()[0], message=why)
