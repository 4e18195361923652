"""The lines of a result file: one row each, as JSON. Needs the standard library alone."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay_reports.columns import ResultFormatError
from cuassay_reports.shapes import rejections

__all__ = ["Lines", "Rejected", "Row", "read_lines", "read_rows"]

Row = dict[str, Any]
"""One row of a result file, by column."""

#: Checks that a folded row may stand for: each becomes a row, and a few bytes must not become millions of them.
_MOST_CHECKS = 1000


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that holds no row, or a file that cannot be read: `place` is ``file:line`` or the file."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lines:
    """What a result file holds: its rows in order, the lines that are rejected, and how many were torn off (0 or 1)."""

    rows: list[Row]
    rejected: list[Rejected]
    torn: int


def read_rows(file: Path) -> tuple[list[Row], int]:
    """Return the rows of `file` in order, and how many torn lines were left out, 0 or 1.

    Raises
    ------
    OSError
        The file cannot be read.
    ResultFormatError
        A line is rejected; the message names it.
    """
    found = read_lines(file)
    for first in found.rejected:
        raise ResultFormatError(f"{first.place}: {first.reason}")
    return found.rows, found.torn


def read_lines(file: Path) -> Lines:
    """Read all lines of `file` that hold a row, and say which do not.

    A last line without an end that is not JSON was torn off when its writer was killed; empty lines are passed over.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    rows, wrong = _parse(file.read_bytes().split(b"\n"))
    numbers, found = list(rows), list(rows.values())
    refused = _refused(found)
    torn = wrong.pop(-1, None)
    wrong |= {numbers[place]: reason for place, reason in refused.items()}
    rejected = [Rejected(f"{file}:{number}", wrong[number]) for number in sorted(wrong)]
    kept = [row for place, row in enumerate(found) if place not in refused] if refused else found
    return Lines(kept, rejected, int(torn is not None))


def _parse(lines: list[bytes]) -> tuple[dict[int, Row], dict[int, str]]:
    """By the number of their line the objects, and why others are not one; -1 is a last line that was torn off."""
    rows: dict[int, Row] = {}
    wrong: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = _parsed(line)
        except (ValueError, RecursionError) as error:
            if line.strip():
                place = -1 if number == len(lines) else number
                wrong[place] = f"this line is not JSON: {error}; remove it, or restore the file"
            continue
        if isinstance(row, dict):
            rows[number] = row
        else:
            wrong[number] = f"this line is a {type(row).__name__}; a row is an object"
    return rows, wrong


def _parsed(line: bytes) -> Any:
    """What `json.loads` gives; it takes a quarter longer, since it looks at the white space around."""
    text = line.decode()
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        end = -1
    return value if end == len(text) else json.loads(text)


_DECODER = json.JSONDecoder()


def _refused(rows: list[Row]) -> dict[int, str]:
    """The places of the objects that are not rows of the schema, and why."""
    found = {place: str(error) for place, error in rejections(rows)}
    for place, row in enumerate(rows):
        if "checks" in row and place not in found and (count := row["checks"].count(" ") + 1) > _MOST_CHECKS:
            name = reprlib.repr(row["nodeid"])
            found[place] = f"{name} stands for {count:,} checks; {_MOST_CHECKS:,} at most"
    return found
