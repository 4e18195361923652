"""Turns of candidates: those that are checked run together, and one whose time is taken runs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]


class Turns:
    """Lets candidates be checked together, and one whose time is taken run alone.

    Otherwise a candidate could slow the baseline of another one while that is measured.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._checked, self._timed = 0, False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Check a candidate, once no time is being taken."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timed)
            self._checked += 1
        try:
            yield
        finally:
            self._end(checked=1)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Take the time of a candidate, once no other one runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timed and not self._checked)
            self._timed = True
        try:
            yield
        finally:
            self._end(timed=True)

    def _end(self, *, checked: int = 0, timed: bool = False) -> None:
        with self._changed:
            self._checked -= checked
            self._timed = self._timed and not timed
            self._changed.notify_all()
