"""The verdicts on candidates, as one board per declaration and device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuassay_reports.frames import pd
from cuassay_reports.load import Results, grouped_by, records

__all__ = ["Board", "Judged", "boards"]

#: The verdicts in the order in which they are shown.
_ORDER = ("correct", "undecided", "wrong", "refused")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One candidate: its newest verdict and the reason; `ratio` is empty without a time by a device's clock."""

    candidate: str
    digest: str
    verdict: str
    tone: str
    reason: str
    check: str
    message: str
    cheats: str
    looks_like: str
    probes: str
    calls: int
    ratio: str
    jail: str
    reproduce: str


@dataclass(frozen=True, kw_only=True)
class Board:
    """The candidates of one declaration on one device: correct ones first, the fastest at the top."""

    declaration: str
    device: str
    weak: str
    counts: str
    rows: Sequence[Judged]


def boards(results: Results) -> list[Board]:
    """Return a board for each declaration and device; none if no candidate was judged."""
    if results.verdicts.empty:
        return []
    newest = results.verdicts.drop_duplicates(["declaration", "device", "digest"], keep="last")
    return [_board(rows) for rows in grouped_by(records(newest), ["declaration", "device"]).values()]


def _board(rows: Sequence[dict[str, Any]]) -> Board:
    ranked = sorted(rows, key=lambda row: (_ORDER.index(row["verdict"]), -_ratio(row), row["candidate"]))
    counted = [(word, sum(row["verdict"] == word for row in rows)) for word in _ORDER]
    return Board(
        declaration=rows[-1]["declaration"],
        device=rows[-1]["device"],
        weak=rows[-1]["weak"],
        counts=", ".join(f"{count:,} {word}" for word, count in counted if count),
        rows=[_judged(row) for row in ranked],
    )


def _ratio(row: dict[str, Any]) -> float:
    """Return the least speed relative to the declared function, by a device's clock, since the host's does not rank."""
    return _number(row["ratio"]) if row["clock"] == "device" else 0.0


def _number(value: Any) -> float:
    """Return a number, or 0 if it is unknown."""
    return 0.0 if pd.isna(value) else float(value)


def _judged(row: dict[str, Any]) -> Judged:
    names = "candidate digest verdict reason check message cheats looks_like jail reproduce".split()
    return Judged(
        **{name: row[name] for name in names},
        tone={"correct": "good", "undecided": "warn"}.get(row["verdict"], "bad"),
        probes=row["probes"].replace(" ", ", ").replace("_", " "),
        calls=int(_number(row["calls"])),
        ratio=f"{_ratio(row):.3g}" if _ratio(row) else "",
    )
