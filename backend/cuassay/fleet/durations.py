"""How long tests took in earlier runs, as their records tell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cuassay.errors import ArgumentError
from cuassay_reports.files import content_of, result_files
from cuassay_reports.lines import parse

__all__ = ["recorded_durations"]


def recorded_durations(paths: Iterable[Path]) -> dict[str, float]:
    """Test to the duration of its last row in seconds; a test whose rows have none is left out.

    Parameters
    ----------
    paths : iterable of path
        Result files, or folders of them; the last one counts.

    Raises
    ------
    ArgumentError
        A file cannot be read.
    """
    found: dict[str, float] = {}
    for path in paths:
        for file in result_files(path) if path.is_dir() else [path]:
            for row in parse(_content(file)).rows.values():
                if row.get("record") == "test" and "duration" in row:
                    found[row["nodeid"]] = row["duration"]
    return found


def _content(file: Path) -> bytes:
    try:
        return content_of(file)
    except OSError as error:
        raise ArgumentError(
            f"durations cannot be read from {file}: {error.strerror}; name a result file or a folder of them"
        ) from error
