"""Files of JSON lines: reading, appending by several processes, and repair. Needs only the standard library.

A line is one JSON object of at most `MOST_BYTES`, written by a single call at the file's end while its lock is held.
What an object must contain is defined by `rows`, `cuassay.results.record` and `cuassay.tune.results`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "MOST_BYTES",
    "Parsed",
    "Row",
    "append",
    "canonical",
    "content",
    "encoded",
    "locked",
    "opened",
    "parse",
    "repair",
]

Row = dict[str, Any]
"""The object of one line."""

#: The most bytes of a line: longer lines are neither written nor read, so that one line cannot exhaust the memory.
MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Parsed:
    """The lines of a text by their numbers, from 1.

    Attributes
    ----------
    rows : dict
        The objects.
    wrong : dict
        Why a line is not an object, as the end of a sentence that begins with the line.
    tail : bytes
        A last line without a newline.
    is_torn : bool
        Whether the tail is not JSON, because its writer was killed. Such a line is not in `wrong`.
    """

    rows: dict[int, Row]
    wrong: dict[int, str]
    tail: bytes
    is_torn: bool


def parse(text: bytes) -> Parsed:
    """Parse every line of `text`; empty lines are skipped."""
    lines = text.split(b"\n")
    rows: dict[int, Row] = {}
    wrong: dict[int, str] = {}
    torn = False
    for number, line in enumerate(lines, start=1):
        try:
            row = _value(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                torn = bool(line.strip())
            elif line.strip():
                wrong[number] = f"is not JSON: {error}; remove it, or restore the file"
            continue
        if isinstance(row, dict):
            rows[number] = row
        else:
            wrong[number] = f"is a {type(row).__name__}; a row is an object"
    return Parsed(rows, wrong, lines[-1], torn)


def _value(line: bytes) -> Any:
    """Return the value of `json.loads`, a quarter faster by skipping its handling of surrounding white space."""
    if len(line) > MOST_BYTES:
        raise ValueError(f"it has {len(line):,} bytes; {MOST_BYTES:,} at most")
    text = line.decode()
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        end = -1
    return value if end == len(text) else json.loads(text)


_DECODER = json.JSONDecoder()


def canonical(data: Any) -> str:
    """Return JSON in a canonical form: equal data give equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def encoded(row: Mapping[str, Any]) -> bytes:
    """Return the line of one object.

    Raises
    ------
    TypeError, ValueError
        If JSON has no such value, or the line would be too long.
    """
    line = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(line) > MOST_BYTES:
        raise ValueError(f"its line would have {len(line):,} bytes; {MOST_BYTES:,} at most")
    return line + b"\n"


def opened(path: Path) -> int:
    """Open `path` for appending and reading; the file and its folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def content(file: int) -> bytes:
    """Return the whole content of an open file."""
    with open(file, "rb", buffering=0, closefd=False) as reader:
        reader.seek(0)
        return reader.readall()


@contextlib.contextmanager
def locked(file: int, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of an open file; every writer holds it while appending, so all lines are complete in the block."""
    fcntl.flock(file, kind)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def append(file: int, lines: bytes) -> int:
    """Append `lines` in one call to an open file whose lock is held; return the new size of the file.

    Raises
    ------
    OSError
        If the lines were not written completely; the file is then unchanged.
    """
    size = os.fstat(file).st_size
    written = os.write(file, lines)
    if written != len(lines):
        os.ftruncate(file, size)
        raise OSError(
            errno.ENOSPC, f"the disk took only {written:,} of {len(lines):,} bytes, and the file was restored"
        )
    return size + written


def repair(file: int) -> None:
    """Complete or drop an unfinished last line of a killed writer, so that no row is appended to it."""
    with locked(file):  # every writer holds the lock while it writes, so nobody else will complete the line
        size = os.fstat(file).st_size
        tail = _last_line(file, size)
        if tail and parse(tail).rows:
            os.write(file, b"\n")
        elif tail:
            os.ftruncate(file, size - len(tail))


def _last_line(file: int, size: int) -> bytes:
    """Return the text after the last newline."""
    block, tail = 1 << 16, b""
    while size > 0 and b"\n" not in tail:
        start = max(0, size - block)
        tail = os.pread(file, size - start, start) + tail
        size = start
    return tail.rpartition(b"\n")[2]
