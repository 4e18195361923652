"""The rows of many files, gathered by column: a dictionary for each of hundreds of thousands of rows takes a gigabyte.

It defines how a column of each type is kept while rows arrive: texts as indices of distinct texts, and numbers as
numbers. A large set of files is shared with a second process, which like this module needs only the standard library.
"""

# ruff: noqa: D102  `Values` documents the methods of a column

from __future__ import annotations

import contextlib
import math
import os
import pickle
import subprocess
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from cuassay_reports.columns import TABLES, Column
from cuassay_reports.files import plain_size
from cuassay_reports.lines import Row
from cuassay_reports.rows import Rejected, Rows, read_rows
from cuassay_reports.shapes import alike

__all__ = ["Booleans", "Floats", "Gathered", "Integers", "Lists", "Objects", "Table", "Texts", "gather"]

#: The bytes of files from which a second process takes a share; it needs a tenth of a second to start.
_SHARED = 16_000_000


class Values(Protocol):
    """One column while rows arrive."""

    def add(self, found: Sequence[Any]) -> None:
        """Append a value for each of several rows."""

    def skip(self, count: int) -> None:
        """Append `count` rows without a value."""

    def join(self, other: Any) -> None:
        """Append all values of another column."""


class _Index(dict[str, int]):
    """The index of each text; a new text takes the next index."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Texts:
    """Texts as indices; `index` has the index of each text."""

    def __init__(self, column: Column) -> None:
        self._missing = column.default or ""
        self.index = _Index()
        self.codes = array("i")

    def add(self, found: Iterable[str]) -> None:
        self.codes.extend(map(self.index.__getitem__, found))

    def skip(self, count: int) -> None:
        self.codes += array("i", [self.index[self._missing]]) * count

    def join(self, other: Self) -> None:
        places = [self.index[text] for text in other.index]
        self.codes.extend(map(places.__getitem__, other.codes))


class Floats:
    """Numbers; NaN means unknown."""

    def __init__(self, column: Column) -> None:
        self.values = array("d")

    def add(self, found: Iterable[float]) -> None:
        self.values.extend(found)

    def skip(self, count: int) -> None:
        self.values += array("d", [math.nan]) * count

    def join(self, other: Self) -> None:
        self.values += other.values


class Integers:
    """Whole numbers or truth values; `missing` is 1 where a value is unknown."""

    def __init__(self, column: Column) -> None:
        self.values, self.missing = array("q"), bytearray()

    def add(self, found: Sequence[int]) -> None:
        self.values.extend(found)
        self.missing += bytes(len(found))

    def skip(self, count: int) -> None:
        self.values += array("q", [0]) * count
        self.missing += b"\x01" * count

    def join(self, other: Self) -> None:
        self.values += other.values
        self.missing += other.missing


class Booleans(Integers):
    """Truth values, stored like `Integers`."""


class Objects:
    """Any objects; None means unknown."""

    def __init__(self, column: Column) -> None:
        self.values: list[object] = []

    def add(self, found: Iterable[object]) -> None:
        self.values += found

    def skip(self, count: int) -> None:
        self.values += [None] * count

    def join(self, other: Self) -> None:
        self.values += other.values


class Lists:
    """Lists of numbers, one after another; the length -1 means None."""

    def __init__(self, column: Column) -> None:
        self.flat, self.lengths = array("d"), array("q")

    def add(self, found: Iterable[list[float]]) -> None:
        for one in found:
            self.flat.extend(one)
            self.lengths.append(len(one))

    def skip(self, count: int) -> None:
        self.lengths += array("q", [-1]) * count

    def join(self, other: Self) -> None:
        self.flat += other.flat
        self.lengths += other.lengths


class Table:
    """The rows of one table as they arrive.

    Parameters
    ----------
    columns : iterable of Column
        The columns of its frame; a column that a row lacks is filled in.

    Attributes
    ----------
    places : array
        The place of each gathered row in the order of the files, because rows with the same columns are gathered
        together.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self.columns: dict[str, Values] = {
            column.name: _KEPT[column.kind](column) for column in columns if column.name != "record"
        }
        self.places = array("q")

    def __repr__(self) -> str:
        return f"Table({len(self.places):,} rows of {len(self.columns)} columns)"

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        first = len(self.places)
        for names, places in alike(rows).items():
            found = dict(zip(names, zip(*(rows[place].values() for place in places), strict=True), strict=True))
            for name, column in self.columns.items():
                if name in found:
                    column.add(found[name])
                else:
                    column.skip(len(places))
            self.places.extend([first + place for place in places])

    def join(self, other: Table) -> None:
        """Append all rows of another table."""
        first = len(self.places)
        for name, column in self.columns.items():
            column.join(other.columns[name])
        self.places.extend([first + place for place in other.places])


