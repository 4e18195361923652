"""The top of the page about speed: what got slower and since when, what looks suspicious, what is missing.

It turns the findings of `history` into text and plots. A step over many runs is a finding; the newest run alone is only
a hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cuassay_reports import units
from cuassay_reports.acknowledged import Acknowledgement
from cuassay_reports.charts import Point, history_plot
from cuassay_reports.frames import pd
from cuassay_reports.history import change_points, lasting_slowdowns, roster, series, suspects
from cuassay_reports.load import OURS, Results, records
from cuassay_reports.noise import NoiseSection, noise_sections
from cuassay_reports.pairs import Pairs
from cuassay_reports.steps import LONGEST

__all__ = ["Attention", "LastingChange", "Suspect", "attention"]


@dataclass(frozen=True, kw_only=True)
class LastingChange:
    """A slow-down or a speed-up that lasts: since which commit, by how much, and its history as a plot."""

    benchmark: str
    what: str
    device: str
    change: str
    level: str
    noise: str
    since: str
    before: str
    started: str
    points: int
    acknowledged: str
    plot: Markup
    word: str = "slower"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A series whose newest point is far from its baseline."""

    benchmark: str
    what: str
    device: str
    change: str
    deviations: str
    kind: str
    is_slower: bool
    is_ours: bool
    before: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class Attention:
    """All of it; `shift` says by how much the newest run as a whole was slower, and is empty below one percent."""

    slowdowns: Sequence[LastingChange]
    acknowledged: Sequence[LastingChange]
    faster: Sequence[LastingChange]
    suspects: Sequence[Suspect]
    vanished: Sequence[str]
    new: Sequence[str]
    shift: str
    noise: Sequence[NoiseSection]


def attention(results: Results, accepted: Iterable[Acknowledgement] = ()) -> Attention:
    """Find what a reader should look at first."""
    points = series(results)
    own = results.times.loc[results.times["ours"], "series"]
    steps = change_points(points)
    steps = steps[steps["series"].isin(own)]  # a peer's slow-down is not ours
    found = records(lasting_slowdowns(steps, list(accepted)))
    better = records(_lasting(steps[steps["word"] == "faster"]))
    numbers = {row["series"] for row in found}
    rows = _rows([*found, *better], points, steps)
    moved = records(roster(points))
    return Attention(
        slowdowns=[row for row in rows if row.word == "slower" and not row.acknowledged],
        acknowledged=[row for row in rows if row.acknowledged],
        faster=[row for row in rows if row.word == "faster"],
        suspects=[_suspect(row) for row in _of_one_host(results, points) if row["series"] not in numbers],
        vanished=[_name(row) for row in moved if row["status"] == "vanished"],
        new=[_name(row) for row in moved if row["status"] == "new"],
        shift=_shift(points),
        noise=noise_sections(points),
    )


def _of_one_host(results: Results, points: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the suspects, without those that include the host's time if the previous run was on another machine."""
    pairs = Pairs(results)
    runs = points.drop_duplicates(["subject", "order"]).groupby("subject", sort=False)["run"].agg(list)
    for row in records(suspects(points)):
        before = runs[row["subject"]][-2:][0]
        is_elsewhere = pairs.pair(before, row["run"], row["device"]).is_weak
        if not is_elsewhere or (row["clock"] == "device" and row["launches"] != "live"):
            yield row


def _lasting(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps that were not reverted, the largest first."""
    still = steps[steps["is_open"].astype(bool)].assign(acknowledged="")
    return still.sort_values("change", ascending=False, key=abs, kind="stable", ignore_index=True)


def _rows(found: Sequence[dict[str, Any]], points: pd.DataFrame, steps: pd.DataFrame) -> list[LastingChange]:
    numbers = {row["series"] for row in found}
    shown = dict(list(points[points["series"].isin(numbers)].groupby("series", sort=False)))
    return [_lasting_change(row, shown[row["series"]], steps[steps["series"] == row["series"]]) for row in found]


def _lasting_change(row: dict[str, Any], points: pd.DataFrame, steps: pd.DataFrame) -> LastingChange:
    past = points.tail(LONGEST)
    began = points.loc[points["run"] == row["run"], "started"].iloc[0]
    words = dict(zip(steps["run"], steps["word"], strict=True))
    return LastingChange(
        benchmark=row["benchmark"],
        what=_what(row),
        device=row["device"],
        change=units.signed_percent(row["change"]),
        level=units.quantity(float(past["value"].tail(row["points"]).median()), row["unit"]),
        noise=f"± {units.percent(row['error'])}",
        since=row["commit"][:10] or row["run"],
        before=row["before_commit"][:10],
        started="" if pd.isna(began) else began.strftime("%Y-%m-%d"),
        points=row["points"],
        acknowledged=row["acknowledged"],
        word=row["word"],
        plot=history_plot([_point(point) for point in records(past)], words, f"history of {_name(row)}"),
    )


def _point(row: dict[str, Any]) -> Point:
    scale = row["value"] / row["median"]
    started = "" if pd.isna(row["started"]) else row["started"].strftime("%Y-%m-%d %H:%M")
    text = f"{row['commit'][:10] or row['run']} · {started} · {units.quantity(row['value'], row['unit'])}"
    return Point(run=row["run"], value=row["value"], low=row["q25"] * scale, high=row["q75"] * scale, text=text)


def _suspect(row: dict[str, Any]) -> Suspect:
    return Suspect(
        benchmark=row["benchmark"],
        what=_what(row),
        device=row["device"],
        change=units.signed_percent(row["change"]),
        deviations=f"{abs(row['deviations']):.0f} deviations from its last runs",
        kind=row["kind"],
        is_slower=row["is_slower"],
        is_ours=(row["implementation"], row["clock"], row["mode"] == "graph") == (OURS, "device", False),
        before=row["before_commit"],
        commit=row["commit"],
    )


def _what(row: dict[str, Any]) -> str:
    ours = "" if row["implementation"] == "cuassay" else row["implementation"]
    host = "host clock" if row["clock"] == "host" else ""
    mode = "graph" if row["mode"] == "graph" else ""
    return " ".join(text for text in (row["dtype"], row["case"], ours, host, mode) if text)


def _name(row: dict[str, Any]) -> str:
    return f"{row['benchmark']} {_what(row)} on {row['device']}"


def _shift(points: pd.DataFrame) -> str:
    """Return the shifts of the newest run that are one percent or more, by clock."""
    newest = points[points["order"] == points["order"].max()].drop_duplicates("clock")
    moved = {row["clock"]: row["shift"] for row in records(newest) if abs(row["shift"]) >= 0.01}
    forms = {"device": "by {}", "host": "by {} on the host's clock"}
    return " and ".join(forms[clock].format(units.signed_percent(moved[clock])) for clock in forms if clock in moved)
