"""Rows of a file of JSON lines, read without the reader under test."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def rows_of(path: str | Path, record: str = "") -> list[dict[str, Any]]:
    """All rows, or those of one kind of record."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in text_of(Path(path)).splitlines()]
    return [row for row in rows if not record or row["record"] == record]


def text_of(path: Path) -> str:
    """The lines of a file, which may be compressed."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
