"""Run the tests of one mutant after another, each in a fork of a process that has loaded the large libraries.

This runs as a script, so that no code under test is loaded before the fork. The first line of its input is a list of
modules to load. Each further line is a JSON object ``{"cwd", "paths", "arguments", "seconds"}``. The answer is
``{"status", "seconds", "output"}``, where `status` is pytest's exit status, a negative signal, or null at the time
limit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from typing import Any

__all__ = ["KEPT", "kill_group", "load", "wait_for"]

#: How many bytes at the end of the output are kept.
KEPT = 6000

_POLL_SECONDS = 0.02


def main() -> None:
    """Serve until the input ends."""
    sys.path.pop(0)  # this file's own folder
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output of modules and tests out of the answers
    for name in json.loads(sys.stdin.readline()):
        load(name)
    for line in sys.stdin:
        answers.write(json.dumps(_serve(json.loads(line))) + "\n")
        answers.flush()


def load(name: str) -> None:
    """Import a library, marked so that pytest does not warn that its assertions can no longer be rewritten."""
    with contextlib.suppress(Exception):
        module = importlib.import_module(name)
        module.__doc__ = f"{module.__doc__ or ''}\nPYTEST_DONT_REWRITE"


def _serve(job: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            _run(job, output.fileno())
        try:
            status = wait_for(pid, begun + job["seconds"])
        except BaseException:  # SIGTERM while the tests are running
            kill_group(pid)
            raise
        output.seek(max(0, output.seek(0, os.SEEK_END) - KEPT))
        text = output.read().decode(errors="replace")
    return {"status": status, "seconds": time.monotonic() - begun, "output": text}


def _run(job: dict[str, Any], output: int) -> None:
    """In the child: start a process session, so that all its processes can be ended together, and run pytest."""
    status = 3
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(job["cwd"])
        sys.path[:0] = job["paths"]
        pytest = importlib.import_module("pytest")
        status = int(pytest.main(job["arguments"]))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def wait_for(pid: int, until: float) -> int | None:
    """Wait for a process and return its exit status, or None if the time was up and it was killed."""
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            kill_group(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_SECONDS)
    kill_group(pid)
    os.waitpid(pid, 0)
    return None


def kill_group(pid: int) -> None:
    """Kill a process and all processes of its session that are still running."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
