"""The lines of a result file: one row each, as JSON. Needs the standard library alone."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay_reports.columns import ResultFormatError, validate

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
    found = Lines([], [], 0)
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.rows.append(_row(line))
        except _NotJSONError as error:
            if number == len(lines):
                return Lines(found.rows, found.rejected, 1)
            found.rejected.append(Rejected(f"{file}:{number}", str(error)))
        except ResultFormatError as error:
            found.rejected.append(Rejected(f"{file}:{number}", str(error)))
    return found


class _NotJSONError(ResultFormatError):
    """The line cannot be parsed, as it is where a writer was killed within it."""


def _row(line: bytes) -> Row:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise _NotJSONError(f"this line is no JSON: {error}; remove it, or restore the file") from error
    if not isinstance(row, dict):
        raise ResultFormatError(f"this line is a {type(row).__name__}; a row is an object")
    validate(row)
    checks = row.get("checks", "").count(" ")
    if checks >= _MOST_CHECKS:
        raise ResultFormatError(
            f"{reprlib.repr(row['nodeid'])} stands for {checks + 1:,} checks; {_MOST_CHECKS:,} at most"
        )
    return row
