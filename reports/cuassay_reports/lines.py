"""The lines of a result file: one row each, as JSON. Needs the standard library alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cuassay_reports.columns import ResultFormatError, validate

__all__ = ["Row", "read_rows"]

Row = dict[str, Any]
"""One row of a result file, by column."""


def read_rows(file: Path) -> tuple[list[Row], int]:
    """Return the rows of `file` in order, and how many torn lines were left out, 0 or 1.

    A last line without an end that is no JSON was torn off when its writer was killed; empty lines are passed over.

    Raises
    ------
    OSError
        The file cannot be read.
    ResultFormatError
        A line is no row; the message names it.
    """
    rows: list[Row] = []
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return rows, 1
            raise ResultFormatError(
                f"{file}:{number}: this line is no JSON: {error}; remove it, or restore the file"
            ) from error
        try:
            rows.append(_checked(row))
        except ResultFormatError as error:
            raise ResultFormatError(f"{file}:{number}: {error}") from error
    return rows, 0


def _checked(row: Any) -> Row:
    if not isinstance(row, dict):
        raise ResultFormatError(f"this line is a {type(row).__name__}; a row is an object")
    validate(row)
    return row
