"""Since when a test fails: the first of its consecutive failing runs up to the newest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cuassay_reports.frames import pd
from cuassay_reports.load import Results, grouped_by, records
from cuassay_reports.moved import with_current_ids

__all__ = ["Since", "failing_since"]


@dataclass(frozen=True)
class Since:
    """The first run of a lasting failure: its id, its commit, its day, and the number of runs since."""

    run: str
    commit: str
    started: str
    runs: int
    is_all: bool

    def __str__(self) -> str:
        runs = f"{self.runs} runs" if self.runs > 1 else "1 run"
        if self.is_all:
            return f"failing in all {runs} here" if self.runs > 1 else "first run here"
        place = self.commit or self.run
        return f"failing since {place}" + (f" ({self.started})" if self.started else "") + f", {runs}"


def failing_since(results: Results, failed: pd.DataFrame) -> dict[tuple[str, str], Since]:
    """Return since when the `failed` tests fail, by subject and node id.

    Parameters
    ----------
    results : Results
        The results that `load` returned. A run in which the test was skipped or missing does not end a failure.
    failed : pandas.DataFrame
        The rows of ``results.tests`` that currently fail.
    """
    ids = failed["nodeid"].unique()
    tests = with_current_ids(results.tests, results.latest().tests)
    past = tests[tests["nodeid"].isin(ids)]
    columns = past[["subject", "nodeid", "outcome", "run", "started"]]
    by_test = grouped_by(records(columns), ["subject", "nodeid"])
    commits = dict(zip(results.runs["run"], results.runs["commit"], strict=True))
    names = zip(failed["subject"], failed["nodeid"], strict=True)
    return {name: _since(by_test[name], commits) for name in names}


def _since(rows: list[dict[str, Any]], commits: Mapping[str, str]) -> Since:
    streak = []
    for row in reversed(rows):
        if row["outcome"] in ("failed", "error"):
            streak.append(row)
        elif row["outcome"] != "skipped":
            break
    first, ran = streak[-1], sum(row["outcome"] != "skipped" for row in rows)
    started = "" if pd.isna(first["started"]) else first["started"].strftime("%Y-%m-%d")
    return Since(first["run"], commits[first["run"]][:10], started, len(streak), len(streak) == ran)
