"""Timings against the previous run, against peers, and against the device's measured limits.

Decides which two measurements may be compared and what the verdict is. Only runs of equal
fingerprints are compared; where there is none, the reason says what changed. Two runs of one
machine drift by a few percent on their own, so a verdict here is a hint; proof is the paired gate's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from cuassay_reports.columns import difference
from cuassay_reports.load import OURS, Results, Row, grouped_by, records

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

Word = Literal["faster", "slower", "same", "ambiguous"]

CASE = ["benchmark", "device", "dtype", "case", "clock", "cache", "mode", "unit"]
"""Columns that two implementations must share to be compared."""

SERIES = [*CASE, "implementation", "launches"]
"""Columns that make two measurements points of one series."""

COMPUTE_INTENSITY = 8.0
"""FLOP per byte from which work is taken for compute-bound where no compute limit was measured.

Today's processors balance at 10 (a server's cores) to 300 (tensor cores); below 8 memory is the limit on all.
"""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When a difference between two medians means something; all but `samples` are fractions."""

    floor: float
    noisy: float
    samples: int


THRESHOLDS = Thresholds(
    floor=0.02,  # what an unchanged program drifts by between two runs of one machine with free clocks
    noisy=0.10,  # a spread above it hides changes that matter: "same" would claim too much
    samples=5,   # fewer have no quartiles worth the name
)  # fmt: skip
"""The thresholds that `changes` uses."""


@dataclass(frozen=True)
class Verdict:
    """A verdict, or "" where nothing could be compared, and its reason in words."""

    word: Word | Literal[""]
    reason: str


