"""Slow-downs that somebody has seen and accepted, in a small file that is committed with the results.

``acknowledged.toml`` has one table for each slow-down, with a reason::

    [[slower]]
    benchmark = "softmax"              # any of: benchmark, subject, device, dtype, case, implementation
    since = "4f2a91c0be"               # the commit that the report names, or its first digits
    reason = "softmax now handles NaN; decided in the review of the change"

A slow-down is acknowledged if each named column is equal and its commit begins with `since`. A later slow-down is
reported again.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay_reports.columns import ResultFormatError

__all__ = ["NAME", "Acknowledgement", "acknowledgements", "reason_for"]

NAME = "acknowledged.toml"
"""The name of the file; the report looks for it in each folder that it is given."""

_COLUMNS = ("benchmark", "subject", "device", "dtype", "case", "implementation")


@dataclass(frozen=True)
class Acknowledgement:
    """One accepted slow-down: the columns that must be equal, the commit at which it began, and the reason."""

    columns: Mapping[str, str]
    since: str
    reason: str


def acknowledgements(paths: Iterable[Path]) -> list[Acknowledgement]:
    """Read the files at `paths`; for a folder, the file named ``NAME`` in it, if there is one.

    Raises
    ------
    ResultFormatError
        If a file is not TOML of this form; the message names the file and the entry.
    OSError
        If a file cannot be read.
    """
    files = [path / NAME if path.is_dir() else path for path in paths]
    found = [file for file in dict.fromkeys(files) if file.suffix == ".toml" and file.exists()]
    return [one for file in found for one in _read(file)]


def reason_for(row: Mapping[str, Any], accepted: Iterable[Acknowledgement]) -> str:
    """Return why the slow-down in `row` (its series, and `commit`) is accepted; ``""`` if nobody has accepted it."""
    for one in accepted:
        same = all(str(row.get(name, "")) == value for name, value in one.columns.items())
        if same and str(row["commit"]).startswith(one.since):
            return one.reason
    return ""


def _read(file: Path) -> list[Acknowledgement]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ResultFormatError(f"{file} is not TOML: {error}; write [[slower]] tables") from error
    entries = found.get("slower", [])
    if set(found) - {"slower"} or not isinstance(entries, list):
        raise ResultFormatError(f"{file} holds {', '.join(sorted(found))}; it may hold [[slower]] tables only")
    return [_entry(file, number, entry) for number, entry in enumerate(entries, start=1)]


def _entry(file: Path, number: int, entry: object) -> Acknowledgement:
    place = f"{file}, entry {number}"
    if not isinstance(entry, dict) or not all(isinstance(value, str) and value for value in entry.values()):
        raise ResultFormatError(f"{place}: {entry!r} is not a table of texts; write benchmark, since and reason")
    unknown = set(entry) - {*_COLUMNS, "since", "reason"}
    missing = [name for name in ("benchmark", "since", "reason") if name not in entry]
    if unknown or missing:
        wrong = f"lacks {missing[0]!r}" if missing else f"has an unknown key {min(unknown)!r}"
        raise ResultFormatError(f"{place} {wrong}; allowed are {', '.join(_COLUMNS)}, since and reason")
    columns = {name: value for name, value in entry.items() if name in _COLUMNS}
    return Acknowledgement(columns, entry["since"], entry["reason"])
