"""Our implementation compared with the best peer over groups of cases: means, how many are behind, the worst and why.

It is for timings that name `groups`: hundreds of cases of one benchmark, such as the public shapes of matrix products,
which nobody reads one by one. They have this section instead of rows among the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuassay_reports import units
from cuassay_reports.compare import CASE, OURS, throughput
from cuassay_reports.frames import pd
from cuassay_reports.load import Results, records

__all__ = ["BEHIND", "WORST", "Group", "PeerSummary", "Worst", "compared_with_best", "peer_summaries"]

BEHIND = 0.99
"""The ratio to the best peer below which ours is behind: two runs of one program differ as much as closer values."""

WORST = 10
"""The number of cases that are shown with their reasons."""

FULL = 0.9
"""The fraction of a measured limit from which there is little left to gain."""

# A peer that cannot be captured is measured live, and others as graphs, so the mode is not part of the case.
_CASE = ["run", "subject", *(name for name in CASE if name not in ("clock", "cache", "mode", "unit"))]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A summary of cases: geometric means of the best peer's time over ours, and of ours untuned over ours tuned."""

    name: str
    count: int
    mean: str
    least: str
    behind: int
    tuning: str
    fraction: str


@dataclass(frozen=True, kw_only=True)
class Worst:
    """One case as text."""

    case: str
    dtype: str
    median: str
    rate: str
    ratio: str
    peer: str
    choice: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class PeerSummary:
    """One benchmark of one run on one subject."""

    benchmark: str
    subject: str
    device: str
    run: str
    peers: Sequence[str]
    groups: Sequence[Group]
    worst: Sequence[Worst]


def compared_with_best(results: Results) -> pd.DataFrame:
    """Compare ours with the best peer in the newest run of each subject that has grouped timings.

    Returns
    -------
    pandas.DataFrame
        One row per case: the columns of `throughput` for ours; `spread`, the distance of its quartiles over the median;
        `peer`, `peer_fraction` and `ratio`, the best peer's time over ours (above 1 ours is faster); `tuning`, the time
        of ours untuned over ours, NaN if it was not measured.
    """
    times = results.latest().times
    table = throughput(times[times["groups"] != ""], results.limits)
    ours, untuned = (_of(table, table["implementation"] == name) for name in (OURS, f"{OURS} untuned"))
    others = table[~table["implementation"].str.startswith(OURS)].set_index(_CASE)
    pairs = others[["implementation", *_SAMPLED, "fraction"]].add_suffix("_peer").join(ours, how="inner")
    pairs = pairs.assign(ratio=[_paired(row, "_peer") for row in records(pairs)])
    best = _of(pairs.sort_values("ratio", kind="stable").reset_index(), None)
    joined = best.join(untuned[list(_SAMPLED)].add_suffix("_untuned"))
    return joined.reset_index().assign(
        spread=((joined["q75"] - joined["q25"]) / joined["median"]).to_numpy(),
        peer=joined["implementation_peer"].to_numpy(),
        peer_fraction=joined["fraction_peer"].to_numpy(),
        tuning=[_paired(row, "_untuned") for row in records(joined)],
    )


_SAMPLED = ("median", "samples")


def _of(table: pd.DataFrame, chosen: pd.Series[bool] | None) -> pd.DataFrame:
    """Return the first of the chosen rows of each case, by case."""
    rows = table if chosen is None else table[chosen]
    first: pd.DataFrame = rows.drop_duplicates(_CASE).set_index(_CASE)
    return first


def _paired(row: dict[str, Any], other: str) -> float:
    """Return the median of another's samples over ours in the same round, so that a drift of the clocks cancels.

    On an H200 the medians of one kernel measured twice differed by up to 3 % when the clock fell in between.
    """
    ours, others = row["samples"], row[f"samples{other}"]
    if isinstance(ours, np.ndarray) and isinstance(others, np.ndarray) and len(ours) == len(others) and ours.all():
        return float(np.median(others / ours))
    return float(row[f"median{other}"] / row["median"]) if row["median"] else math.nan


def peer_summaries(results: Results) -> list[PeerSummary]:
    """Summarize `compared_with_best` by benchmark and subject."""
    compared = compared_with_best(results)
    times = results.times
    return [
        PeerSummary(
            benchmark=str(benchmark),
            subject=str(subject),
            device=str(cases["device"].iloc[0]),
            run=str(run),
            peers=_peers(times[(times["run"] == run) & (times["benchmark"] == benchmark)]),
            groups=_groups(cases),
            worst=[_worst(row) for row in records(cases.sort_values("ratio", kind="stable").head(WORST))],
        )
        for (subject, benchmark, run), cases in compared.groupby(["subject", "benchmark", "run"], sort=False)
    ]


def _peers(times: pd.DataFrame) -> list[str]:
    grouped = times[times["groups"] != ""]
    return sorted(name for name in grouped["implementation"].unique() if not name.startswith(OURS))


def _groups(cases: pd.DataFrame) -> list[Group]:
    """Return all cases, then each group in the order of its name; names that do not begin with a letter come last."""
    members = cases.assign(name=cases["groups"].str.split()).explode("name")
    named = sorted(members.groupby("name"), key=lambda group: str(group[0]))
    return [_group("all", cases), *(_group(str(name), rows) for name, rows in named)]


def _group(name: str, cases: pd.DataFrame) -> Group:
    return Group(
        name=name,
        count=len(cases),
        mean=_ratio(_mean(cases["ratio"])),
        least=_ratio(float(cases["ratio"].min())),
        behind=int((cases["ratio"] < BEHIND).sum()),
        tuning=_ratio(_mean(cases["tuning"])),
        fraction=units.percent(_mean(cases["fraction"])),
    )


def _ratio(value: float) -> str:
    """Format a ratio with one digit more than elsewhere, because hundredths matter here."""
    return f"{value:.3f}×" if math.isfinite(value) else units.UNKNOWN


def _mean(values: pd.Series[Any]) -> float:
    """Return the geometric mean of the known values."""
    known = values[values > 0]
    return math.exp(sum(map(math.log, known)) / len(known)) if len(known) else math.nan


def _worst(row: dict[str, Any]) -> Worst:
    return Worst(
        case=row["case"],
        dtype=row["dtype"],
        median=units.quantity(row["median"], row["unit"]),
        rate=units.quantity(row["flop_per_s"], "FLOP/s"),
        ratio=_ratio(row["ratio"]),
        peer=row["peer"],
        choice=row["choice"],
        reason=_reason(row),
    )


def _reason(row: dict[str, Any]) -> str:
    """Return why there is no larger gain, as far as the figures show."""
    share = units.percent(row["peer_fraction"])
    where = f"{row['peer']} at {share} of the {row['bound']} limit" if row["bound"] else ""
    if row["ratio"] < BEHIND and 1 - row["ratio"] > row["spread"]:
        why = "behind: the peer's kernel is not a candidate, or the tuner found another faster"
    elif row["bound"] and row["peer_fraction"] >= FULL:
        why = "no room"
    elif abs(1 - row["ratio"]) <= row["spread"]:
        why = f"within the spread of {units.percent(row['spread'])}"
    else:
        why = "no candidate was faster by more"
    return ", ".join(filter(None, [why, where]))
