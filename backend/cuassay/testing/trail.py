"""Record a test's last calls of ops and kernel launches, in memory that outlives the process.

Only a worker that is replaced keeps a trail, so that launches elsewhere cost nothing more. Launches by CuPy or torch
themselves are not recorded.
"""

from __future__ import annotations

import struct
import sys
from itertools import count
from mmap import mmap
from typing import IO, Any

from cuassay.core.handle import Handle

__all__ = ["Trail"]

#: The number of lines that are kept, and the bytes of each.
_LINES, _LENGTH = 8, 248

_NUMBER = struct.Struct("q")
_NBYTES = _NUMBER.size + _LINES * _LENGTH


class Trail(Handle):
    """The most recent lines, in memory that another process can share.

    Parameters
    ----------
    file : int
        The descriptor of a file prepared by `make_room`; with -1 only this process has the lines.
    """

    def __init__(self, file: int = -1) -> None:
        self._pages = mmap(file, _NBYTES)
        self._next = count()
        self._watched: set[str] = set()

    def __repr__(self) -> str:
        return f"Trail({len(self.lines())} lines)"

    @staticmethod
    def make_room(file: IO[bytes]) -> None:
        """Give `file` the size of a trail."""
        file.truncate(_NBYTES)

    def note(self, text: str) -> None:
        """Store `text` in place of the oldest line."""
        number = next(self._next)
        start = _NUMBER.size + number % _LINES * _LENGTH
        self._pages[start : start + _LENGTH] = text.encode(errors="replace")[:_LENGTH].ljust(_LENGTH, b"\0")
        _NUMBER.pack_into(self._pages, 0, number + 1)

    def lines(self) -> list[str]:
        """The stored lines, the oldest first."""
        (number,) = _NUMBER.unpack_from(self._pages)
        starts = [_NUMBER.size + one % _LINES * _LENGTH for one in range(max(0, number - _LINES), number)]
        kept = (self._pages[start : start + _LENGTH].rstrip(b"\0") for start in starts)
        return [line.decode(errors="replace") for line in kept]

    def begin(self) -> None:
        """Forget the lines, because another test begins, and watch the devices that have been loaded since."""
        self._next = count()
        _NUMBER.pack_into(self._pages, 0, 0)
        registry = sys.modules.get("cuassay.ops.registry")  # if it is not loaded, no op or device was used
        if registry is None:
            return
        if not self._watched:
            from cuassay.ops.explain import note_calls

            note_calls(self.note)
        for backend in registry.backends():
            note_launches = getattr(backend, "note_launches", None)
            if note_launches is not None and backend.kind not in self._watched:
                note_launches(self.note)
        self._watched = {"ops", *(backend.kind for backend in registry.backends())}

    def add_to(self, shown: Any) -> None:
        """Append the lines, if there are any, to a failed test's text, which is a report's ``longrepr``."""
        if (lines := self.lines()) and hasattr(shown, "addsection"):
            shown.addsection("cuassay: last calls and launches", "\n".join(lines))

    def close(self) -> None:
        """Release the memory; may be called twice."""
        self._pages.close()
