"""Which worker of a fleet ran what, on which card, and how long the shards waited for a worker."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuassay_reports import units
from cuassay_reports.cards import outcomes_of
from cuassay_reports.frames import pd
from cuassay_reports.load import Results, Row, records

__all__ = ["FleetSection", "FleetShard", "FleetWorker", "fleet_sections"]

#: The most files, and benchmarks, of a worker that are named.
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class FleetWorker:
    """One worker: its cards, what it ran, the outcomes, and the shards that it took."""

    worker: str
    cards: Sequence[str]
    ran: str
    outcomes: Mapping[str, int]
    timings: int
    shards: int
    waited: str
    busy: str
    unfinished: str


@dataclass(frozen=True, kw_only=True)
class FleetShard:
    """One attempt at a shard."""

    attempt: int
    worker: str
    kind: str
    tests: int
    waited: str
    duration: str
    how: str


@dataclass(frozen=True, kw_only=True)
class FleetSection:
    """One run of a fleet; `waited` and `longest` cover all its shards."""

    run: str
    started: str
    workers: Sequence[FleetWorker]
    shards: Sequence[FleetShard]
    waited: str
    longest: str


def fleet_sections(latest: Results) -> list[FleetSection]:
    """Return a section for each of these runs that a fleet ran, the newest first."""
    runs = dict.fromkeys(
        run
        for frame in (latest.tests, latest.times)
        for run in frame.loc[frame["worker"] != "", "run"]
    )  # fmt: skip
    sections = [_section(latest, run) for run in runs]
    return sorted(sections, key=lambda section: section.started, reverse=True)


def _section(latest: Results, run: str) -> FleetSection:
    devices, tests, times, shards = (
        frame[frame["run"] == run] for frame in (latest.devices, latest.tests, latest.times, latest.shards)
    )
    attempts = records(shards.sort_values("attempt"))
    of_worker: dict[str, list[Row]] = defaultdict(list)
    for row in attempts:
        of_worker[row["worker"]].append(row)
    names = sorted({*tests["worker"], *times["worker"], *of_worker} - {""}, key=_by_number)
    started = tests["started"].iloc[0] if len(tests) else times["started"].iloc[0]
    return FleetSection(
        run=run,
        started="" if pd.isna(started) else started.strftime("%Y-%m-%d %H:%M UTC"),
        workers=[
            _worker(name, of_worker[name], *(frame[frame["worker"] == name] for frame in (devices, tests, times)))
            for name in names
        ],
        shards=[_shard(row) for row in attempts],
        waited=_middle(attempts),
        longest=_seconds(max((row["waited"] for row in attempts), default=float("nan"))),
    )


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts local-10 after local-9."""
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in name.split("-")]


def _worker(
    name: str, shards: Sequence[Row], devices: pd.DataFrame, tests: pd.DataFrame, times: pd.DataFrame
) -> FleetWorker:
    how = Counter(row["how"] for row in shards if row["how"] != "ended")
    return FleetWorker(
        worker=name,
        cards=[_card(row) for row in records(devices)],
        ran=_ran(tests, times),
        outcomes=outcomes_of(tests),
        timings=len(times),
        shards=len(shards),
        waited=_middle(shards),
        busy=_seconds(sum(row["duration"] for row in shards)) if shards else units.UNKNOWN,
        unfinished=", ".join(f"{number} {word}" for word, number in sorted(how.items())),
    )


def _card(row: Mapping[str, Any]) -> str:
    """Describe a device, such as ``cuda:0 NVIDIA H200 GPU-0f1e2d3c``, to distinguish it from equal ones."""
    facts = row["fingerprint"] if isinstance(row["fingerprint"], Mapping) else {}
    words = (row["device"], facts.get("name") or facts.get("cpu"), str(facts.get("uuid") or "")[:12])
    return " ".join(str(word) for word in words if word)


def _ran(tests: pd.DataFrame, times: pd.DataFrame) -> str:
    """Return the files of its tests and its benchmarks, those with the most first."""
    files = Counter(nodeid.partition("::")[0] for nodeid in tests["nodeid"])
    return ", ".join([*_most(files), *_most(Counter(times["benchmark"]))])


def _most(counts: Counter[str]) -> Iterable[str]:
    named = counts.most_common(_NAMED)
    yield from (f"{name} ({number:,})" for name, number in named)
    if len(counts) > len(named):
        yield f"{len(counts) - len(named):,} more"


def _middle(shards: Sequence[Row]) -> str:
    return _seconds(statistics.median(row["waited"] for row in shards)) if shards else units.UNKNOWN


def _shard(row: Row) -> FleetShard:
    return FleetShard(
        attempt=int(row["attempt"]),
        worker=row["worker"],
        kind=row["kind"],
        tests=int(row["tests"]),
        waited=_seconds(row["waited"]),
        duration=_seconds(row["duration"]),
        how=row["how"],
    )


def _seconds(value: float) -> str:
    """Format seconds with one decimal place; shorter waits do not matter."""
    return units.UNKNOWN if math.isnan(value) else f"{value:,.1f} s"
