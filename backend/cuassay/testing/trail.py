"""What a test did last on its device: calls of ops and launches, kept where they outlive the process.

Only a worker that is replaced keeps a trail: elsewhere a launch costs what it did. What CuPy or torch launch by
themselves is not seen.
"""

from __future__ import annotations

import struct
import sys
from itertools import count
from mmap import mmap
from typing import IO, Any

from cuassay.core.handle import Handle

__all__ = ["Trail"]

#: Lines that are kept, and bytes of each.
_LINES, _LENGTH = 8, 248

_NUMBER = struct.Struct("q")
_NBYTES = _NUMBER.size + _LINES * _LENGTH


class Trail(Handle):
    """The last lines noted, in pages that another process may share.

    Parameters
    ----------
    file : int
        A descriptor of a file of `make_room`; -1 keeps the lines in this process alone.
    """

    def __init__(self, file: int = -1) -> None:
        self._pages = mmap(file, _NBYTES)
        self._next = count()
        self._watched: set[str] = set()

    def __repr__(self) -> str:
        return f"Trail({len(self.lines())} lines)"

    @staticmethod
    def make_room(file: IO[bytes]) -> None:
        """Give `file` the length of a trail."""
        file.truncate(_NBYTES)

    def note(self, text: str) -> None:
        """Keep `text`, in the place of the oldest line."""
        number = next(self._next)
        start = _NUMBER.size + number % _LINES * _LENGTH
        self._pages[start : start + _LENGTH] = text.encode(errors="replace")[:_LENGTH].ljust(_LENGTH, b"\0")
        _NUMBER.pack_into(self._pages, 0, number + 1)

    def lines(self) -> list[str]:
        """What is kept, the oldest first."""
        (number,) = _NUMBER.unpack_from(self._pages)
        starts = [_NUMBER.size + one % _LINES * _LENGTH for one in range(max(0, number - _LINES), number)]
        kept = (self._pages[start : start + _LENGTH].rstrip(b"\0") for start in starts)
        return [line.decode(errors="replace") for line in kept]

    def begin(self) -> None:
        """Forget the lines, as another test begins; let what is loaded by now note what it does."""
        self._next = count()
        _NUMBER.pack_into(self._pages, 0, 0)
        registry = sys.modules.get("cuassay.ops.registry")  # without it neither an op nor a device was used
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
        """Add the lines, if there are any, to the text of a failed test: a report's ``longrepr``."""
        if (lines := self.lines()) and hasattr(shown, "addsection"):
            shown.addsection("cuassay: last calls and launches", "\n".join(lines))

    def close(self) -> None:
        """Give the pages back; twice is allowed."""
        self._pages.close()
