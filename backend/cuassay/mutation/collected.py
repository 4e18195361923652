"""A session of pytest that collects its tests once, and runs those of each mutant in a separate fork.

This is a pytest plugin, which is loaded with ``-p cuassay.mutation.collected``. The first line of the pipe that `JOBS`
names is a list of modules to load when the tests are collected. An empty answer in the pipe of `ANSWERS` says that this
is done. Each further line is a JSON object ``{"tests", "path", "right", "wrong", "seconds", "cpu_seconds"}``. The
answer is ``{"status", "seconds"}``, where `status` is as in `worker`, or `UNFIT`.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from cuassay.mutation.live import functions_by_file, put_in
from cuassay.mutation.worker import kill_group, load, wait_for

__all__ = ["ANSWERS", "JOBS", "UNFIT", "pytest_configure"]

#: Environment variables with the file descriptors of the two pipes.
JOBS, ANSWERS = "CUASSAY_MUTATION_JOBS", "CUASSAY_MUTATION_ANSWERS"

#: The status if the mutant cannot be applied to a process that has loaded its file, or none of its tests was collected.
UNFIT = 97


class _Forks:
    """Serves jobs in the session; in a fork, runs the tests of one job."""

    def __init__(self) -> None:
        self._jobs = os.fdopen(int(os.environ.pop(JOBS)))
        self._answers = os.fdopen(int(os.environ.pop(ANSWERS)), "w")
        self._is_fork = False
        self._status = 3
        self._functions: Mapping[str, Sequence[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Serve until there are no more jobs. In a fork, let pytest run the tests of a job."""
        if session.testsfailed or "cupy" in sys.modules:  # the CUDA driver cannot be used after a fork
            return True
        by_id = {item.nodeid: item for item in session.items}
        for module in json.loads(self._jobs.readline()):
            load(module)
        if "hypothesis" not in sys.modules:  # its plugin would import all of hypothesis for each summary
            session.config.pluginmanager.unregister(name="hypothesispytest")
        self._functions = functions_by_file()
        gc.collect()
        gc.freeze()  # objects that the collector ignores stay shared with forks
        self._answer({})
        for job in self._read():
            items = [by_id[test] for test in job["tests"] if test in by_id]
            begun = time.monotonic()
            pid = os.fork()
            if pid == 0:
                self._prepare(job, is_fit=bool(items))
                session.items = items
                session.testscollected = len(items)
                return None
            self._answer({"status": self._wait(pid, begun + job["seconds"]), "seconds": time.monotonic() - begun})
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Store the exit status."""
        self._status = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End a fork without the usual work at the exit of a process."""
        if self._is_fork:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._status)

    def _read(self) -> Iterator[dict[str, Any]]:
        return map(json.loads, iter(self._jobs.readline, ""))

    def _answer(self, answer: dict[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    @staticmethod
    def _wait(pid: int, until: float) -> int | None:
        try:
            return wait_for(pid, until)
        except BaseException:  # SIGTERM while the tests are running
            kill_group(pid)
            raise

    def _prepare(self, job: dict[str, Any], *, is_fit: bool) -> None:
        """In the fork: become the leader of a process session, as in `worker`, and change the code."""
        self._is_fork = True
        status = UNFIT
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_seconds"], resource.RLIM_INFINITY))
            self._jobs.close()
            self._answers.close()
            functions = self._functions.get(job["path"], ())
            if is_fit and put_in(Path(job["path"]), job["right"], job["wrong"], functions):
                status = 0
        finally:
            if status:
                os._exit(status)


def pytest_configure(config: pytest.Config) -> None:
    """Serve in this session, if the environment variables ask for it."""
    if os.environ.get(JOBS) and not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        config.pluginmanager.register(_Forks(), "cuassay_mutation_collected")
