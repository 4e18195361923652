"""What a worker does with one shard: check its code and its device, run the tests in a process, and send their rows.

The process ends with the worker. One that runs tests is forked from a warm process; see `cuassay.fleet.warm`. It
appends rows to a file. The worker sends new rows as events of dask's scheduler, with the number of the first one, and
at the end the number of all rows. The driver counts the rows of an attempt only when it has received all of them.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from cuassay.errors import CuassayError
from cuassay.fleet.code import digest_of
from cuassay.fleet.health import why_unfit
from cuassay.fleet.task import ROWS, TESTS, Task
from cuassay.fleet.warm import PYTEST, Warm, can_warm
from cuassay.results.compiled import keeping_compiled
from cuassay.results.lifeline import Lifeline

__all__ = ["COMPILED", "dask_setup", "is_busy", "run_shard", "stop_shard"]

#: What runs a shard.
_Process: TypeAlias = subprocess.Popen[bytes] | Warm

#: dask's setting for the folder in which all workers of a local fleet keep compiled modules.
COMPILED = "cuassay.compiled"

#: How dask's message begins if a heartbeat has found its connection closed.
_HEARTBEAT_FAILED = "Failed to communicate with scheduler during heartbeat"

#: How often the process is looked at, seconds.
_POLL_SECONDS = 0.02

#: Lines of its output that are sent where it did not end well.
_TAIL_LINES = 60

#: Processes of the attempts that run here, by run and attempt; None before it has started.
_running: dict[tuple[str, int], _Process] = {}
_stopped: set[tuple[str, int]] = set()

#: Warm processes that run no shard. A worker has one, as it runs one shard at a time.
_warm: list[Warm] = []

Send = Callable[[dict[str, Any]], None]


def dask_setup(worker: Any) -> None:
    """Prepare a worker for shards, above all start its warm process. dask calls this when the worker starts."""
    logging.getLogger("distributed.worker").addFilter(lambda record: not _is_of_closing(worker, record))
    if can_warm([PYTEST]):
        _warm.append(Warm())


def _is_of_closing(worker: Any, record: logging.LogRecord) -> bool:
    """Whether dask logs that a heartbeat failed, of a worker that is closing its connections at that moment."""
    return str(record.msg).startswith(_HEARTBEAT_FAILED) and worker.status.name != "running"


def run_shard(words: dict[str, Any], name: str) -> None:
    """Run one task of words; called by dask in a worker.

    Parameters
    ----------
    words : dict
        As `Task.words` gives them.
    name : str
        Of this worker; each event bears it.
    """
    import dask
    from distributed import get_worker

    task, worker = Task(**words), get_worker()

    def send(event: dict[str, Any]) -> None:
        worker.log_event(task.topic, {"attempt": task.attempt, "worker": name, **event})

    why = _why_refused(task)
    if why is None:
        _run(task, send, Path(dask.config.get(COMPILED, worker.local_directory)))
    else:
        send({"event": "refused", "why": why})


def stop_shard(run: str, attempt: int) -> None:
    """End an attempt that is not wanted any more: another one has ended first."""
    _stopped.add((run, attempt))
    if (process := _running.get((run, attempt))) is not None:
        process.kill()


def is_busy() -> bool:
    """Whether this worker runs a shard."""
    return bool(_running)


def _why_refused(task: Task) -> str | None:
    """Why this worker does not run `task`: other code, or a device that is not well."""
    try:
        found = digest_of(task.code)
    except CuassayError as error:
        return str(error)
    if found != task.digest:
        what = "the files of its folder" if task.code == "." else task.code
        return f"{what} has digest {found[:12]}, and the run asks for {task.digest[:12]}; install the same code there"
    reasons = (why_unfit(kind) for kind in task.kinds)
    return next((why for why in reasons if why is not None), None)


@dataclass
class _Sent:
    """What of the rows was sent."""

    path: Path
    send: Send
    offset: int = 0
    lines: int = 0
    rest: bytes = field(default=b"", repr=False)

    def flush(self) -> bool:
        """Send the lines that are new, if there are any; a line without an end waits."""
        if not self.path.exists():
            return False
        with self.path.open("rb") as file:
            file.seek(self.offset)
            found = file.read()
        self.offset += len(found)
        *whole, self.rest = (self.rest + found).split(b"\n")
        if whole:
            self.send({"event": "rows", "first": self.lines, "lines": [line.decode() for line in whole]})
            self.lines += len(whole)
        return bool(whole)


def _run(task: Task, send: Send, kept: Path) -> None:
    key = (task.run, task.attempt)
    with TemporaryDirectory(prefix="cuassay-fleet-", ignore_cleanup_errors=True) as folder, Lifeline() as lifeline:
        rows, tests, log = (Path(folder, name) for name in ("rows.jsonl", "tests.txt", "log"))
        tests.write_text("\n".join(task.tests), encoding="utf-8")
        log.touch()
        files = {ROWS: str(rows), TESTS: str(tests)}
        words = [_filled(word, files) for word in task.arguments]
        _running[key] = process = _start(words, log, lifeline, _environment(kept))
        sent = _Sent(rows, send)
        try:
            _send_until_ended(process, sent, task.flush_s, is_stopped=lambda: key in _stopped)
        finally:
            del _running[key]
            process.kill()
            process.wait()
            _keep(process)
        if isinstance(process, Warm) and process.is_lost and key not in _stopped:
            raise ChildProcessError("the process that forks shards ended before its shard")
        tail = "" if process.returncode == 0 else "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        send({"event": "ended", "lines": sent.lines, "status": process.returncode, "tail": tail})


def _start(words: Sequence[str], log: Path, lifeline: Lifeline, environment: Mapping[str, str]) -> _Process:
    """Run ``python -m`` with `words`: a fork where that is as good as a new process."""
    if can_warm(words):
        while _warm and not _warm[-1].is_well:
            _warm.pop().close()
        warm = _warm.pop() if _warm else Warm()
        warm.run(words, log, environment)
        return warm
    with log.open("wb") as output:
        return subprocess.Popen(
            lifeline.command(words),
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=lifeline.inherited,
            env=environment,
        )


def _keep(process: _Process) -> None:
    """Keep a warm process for the next shard, if it can run one."""
    if not isinstance(process, Warm):
        return
    if process.is_well:
        _warm.append(process)
    else:
        process.close()


def _environment(folder: Path) -> dict[str, str]:
    """Without what says that this is a worker of pytest-xdist: pytest-benchmark would measure nothing.

    Shards share compiled modules in `folder` where none are kept next to the code.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return keeping_compiled(found, folder)


def _filled(word: str, files: dict[str, str]) -> str:
    for name, path in files.items():
        word = word.replace(name, path)
    return word


def _send_until_ended(process: _Process, sent: _Sent, flush_s: float, *, is_stopped: Callable[[], bool]) -> None:
    """Send rows as they come, with `flush_s` between two messages, and the rest after the end of the process."""
    flushed = -flush_s
    while process.poll() is None and not is_stopped():
        if time.monotonic() - flushed >= flush_s and sent.flush():
            flushed = time.monotonic()
        time.sleep(_POLL_SECONDS)
    process.kill()
    process.wait()
    sent.flush()
