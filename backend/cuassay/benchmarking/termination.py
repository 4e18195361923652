"""SIGTERM, as a CI system or ``kill`` sends it, ends a command like an interruption: children end, files are kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["exit_on_sigterm"]


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Inside the block SIGTERM raises `SystemExit` in the main thread, with the status that a shell gives: 143.

    Outside of the main thread nothing changes: only the main thread may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _exit(number: int, frame: object) -> NoReturn:
    del frame
    raise SystemExit(128 + number)
