"""Tables of known skips and expected failures: TOML files that a project keeps with its tests.

This module reads and checks them, and finds the entry of a case. `cuassay.testing.skips_plugin` applies them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from cuassay.core.capability import DTYPE_NAMES, unknown_dtype
from cuassay.core.nearest import did_you_mean
from cuassay.core.words import shown
from cuassay.errors import SettingError

__all__ = ["ACTIONS", "KEYS", "Entry", "SkipTable", "read_tables"]

#: The arrays of tables in a file, and what happens to the tests of their entries.
ACTIONS = {
    "skip": "the test is not run",
    "xfail": "the test must fail; if it passes, the run fails",
}

#: The keys of an entry, with their meaning. The first four are required.
KEYS = {
    "test": "a node id, or a part of one that ends before :: or [; * and ? stand for any characters and for one",
    "owner": "who removes the entry",
    "reason": "why",
    "since": "the date, or the first 7 to 40 digits of the commit, of the entry",
    "until": "the last day on which the entry applies",
    "device": "a device kind, or several; if omitted, every test, also one without a device",
    "dtype": "a dtype, or several; if omitted, every test, also one without a dtype",
}

_REQUIRED = ("test", "owner", "reason", "since")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*(skip|xfail)[ \t]*\]\]", re.MULTILINE)
_LONG_TEXT = re.compile(r'"""(?:[^\\]|\\.)*?"""|' + "'''.*?'''", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a table; empty `devices` or `dtypes` mean all. `where` is its file and line."""

    action: str
    test: str
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    owner: str
    reason: str
    since: str
    until: date | None
    where: str

    @property
    def told(self) -> str:
        """The reason as a run prints it."""
        return f"{self.reason} ({self.owner}, since {self.since}; {self.where})"

    def covers(self, parameters: str, kind: str | None, dtype: str | None) -> bool:
        """Whether a case, of a test that `test` names, matches in parameters, device kind and dtype."""
        _, bracket, wanted = self.test.partition("[")
        return (
            (not self.devices or kind in self.devices)
            and (not self.dtypes or dtype in self.dtypes)
            and (not bracket or _glob(wanted).fullmatch(parameters) is not None)
        )

    def has_expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return self.until is not None and self.until < today

    def overlaps(self, other: Entry) -> bool:
        """Whether both entries name the same test for a common device kind and dtype."""
        return (
            self.test == other.test
            and (not self.devices or not other.devices or bool({*self.devices} & {*other.devices}))
            and (not self.dtypes or not other.dtypes or bool({*self.dtypes} & {*other.dtypes}))
        )


class SkipTable:
    """The entries of all files. Those for a test function are looked up once.

    Parameters
    ----------
    entries : sequence of Entry
        The entries in the order of the files; of two that cover a case the first applies.
    today : date
        Entries that end before this day do not apply.
    """

    def __init__(self, entries: Sequence[Entry], *, today: date) -> None:
        self.expired = tuple(entry for entry in entries if entry.has_expired(today))
        self.entries = tuple(entry for entry in entries if not entry.has_expired(today))
        self._by_function: dict[str, list[Entry]] = {}

    def __repr__(self) -> str:
        return f"SkipTable({len(self.entries)} entries, {len(self.expired)} expired)"

    def find(self, nodeid: str, kind: str | None, dtype: str | None) -> list[Entry]:
        """All entries that cover a case; the first one applies."""
        function, _, parameters = nodeid.partition("[")
        if function not in self._by_function:
            self._by_function[function] = [entry for entry in self.entries if _names(entry.test, function)]
        return [entry for entry in self._by_function[function] if entry.covers(parameters, kind, dtype)]


def _names(test: str, function: str) -> bool:
    """Whether the part of `test` before its parameters names the function, or a class, file or folder around it."""
    return _above(test.partition("[")[0].rstrip("/")).fullmatch(function) is not None


@cache
def _above(text: str) -> re.Pattern[str]:
    return re.compile(f"{_glob(text).pattern}(?:(?:/|::).*)?", re.DOTALL)


@cache
def _glob(text: str) -> re.Pattern[str]:
    """A pattern in which only ``*`` and ``?`` are special, because an id contains brackets."""
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


# -------------------------------------------------------------------------------------------------- reading


