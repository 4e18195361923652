"""The empty interval: the part of a cold sample that is not its call, and how much it differs between two runs.

Two events with nothing between them were 1.3 µs apart on one kind of host with an H200 and 2.9 µs on another. If a row
records its `empty`, that is subtracted when the row is loaded. Runs that did not record it are aligned by the *shift*:
the median difference of short cold samples of peers, whose code did not change between the runs. This module needs only
the standard library and accesses no file.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DEFAULTS",
    "FEWEST_PEERS",
    "FIGURES",
    "LONGEST",
    "NAMES",
    "UNKNOWN",
    "Shift",
    "aligned",
    "is_cold_sample",
    "net",
    "offsets",
    "shift",
]

Row = Mapping[str, Any]

LONGEST = 100e-6
"""Samples of this many seconds or more say little about a shift of microseconds, because their own noise is larger."""

FEWEST_PEERS = 8
"""The fewest rows of peers for estimating a shift; with fewer, two that changed would move the median."""

UNKNOWN = 3e-6
"""Seconds by which unknown empty intervals of two hosts may differ: 1.3 and 2.9 µs were measured."""

FIGURES = ("median", "minimum", "q25", "q75")
"""The columns of a row that contain an empty interval."""

NAMES = ("benchmark", "dtype", "case", "cache", "mode", "implementation")
"""The columns that identify rows of two runs with the same measurement."""

DEFAULTS = {"mode": "stream", "cache": "cold"}
"""The meaning of those columns if they are empty."""


@dataclass(frozen=True, slots=True)
class Shift:
    """By how much every cold sample of one run took longer than in another run.

    Attributes
    ----------
    seconds : float
        The median over the rows of peers.
    uncertain_s : float
        The bound within which nineteen in twenty of those rows are from the median.
    rows : int
        The number of those rows.
    """

    seconds: float
    uncertain_s: float
    rows: int

    def __str__(self) -> str:
        return f"a shift of {self.seconds * 1e6:+.2f} µs, estimated from {self.rows} rows of peers, taken off"


def net(row: Row) -> dict[str, Any]:
    """Return a ``time`` row without its empty interval; `raw` keeps the median as measured.

    Rows without `empty`, or shorter than it, are unchanged.
    """
    empty = row.get("empty", 0.0)
    if not 0 < empty < row["median"]:
        return dict(row)
    figures = {name: row[name] - empty for name in FIGURES if name in row}
    samples = {"samples": [sample - empty for sample in row["samples"]]} if "samples" in row else {}
    return {**row, **figures, **samples, "raw": row["median"]}


def is_cold_sample(row: Row) -> bool:
    """Return whether each sample of `row` is one call between two device events, and so contains an empty interval."""
    return bool(
        row["clock"] == "device"
        and (row.get("cache") or "cold") == "cold"
        and (row.get("unit") or "s") == "s"
        and not row.get("groups")  # measured in rotation: many calls share one interval
    )


def shift(old: Iterable[Row], new: Iterable[Row]) -> Shift | None:
    """Estimate how much longer cold samples of the run `new` took than those of `old`; None if there are too few peers.

    Parameters
    ----------
    old, new : iterable of mapping
        ``time`` rows of one device in two runs, after `net`.
    """
    return _shift(_short_peers(old), _short_peers(new))


def _shift(before: Mapping[Any, float], after: Mapping[Any, float]) -> Shift | None:
    steps = [median - before[name] for name, median in after.items() if name in before]
    if len(steps) < FEWEST_PEERS:
        return None
    middle = statistics.median(steps)
    apart = sorted(abs(step - middle) for step in steps)
    return Shift(middle, apart[int(0.95 * (len(apart) - 1))], len(steps))


def offsets(runs: Sequence[Sequence[Row]]) -> list[float]:
    """Return the seconds to subtract from the cold samples of each run so that all runs have the same empty interval.

    The reference is the newest run that measured its empty interval, or the newest run if none did. A run that shares
    too few peers with the reference is unchanged.

    Parameters
    ----------
    runs : sequence of sequence of mapping
        The ``time`` rows of one kind of machine, after `net`, by run, oldest first.
    """
    return aligned([_short_peers(rows) for rows in runs], [any("raw" in row for row in rows) for rows in runs])


def aligned(runs: Sequence[Mapping[Any, float]], measured: Sequence[bool]) -> list[float]:
    """Return what `offsets` returns, given only the short cold samples of peers.

    Parameters
    ----------
    runs : sequence of mapping
        For each run, the seconds of each measurement, by any key.
    measured : sequence of bool
        Whether each run measured its empty interval.
    """
    newest = max((number for number, is_measured in enumerate(measured) if is_measured), default=len(runs) - 1)
    found = [None if number == newest else _shift(runs[newest], run) for number, run in enumerate(runs)]
    return [0.0 if one is None else one.seconds for one in found]


def _short_peers(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    return {
        tuple(row.get(name) or DEFAULTS.get(name, "") for name in NAMES): row["median"]
        for row in rows
        if _is_peer(row) and is_cold_sample(row) and row["median"] < LONGEST
    }


def _is_peer(row: Row) -> bool:
    return not row.get("ours") and not row["implementation"].startswith("cuassay")
