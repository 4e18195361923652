"""The rows of the timings table: one per case, with its throughput, how it changed, and its peers.

It turns the findings of `compare` and `history` into text. A case measured by both clocks is one row: the device's time
is the duration of the work, and the host's time is how long the caller waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cuassay_reports import units
from cuassay_reports.analysis import against
from cuassay_reports.charts import sparkline
from cuassay_reports.compare import OURS, SERIES, THRESHOLDS, Thresholds, changes, peers, throughput
from cuassay_reports.frames import pd
from cuassay_reports.history import lines
from cuassay_reports.load import Results, grouped_by, records
from cuassay_reports.roofline import Mark, roofline

__all__ = ["Peer", "Timing", "TimingSection", "sections"]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another implementation of the same case; with a ratio above 1 ours is faster."""

    name: str
    ratio: str
    verdict: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One row of the table, as text."""

    run: str
    benchmark: str
    dtype: str
    case: str
    tags: Sequence[str]
    median: str
    raw: str
    spread: str
    host: str
    rate: str
    fraction: float
    bound: str
    change: str
    verdict: str
    why: str
    spark: Markup
    peers: Sequence[Peer]

    @property
    def sample(self) -> str:
        """The case with its tags."""
        return " ".join([self.case, *self.tags])


@dataclass(frozen=True, kw_only=True)
class TimingSection:
    """The timings of one subject.

    `common` are the tags that all rows share; `note` says what they were compared with, or why with nothing, if it is
    the same for all.
    """

    subject: str
    device: str
    common: Sequence[str]
    rows: Sequence[Timing]
    note: str
    count: int
    slower: int
    faster: int
    roofline: Markup

    @property
    def benchmarks(self) -> list[tuple[str, list[Timing]]]:
        """The rows by benchmark, in order."""
        groups: dict[str, list[Timing]] = {}
        for row in self.rows:
            groups.setdefault(row.benchmark, []).append(row)
        return list(groups.items())

    @property
    def has_host(self) -> bool:
        """Whether the host's time was measured with the device's for at least one row."""
        return any(row.host for row in self.rows)

    @property
    def has_limits(self) -> bool:
        """Whether a limit was measured for at least one row."""
        return any(row.bound for row in self.rows)

    @property
    def has_changes(self) -> bool:
        """Whether at least one row was compared with a previous run."""
        return any(row.verdict for row in self.rows)

    @property
    def has_peers(self) -> bool:
        """Whether at least one row has a peer."""
        return any(row.peers for row in self.rows)


_CASE = ["subject", *(name for name in SERIES if name not in ("clock", "launches"))]


def sections(results: Results, thresholds: Thresholds = THRESHOLDS, baseline: str = "") -> list[TimingSection]:
    """Return the newest timings of every subject that has any.

    Parameters
    ----------
    results : Results
        The results that `load` returned.
    thresholds : Thresholds
        The differences that count.
    baseline : str
        The run, or the first digits of the commit, to compare them with; by default the previous run.

    Raises
    ------
    LookupError
        If no run has that id or commit.
    """
    newest = changes(against(results, baseline) if baseline else results, thresholds)
    table = throughput(newest[newest["groups"] == ""], results.limits)  # grouped timings have a separate section
    shown = _Shown(lines=lines(results), peers=_peers(table), runs=_runs(results), limits=results.limits)
    return [_section(subject, rows, shown) for subject, rows in table.groupby("subject", sort=False)]


@dataclass(frozen=True)
class _Shown:
    """The data that rows look up: the past of a series, the peers of a case, the names of runs, and device limits."""

    lines: Mapping[tuple[Any, ...], Sequence[float]]
    peers: Mapping[tuple[Any, ...], Sequence[Peer]]
    runs: Mapping[str, str]
    limits: pd.DataFrame


def _runs(results: Results) -> dict[str, str]:
    """Map each run to the first digits of its commit or, if that is unknown, to its id."""
    named = ((row["run"], row["commit"][:10]) for row in records(results.runs))
    return {run: f"commit {commit}" if commit else f"run {run}" for run, commit in named}


def _peers(table: pd.DataFrame) -> dict[tuple[Any, ...], list[Peer]]:
    found: dict[tuple[Any, ...], list[Peer]] = {}
    for row in records(peers(table)):
        key = tuple(row[name] for name in ("subject", *SERIES))
        found.setdefault(key, []).append(
            Peer(name=row["peer"], ratio=units.ratio(row["ratio"]), verdict=row["verdict"], why=_peer_why(row))
        )
    return found


def _peer_why(row: Mapping[str, Any]) -> str:
    if math.isnan(row["low"]):
        return f"ours is {row['verdict']}: {row['why']}"
    return f"ours is {row['verdict']}: {row['why']}; quartiles {units.ratio(row['low'])} to {units.ratio(row['high'])}"


def _section(subject: Any, rows: pd.DataFrame, shown: _Shown) -> TimingSection:
    verdicts = rows.loc[rows["ours"], "verdict"]
    cases = list(_cases(rows))
    common = _common([_tags(case[0]) for case in cases])
    return TimingSection(
        subject=str(subject),
        device=str(rows["device"].iloc[0]),
        common=common,
        rows=[_timing(case, shown, common) for case in cases],
        note=_note(rows, shown.runs),
        count=len(rows),
        slower=int((verdicts == "slower").sum()),
        faster=int((verdicts == "faster").sum()),
        roofline=_roofline(rows, shown.limits, str(subject)),
    )


def _roofline(rows: pd.DataFrame, limits: pd.DataFrame, subject: str) -> Markup:
    """Return the plot of our own device times that have arithmetic, below the limits of their run."""
    run = rows["run"].iloc[-1]
    of_run = records(limits[(limits["run"] == run) & (limits["subject"] == subject)])
    bandwidth = max((row["value"] for row in of_run if row["limit"] == "bandwidth"), default=0.0)
    computes = {row["dtype"] or "all dtypes": row["value"] for row in of_run if row["limit"] == "compute"}
    kept = rows[rows["ours"] & (rows["clock"] == "device") & (rows["flop_per_s"] > 0) & (rows["bytes"] > 0)]
    marks = [
        Mark(float(row["flops"] / row["bytes"]), row["flop_per_s"], f"{row['benchmark']} {row['dtype']} {row['case']}: "
             f"{units.quantity(row['flop_per_s'], 'FLOP/s')}, {units.percent(row['fraction'])} of the limit")
        for row in records(kept)
    ]  # fmt: skip
    return roofline(marks, bandwidth, computes, f"roofline of {subject}")


def _cases(rows: pd.DataFrame) -> Iterable[list[dict[str, Any]]]:
    """Yield the rows of each case, the device's clock first; peers have no separate row."""
    measured = {tuple(row[name] for name in _CASE if name != "implementation") for row in records(rows[rows["ours"]])}
    for case in grouped_by(records(rows.sort_values("clock", kind="stable")), _CASE).values():
        key = tuple(case[0][name] for name in _CASE if name != "implementation")
        if case[0]["ours"] or key not in measured:
            yield case


