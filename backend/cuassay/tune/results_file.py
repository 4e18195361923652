"""A file of JSON lines with a header line that identifies it. A file with another header is never changed.

`cuassay_reports.lines` reads and appends lines. This module requires that every line is complete and the header fits.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cuassay.errors import TuningError
from cuassay_reports.lines import append, canonical, content, locked, opened, parse

__all__ = ["ResultsFile"]


class ResultsFile:
    """The file at `path`, whose first line is `header`.

    Parameters
    ----------
    path : path
        The file. The first `append` creates it and its folder.
    header : mapping
        The first line of the file: flat, except for a mapping of validators.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        self.path, self.header = Path(path), dict(header)

    def __repr__(self) -> str:
        return f"ResultsFile({str(self.path)!r}, {self.header.get('format')!r})"

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Append rows at once, after rows that other processes have added.

        Raises
        ------
        TuningError
            If the header differs, or the file is cut off or cannot be written. The file is unchanged then.
        """
        with self._locked(os.O_RDWR, fcntl.LOCK_EX) as file:
            text = self._content(file)
            if text:
                self._checked(text)
            lines = [*([] if text else [self.header]), *rows]
            with self._explained("written"):
                append(file, "".join(f"{canonical(line)}\n" for line in lines).encode())

    def read(self) -> list[tuple[int, dict[str, Any]]]:
        """Return every row with the number of its line.

        Raises
        ------
        TuningError
            If the file does not exist, cannot be read or is cut off, or the header differs.
        """
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as file:
            text = self._content(file)
        if not text.strip():
            raise TuningError(f"{self.path} is empty; it should begin with a header: remove it")
        return self._checked(text)[1:]

    @contextmanager
    def _locked(self, access: int, kind: int) -> Iterator[int]:
        with ExitStack() as stack:
            with self._explained("opened"):
                file = opened(self.path) if access == os.O_RDWR else os.open(self.path, access | os.O_CLOEXEC)
            stack.callback(os.close, file)
            with self._explained("locked"):  # a network file system may not support locks
                stack.enter_context(locked(file, kind))
            yield file

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TuningError(f"{self.path} cannot be {what}: {error.strerror}; name another file") from error

    def _content(self, file: int) -> bytes:
        with self._explained("read"):
            return content(file)

    def _checked(self, text: bytes) -> list[tuple[int, dict[str, Any]]]:
        """Return every object with the number of its line, the header first."""
        lines = parse(text)
        for number, reason in sorted(lines.wrong.items()):
            raise TuningError(f"{self.path} cannot be read: line {number} {reason}")
        if lines.tail:
            number = text.count(b"\n") + 1
            raise TuningError(
                f"{self.path} is cut off: line {number} has no end and begins {lines.tail[:40]!r}; remove that line"
            )
        self._check_header(next(iter(lines.rows.values()), {}))
        return list(lines.rows.items())

    def _check_header(self, got: Mapping[str, Any]) -> None:
        """Raise `TuningError` naming the differing field, unless the first row is the header."""
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