def read_tables(paths: Sequence[Path], *, root: Path, kinds: Sequence[str], today: date) -> SkipTable:
    """Read tables.

    Parameters
    ----------
    paths : sequence of Path
        Files, or folders, of which every ``*.toml`` is read.
    root : Path
        The folder relative to which messages name the files.
    kinds : sequence of str
        The existing device kinds.
    today : date
        Entries that end before this day do not apply.

    Raises
    ------
    SettingError
        If a file cannot be read, or entries are invalid; it lists every fault with its file and line.
    """
    faults: list[str] = []
    entries: list[Entry] = []
    for path in _files(paths):
        for entry in _entries(path, _shown(path, root), kinds):
            entries.append(entry) if isinstance(entry, Entry) else faults.append(entry)
    faults += _duplicates(entries)
    if faults:
        raise SettingError("cuassay_skips: " + "\n".join(faults))
    return SkipTable(entries, today=today)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise SettingError(f"cuassay_skips: the folder {path} holds no *.toml file; name a table, or add one")
        yield from found


def _shown(path: Path, root: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _entries(path: Path, name: str, kinds: Sequence[str]) -> Iterator[Entry | str]:
    """The entries of one file, and a message for each invalid one."""
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, ValueError) as error:
        yield f"{name} cannot be read: {error}"
        return
    for key, rows in tables.items():
        if key not in ACTIONS or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            yield f"{name}: {key!r} is not an entry; write [[skip]] or [[xfail]]"
            continue
        lines = _lines(text, key)
        for number, row in enumerate(rows):
            where = f"{name}:{lines[number]}" if len(lines) == len(rows) else f"{name}: {key} {number + 1}"
            faults = list(_faults(row, kinds))
            yield f"{where}: {'; '.join(faults)}" if faults else _entry(row, key, where)


def _lines(text: str, action: str) -> list[int]:
    """The line number of each header of `action`, which tomllib does not provide."""
    text = _LONG_TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
    return [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text) if found[1] == action]


def _faults(row: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    yield from (f"{key!r} is not a key{did_you_mean(key, KEYS)}; keys: {', '.join(KEYS)}" for key in row.keys() - KEYS)
    yield from (f"it has no {key}; add {key} = ...: {KEYS[key]}" for key in _REQUIRED if key not in row)
    for key in ("test", "owner", "reason"):
        if key in row and not (isinstance(row[key], str) and row[key].strip()):
            yield f"{key} must be text; got {shown(row[key])}; write {KEYS[key]}"
    if "since" in row and _date(row["since"]) is None and not _is_commit(row["since"]):
        yield f"since is neither a date nor a commit; got {shown(row['since'])}; write one such as 2026-01-31"
    if "until" in row and _date(row["until"]) is None:
        yield f"until is not a date; got {shown(row['until'])}; write one such as 2026-01-31"
    for name in _words(row.get("device")):
        if name not in kinds:
            yield f"device {shown(name)} is not a kind{did_you_mean(str(name), kinds)}; known: {', '.join(kinds)}"
    yield from (unknown_dtype(name) for name in _words(row.get("dtype")) if name not in DTYPE_NAMES)


def _entry(row: Mapping[str, Any], action: str, where: str) -> Entry:
    return Entry(
        action=action,
        test=row["test"],
        devices=_words(row.get("device")),
        dtypes=_words(row.get("dtype")),
        owner=row["owner"],
        reason=row["reason"],
        since=str(row["since"]),
        until=_date(row.get("until")),
        where=where,
    )


def _words(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list) and given else (given,)


def _date(given: object) -> date | None:
    if type(given) is date:
        return given
    try:
        return date.fromisoformat(given) if isinstance(given, str) else None
    except ValueError:
        return None


def _is_commit(given: object) -> bool:
    return isinstance(given, str) and _COMMIT.fullmatch(given) is not None


def _duplicates(entries: Sequence[Entry]) -> Iterator[str]:
    by_test: dict[str, list[Entry]] = {}
    for entry in entries:
        former = next((other for other in by_test.get(entry.test, ()) if entry.overlaps(other)), None)
        if former is not None:
            yield f"{entry.where}: {entry.test} is at {former.where} already; remove one of the two"
        by_test.setdefault(entry.test, []).append(entry)
