"""Which runs finished, by comparison with their plans. Needs only the standard library.

Each process of a run writes a ``plan`` row before its first test or timing, a ``begin`` row before each test, and an
``end`` row when it finishes. A process that was killed, crashed or called ``os._exit`` leaves a plan without an end. A
run without any such rows comes from an older cuassay and counts as complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Ending", "endings"]

Row = Mapping[str, Any]

#: The most parts that one sentence names.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run is incomplete, and the last tests that its processes began.

    Attributes
    ----------
    why : str
        The reason in words; empty if the run is complete.
    begun : tuple of (str, str)
        Part and node id: for each process that did not finish, the tests that it had begun and not finished, or the
        last test if it had finished all.
    """

    why: str = ""
    begun: tuple[tuple[str, str], ...] = ()


@dataclass
class _Run:
    """The rows of one run; a part is identified by its name and its process."""

    plans: dict[tuple[str, int], Row] = field(default_factory=dict)
    ends: dict[tuple[str, int], Row] = field(default_factory=dict)
    begun: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    finished: set[str] = field(default_factory=set)
    tests: int = 0
    times: int = 0

    def open(self) -> list[tuple[str, int]]:
        """Return the parts that did not finish."""
        return sorted(part for part in self.plans if part not in self.ends)


def endings(rows: Iterable[Row]) -> dict[str, Ending]:
    """Return, for each run that has a plan or an end, whether it is complete.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of all tables.
    """
    rows = list(rows)
    runs: dict[str, _Run] = defaultdict(_Run)
    for row in rows:
        if row["record"] == "plan":
            runs[row["run"]].plans[_part(row)] = row
        elif row["record"] == "end":
            runs[row["run"]].ends[_part(row)] = row
    for row in rows if runs else ():
        if row["run"] in runs:
            _count(runs[row["run"]], row)
    return {name: Ending(_why(run), tuple(_begun(run))) for name, run in runs.items()}


def _part(row: Row) -> tuple[str, int]:
    return row.get("part", ""), row.get("process", 0)


def _count(run: _Run, row: Row) -> None:
    if row["record"] == "test":
        run.tests += row.get("checks", "").count(" ") + 1  # a folded row represents several tests
        run.finished.add(row["nodeid"])
    elif row["record"] == "time":
        run.times += 1
    elif row["record"] == "begin":
        run.begun[_part(row)].append(row["nodeid"])


def _why(run: _Run) -> str:
    names = {name for name, _ in run.plans}
    parts = [name.strip() for plan in run.plans.values() for name in plan.get("parts", "").split(",")]
    reasons = [
        _did_not([name for name, _ in run.open()], "finish"),
        _did_not([name for name in parts if name and name not in names], "start"),
        *dict.fromkeys(_reason(end) for end in run.ends.values()),
        _short(run.tests, _planned(run.plans.values(), "tests"), "tests", "have an outcome"),
        _short(run.times, _planned(run.plans.values(), "times"), "timings", "were taken"),
        _lost(sum(end.get("lost", 0) for end in run.ends.values())),
    ]
    return "; ".join(text for text in reasons if text)


def _did_not(names: Sequence[str], verb: str) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"{'process' if len(names) == 1 else 'processes'} {', '.join(map(repr, names[:_NAMED]))}{more} did not {verb}"
    )


def _reason(end: Row) -> str:
    reason = str(end.get("reason", ""))
    return f"{end['part']}: {reason}" if reason and end.get("part") else reason


def _planned(plans: Collection[Row], column: str) -> int:
    return sum(plan.get(column, 0) for plan in plans)


def _short(number: int, planned: int, what: str, done: str) -> str:
    return f"{number:,} of {planned:,} planned {what} {done}" if number < planned else ""


def _lost(number: int) -> str:
    return f"{number:,} {'row' if number == 1 else 'rows'} could not be recorded" if number else ""


def _begun(run: _Run) -> Iterable[tuple[str, str]]:
    for part in run.open():
        begun = run.begun[part]
        unfinished = [nodeid for nodeid in dict.fromkeys(begun) if nodeid not in run.finished]
        yield from ((part[0], nodeid) for nodeid in unfinished or begun[-1:])
