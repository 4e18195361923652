"""The result files in a folder, and their content: JSON lines, plain or compressed. Needs only the standard library."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

__all__ = ["COMPRESSED", "content_of", "plain_size", "result_files"]

#: The suffix of compressed files.
COMPRESSED = ".jsonl.gz"

#: The approximate ratio of a result's size to its compressed size.
_RATIO = 12

#: The most bytes that a compressed file may expand to, so that a small file cannot exhaust the memory.
_MOST_UNFOLDED = 4 << 30


def result_files(folder: Path) -> list[Path]:
    """Return every ``*.jsonl`` and ``*.jsonl.gz`` in `folder` and below, in order."""
    found = [*folder.rglob("*.jsonl"), *folder.rglob(f"*{COMPRESSED}")]
    return sorted(file for file in found if file.is_file())


def content_of(file: Path) -> bytes:
    """Return the lines of a result file.

    Raises
    ------
    OSError
        If the file cannot be read, or a compressed file is truncated, is not gzip, or expands to too many bytes.
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
    """Return about how many bytes of lines a result file holds."""
    return file.stat().st_size * (_RATIO if file.name.endswith(COMPRESSED) else 1)


def _unreadable(why: str, file: Path) -> OSError:
    return OSError(0, why, str(file))
