"""A file of JSON lines that several processes add to: a header line that says what it is, then a row a line.

A line is written by one call, under the file's lock, at its end; what is in the file is never changed. A file that is
not what it should be is refused with the reason, and left as it is.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cuassay.errors import TuningError

__all__ = ["Lines", "canonical"]


def canonical(data: Any) -> str:
    """JSON in one spelling: equal data give equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Lines:
    """The file at `path`, whose first line is `header`.

    Parameters
    ----------
    path : path
        The file; made by the first `append`, with its folder.
    header : mapping
        What the file must begin with: flat, but for a mapping of validators.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        self.path, self.header = Path(path), dict(header)

    def __repr__(self) -> str:
        return f"Lines({str(self.path)!r}, {self.header.get('format')!r})"

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Add rows, each in one piece, after whatever other processes have added.

        Raises
        ------
        TuningError
            If the file is another's, or cut off, or cannot be written; it is as it was then.
        """
        with self._opened(os.O_RDWR | os.O_APPEND | os.O_CREAT, fcntl.LOCK_EX) as file:
            size = os.fstat(file).st_size
            lines = [*([self.header] if not size else ()), *rows]
            if size:
                self._check(_parsed(self.path, _whole(self.path, _read(self.path, file, size))))
            try:
                for line in lines:
                    _write(file, f"{canonical(line)}\n".encode())
            except OSError as error:
                os.ftruncate(file, size)
                raise TuningError(f"{self.path} cannot be written: {error}; it is as it was") from error

    def read(self) -> list[tuple[int, dict[str, Any]]]:
        """Every row with the number of its line.

        Raises
        ------
        TuningError
            If there is no such file, it cannot be read, is cut off, or is another's.
        """
        with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as file:
            text = _read(self.path, file, os.fstat(file).st_size)
        if not text:
            raise TuningError(f"{self.path} is empty; it should begin with a header: remove it")
        rows = _parsed(self.path, _whole(self.path, text))
        self._check(rows)
        return rows[1:]

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        try:
            if flags & os.O_CREAT:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TuningError(f"{self.path} cannot be opened: {error.strerror}; name another file") from error
        try:
            try:
                fcntl.flock(file, lock)
            except OSError as error:  # such as of a network's file system that has no locks
                raise TuningError(f"{self.path} cannot be locked: {error.strerror}; name a file elsewhere") from error
            yield file
        finally:
            os.close(file)

    def _check(self, rows: list[tuple[int, dict[str, Any]]]) -> None:
        """Whether the first row is the header: else which field differs."""
        got = rows[0][1]
        for field, expected in self.header.items():
            if isinstance(expected, Mapping):
                self._check_fields(f"{field}.", expected, got.get(field))
            elif got.get(field) != expected:
                raise self._foreign(field, expected, got.get(field))

    def _check_fields(self, prefix: str, expected: Mapping[str, Any], got: Any) -> None:
        found = got if isinstance(got, Mapping) else {}
        for name in (*expected, *(name for name in found if name not in expected)):
            if found.get(name) != expected.get(name):
                raise self._foreign(prefix + name, expected.get(name), found.get(name))

    def _foreign(self, field: str, expected: Any, got: Any) -> TuningError:
        return TuningError(
            f"{self.path} is not of this machine and these versions: {field} is {got!r} there, and {expected!r} here; "
            "name another file"
        )


def _read(path: Path, file: int, size: int) -> bytes:
    text = b""
    try:
        while len(text) < size and (part := os.pread(file, size - len(text), len(text))):
            text += part
    except OSError as error:
        raise TuningError(f"{path} cannot be read: {error.strerror}; name another file") from error
    return text


def _write(file: int, line: bytes) -> None:
    if os.write(file, line) != len(line):
        raise OSError("the line was written in part: no room is left")


def _whole(path: Path, text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    if lines[-1]:
        raise TuningError(
            f"{path} is cut off: line {len(lines)} has no end and begins {lines[-1][:40]!r}; remove that line"
        )
    return lines[:-1]


def _parsed(path: Path, lines: list[bytes]) -> list[tuple[int, dict[str, Any]]]:
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TuningError(f"{path} cannot be read: line {number} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise TuningError(f"{path} cannot be read: line {number} should be an object; got {line[:40]!r}")
        rows.append((number, row))
    return rows
