"""Write results as rows, one JSON line per row, in the schema of `cuassay_reports.columns`.

This module converts the values of a row to plain data and checks it. `cuassay_reports.lines` appends
it to the file. The callers decide what is recorded.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from cuassay.core import settings
from cuassay.core.handle import Closing
from cuassay.errors import ResultError
from cuassay.results.fingerprint import digest, host_fingerprint, revision
from cuassay_reports.columns import SCHEMA, ResultFormatError, validate
from cuassay_reports.lines import append, encoded, locked, opened, repair
from cuassay_reports.outputs import RECORD, why_not_written

__all__ = ["Recorder", "Writer", "begin", "new_run_id", "sendable", "utc_now"]


def utc_now() -> str:
    """Return the time as UTC in ISO 8601 with seconds, such as ``'2026-01-31T12:00:00Z'``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_run_id() -> str:
    """Return a unique id that sorts by time, such as ``'20260131T120000-9f3c21'``."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


class Writer(Protocol):
    """An object that takes rows: a `Recorder`, or a `cuassay.results.part.Part` of a run."""

    def write(self, record: str, /, **columns: object) -> None:
        """Append one row to the table `record`."""


class Recorder(Closing):
    r"""Append rows of one run to one file.

    Processes of a run share the file by opening it with the same `run`. A column that is None or a
    number that is not finite is omitted, because the schema has no null. A lone surrogate in a text cannot
    be encoded and becomes an escape such as ``\udcff``. Usable as a context manager; closing twice is allowed.

    Parameters
    ----------
    path : path
        The file. It and its folders are created.
    run : str, optional
        The id of the run; a new one by default.

    Raises
    ------
    ResultError
        If the file cannot be opened, or holds something else than results.
    """

    def __init__(self, path: str | os.PathLike[str], *, run: str | None = None) -> None:
        self.path = Path(path)
        self.run = run if run is not None else new_run_id()
        self._fd = _open(self.path)
        self._size = 0

    def __repr__(self) -> str:
        state = "closed" if self._fd < 0 else "open"
        return f"Recorder({str(self.path)!r}, run {self.run}, {state})"

    def close(self) -> None:
        """Close the file. Writing further rows raises `ResultError`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def write_run(self, **columns: object) -> None:
        """Append the row that describes this run. Call it once; `started` is the current time by default."""
        self.write("run", **{"started": utc_now(), **columns})

    def write_device(self, **columns: object) -> None:
        """Append a row that says what a device is, or why it is absent."""
        self.write("device", **columns)

    def write_test(self, **columns: object) -> None:
        """Append the outcome of one test."""
        self.write("test", **columns)

    def write_time(self, **columns: object) -> None:
        """Append one measured series."""
        self.write("time", **columns)

    def write_times(self, series: Iterable[Mapping[str, object]]) -> None:
        """Append several measured series at once, so that the file holds all of them or none."""
        self._append(b"".join(self._line("time", columns) for columns in series))

    def write_limit(self, **columns: object) -> None:
        """Append a performance limit of a device, measured in this run."""
        self.write("limit", **columns)

    def write_end(self, reason: str | None = None, **columns: object) -> None:
        """Append that the run finished, or the reason why it ended before its last test or timing."""
        self.write("end", reason=reason, **columns)

    def write(self, record: str, /, **columns: object) -> None:
        """Append one row to the table `record`; columns and their meanings are in ``TABLES``.

        Raises
        ------
        ResultError
            If the row does not follow the schema, the recorder is closed, or the row could not be written. The file
            is unchanged then.
        """
        self._append(self._line(record, columns))

    def _line(self, record: str, columns: Mapping[str, object]) -> bytes:
        row = {"record": record, "schema": SCHEMA, "run": self.run, **_without_unknown(columns)}
        try:
            validate(row)
            return encoded(row)
        except (ResultFormatError, TypeError, ValueError) as error:
            raise ResultError(f"{self.path} cannot take this row: {error}") from error

    def _append(self, lines: bytes) -> None:
        if self._fd < 0:
            raise ResultError(f"{self.path} is closed; open a new Recorder to write more")
        try:
            with locked(self._fd):
                self._check_size()
                self._size = append(self._fd, lines)
        except OSError as error:
            raise ResultError(
                f"{self.path} cannot be written: {error.strerror}; make room there, or make it writable, and run again"
            ) from error

    def _check_size(self) -> None:
        """Raise if the file was deleted or truncated, because rows would be lost without notice."""
        found = os.fstat(self._fd)
        if found.st_nlink == 0:
            raise ResultError(f"{self.path} was deleted while rows were written to it; keep it until the run has ended")
        size, self._size = self._size, found.st_size
        if found.st_size < size:
            raise ResultError(
                f"{self.path} was cut from {size:,} to {found.st_size:,} bytes while rows were written to it; "
                "the rows between are lost: run again"
            )


def begin(recorder: Writer, command: str, root: str | os.PathLike[str] = ".") -> None:
    """Write the row that describes the run: the command, the machine, and the revision of the tree at `root`."""
    machine = host_fingerprint()
    recorder.write(
        "run",
        started=utc_now(),
        command=command,
        machine=machine,
        digest=digest(machine),
        seed=settings.get("CUASSAY_SEED"),
        **revision(os.fspath(root)).columns(),
    )


def _open(path: Path) -> int:
    if (reason := why_not_written(path, RECORD)) is not None:
        raise ResultError(reason)
    try:
        fd = opened(path)
    except OSError as error:
        raise ResultError(f"results cannot be written to {path}: {error}; name a file in a writable folder") from error
    repair(fd)
    return fd


def _without_unknown(columns: Mapping[str, object]) -> dict[str, object]:
    plain = {name: _plain(value) for name, value in columns.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: object) -> object:
    """Return `value` in types that JSON supports; NumPy values and tuples become Python's."""
    if isinstance(value, str):
        return _escaped(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        are_floats = set(map(type, value)) == {float} and all(map(math.isfinite, value))  # a shortcut for samples
        return list(value) if are_floats else [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _escaped(text: str) -> str:
    """Return `text` with lone surrogates, which cannot be encoded, replaced by escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def sendable(value: Any) -> Any:
    """Return plain data whose strings can be encoded; lone surrogates become escapes."""
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, dict):
        return {sendable(key): sendable(item) for key, item in value.items()}
    return type(value)(map(sendable, value)) if type(value) in (list, tuple) else value
