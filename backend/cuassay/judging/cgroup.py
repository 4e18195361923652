"""A control group for one candidate: the kernel's own limit on its memory, if this process may create groups.

The supervisor checks processes only from time to time. That is too late for a process that takes gigabytes at once, and
misses pages of shared memory that no process maps any more. A group counts both. Version 2 is tried first, in this
process's group and its parent, then version 1. See cgroups(7).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["ROOT", "MemoryGroup"]

ROOT = Path("/sys/fs/cgroup")

#: Seconds that a group's last process may take to leave the group.
_PATIENCE_SECONDS = 1.0


class MemoryGroup:
    """A group whose processes may use a limited amount of memory together; `close` removes it.

    Parameters
    ----------
    folder : Path
        The group's folder.
    events : str
        The name of the file that counts processes killed for their memory, or rejected allocations.
    """

    def __init__(self, folder: Path, events: str) -> None:
        self._folder, self._events = folder, events

    def __repr__(self) -> str:
        return f"MemoryGroup({self._folder})"

    @classmethod
    def make(cls, nbytes: int, *, root: Path = ROOT, own: str | None = None) -> Self:
        """Make a group that is limited to `nbytes`.

        Parameters
        ----------
        root : Path
            The mount point of control groups.
        own : str, optional
            The groups of this process, in the format of ``/proc/self/cgroup``.

        Raises
        ------
        OSError
            If no group can be created, or its memory cannot be limited.
        """
        text = Path("/proc/self/cgroup").read_text(encoding="ascii") if own is None else own
        problem = OSError(f"no memory controller under {root}")
        for parent, limit, events in _places(root, text):
            folder = parent / f"cuassay-{os.getpid()}"
            try:
                folder.mkdir()
                with (folder / limit).open("r+") as file:  # exists only if memory can be limited
                    file.write(str(nbytes))
            except OSError as error:
                problem = error
                with suppress(OSError):
                    folder.rmdir()
                continue
            with suppress(OSError):  # absent without swap
                (folder / "memory.swap.max").write_text("0")
            return cls(folder, events)
        raise problem

    def enter(self) -> None:
        """Put this process, and all that it will start, into the group; raises `OSError`."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def was_exceeded(self) -> bool:
        """Return whether the kernel killed a process of the group for its memory."""
        with suppress(OSError, ValueError):
            words = (self._folder / self._events).read_text(encoding="ascii").split()
            return any(int(count) > 0 for name, count in itertools.pairwise(words) if name == "oom_kill")
        return False

    def close(self) -> None:
        """Remove the group after its processes have ended."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # a process is still ending
                time.sleep(0.001)
            else:
                return


def _places(root: Path, own: str) -> Iterator[tuple[Path, str, str]]:
    """Yield groups in which a group might be created, with the names of their limit and event files."""
    rows = [line.split(":", 2) for line in own.splitlines()]
    for _, controllers, path in rows:
        if not controllers:
            for mounted in (root, root / "unified"):
                group = mounted / path.lstrip("/")
                if (group / "cgroup.controllers").exists():
                    yield group, "memory.max", "memory.events"
                    if path != "/":
                        yield group.parent, "memory.max", "memory.events"
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            yield root / "memory" / path.lstrip("/"), "memory.limit_in_bytes", "memory.oom_control"
