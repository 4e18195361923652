"""Timings against the previous run, against peers, and against the device's measured limits.

Decides which two measurements are compared: the newest, and the last before it whose hard facts are equal. If there is
no such measurement, the reason says what changed. Two runs drift by a few percent without a change, so a verdict here
is a hint; the paired gate, ``cuassay ab``, gives proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cuassay_reports import units
from cuassay_reports.columns import CASE, SERIES
from cuassay_reports.facts import difference
from cuassay_reports.frames import pd
from cuassay_reports.load import OURS, Results, Row, grouped_by, records
from cuassay_reports.pairs import Pairs
from cuassay_reports.verdicts import THRESHOLDS, Thresholds, Verdict, judge, relative_change

__all__ = [
    "CASE",
    "COMPUTE_INTENSITY",
    "OURS",
    "SERIES",
    "THRESHOLDS",
    "Thresholds",
    "Verdict",
    "changes",
    "judge",
    "peers",
    "throughput",
]

COMPUTE_INTENSITY = 8.0
"""FLOP per byte from which work counts as compute-bound if no compute limit was measured.

Today's processors balance at 10 (a server's cores) to 300 (tensor cores); below 8 memory is the limit on all.
"""


def changes(results: Results, thresholds: Thresholds = THRESHOLDS) -> pd.DataFrame:
    """Compare the newest timing of every series with the one before it whose hard facts are equal.

    Parameters
    ----------
    results : Results
        The results that `load` returned.
    thresholds : Thresholds
        The differences that count.

    Returns
    -------
    pandas.DataFrame
        The newest rows of ``results.times``, with `previous` (median, NaN if none), `previous_run`, `change` (new over
        old, minus 1, after the shift), `shift` (seconds subtracted from the new median), `weak` (the two were on
        different machines), `verdict` (faster, slower, same, ambiguous, or "" if nothing may be compared) and `why`.
    """
    newest = results.latest().times.drop_duplicates(_SERIES, keep="last", ignore_index=True)
    pairs = Pairs(results, thresholds)
    rows = records(newest)
    found = list(_compared(results.times, newest, rows, pairs))
    cases = grouped_by(({**row, **each} for row, each in zip(rows, found, strict=True)), ["subject", *CASE])
    for row, each in zip(rows, found, strict=True):
        if each["weak"] and each["verdict"] in ("faster", "slower"):
            _ask_peers(row, each, cases[row["subject"], *(row[name] for name in CASE)])
    return newest.assign(**{name: [each[name] for each in found] for name in _ADDED})


_ADDED = ("previous", "previous_run", "change", "shift", "weak", "verdict", "why")
_SERIES = ["subject", *SERIES]


def _compared(times: pd.DataFrame, newest: pd.DataFrame, rows: list[Row], pairs: Pairs) -> Iterator[dict[str, Any]]:
    """Yield what `changes` adds to each of the newest rows."""
    number = _numbers(times)
    kept = times[["order", "run", "raw", *_JUDGED]].assign(number=number.reindex(times["series"]).to_numpy())
    known: dict[tuple[str, str], _Before] = {}
    for row, own in zip(rows, number.reindex(newest["series"]), strict=True):
        place = row["run"], row["device"]
        if place not in known:
            known[place] = _Before.of(kept, row, pairs)
        yield known[place].compare(row, own, pairs)


def _numbers(times: pd.DataFrame) -> pd.Series[int]:
    """Map each series to a number that does not depend on hard facts."""
    firsts = times.drop_duplicates("series")
    return pd.Series(firsts.groupby(_SERIES, sort=False).ngroup().to_numpy(), index=firsts["series"].to_numpy())


@dataclass(frozen=True)
class _Before:
    """The earlier rows of each series before a run, by the series' number.

    Attributes
    ----------
    last, comparable : mapping
        The last row: of any run, and of comparable runs.
    medians : mapping
        The medians in the last comparable runs, oldest first.
    """

    last: Mapping[int, Row]
    comparable: Mapping[int, Row]
    medians: Mapping[int, Sequence[float]]

    @classmethod
    def of(cls, kept: pd.DataFrame, row: Row, pairs: Pairs) -> _Before:
        """Collect the rows before the run of `row` on its device."""
        older = kept[kept["order"] < row["order"]]
        runs = {run for run in older["run"].unique() if pairs.may_compare(run, row["run"], row["device"])}
        orders = older.loc[older["run"].isin(runs), "order"].unique()
        alike = older[older["order"].isin(orders)]
        seen = alike.groupby("number", sort=False).tail(_SEEN).groupby("number", sort=False)["median"]
        return cls(_last_rows(older), _last_rows(alike), {number: medians.tolist() for number, medians in seen})

    def compare(self, row: Row, number: int, pairs: Pairs) -> dict[str, Any]:
        """Return what is added to `row`, whose series has this number."""
        old = self.comparable.get(number)
        if old is None:
            refusal = _refusal(row, self.last.get(number), pairs)
            return dict(zip(_ADDED, (math.nan, "", math.nan, 0.0, False, "", refusal), strict=True))
        pair = pairs.pair(old["run"], row["run"], row["device"])
        verdict, moved = pair.judge(old, row)
        if pair.is_weak and verdict.word in ("faster", "slower"):
            verdict = _unless_seen(verdict, row["median"] - moved, self.medians[number], row["unit"])
        change = relative_change(old["median"] + moved, row["median"])
        values = (old["median"], old["run"], change, moved, pair.is_weak, verdict.word, verdict.reason)
        return dict(zip(_ADDED, values, strict=True))


#: The earlier runs in which a series' levels are looked up; fewer than `_SEEN_ENOUGH` give no answer.
_SEEN, _SEEN_ENOUGH = 8, 4


def _unless_seen(verdict: Verdict, now: float, before: Sequence[float], unit: str) -> Verdict:
    """Return the verdict, or ambiguous if the earlier runs of the series are on both sides of the new one.

    Short calls have several levels, of which a process gets one: 2.8 to 3.7 µs for the same two launches on an H200.
    """
    low, high = min(before), max(before)
    if len(before) < _SEEN_ENOUGH or not low <= now <= high:
        return verdict
    between = f"{units.quantity(low, unit)} and {units.quantity(high, unit)}"
    return Verdict("ambiguous", f"{verdict.reason}; but its last {len(before)} runs took between {between}")


def _last_rows(rows: pd.DataFrame) -> dict[int, Row]:
    return {row["number"]: row for row in records(rows.drop_duplicates("number", keep="last"))}


def _ask_peers(row: Row, compared: dict[str, Any], rows: list[Row]) -> None:
    """Make a verdict ambiguous if peers, whose code did not change, moved at least half as much on this case."""
    others = [
        other["change"]
        for other in rows
        if other["implementation"] != row["implementation"]
        and not other["implementation"].startswith(OURS)
        and other["previous_run"] == compared["previous_run"]
    ]
    moved = median(others) if others else 0.0
    if moved / compared["change"] >= 0.5:
        compared |= {"verdict": "ambiguous", "why": f"{compared['why']}; but peers moved by {moved:+.1%} on this case"}


def _refusal(row: Row, before: Row | None, pairs: Pairs) -> str:
    if not pairs.facts(row["run"], row["device"]):
        return "not compared: the run recorded no fingerprint of this device"
    if before is None:
        return "first measurement"
    changed = difference(pairs.facts(before["run"], row["device"]), pairs.facts(row["run"], row["device"]))
    return "not compared: " + ("; ".join(changed) or "the previous run recorded no fingerprint")


def throughput(times: pd.DataFrame, limits: pd.DataFrame) -> pd.DataFrame:
    """Add the achieved throughput to the timings.

    Returns
    -------
    pandas.DataFrame
        `times` with `bytes_per_s` and `flop_per_s` (NaN if the work is unknown or the unit is not seconds), `fraction`
        of the nearer of the run's measured limits (the roofline: the time that the limits allow over the time taken),
        and `bound`, the name of that limit ("" if it was not measured). `intense` marks work that is limited by
        arithmetic rather than by memory.
    """
    seconds = times["median"].where(times["unit"] == "s")
    bandwidth = _limit_of(times, limits, "bandwidth")
    compute = _limit_of(times, limits, "compute")
    nbytes, flops = times["bytes"].astype("float64"), times["flops"].astype("float64")
    intense = (flops / nbytes >= COMPUTE_INTENSITY) | nbytes.isna()
    # For compute-bound work a share of the bandwidth has no meaning, unless the compute limit is known and farther.
    by_memory = (nbytes / bandwidth).mask(intense & compute.isna())
    allowed = pd.DataFrame({"bandwidth": by_memory, "compute": flops / compute}, index=times.index)
    least = allowed.max(axis="columns")
    computing = allowed["compute"] > allowed["bandwidth"].fillna(0)
    bound = pd.Series("", index=times.index).mask(least.notna(), "bandwidth").mask(computing, "compute")
    return times.assign(
        bytes_per_s=nbytes / seconds,
        flop_per_s=flops / seconds,
        fraction=least / seconds,
        bound=bound,
        intense=computing | (intense & (bound == "")),
    )


def _limit_of(times: pd.DataFrame, limits: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return, for each timing, that limit of its run and subject: of its dtype, or of all dtypes."""
    table: dict[tuple[str, str, str], float] = {}
    for row in records(limits[limits["limit"] == name]):
        key = (row["run"], row["subject"], row["dtype"])
        table[key] = max(row["value"], table.get(key, 0.0))
    places = zip(times["run"], times["subject"], times["dtype"], strict=True)
    values = [table.get((run, subject, dtype), table.get((run, subject, ""))) for run, subject, dtype in places]
    return pd.Series(values, index=times.index, dtype="float64")


