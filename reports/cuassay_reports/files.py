"""Which files are of results, and what they hold: JSON lines, as they are or compressed. Standard library alone."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

__all__ = ["COMPRESSED", "content_of", "plain_size", "result_files"]

#: How the names of compressed files end.
COMPRESSED = ".jsonl.gz"

#: How many times as large as its compressed file a result is, about.
_RATIO = 12

#: Bytes that a compressed file may unfold to, at most: a small file must not fill the memory.
_MOST_UNFOLDED = 4 << 30


def result_files(folder: Path) -> list[Path]:
    """Every ``*.jsonl`` and ``*.jsonl.gz`` in `folder` and below, in order."""
    found = [*folder.rglob("*.jsonl"), *folder.rglob(f"*{COMPRESSED}")]
    return sorted(file for file in found if file.is_file())


def content_of(file: Path) -> bytes:
    """The lines of a result file.

    Raises
    ------
    OSError
        The file cannot be read; a compressed one also where it is cut off, is not of gzip, or unfolds to too much.
    """
    if not file.name.endswith(COMPRESSED):
        return file.read_bytes()
    try:
        with gzip.open(file) as unfolded:
            found = unfolded.read(_MOST_UNFOLDED + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _unreadable(f"it is not a whole gzip file: {error}", file) from error
    if len(found) > _MOST_UNFOLDED:
        raise _unreadable(f"it unfolds to more than {_MOST_UNFOLDED >> 30} GiB", file)
    return found


def plain_size(file: Path) -> int:
    """About how many bytes of lines a result file holds."""
    return file.stat().st_size * (_RATIO if file.name.endswith(COMPRESSED) else 1)


def _unreadable(why: str, file: Path) -> OSError:
    return OSError(0, why, str(file))
