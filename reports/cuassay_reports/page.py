"""The content of the report as plain text and numbers, the same for the page and for the short form.

This module decides content and order, and the templates decide the appearance. Everything here is unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cuassay_reports import skips, units
from cuassay_reports.acknowledged import Acknowledgement
from cuassay_reports.attention import Attention, attention
from cuassay_reports.cards import DeviceCard, cards, outcomes_of
from cuassay_reports.error_map import error_map_picture
from cuassay_reports.failing import failing_since
from cuassay_reports.fleet import FleetSection, fleet_sections
from cuassay_reports.frames import pd
from cuassay_reports.judged import Board, boards
from cuassay_reports.load import Results, records
from cuassay_reports.matrix import dtypes_in_order, support
from cuassay_reports.mutations import MutationSection, mutation_section
from cuassay_reports.peer_summary import PeerSummary, peer_summaries
from cuassay_reports.rows import Rejected
from cuassay_reports.timings import Timing, TimingSection, sections
from cuassay_reports.verdicts import THRESHOLDS, Thresholds

__all__ = ["Cell", "Failure", "Figure", "Grid", "Page", "RunLine", "Unfinished", "build"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number in the top line."""

    number: int
    label: str
    tone: str = "plain"


#: The names that a timeline's page may have: a path next to the result file, and not a URL.
_PAGE = re.compile(r"(\.\./)?([\w=-][\w.=-]*/)*[\w=-][\w.=-]*\.html")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed test and how to reproduce it; `timeline` is its timeline's page, relative to the result file."""

    nodeid: str
    subject: str
    what: str
    reason: str
    message: str
    reproduce: str
    timeline: str
    is_new: bool
    since: str
    picture: Markup


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a support matrix; `detail` is shown on hovering."""

    state: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The support matrix of one subject."""

    subject: str
    device: str
    dtypes: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """One run, from which shown numbers come."""

    run: str
    started: str
    command: str
    revision: str
    machine: str


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """An incomplete run, the reason, and the last (part, test) that its processes began."""

    run: str
    why: str
    begun: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole content of the report, in order."""

    tone: str
    headline: str
    attention: Attention
    unfinished: Sequence[Unfinished]
    rejected: Sequence[Rejected]
    figures: Sequence[Figure]
    newest: RunLine
    devices: Sequence[DeviceCard]
    fleets: Sequence[FleetSection]
    failures: Sequence[Failure]
    grids: Sequence[Grid]
    peer_summaries: Sequence[PeerSummary]
    timings: Sequence[TimingSection]
    mutation: MutationSection | None
    boards: Sequence[Board]
    changed: Sequence[tuple[str, Timing]]
    new_skips: Sequence[tuple[str, str]]
    skips: Sequence[tuple[str, int, str, str]]
    nowhere: Sequence[tuple[str, str]]
    runs: Sequence[RunLine]
    files: Sequence[str]
    torn: int


def build(
    results: Results,
    accepted: Sequence[Acknowledgement] = (),
    *,
    thresholds: Thresholds = THRESHOLDS,
    baseline: str = "",
) -> Page:
    """Collect the report's content from the newest rows of every subject.

    Parameters
    ----------
    results : Results
        The results that `load` returned.
    accepted : sequence of Acknowledgement
        The slow-downs that no longer need attention.
    thresholds : Thresholds
        The differences from the previous run that count.
    baseline : str
        The run or commit to compare the newest timings with; by default the previous run.

    Raises
    ------
    LookupError
        If no run has the id or commit `baseline`.
    """
    latest = results.latest()
    new = skips.new_since(results)
    timed = sections(results, thresholds, baseline)
    outcomes = outcomes_of(latest.tests)
    runs = [_run_line(row) for row in records(results.runs)]
    unfinished = _unfinished(latest)
    noted = attention(results, accepted)
    tone, headline = _headline(latest, outcomes, _slower(timed, noted), unfinished)
    return Page(
        tone=tone,
        headline=headline,
        attention=noted,
        unfinished=unfinished,
        rejected=results.rejected,
        figures=_figures(latest, outcomes, timed),
        newest=runs[-1] if runs else RunLine(run="", started="", command="", revision="", machine=""),
        devices=cards(latest),
        fleets=fleet_sections(latest),
        failures=_failures(results, latest, new),
        grids=_grids(latest.tests),
        peer_summaries=peer_summaries(results),
        timings=timed,
        mutation=mutation_section(results),
        boards=boards(results),
        changed=_changed(timed),
        new_skips=_new_skips(new),
        skips=_skips(latest.tests),
        nowhere=[(row["test"], ", ".join(row["reasons"])) for row in records(skips.nowhere(results))],
        runs=runs[::-1],
        files=[file.name for file in results.files],
        torn=results.torn,
    )


def _headline(
    latest: Results, outcomes: Mapping[str, int], slower: Sequence[str], unfinished: Sequence[Unfinished]
) -> tuple[str, str]:
    where = units.count(_present(latest), "device")
    if unfinished or outcomes["failed"]:
        return "bad", "; ".join(
            [*(f"The run is incomplete: {run.why}" for run in unfinished[:1]), *_failed(latest, outcomes)]
        )
    if latest.rejected:
        return "warn", f"{units.count(len(latest.rejected), 'line or file', 'lines or files')} could not be read"
    if slower:
        return "warn", "; ".join(["Everything that ran passed", *slower])
    if outcomes["passed"]:
        return "good", f"Everything that ran passed, on {where}"
    if not latest.verdicts.empty:
        return "plain", "; ".join(f"{one.declaration} on {one.device}: {one.counts}" for one in boards(latest)[:3])
    return "plain", f"No test passed or failed; {where} seen"


def _slower(timed: Sequence[TimingSection], noted: Attention) -> list[str]:
    newly, slowdowns = sum(section.slower for section in timed), len(noted.slowdowns)
    texts = [f"{units.count(newly, 'timing')} got slower"] if newly else []
    if slowdowns:
        texts.append(f"{units.count(slowdowns, 'slow-down')} {'is' if slowdowns == 1 else 'are'} not acknowledged")
    return texts


def _failed(latest: Results, outcomes: Mapping[str, int]) -> list[str]:
    if not outcomes["failed"]:
        return []
    on = sorted(set(latest.tests.loc[latest.tests["outcome"].isin(["failed", "error"]), "device"]) - {""})
    return [f"{units.count(outcomes['failed'], 'test')} failed" + (f" on {', '.join(on)}" if on else "")]


def _unfinished(latest: Results) -> list[Unfinished]:
    """Return the incomplete runs, newest first: those shown, and later ones that recorded nothing."""
    shown = {*latest.devices["run"], *latest.tests["run"], *latest.times["run"]}
    places = [place for place, run in enumerate(latest.runs["run"]) if run in shown]
    newer = set(latest.runs["run"][max(places, default=-1) + 1 :])
    return [
        Unfinished(run=row["run"], why=row["ended_early"], begun=latest.begun.get(row["run"], ()))
        for row in reversed(records(latest.runs))
        if row["ended_early"] and row["run"] in shown | newer
    ]


def _present(latest: Results) -> int:
    found = latest.devices[latest.devices["present"].fillna(value=False).astype(bool)]
    uuids = [facts.get("uuid") if isinstance(facts, Mapping) else None for facts in found["fingerprint"]]
    return len(set(zip(found["subject"], uuids, strict=True)))  # workers of a fleet may share a device


def _figures(latest: Results, outcomes: Mapping[str, int], timed: Sequence[TimingSection]) -> list[Figure]:
    words = {word: sum(getattr(section, word) for section in timed) for word in ("slower", "faster")}
    present, timings = _present(latest), sum(section.count for section in timed)
    rows = (
        (present, units.noun(present, "device"), "plain"),
        (outcomes["passed"], "passed", "good"),
        (outcomes["failed"], "failed", "bad"),
        (outcomes["xfailed"], units.noun(outcomes["xfailed"], "known failure"), "warn"),
        (outcomes["skipped"], "skipped", "muted"),
        (timings, units.noun(timings, "timing"), "plain"),
        (words["slower"], "slower", "warn"),
        (words["faster"], "faster", "good"),
    )
    return [Figure(number=number, label=label, tone=tone if number else "muted") for number, label, tone in rows]


def _failures(results: Results, latest: Results, new: pd.DataFrame) -> list[Failure]:
    fresh = set(zip(new["subject"], new["nodeid"], strict=True))
    failed = latest.tests[latest.tests["outcome"].isin(["failed", "error"])]
    since = failing_since(results, failed)
    names = zip(failed["subject"], failed["nodeid"], strict=True)
    return [_failure(row, name in fresh, str(since[name])) for name, row in zip(names, records(failed), strict=True)]


def _failure(row: dict[str, Any], is_new: bool, since: str) -> Failure:
    return Failure(
        nodeid=row["nodeid"],
        subject=row["subject"],
        what=" · ".join(row[name] for name in ("device", "op", "dtype", "check") if row[name]),
        reason=row["reason"] or row["message"].partition("\n")[0] or "no reason recorded",
        message=row["message"],
        reproduce=row["reproduce"],
        timeline=row["timeline"] if _PAGE.fullmatch(row["timeline"]) else "",
        is_new=is_new,
        since=since,
        picture=error_map_picture(row["error_map"]),
    )


def _grids(tests: pd.DataFrame) -> list[Grid]:
    cells = support(tests)
    grids = []
    for (subject, device), rows in cells.groupby(["subject", "device"], sort=False):
        table = {(row["op"], row["dtype"]): _cell(row) for row in records(rows)}
        dtypes = dtypes_in_order(rows["dtype"])
        ops = [(op, [table[op, dtype] for dtype in dtypes]) for op in dict.fromkeys(rows["op"])]
        grids.append(Grid(subject=str(subject), device=str(device), dtypes=dtypes, rows=ops))
    return grids


def _cell(row: dict[str, Any]) -> Cell:
    counts = [f"{row[name]} {name}" for name in ("passed", "failed", "xfailed", "skipped") if row[name]]
    text = [f"{row['op']} {row['dtype']}: {', '.join(counts) or 'not run'}"]
    if not pd.isna(row["headroom"]):
        text.append(f"worst error {units.percent(row['headroom'])} of tolerance")
    return Cell(state=row["state"], detail="\n".join([*text, *row["reasons"]]))


def _changed(timed: Sequence[TimingSection]) -> list[tuple[str, Timing]]:
    """Return the timings that got slower on any device, and then those that got faster."""
    rows = [(section.device, row) for section in timed for row in section.rows]
    return [(device, row) for word in ("slower", "faster") for device, row in rows if row.verdict == word]


def _new_skips(new: pd.DataFrame) -> list[tuple[str, str]]:
    return [(row["nodeid"], row["reason"]) for row in records(new[new["outcome"] == "skipped"])]


def _skips(tests: pd.DataFrame) -> list[tuple[str, int, str, str]]:
    rows = records(skips.by_reason(tests))
    return [(row["reason"], row["count"], ", ".join(row["devices"]), ", ".join(row["ops"])) for row in rows]


def _run_line(row: dict[str, Any]) -> RunLine:
    facts = row["machine"] if isinstance(row["machine"], Mapping) else {}
    machine = [facts.get("cpu"), facts.get("system"), facts.get("architecture"), facts.get("python")]
    started = row["started"]
    return RunLine(
        run=row["run"],
        started="" if pd.isna(started) else started.strftime("%Y-%m-%d %H:%M UTC"),
        command=row["command"],
        revision=_revision(row),
        machine=" · ".join(str(fact) for fact in machine if fact),
    )


def _revision(row: dict[str, Any]) -> str:
    if not row["commit"]:
        return "unknown revision"
    dirty = row["dirty"]
    return str(row["commit"])[:10] + (" + changes" if not pd.isna(dirty) and dirty else "")
