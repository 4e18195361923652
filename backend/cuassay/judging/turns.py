"""Turns of candidates: several are checked at the same time, and a timed one runs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]


class Turns:
    """Lets candidates be checked at the same time, and a timed candidate run alone.

    Otherwise a candidate could slow down the baseline of another candidate while it is measured.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._checked, self._timed = 0, False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Check a candidate inside the block, after waiting until none is timed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timed)
            self._checked += 1
        try:
            yield
        finally:
            with self._changed:
                self._checked -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Time a candidate inside the block, after waiting until no other candidate runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timed and not self._checked)
            self._timed = True
        try:
            yield
        finally:
            with self._changed:
                self._timed = False
                self._changed.notify_all()
