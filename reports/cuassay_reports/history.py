"""One benchmark over many runs: its series, where its level changed, and which newest points are suspicious.

A series joins the points of one GPU model with equal hard facts; another card or host adds points to the same series.
The shift that all timings of a run share is removed first. Two runs prove nothing: the findings say where the paired
gate should look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cuassay_reports.acknowledged import Acknowledgement, reason_for
from cuassay_reports.columns import SERIES
from cuassay_reports.frames import pd
from cuassay_reports.intervals import DEFAULTS, NAMES, aligned
from cuassay_reports.intervals import LONGEST as LONGEST_SAMPLE
from cuassay_reports.load import Results, records
from cuassay_reports.steps import LONGEST, Segment, segments_of
from cuassay_reports.tables import Codes, numbered

__all__ = [
    "KEY",
    "LIMITS",
    "Limits",
    "change_points",
    "history",
    "lasting_slowdowns",
    "lines",
    "roster",
    "series",
    "slower_since",
    "suspects",
]

KEY = ["subject", "digest", *SERIES]
"""The columns that the points of one series share: the device model, its hard facts, and what is measured and how."""

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits from which a point or a step of a series is reported; `step` and `suspect` are fractions."""

    step: float
    suspect: float
    spread: float
    baseline: int
    fewest: int
    steady: int


LIMITS = Limits(
    step=0.01,     # only the paired gate detects a smaller step
    suspect=0.01,  # the same for the newest point
    spread=6.0,    # deviations: with 20 points, 5 gives one suspect in 300 unchanged series, and 6 hardly any
    baseline=20,   # the number of points before the newest that form its baseline
    fewest=5,      # a series with fewer points has no baseline
    steady=2,      # the fewest points of a level: a single newest point is a suspect
)  # fmt: skip
"""The limits for finding steps and suspects in a series."""


def history(results: Results) -> pd.DataFrame:
    """Return every timing in order, with the columns that a plot over commits needs.

    Returns
    -------
    pandas.DataFrame
        ``results.times`` with `commit` and `dirty` of the run, and `step`: the median over the previous one in the same
        series on the same fingerprint, minus 1 (NaN for a first point).
    """
    revisions = results.runs[["run", "commit", "dirty"]]
    points = results.times.merge(revisions, on="run", how="left").sort_values("order", kind="stable", ignore_index=True)
    step = points.groupby(KEY, sort=False)["median"].pct_change()
    return points.assign(step=step)


def lines(results: Results) -> dict[tuple[Any, ...], list[float]]:
    """Return the medians of each series with a known fingerprint, oldest first, by (digest, series...)."""
    known = results.times[results.times["digest"] != ""]
    points = known.drop_duplicates(["order", "series"], keep="last")[["series", "median"]]
    firsts = records(known.drop_duplicates("series")[["series", "digest", *SERIES]])
    keys = {row["series"]: tuple(row[name] for name in ("digest", *SERIES)) for row in firsts}
    last = points.groupby("series", sort=False).tail(LONGEST).groupby("series", sort=False)["median"]
    return {keys[number]: medians.tolist() for number, medians in last}


def series(results: Results) -> pd.DataFrame:
    """Return the points of every series, with the shift of each run removed.

    Returns
    -------
    pandas.DataFrame
        One row per point, in the order of the runs: the columns of ``KEY``, `series` (a number), `run`, `order`,
        `started`, `commit`, `median`, `q25`, `q75`, `better`, `shift` (the fraction by which the whole run took longer
        than usual by this clock) and `value`, the median without the shift. Timings without a fingerprint, and the
        cases of a group, are omitted.
    """
    times = results.times
    points = times[(times["digest"] != "") & (times["groups"] == "") & (times["median"] > 0)]
    points = points.drop_duplicates(["series", "order"], keep="last")
    commits = dict(zip(results.runs["run"], results.runs["commit"], strict=True))
    # A machine in a run, separately by each clock: another host affects only timings by the host's clock.
    number = points.groupby(["subject", "order", "clock"], sort=False).ngroup()
    base = points["median"] - _empty(points, number)
    shift = _shift(points, number, np.log(base))
    kept = [*KEY, "series", "run", "order", "started", "median", "q25", "q75", "better"]
    return points[kept].assign(commit=points["run"].map(commits), shift=np.expm1(shift), value=base / np.exp(shift))


