"""Rows of a file of JSON lines, read without the reader under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rows_of(path: str | Path, record: str = "") -> list[dict[str, Any]]:
    """All rows, or those of one kind of record."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [row for row in rows if not record or row["record"] == record]
