"""The scores of mutation testing for each function, with their history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cuassay_reports import units
from cuassay_reports.charts import sparkline
from cuassay_reports.load import Results, grouped_by, records

__all__ = ["MutationScore", "MutationSection", "mutation_section"]

_KEY = ["source", "function", "device"]


@dataclass(frozen=True, kw_only=True)
class MutationScore:
    """The mutants of one function: how many of the judged ones a test killed, and the changes that no test found."""

    source: str
    function: str
    device: str
    score: str
    share: float
    change: str
    is_worse: bool
    killed: int
    survived: int
    uncovered: int
    survivors: str
    spark: Markup


@dataclass(frozen=True, kw_only=True)
class MutationSection:
    """The newest score of every function, the worst first, and the total score."""

    score: str
    killed: int
    judged: int
    rows: Sequence[MutationScore]


def mutation_section(results: Results) -> MutationSection | None:
    """Return the scores, or None if no run recorded any."""
    if results.mutations.empty:
        return None
    newest = results.mutations.drop_duplicates([*_KEY, "run"], keep="last")
    rows = [_score(past) for past in grouped_by(records(newest), _KEY).values()]
    rows.sort(key=lambda row: (row.share, -row.survived - row.uncovered))
    killed = sum(row.killed for row in rows)
    judged = sum(row.killed + row.survived + row.uncovered for row in rows)
    return MutationSection(score=_percent(killed, judged), killed=killed, judged=judged, rows=rows)


def _score(past: Sequence[dict[str, Any]]) -> MutationScore:
    row = past[-1]
    shares = [share for share in map(_share, past) if share is not None]
    change = shares[-1] - shares[-2] if len(shares) > 1 and _share(row) is not None else 0.0
    return MutationScore(
        source=row["source"],
        function=row["function"] or "module",
        device=row["device"],
        score=_percent(row["killed"], _judged(row)),
        share=1.0 if _share(row) is None else shares[-1],
        change=f"{units.signed_percent(change)[:-2]} points" if change else "",
        is_worse=change < 0,
        killed=int(row["killed"]),
        survived=int(row["survived"]),
        uncovered=int(row["uncovered"]),
        survivors=row["survivors"],
        spark=sparkline(shares, f"scores of {row['function'] or row['source']}"),
    )


def _judged(row: dict[str, Any]) -> int:
    return int(row["killed"] + row["survived"] + row["uncovered"])


def _share(row: dict[str, Any]) -> float | None:
    return int(row["killed"]) / _judged(row) if _judged(row) else None


def _percent(killed: int, judged: int) -> str:
    return f"{100 * killed / judged:.0f} %" if judged else units.UNKNOWN
