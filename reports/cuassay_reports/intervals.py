"""The empty interval: what a cold sample costs beside its call, and by how much that differs between two runs.

Two events with nothing between them were 1.3 µs apart on one kind of host with an H200 and 2.9 µs on another. A row
that carries its `empty` is freed of it when it is loaded. Runs that recorded none are brought together by the
*shift*: the median difference of short cold samples of peers, whose code did not change between the runs.
Only the standard library is needed; no file is touched.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FEWEST_PEERS", "FIGURES", "LONGEST", "UNKNOWN", "Shift", "is_cold_sample", "net", "offsets", "shift"]

Row = Mapping[str, Any]

LONGEST = 100e-6
"""Seconds from which a sample says little about a shift of microseconds: its own noise is larger."""

FEWEST_PEERS = 8
"""Fewest peers' rows that a shift is estimated from; the median of fewer is moved by two changed ones."""

UNKNOWN = 3e-6
"""Seconds by which two kinds of hosts' empty intervals may differ where nothing tells: 1.3 and 2.9 µs were measured."""

FIGURES = ("median", "minimum", "q25", "q75")
"""Columns of a row that hold an empty interval."""

_NAMES = ("benchmark", "dtype", "case", "cache", "mode", "implementation")

_DEFAULTS = {"mode": "stream", "cache": "cold"}


@dataclass(frozen=True, slots=True)
class Shift:
    """What every cold sample of one run took longer than in another.

    Attributes
    ----------
    seconds : float
        The median over the rows of peers.
    uncertain_s : float
        Nineteen in twenty of those rows lie nearer to it than this.
    rows : int
        How many rows say so.
    """

    seconds: float
    uncertain_s: float
    rows: int

    def __str__(self) -> str:
        return f"a shift of {self.seconds * 1e6:+.2f} µs, estimated from {self.rows} rows of peers, taken off"


def net(row: Row) -> dict[str, Any]:
    """Return a ``time`` row freed of its empty interval; `raw` keeps the median as measured.

    Rows without `empty`, or that are shorter than it, stay as they are.
    """
    empty = row.get("empty", 0.0)
    if not 0 < empty < row["median"]:
        return dict(row)
    figures = {name: row[name] - empty for name in FIGURES if name in row}
    samples = {"samples": [sample - empty for sample in row["samples"]]} if "samples" in row else {}
    return {**row, **figures, **samples, "raw": row["median"]}


def is_cold_sample(row: Row) -> bool:
    """Whether each sample of `row` is one call between two events of the device, so that an empty interval is in it."""
    return bool(
        row["clock"] == "device"
        and (row.get("cache") or "cold") == "cold"
        and (row.get("unit") or "s") == "s"
        and not row.get("groups")  # measured in rotation: many calls share one interval
    )


def shift(old: Iterable[Row], new: Iterable[Row]) -> Shift | None:
    """Estimate by how much cold samples of the run `new` took longer than those of `old`; None from too few peers.

    Parameters
    ----------
    old, new : iterable of mapping
        ``time`` rows of one device in two runs, after `net`.
    """
    before = _short_peers(old)
    steps = [median - before[name] for name, median in _short_peers(new).items() if name in before]
    if len(steps) < FEWEST_PEERS:
        return None
    middle = statistics.median(steps)
    apart = sorted(abs(step - middle) for step in steps)
    return Shift(middle, apart[int(0.95 * (len(apart) - 1))], len(steps))


def offsets(runs: Sequence[Sequence[Row]]) -> list[float]:
    """What to take off the cold samples of each run so that all of them stand on one footing, seconds.

    The newest run that measured its empty interval is the footing, else the newest; a run that shares too few peers
    with it is left where it is.

    Parameters
    ----------
    runs : sequence of sequence of mapping
        The ``time`` rows of one kind of machine, after `net`, by run, oldest first.
    """
    if not runs:
        return []
    measured = [number for number, rows in enumerate(runs) if any("raw" in row for row in rows)]
    footing = runs[measured[-1] if measured else -1]
    found = [None if rows is footing else shift(footing, rows) for rows in runs]
    return [0.0 if one is None else one.seconds for one in found]


def _short_peers(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    return {
        tuple(row.get(name) or _DEFAULTS.get(name, "") for name in _NAMES): row["median"]
        for row in rows
        if _is_peer(row) and is_cold_sample(row) and row["median"] < LONGEST
    }


def _is_peer(row: Row) -> bool:
    return not row.get("ours") and not row["implementation"].startswith("cuassay")