_KEPT: dict[str, Any] = {
    **dict.fromkeys(("str", "time"), Texts),
    "int": Integers,
    "float": Floats,
    "bool": Booleans,
    "object": Objects,
    "list": Lists,
}


@dataclass
class Gathered:
    """The content of some files: a `Table` for each table, what was rejected, and the number of torn last lines."""

    tables: dict[str, Table] = field(default_factory=lambda: {name: Table(columns) for name, columns in TABLES.items()})
    rejected: list[Rejected] = field(default_factory=list)
    torn: int = 0

    def add(self, file: Rows) -> None:
        """Append the content of one file."""
        rows: dict[str, list[Row]] = {}
        for row in file.rows:
            rows.setdefault(row["record"], []).append(row)
        if "test" in rows:
            rows["test"] = [one for row in rows["test"] for one in _unfolded(row)]
        for record, found in rows.items():
            self.tables[record].add(found)
        self.rejected += file.rejected
        self.torn += file.torn

    def join(self, other: Gathered) -> None:
        """Append the content of other files."""
        for name, table in self.tables.items():
            table.join(other.tables[name])
        self.rejected += other.rejected
        self.torn += other.torn


def gather(files: Sequence[Path], *, strict: bool = False) -> Gathered:
    """Read `files` in order.

    Parameters
    ----------
    files : sequence of path
        Result files.
    strict : bool
        Whether to raise at the first line or file that would be omitted.

    Raises
    ------
    ResultFormatError
        With `strict`, if a line is not a row of the schema; the message names file and line.
    OSError
        With `strict`, if a file cannot be read.
    """
    half = _half(files)
    other = _start(files[half:]) if not strict and half < len(files) else None
    found = _gather(files if other is None else files[:half], strict=strict)
    if other is not None:
        found.join(_finish(other) or _gather(files[half:]))
    return found


def _gather(files: Iterable[Path], *, strict: bool = False) -> Gathered:
    found = Gathered()
    for file in files:
        found.add(_rows(file, strict=strict))
    return found


def _rows(file: Path, *, strict: bool) -> Rows:
    try:
        return read_rows(file, strict=strict)
    except OSError as error:
        if strict:
            raise
        return Rows([], [Rejected(str(file), f"this file cannot be read: {error.strerror}")], 0)


def _unfolded(row: Row) -> list[Row]:
    """Return the tests that a folded row represents, one row each; any other row unchanged."""
    if "checks" not in row:
        return [row]
    common = {name: value for name, value in row.items() if name != "checks"}
    checks = row["checks"].split()
    return [{**common, "nodeid": row["nodeid"].replace("*", check, 1), "check": check} for check in checks] or [row]


def _half(files: Sequence[Path]) -> int:
    """Return how many files, from the first, hold half of the bytes; all if a second process does not pay."""
    sizes = [plain_size(file) if file.exists() else 0 for file in files]
    if sum(sizes) < _SHARED or (os.cpu_count() or 1) < 2:
        return len(files)
    done = 0
    for number, size in enumerate(sizes):
        done += size
        if done >= sum(sizes) / 2:
            return number + 1
    return len(files)


def _start(files: Sequence[Path]) -> subprocess.Popen[bytes] | None:
    """Start a process that gathers `files` and writes the result to its standard output; None if it cannot start."""
    program = f"import sys; sys.path[:0] = {sys.path!r}; from cuassay_reports.gather import serve; serve()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it has failed, as its status will show
            pipe.write(pickle.dumps(list(files)))
    return process


def serve() -> None:
    """Gather the files that the parent names; the second process runs this."""
    found = _gather(pickle.load(sys.stdin.buffer))  # noqa: S301  from the parent process
    pickle.dump(found, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)


def _finish(process: subprocess.Popen[bytes]) -> Gathered | None:
    """Return what the process gathered, or None if it failed."""
    found: Gathered | None = None
    with process, contextlib.suppress(EOFError, pickle.UnpicklingError):  # it has failed, as its status will show
        if process.stdout is not None:
            found = pickle.load(process.stdout)  # noqa: S301  from the child process
    return None if process.returncode else found