def judge(old: Mapping[str, Any], new: Mapping[str, Any], thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """Compare two measurements of one thing.

    Parameters
    ----------
    old, new : mapping
        ``median``, ``q25``, ``q75`` (NaN where unknown), ``n`` and ``better`` of a row of times.
    """
    change = _change(old["median"], new["median"])
    spread = max(_spread(old), _spread(new))
    if not math.isfinite(change):
        return Verdict("ambiguous", f"a median of {old['median']:g} has no relative change")
    if math.isnan(spread) or min(old["n"], new["n"]) < thresholds.samples:
        return _without_spread(change, thresholds)
    if abs(change) < max(thresholds.floor, spread):
        return _small(change, spread, thresholds)
    if old["q25"] <= new["q75"] and new["q25"] <= old["q75"]:
        return Verdict("ambiguous", f"{change:+.1%}, but the middle halves of the samples overlap")
    worse = (change > 0) == (new["better"] == "less")
    return Verdict("slower" if worse else "faster", f"{change:+.1%}, beyond the spread of {spread:.1%}")


def _small(change: float, spread: float, thresholds: Thresholds) -> Verdict:
    if spread > thresholds.noisy:
        return Verdict("ambiguous", f"{change:+.1%}, but the spread of {spread:.0%} could hide more")
    if abs(change) < thresholds.floor:
        return Verdict("same", f"{change:+.1%}, under the floor of {thresholds.floor:.0%}")
    return Verdict("same", f"{change:+.1%}, within the spread of {spread:.1%}")


def _without_spread(change: float, thresholds: Thresholds) -> Verdict:
    if abs(change) < thresholds.floor:
        return Verdict(
            "same", f"{change:+.1%}, under the floor of {thresholds.floor:.0%}; too few samples for a spread"
        )
    return Verdict("ambiguous", f"{change:+.1%}, from fewer than {thresholds.samples} samples or without quartiles")


def _change(old: float, new: float) -> float:
    return new / old - 1 if old else math.nan


def _spread(row: Mapping[str, Any]) -> float:
    """Return the distance of the quartiles over the median, NaN where unknown."""
    return float((row["q75"] - row["q25"]) / row["median"]) if row["median"] else math.nan


def changes(results: Results) -> pd.DataFrame:
    """Compare the newest timing of every series with the one before it on the same fingerprint.

    Returns
    -------
    pandas.DataFrame
        The newest rows of ``results.times``, with `previous` (median, NaN where none), `previous_run`,
        `change` (new over old, less 1), `verdict` (faster, slower, same, ambiguous, or "" where nothing
        may be compared) and `why`.
    """
    newest = results.latest().times.drop_duplicates(_SERIES, keep="last", ignore_index=True)
    series = grouped_by(records(results.times[[*_SERIES, "order", "digest", "run", *_JUDGED]]), _SERIES)
    facts = _fingerprints(results.devices)
    found = [_compared(row, series[tuple(row[name] for name in _SERIES)], facts) for row in records(newest)]
    return newest.assign(**{name: [each[name] for each in found] for name in _ADDED})


_ADDED = ("previous", "previous_run", "change", "verdict", "why")
_SERIES = ["subject", *SERIES]


def _fingerprints(devices: pd.DataFrame) -> dict[tuple[str, str], Mapping[str, object]]:
    """Return (run, device) to the facts of that device in that run."""
    columns = zip(devices["run"], devices["device"], devices["fingerprint"], strict=True)
    return {(run, device): facts for run, device, facts in columns if isinstance(facts, Mapping)}


def _compared(row: Row, series: list[Row], facts: Mapping[Any, Mapping[str, object]]) -> dict[str, Any]:
    before = [old for old in series if old["order"] < row["order"]]
    equal = [old for old in before if row["digest"] and old["digest"] == row["digest"]]
    if equal:
        old = equal[-1]
        verdict = judge(old, row)
        change = _change(old["median"], row["median"])
        return _added(old["median"], old["run"], change, verdict)
    return _added(math.nan, "", math.nan, Verdict("", _refusal(row, before, facts)))


def _added(*values: Any) -> dict[str, Any]:
    previous, run, change, verdict = values
    return dict(zip(_ADDED, (previous, run, change, verdict.word, verdict.reason), strict=True))


def _refusal(row: Row, before: list[Row], facts: Mapping[Any, Mapping[str, object]]) -> str:
    if not row["digest"]:
        return "not compared: the run recorded no fingerprint of this device"
    if not before:
        return "first measurement"
    last = before[-1]["run"]
    changed = difference(facts.get((last, row["device"]), {}), facts.get((row["run"], row["device"]), {}))
    return "not compared: " + ("; ".join(changed) or "the previous run recorded no fingerprint")


def throughput(times: pd.DataFrame, limits: pd.DataFrame) -> pd.DataFrame:
    """Add what the timings achieve.

    Returns
    -------
    pandas.DataFrame
        `times` with `bytes_per_s` and `flop_per_s` (NaN where the work is unknown or the unit is not
        seconds), `fraction` of the nearer of the run's measured limits (the roofline: time the limits
        allow over time taken), and `bound`, the name of that limit ("" where it was not measured).
        `intense` tells work that arithmetic limits from work that memory does.
    """
    seconds = times["median"].where(times["unit"] == "s")
    bandwidth = _limit_of(times, limits, "bandwidth")
    compute = _limit_of(times, limits, "compute")
    nbytes, flops = times["bytes"].astype("float64"), times["flops"].astype("float64")
    intense = (flops / nbytes >= COMPUTE_INTENSITY) | nbytes.isna()
    # A share of the bandwidth says nothing of work that arithmetic limits, unless that limit is known and farther.
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
    """Return, for each timing, that limit of its run and device: of its dtype, or of all dtypes."""
    table: dict[tuple[str, str, str], float] = {}
    for row in records(limits[limits["limit"] == name]):
        key = (row["run"], row["device"], row["dtype"])
        table[key] = max(row["value"], table.get(key, 0.0))
    places = zip(times["run"], times["device"], times["dtype"], strict=True)
    values = [table.get((run, device, dtype), table.get((run, device, ""))) for run, device, dtype in places]
    return pd.Series(values, index=times.index, dtype="float64")


def peers(times: pd.DataFrame) -> pd.DataFrame:
    """Compare our implementation with every other of the same run and case.

    Returns
    -------
    pandas.DataFrame
        One row a pair: `run`, `subject`, the columns of ``CASE``, our `implementation` and `launches`, `peer`,
        `ratio` (the peer's median over ours: above 1 ours is faster), `low` and `high` (the same of opposite
        quartiles), `verdict` on ours, and `why`.
    """
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