def peers(source: Results | pd.DataFrame) -> pd.DataFrame:
    """Compare our implementation with every other of the same run and case.

    Parameters
    ----------
    source : Results or frame
        What `load` returns, or rows of its `times`.

    Returns
    -------
    pandas.DataFrame
        One row per pair: `run`, `subject`, the columns of ``CASE``, our `implementation` and `launches`, `peer`,
        `ratio` (the peer's median over ours: above 1 ours is faster), `low` and `high` (the same of opposite
        quartiles), `verdict` on ours, and `why`.
    """
    times = source if isinstance(source, pd.DataFrame) else source.times
    keys = ["run", "subject", *CASE]
    last = times.drop_duplicates([*keys, "implementation"], keep="last")
    ours = last[last["ours"]]
    others = last[~last["ours"]].rename(columns={"implementation": "peer"})
    pairs = others.merge(ours[[*keys, "implementation", "launches", *_JUDGED]], on=keys, suffixes=("_peer", ""))
    found = [_ratio(row) for row in records(pairs)]
    return pairs[[*keys, "implementation", "launches", "peer"]].assign(
        **{name: [each[name] for each in found] for name in _RATIO}
    )


_JUDGED = ["median", "q25", "q75", "n", "better"]
_RATIO = ("ratio", "low", "high", "verdict", "why")


def _ratio(row: dict[str, Any]) -> dict[str, Any]:
    ours = {name: row[name] for name in _JUDGED}
    peer = {name: row[f"{name}_peer"] for name in _JUDGED}
    verdict = judge(peer, ours)
    low, high = _over(peer["q25"], ours["q75"]), _over(peer["q75"], ours["q25"])
    values = (_over(peer["median"], ours["median"]), low, high, verdict.word, verdict.reason)
    return dict(zip(_RATIO, values, strict=True))


def _over(a: float, b: float) -> float:
    return a / b if b else math.nan
