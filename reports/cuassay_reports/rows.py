"""The rows of a result file: which of its lines follow the schema. Needs only the standard library."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from pathlib import Path

from cuassay_reports.columns import ResultFormatError
from cuassay_reports.files import content_of
from cuassay_reports.lines import Row, parse
from cuassay_reports.shapes import rejections

__all__ = ["WRITERS", "Rejected", "Rows", "not_of_results", "read_rows"]

#: The advice for a file without results.
WRITERS = "name a file that `cuassay run` or `pytest --cuassay-record` wrote"

#: The most checks of a folded row: each becomes a row, and a few bytes must not become millions of rows.
_MOST_CHECKS = 1000


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line without a row, or a file that cannot be read; `place` is ``file:line`` or the file."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rows:
    """The content of a result file: its rows in order, the rejected lines, and the number of torn lines (0 or 1)."""

    rows: list[Row]
    rejected: list[Rejected]
    torn: int


def read_rows(file: Path, *, strict: bool = False) -> Rows:
    """Read all lines of `file` that hold a row, and report those that do not.

    A last line without a newline that is not JSON was torn when its writer was killed; empty lines are skipped.

    Parameters
    ----------
    file : path
        A result file.
    strict : bool
        Whether to raise at the first rejected line; a torn line is still ignored.

    Raises
    ------
    OSError
        If the file cannot be read.
    ResultFormatError
        With `strict`, if a line is rejected; the message names it.
    """
    lines = parse(content_of(file))
    numbers, found = list(lines.rows), list(lines.rows.values())
    refused = _refused(found)
    wrong = {number: f"this line {reason}" for number, reason in lines.wrong.items()}
    wrong |= {numbers[place]: reason for place, reason in refused.items()}
    rejected = [Rejected(f"{file}:{number}", wrong[number]) for number in sorted(wrong)]
    if rejected and not any(row.keys() & {"record", "schema"} for row in found):
        rejected = [Rejected(str(file), not_of_results(len(rejected)))]
    for first in rejected if strict else ():
        raise ResultFormatError(f"{first.place}: {first.reason}")
    kept = [row for place, row in enumerate(found) if place not in refused] if refused else found
    return Rows(kept, rejected, int(lines.is_torn))


def not_of_results(lines: int) -> str:
    """Return why a file is rejected as a whole: none of its `lines` complete lines is a row of a result."""
    if lines == 0:
        why = "it has no complete line"
    else:
        why = f"{f'none of its {lines:,} lines is' if lines > 1 else 'its only line is not'} a row of a result"
    return f"not a file of results: {why}; {WRITERS}"


def _refused(rows: list[Row]) -> dict[int, str]:
    """Return the places of the objects that are not rows of the schema, and why."""
    found = {place: str(error) for place, error in rejections(rows)}
    for place, row in enumerate(rows):
        if "checks" in row and place not in found and (count := row["checks"].count(" ") + 1) > _MOST_CHECKS:
            name = reprlib.repr(row["nodeid"])
            found[place] = f"{name} represents {count:,} checks; {_MOST_CHECKS:,} at most"
    return found
