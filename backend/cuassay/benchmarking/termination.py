"""Let SIGTERM, as sent by a CI system or ``kill``, end a command like Ctrl-C: children end, and files are kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["exit_on_sigterm"]


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `SystemExit` in the main thread inside the block, with the status 143 as in a shell.

    In other threads this does nothing, because only the main thread may set signal handlers.
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
