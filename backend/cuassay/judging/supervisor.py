"""Watches one candidate's process from outside its namespaces: its output, its memory, its children, its end.

The supervisor is forked from the zygote and runs no code of a candidate. It ends when the judge closes the *lifeline*,
when the candidate's process ends, or when that exceeds a limit; then everything that was started is killed. It reports
in lines of JSON on a pipe that the candidate's process cannot write.
"""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from cuassay.core.device import Device
from cuassay.judging import candidate, linux, shared
from cuassay.judging.cgroup import MemoryGroup
from cuassay.judging.device_memory import DeviceMemory
from cuassay.judging.jail import Jail
from cuassay.judging.limits import JailOptions, Limits
from cuassay.judging.protocol import Bell

__all__ = ["GO_ON", "STOP", "Order", "supervise"]

#: Seconds between two checks of memory and processes.
_LOOK_SECONDS = 0.05

#: The supervisor's own priority, if permitted: the processes that it must end may keep every core busy.
_PRIORITY = -10

_CHUNK = 1 << 16

#: The words that the judge writes on the lifeline.
STOP, GO_ON = b"s", b"g"


@dataclass(frozen=True, slots=True)
class Order:
    """The judge's description of one candidate for the supervisor.

    Parameters
    ----------
    device : str
        The device of its arrays.
    tier : str
        ``program`` or ``kernel``.
    files : tuple of (str, int)
        The names of its files, the main file first, and their lengths in bytes, in the order of `sources`.
    scratch : str
        The folder that it may write to.
    limits : Limits
        The limits of its process.
    jail : JailOptions or None
        The confinement; None for no jail.
    """

    device: str
    tier: str
    files: tuple[tuple[str, int], ...]
    scratch: str
    limits: Limits
    jail: JailOptions | None

    #: The descriptors that are sent along, in this order; the last one only where the device shares memory.
    DESCRIPTORS = ("control", "arena", "requests", "replies", "report", "lifeline", "sources", "device_arena")

    @classmethod
    def from_words(cls, words: dict[str, Any]) -> Order:
        """Make the order from a decoded message."""
        jail = words["jail"]
        made = None if jail is None else JailOptions(**{name: _hashable(one) for name, one in jail.items()})
        files = tuple((str(name), int(nbytes)) for name, nbytes in words["files"])
        return cls(words["device"], words["tier"], files, words["scratch"], Limits(**words["limits"]), made)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(slots=True)
class _Watch:
    """One candidate's process, as its supervisor sees it."""

    process: int
    output: int
    lifeline: int
    report: int
    limits: Limits
    kept: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def until_end(self) -> tuple[str, str]:
        """Wait for the end; return the reason and details."""
        handle = os.pidfd_open(self.process)
        ready = select.poll()
        for one in (handle, self.output, self.lifeline):
            ready.register(one, select.POLLIN)
        looked = time.monotonic()
        while True:
            events = dict(ready.poll(_LOOK_SECONDS * 1000))
            if self.lifeline in events and not self._obey():
                return "closed", ""
            if self.output in events and not self.drain():
                ready.unregister(self.output)
            if handle in events:
                return "ended", ""
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                if (excess := self._excess()) is not None:
                    return excess

    def _obey(self) -> bool:
        """Stop or continue the candidate's processes as ordered; return False if the judge has closed the lifeline."""
        word = os.read(self.lifeline, 1)
        if word == STOP:
            while running := [pid for pid in _descendants(os.getpid()) if _state(pid) not in "TtZX"]:
                _signal(running, signal.SIGSTOP)
        elif word == GO_ON:
            _signal(_descendants(os.getpid()), signal.SIGCONT)
        if word:
            _tell(self.report, stopped=word == STOP)
        return word != b""

    def drain(self) -> bool:
        """Read printed output; return False if no more can come."""
        try:
            text = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return True
        room = self.limits.output_nbytes - len(self.kept)
        self.kept += text[:room]
        self.dropped += max(len(text) - room, 0)
        return text != b""

    def drain_rest(self) -> None:
        """Read the rest of the pipe, whose other end is closed."""
        before = -1
        while before != (before := len(self.kept) + self.dropped):
            self.drain()

    def _excess(self) -> tuple[str, str] | None:
        found = list(_descendants(os.getpid()))
        threads = sum(map(_threads, found))
        if threads > self.limits.processes:
            return "processes", f"{threads} processes and threads; at most {self.limits.processes}"
        if sum(map(_resident, found)) > self.limits.memory_nbytes:  # counts shared pages once per process
            taken = sum(map(_proportional, found))
            if taken > self.limits.memory_nbytes:
                return "memory", f"{taken:,} bytes of memory; at most {self.limits.memory_nbytes:,}"
        return None


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text(encoding="ascii").split()):
                yield child
                yield from _descendants(child)


