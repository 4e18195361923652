"""Reservations of device memory between processes: files in a folder, each locked by its owner.

A reservation waits until it fits next to all earlier ones, so that none waits forever. The kernel releases the lock of
a process that ends in any way, and the next process that looks removes its file.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cuassay.core.handle import Handle

__all__ = ["Need", "Reservation"]

#: Seconds between two attempts of a waiting reservation.
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Need:
    """What a test needs of a device.

    Attributes
    ----------
    device : str
        A name of the device that is the same in every process: its UUID.
    nbytes, total : int
        The bytes needed, and the device's memory. A need above `total` counts as `total`.
    alone : bool
        Whether no other process may use the device.
    """

    device: str
    nbytes: int
    total: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """A reservation, as the name of its file encodes it."""

    ticket: int
    nbytes: int
    alone: bool

    @property
    def name(self) -> str:
        return f"{self.ticket:012}-{self.nbytes}-{int(self.alone)}"

    @classmethod
    def parse(cls, name: str) -> Self:
        ticket, nbytes, alone = map(int, name.split("-"))
        return cls(ticket, nbytes, bool(alone))


_ENTRY = re.compile(r"\d{12}-\d+-[01]")


class Reservation(Handle):
    """A place in the queue for a device. It takes effect when `try_begin` or `wait` succeeds, and ends with `close`.

    Parameters
    ----------
    folder : path
        The folder that the processes share; created if it does not exist.
    need : Need
        What to reserve.
    """

    def __init__(self, folder: Path, need: Need) -> None:
        self._need = need
        self._folder = folder / re.sub(r"[^\w.-]", "_", need.device)
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            ticket = max((entry.ticket for entry in self._entries()), default=0) + 1
            self._entry = _Entry(ticket, min(need.nbytes, need.total), need.alone)
            self._file = _open(self._folder / self._entry.name)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._is_first = self._fits()
        _reservations.add(self)

    def __repr__(self) -> str:
        return f"Reservation({self._need.device}, {self._entry.nbytes:,} bytes{', alone' * self._need.alone})"

    def try_begin(self) -> bool:
        """Whether the reservation is in effect; if so, it stays in effect until `close`."""
        if not self._is_first:
            with self._locked():
                self._is_first = self._fits()
        return self._is_first

    def wait(self) -> None:
        """Wait until the reservation is in effect."""
        while not self.try_begin():
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End the reservation; may be called twice."""
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(FileNotFoundError):  # somebody has removed the folder
                (self._folder / self._entry.name).unlink()
            os.close(file)

    def forget(self) -> None:
        """Close the file in a forked child, where the reservation belongs to the parent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _fits(self) -> bool:
        before = [entry for entry in self._entries() if entry.ticket < self._entry.ticket and self._is_alive(entry)]
        if any(entry.alone for entry in before) or (self._entry.alone and before):
            return False
        return sum(entry.nbytes for entry in before) + self._entry.nbytes <= self._need.total

    def _entries(self) -> Iterator[_Entry]:
        return (_Entry.parse(path.name) for path in self._folder.iterdir() if _ENTRY.fullmatch(path.name))

    def _is_alive(self, entry: _Entry) -> bool:
        """Whether the process of the entry lives; removes the file of one that does not."""
        path = self._folder / entry.name
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(file)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the queue, so that no other process can read or change it."""
        lock = _open(self._folder / "lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


_reservations: weakref.WeakSet[Reservation] = weakref.WeakSet()


def _in_child() -> None:
    for reservation in tuple(_reservations):
        reservation.forget()


os.register_at_fork(after_in_child=_in_child)