def _timing(case: Sequence[dict[str, Any]], shown: _Shown, common: Sequence[str]) -> Timing:
    row = case[0]
    host = next((other for other in case[1:] if other["clock"] == "host"), None)
    key = tuple(row[name] for name in SERIES)
    return Timing(
        run=row["run"],
        benchmark=row["benchmark"],
        dtype=row["dtype"],
        case=row["case"],
        tags=[tag for tag in _tags(row) if tag not in common],
        median=units.quantity(row["median"], row["unit"]),
        raw="" if row["raw"] == row["median"] else f"{units.quantity(row['raw'], row['unit'])} with the empty interval",
        spread=_spread(row),
        host="" if host is None else units.quantity(host["median"], host["unit"]),
        rate=units.quantity(row["flop_per_s"], "FLOP/s")
        if row["intense"]
        else units.quantity(row["bytes_per_s"], "B/s"),
        fraction=row["fraction"],
        bound=row["bound"],
        change=units.signed_percent(row["change"]) if row["verdict"] else "",
        verdict=row["verdict"],
        why=row["why"],
        spark=sparkline(shown.lines.get((row["digest"], *key), ()), f"history of {row['benchmark']} {row['case']}"),
        peers=shown.peers.get((row["subject"], *key), ()),
    )


def _tags(row: Mapping[str, Any]) -> list[str]:
    implementation = "" if row["implementation"] == OURS else row["implementation"]
    clock = "host clock" if row["clock"] == "host" else ""
    mode = "graph" if row["mode"] == "graph" else ""
    cache = f"{row['cache']} cache" if row["cache"] else ""
    launches = "live launches" if row["launches"] == "live" else ""
    return [tag for tag in (implementation, clock, cache, mode, launches) if tag]


def _common(tags: Sequence[Sequence[str]]) -> list[str]:
    return [tag for tag in tags[0] if all(tag in others for others in tags)]


def _spread(row: Mapping[str, Any]) -> str:
    """Return half the distance of the quartiles, relative to the median."""
    half = (row["q75"] - row["q25"]) / 2 / row["median"] if row["median"] else math.nan
    return f"± {units.percent(half)}" if math.isfinite(half) else ""


def _note(rows: pd.DataFrame, runs: Mapping[str, str]) -> str:
    compared = rows.loc[rows["verdict"] != "", "previous_run"].unique()
    if len(compared):
        return f"Compared with {', '.join(runs[run] for run in compared)}."
    reasons = set(rows["why"])
    if len(reasons) != 1:
        return ""
    return (
        "First measurements of this device." if reasons == {"first measurement"} else next(iter(reasons)).capitalize()
    )