def _threads(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    return 0


def _state(pid: int) -> str:
    """Return the letter of a process's state from proc(5); ``Z`` if the process is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    return "Z"


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        return int(text.partition("\nPss:")[2].split()[0]) << 10
    return 0


_PAGE = os.sysconf("SC_PAGE_SIZE")


def supervise(order: Order, descriptors: dict[str, int]) -> NoReturn:
    """Start the candidate's process, watch it until it ends, report, and exit."""
    report, lifeline = descriptors["report"], descriptors["lifeline"]
    _tell(report, supervisor=os.getpid())
    linux.reap_descendants()
    group = None if order.jail is None else _group(order.limits, report)
    jail = None
    if order.jail is not None:
        jail = Jail(order.jail, order.limits, Device(order.device).kind, order.scratch)
        jail.before_fork()
    printed, prints = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(printed)
        os.close(lifeline)
        _become_candidate(order, jail, descriptors, prints, group)
    with suppress(OSError):  # only root may raise the priority
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    for name, one in descriptors.items():
        if name not in ("report", "lifeline"):
            os.close(one)
    os.close(prints)
    os.set_blocking(printed, False)
    watch = _Watch(process, printed, lifeline, report, order.limits)
    reason, detail = watch.until_end()
    status = _end(process)
    watch.drain_rest()
    shutil.rmtree(order.scratch, ignore_errors=True)  # the judge may have ended
    if reason == "ended":
        reason, detail = _meaning(status)
    if group is not None:
        if group.was_exceeded():
            reason, detail = "memory", f"more than {order.limits.memory_nbytes:,} bytes of memory"
        group.close()
    _tell(report, ended={"reason": reason, "detail": detail, "output": watch.kept.hex(), "dropped": watch.dropped})
    os._exit(0)


def _group(limits: Limits, report: int) -> MemoryGroup | None:
    """Return a control group for the candidate, or None if none can be made; report either."""
    try:
        group = MemoryGroup.make(limits.memory_nbytes)
    except OSError as error:
        _tell(report, group=f"no control group: {error}; memory is watched every {_LOOK_SECONDS:g} s")
        return None
    _tell(report, group="on")
    return group


def _enter(group: MemoryGroup, report: int) -> None:
    try:
        group.enter()
    except OSError as error:
        _tell(report, group=f"the control group takes no process: {error}; memory is watched every {_LOOK_SECONDS:g} s")


def _end(process: int) -> int:
    """Kill the process and all descendants that it left behind; return its status."""
    os.kill(process, signal.SIGKILL)  # it was not waited for, so its id cannot be reused yet
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    while True:
        _signal(_descendants(os.getpid()), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return status


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _meaning(status: int) -> tuple[str, str]:
    if status >= 0:
        return "exit", f"its process ended by itself, with status {status}"
    with suppress(ValueError):
        return "crash", f"its process was killed by {signal.Signals(-status).name}"
    return "crash", f"its process was killed by signal {-status}"


def _tell(report: int, **words: Any) -> None:
    with suppress(BrokenPipeError):  # the judge has ended
        text = json.dumps(words).encode() + b"\n"
        while text:
            text = text[os.write(report, text) :]


def _become_candidate(
    order: Order, jail: Jail | None, descriptors: dict[str, int], prints: int, group: MemoryGroup | None
) -> NoReturn:
    """Run the rest of the candidate's process."""
    try:
        report = descriptors["report"]
        if group is not None:
            _enter(group, report)
        scratch = order.scratch
        if jail is None:
            linux.die_with_parent()
        else:
            jail.enter()
            scratch = jail.scratch
        at = 0
        for name, nbytes in order.files:
            Path(scratch, name).write_bytes(os.pread(descriptors["sources"], nbytes, at))
            at += nbytes
        os.chdir(scratch)
        os.environ.update(HOME=scratch, TMPDIR=scratch)
        server = _server(order, descriptors)
        keep = {0, *(descriptors[name] for name in ("requests", "replies", "device_arena") if name in descriptors)}

        def confine() -> None:
            if jail is not None:
                jail.close()
                _tell(report, jail=jail.parts)
                if missing := jail.missing():
                    _tell(report, failed=f"the jail has no {missing}, and all of it is required")
                    os._exit(70)
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            for stream in (sys.stdout, sys.stderr):  # so that printed lines are not lost when it is killed
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(line_buffering=True)
            _close_all_but({*keep, 1, 2})

        candidate.serve(Path(scratch, order.files[0][0]), server, confine, tier=order.tier)
    except BaseException as error:  # noqa: BLE001  the child must never continue as the supervisor
        with suppress(OSError):
            _tell(descriptors["report"], failed=f"{type(error).__name__}: {error}")
        traceback.print_exc()  # if the report is closed, this goes to the candidate's output
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(70)


def _server(order: Order, descriptors: Mapping[str, int]) -> candidate.Server:
    device, bell = Device(order.device), Bell(descriptors["requests"], descriptors["replies"])
    control, arena = shared.mapped(descriptors["control"]), shared.mapped(descriptors["arena"])
    descriptor = descriptors.get("device_arena")
    memory = None if descriptor is None else DeviceMemory(device, order.limits.device_arena_nbytes, descriptor)
    return candidate.Server(device, control, arena, bell, memory)


def _close_all_but(kept: set[int]) -> None:
    low = 0
    for one in sorted(kept):
        if low < one:  # closerange(0, 0) would close everything: it requests the range from 0 to -1
            os.closerange(low, one)
        low = one + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