def _empty(points: pd.DataFrame, number: pd.Series[int]) -> _Floats:
    """Return the empty interval in seconds that a run did not subtract from its cold samples, inferred from peers."""
    seconds = np.zeros(number.max() + 1 if len(number) else 0)
    is_cold = (points["clock"] == "device") & points["cache"].isin(["", "cold"]) & (points["unit"] == "s")
    is_peer = is_cold & ~points["ours"] & ~points["implementation"].str.startswith("cuassay")
    peers = points[is_peer & (points["median"] < LONGEST_SAMPLE)].assign(number=number)
    peers = peers.assign(name=numbered([_codes(peers[name], DEFAULTS.get(name, "")) for name in NAMES]))
    for _, rows in peers.groupby(["subject", "digest"], sort=False):
        runs = {place: dict(zip(run["name"], run["median"], strict=True)) for place, run in rows.groupby("number")}
        measured = (rows["raw"] != rows["median"]).groupby(rows["number"]).any()
        seconds[np.array([*runs])] = aligned(list(runs.values()), measured.tolist())
    found = seconds[number]
    return np.where(is_cold & (points["median"] >= 2 * found), found, 0.0)


def _codes(texts: pd.Series[str], default: str) -> Codes:
    """Return a number for each text, equal if the text is equal; `default` replaces an empty text."""
    return np.asarray(pd.factorize(texts.where(texts != "", default))[0], dtype=np.int64)


_FEWEST_SERIES = 8


def _shift(points: pd.DataFrame, number: pd.Series[int], logs: pd.Series[float]) -> pd.Series[float]:
    """Return what all series of a run share: the median distance of a series from the median of its own past."""
    usual = logs.groupby(points["series"]).transform("median")
    apart = (logs - usual).groupby(number)
    return apart.transform("median").where(apart.transform("size") >= _FEWEST_SERIES, 0.0)


def _points(source: Results | pd.DataFrame) -> pd.DataFrame:
    return series(source) if isinstance(source, Results) else source


def change_points(source: Results | pd.DataFrame, limits: Limits = LIMITS) -> pd.DataFrame:
    """Find where the level of each series changed in its last 200 points.

    Parameters
    ----------
    source : Results or pandas.DataFrame
        The results that `load` returned, or the frame that `series` returned.

    Returns
    -------
    pandas.DataFrame
        One row per step, oldest first within a series: the columns of ``KEY``, `series`, `run` and `commit` of the
        first point of the new level, `before_commit` of the last point of the old level, `change` (new level over old,
        minus 1), `error` (the mean distance of points from their level, a fraction), `points` of the new level, `word`
        (slower or faster), and `is_open`: later steps have not reverted it.
    """
    each = list(_each(_points(source)))
    parts = segments_of([np.log(points["value"].to_numpy()) for points in each])
    found = [row for points, some in zip(each, parts, strict=True) for row in _steps(points, some, limits)]
    return pd.DataFrame(found, columns=[*KEY, "series", *_STEP])


_STEP = ("run", "commit", "before_commit", "change", "error", "points", "word", "is_open")


def _each(points: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the last points of each series, oldest first."""
    for _, some in points.sort_values("order", kind="stable").groupby("series", sort=False):
        yield some.tail(LONGEST)


def _steps(points: pd.DataFrame, found: Sequence[Segment], limits: Limits) -> Iterator[dict[str, Any]]:
    sign = 1 if points["better"].iloc[-1] == "less" else -1
    parts, values = [part for part in found if len(part) >= limits.steady], np.log(points["value"].to_numpy())
    is_open = _open(parts, limits)
    for place, (old, new) in enumerate(pairwise(parts)):
        change, error = math.expm1(new.level - old.level), max(old.error, new.error)
        if new.start < limits.fewest or abs(change) < max(limits.step, error):
            continue
        if _was_seen(values, old, new, others=parts[:place]):
            continue
        first, last = points.iloc[new.start], points.iloc[old.stop - 1]
        word = "slower" if sign * change > 0 else "faster"
        figures = (first["run"], first["commit"], last["commit"], change, error, len(new), word, is_open[place])
        yield {**{name: first[name] for name in [*KEY, "series"]}, **dict(zip(_STEP, figures, strict=True))}


def _was_seen(values: _Floats, old: Segment, new: Segment, others: Sequence[Segment]) -> bool:
    """Return whether two earlier points, and a tenth of them, are closer to the new level: two states, not a step.

    If a series has a level for each kind of host, a few consecutive runs on one kind look like a step. Points of
    another steady level do not count, because a series may return to it.
    """
    is_counted = np.arange(len(values)) < new.start
    for other in others:
        is_counted[other.start : other.stop] = False
    before = values[is_counted]
    closer = int(np.sum(np.abs(before - new.level) < np.abs(before - old.level)))
    return closer >= max(2.0, 0.1 * len(before))


def _open(parts: Sequence[Segment], limits: Limits) -> list[bool]:
    """Return, for each step, whether the series has stayed on the new level's side of the level before."""
    return [_stays([part.level for part in parts[place:]], limits) for place in range(len(parts) - 1)]


def _stays(levels: Sequence[float], limits: Limits) -> bool:
    """Return whether the levels after the first never return towards it by more than half of the first step."""
    sign = 1 if levels[1] > levels[0] else -1
    change, least = sign * (levels[1] - levels[0]), min(sign * (level - levels[0]) for level in levels[1:])
    return least > max(limits.step / 2, change / 2)


def slower_since(
    source: Results | pd.DataFrame, accepted: Iterable[Acknowledgement] = (), limits: Limits = LIMITS
) -> pd.DataFrame:
    """Return the slow-downs that were not reverted, the largest first.

    Parameters
    ----------
    source : Results or pandas.DataFrame
        The results that `load` returned, or the frame that `series` returned.
    accepted : iterable of Acknowledgement
        The acknowledgements that `acknowledged.acknowledgements` read.

    Returns
    -------
    pandas.DataFrame
        The slower rows of `change_points` that are open, with `acknowledged`: the reason that was given, or ``""``.
    """
    return lasting_slowdowns(change_points(source, limits), accepted)


def lasting_slowdowns(steps: pd.DataFrame, accepted: Iterable[Acknowledgement] = ()) -> pd.DataFrame:
    """Return the result of `slower_since` from the frame that `change_points` returned."""
    still, known = steps[steps["is_open"].astype(bool) & (steps["word"] == "slower")], list(accepted)
    reasons = [reason_for(row, known) for row in records(still)]
    found = still.assign(acknowledged=pd.Series(reasons, index=still.index, dtype="str"))
    return found.sort_values("change", ascending=False, key=abs, kind="stable", ignore_index=True)


def suspects(source: Results | pd.DataFrame, limits: Limits = LIMITS) -> pd.DataFrame:
    """Return the series whose newest point is far from its baseline: candidates for the paired gate, not verdicts.

    The baseline is the median of the preceding points and their median absolute deviation.

    Returns
    -------
    pandas.DataFrame
        The columns of ``KEY``, `series`, `run`, `commit`, `before_commit` (of the previous point), `baseline`, `value`,
        `change`, `deviations`, `kind` (step, or creep if several consecutive runs have moved the same way) and
        `is_slower`.
    """
    found = [row for points in _each(_points(source)) for row in _suspect(points, limits)]
    return pd.DataFrame(found, columns=[*KEY, "series", *_SUSPECT])


_SUSPECT = ("run", "commit", "before_commit", "baseline", "value", "change", "deviations", "kind", "is_slower")


def _suspect(points: pd.DataFrame, limits: Limits) -> Iterator[dict[str, Any]]:
    values = np.log(points["value"].to_numpy())
    before = values[-limits.baseline - 1 : -1]
    if len(before) < limits.fewest:
        return
    middle = float(np.median(before))
    deviation = max(1.4826 * float(np.median(np.abs(before - middle))), _LEAST_DEVIATION)
    apart = float(values[-1]) - middle
    if abs(apart) < max(limits.suspect, limits.spread * deviation):
        return
    newest = points.iloc[-1]
    creeps = len(values) > 3 and bool((np.sign(np.diff(values[-4:])) == np.sign(apart)).all())
    commits = newest["run"], newest["commit"], points["commit"].iloc[-2]
    figures = (*commits, math.exp(middle), newest["value"], math.expm1(apart), apart / deviation)
    kind = "creep" if creeps else "step", (apart > 0) == (newest["better"] == "less")
    yield {**{name: newest[name] for name in [*KEY, "series"]}, **dict(zip(_SUSPECT, (*figures, *kind), strict=True))}


_LEAST_DEVIATION = 5e-4


def roster(source: Results | pd.DataFrame) -> pd.DataFrame:
    """Return the series that only the newest run of their subject has, and those that it lacks.

    Returns
    -------
    pandas.DataFrame
        `subject`, the columns of ``SERIES``, `status` (new, or vanished: one of the five previous runs had it) and
        `last_run`, the last run that has it. Only runs with the newest run's hard facts count, so that another driver
        makes no series new.
    """
    points = _points(source)
    found = [row for _, some in points.groupby("subject", sort=False) for row in _moved(some)]
    return pd.DataFrame(found, columns=["subject", *SERIES, "status", "last_run"])


_RECENT = 5
"""The number of previous runs whose series are reported as vanished if the newest run lacks them."""


def _moved(points: pd.DataFrame) -> Iterator[dict[str, Any]]:
    newest = records(points.nlargest(1, "order"))[0]
    alike = points[points["digest"] == newest["digest"]]
    before = alike.loc[alike["order"] < newest["order"], "order"]
    if before.empty:
        return
    ends = alike.groupby("series", sort=False)["order"].agg(["min", "max"])
    recent = before.drop_duplicates().nlargest(_RECENT).min()
    last_rows = {row["series"]: row for row in records(alike.drop_duplicates("series", keep="last"))}
    for number, first, last in ends.itertuples():
        status = "new" if first == newest["order"] else "vanished" if recent <= last < newest["order"] else ""
        if status:
            row = last_rows[number]
            yield {**{name: row[name] for name in ["subject", *SERIES]}, "status": status, "last_run": row["run"]}
