"""A copy of the project, and the processes that test mutants in it, one after another."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cuassay.core import settings
from cuassay.errors import MutationError
from cuassay.mutation import collected
from cuassay.mutation.mutant import Mutant
from cuassay.mutation.outcome import Outcome, Verdict
from cuassay.mutation.project import copy_project, covering
from cuassay.mutation.worker import KEPT

if TYPE_CHECKING:
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.campaign import Campaign

__all__ = ["QUIET", "Bench"]

#: The smallest time limit for a mutant's tests, in seconds, and how many times longer than the baseline they may take.
_LEAST_SECONDS, _SLOWER = 20.0, 5.0

#: The largest total duration of tests, as measured without a mutant, and the largest number of tests for a mutant.
_MOST_SECONDS, _MOST_TESTS = 60.0, 400

#: How many tests run first. Most mutants are killed by them, and pytest need not collect the files of the others.
_FIRST = 12

#: The smallest limit of CPU seconds in a fork, so that an endless loop ends soon, even on a busy machine.
_LEAST_IN_FORK = 3.0

_AT_LIMIT = "ended at its time limit"

#: Exit statuses of pytest: usage error, and no tests collected.
_USAGE, _NONE_COLLECTED = 4, 5

#: What pytest says of a test that is missing: the file and the function, without parameters.
_NOT_FOUND = re.compile(r"^ERROR: not found: (.*)$", re.MULTILINE)

QUIET = ("-q", "--no-header", "-p", "no:cacheprovider")
_ARGUMENTS = ("-x", *QUIET, "--tb=short")


class Bench:
    """A copy of the project, and a process that runs tests in it."""

    def __init__(self, plan: Campaign, files: Sequence[str], baseline: Baseline, until: float) -> None:
        self._plan, self._files, self._baseline, self._until = plan, files, baseline, until
        self._folder = tempfile.TemporaryDirectory(prefix="cuassay-mutate-")
        self._copy = Path(self._folder.name).resolve() / "project"
        copy_project(plan.root, files, self._copy)
        self._seconds = itertools.count(1)
        self._cache = self._copy.parent / "cache"  # compiled mutants are deleted with it
        known = Path(settings.get("CUASSAY_CACHE_DIR"))
        if known.is_dir():
            shutil.copytree(known, self._cache)
        self._worker: subprocess.Popen[str] | None = None
        self._forks = Forks(self._command(), self._copy / plan.folder, self._environment(), self._copy.parent / "log")
        self._forks.send(baseline.modules)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()
        self._folder.cleanup()

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "pytest", *_ARGUMENTS, *self._plan.options, *self._plan.tests]

    def _environment(self) -> dict[str, str]:
        paths = os.pathsep.join(self._paths())
        return {**os.environ, "PYTHONPATH": paths, "CUASSAY_CACHE_DIR": str(self._cache)}

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name("worker.py"))]
        started = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment()
        )
        self._write(started, self._baseline.modules)
        return started

    @staticmethod
    def _write(worker: subprocess.Popen[str], message: Any) -> None:
        if worker.stdin is not None:
            worker.stdin.write(json.dumps(message) + "\n")
            worker.stdin.flush()

    def _paths(self) -> Iterator[str]:
        """Yield the folders for PYTHONPATH: those of the project in the copy, and others unchanged."""
        yield from (str(self._copy / name) for name in self._baseline.paths)
        yield from filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))

    def _end(self) -> None:
        self.stop()
        self._forks.end()
        if self._worker is not None:
            self._worker.communicate()

    def stop(self) -> None:
        """End the running tests. Their mutant gets no outcome."""
        self._forks.stop()
        if self._worker is not None:
            self._worker.terminate()

    def judge(self, mutant: Mutant) -> Outcome | None:
        """Change the file, run the tests that cover the change, and restore it. Returns None if the time was up."""
        tests = list(self._chosen(covering(mutant, self._plan.root, self._files, self._baseline)))
        if not tests:
            unknown = self._baseline.left_out > 0  # a test that was not started might run these lines
            return None if unknown else Outcome(mutant, "uncovered", note="no test that passes runs these lines")
        self._forks.wait_until_collected()  # while the files are unchanged
        place = self._copy / mutant.path
        right = (self._plan.root / mutant.path).read_text(encoding="utf-8")
        self._write_source(place, mutant.edit.apply(right))
        begun = time.monotonic()
        try:
            outcome = self._in_fork(mutant, tests, right) or self._anew(mutant, tests)
        finally:
            self._write_source(place, right)
        is_late = time.monotonic() >= self._until and (outcome is None or outcome.note == _AT_LIMIT)
        return None if is_late else outcome and replace(outcome, tests=len(tests), seconds=time.monotonic() - begun)

    def _in_fork(self, mutant: Mutant, tests: Sequence[str], right: str) -> Outcome | None:
        """Return the outcome in a fork that has collected the tests, or None if only a new process can decide."""
        if not mutant.path.endswith(".py"):
            return None
        texts = {"path": str(self._copy / mutant.path), "right": right, "wrong": mutant.edit.apply(right)}
        seconds = sum(self._baseline.durations[test] for test in tests)
        cpu_seconds = math.ceil(_LEAST_IN_FORK + _SLOWER * seconds)
        answer = self._forks.ask({"tests": tests, **texts, "seconds": self._limit(tests), "cpu_seconds": cpu_seconds})
        if answer is None:
            return None
        outcome = _outcome(mutant, len(tests), answer)
        # Code that ran before the fork ran without the mutant.
        is_doubtful = self._baseline.may_be_run_before(mutant.path, mutant.line, mutant.last_line)
        return None if outcome.verdict != "killed" and is_doubtful else outcome

    def _anew(self, mutant: Mutant, tests: Sequence[str]) -> Outcome | None:
        """Return the outcome in a process that loads the changed file and collects the tests."""
        outcome = _outcome(mutant, len(tests), self._ask_present(tests[:_FIRST]))
        if outcome.verdict == "survived" and len(tests) > _FIRST:
            outcome = _outcome(mutant, len(tests), self._ask_present(tests[_FIRST:]))
        return outcome

    def _ask_present(self, tests: Sequence[str]) -> dict[str, Any]:
        """Run the tests; pytest runs none if one is missing, such as a parameter of the mutant's, so it is left out."""
        answer = self._ask(tests)
        missing = _NOT_FOUND.findall(answer["output"]) if answer["status"] == _USAGE else []
        present = [test for test in tests if not any(one.endswith(f"/{test.partition('[')[0]}") for one in missing)]
        return self._ask(present) if missing and present else answer

    def _write_source(self, place: Path, text: str) -> None:
        """Write a source file with a unique modification time, by which Python recognizes stale compiled files."""
        place.write_text(text, encoding="utf-8")
        os.utime(place, 2 * (next(self._seconds),))

    def _limit(self, tests: Sequence[str]) -> float:
        seconds = sum(self._baseline.durations[test] for test in tests)
        return max(0.0, min(_LEAST_SECONDS + _SLOWER * seconds, self._until - time.monotonic()))

    def _chosen(self, tests: Sequence[str]) -> Iterator[str]:
        """Yield as many tests as time allows. A test that is too long is skipped, unless it comes first."""
        spent = 0.0
        for test in tests[:_MOST_TESTS]:
            duration = self._baseline.durations[test]
            if not spent or spent + duration <= _MOST_SECONDS:
                spent += duration
                yield test

    def _ask(self, tests: Sequence[str]) -> dict[str, Any]:
        listed = self._copy.parent / "tests.txt"
        listed.write_text("\n".join(tests), encoding="utf-8")  # more than a command line may hold
        job = {
            "cwd": str(self._copy),
            "paths": list(self._paths()),
            "arguments": [*_ARGUMENTS, *self._plan.options, f"@{listed}"],
            "seconds": self._limit(tests),
        }
        worker = self._worker = self._worker or self._start()
        self._write(worker, job)
        line = "" if worker.stdout is None else worker.stdout.readline()
        if not line:
            raise MutationError(f"the process that runs the tests ended with status {worker.wait()}; run again")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Forks:
    """A session of pytest that collects the tests of a copy and runs them in forks, if possible; see `collected`."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> None:
        (jobs, to_jobs), (from_answers, answers) = os.pipe(), os.pipe()
        ends = {collected.JOBS: str(jobs), collected.ANSWERS: str(answers)}
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "-p", collected.__name__],
                cwd=folder, env={**environment, **ends}, pass_fds=(jobs, answers),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        for end in (jobs, answers):
            os.close(end)
        self._jobs, self._answers = os.fdopen(to_jobs, "w"), os.fdopen(from_answers)
        self._is_able: bool | None = None

    def wait_until_collected(self) -> bool:
        """Wait until tests are collected. Returns whether the session can run jobs."""
        if self._is_able is None:
            self._is_able = bool(self._answers.readline())
        return self._is_able

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return how the tests of a mutant ended, and the end of their output; None if it could not be applied."""
        if not self.wait_until_collected():
            return None
        begin = self._log.stat().st_size
        self.send(job)
        line = self._answers.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"status": collected.UNFIT}
        self._is_able = bool(line)
        if answer["status"] == collected.UNFIT:
            return None
        with self._log.open("rb") as said:
            said.seek(max(begin, self._log.stat().st_size - KEPT))
            return {**answer, "output": said.read().decode(errors="replace")}

    def send(self, message: Any) -> None:
        """Send a line to the session."""
        with suppress(BrokenPipeError):  # the session has ended, which reading the answer detects
            self._jobs.write(json.dumps(message) + "\n")
            self._jobs.flush()

    def stop(self) -> None:
        """End the session."""
        self._process.terminate()

    def end(self) -> None:
        """End the session, and close the pipes."""
        self.stop()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._jobs.close()
        self._answers.close()


def _outcome(mutant: Mutant, tests: int, answer: Mapping[str, Any]) -> Outcome:
    """Derive a verdict from how pytest ended."""
    status, output = answer["status"], answer["output"]
    verdict: Verdict = "survived" if status == 0 else "killed"
    note = ""
    if status is None or status == -signal.SIGXCPU:
        note = _AT_LIMIT
    elif status < 0:
        note = f"its process died of signal {-status}"
    elif status == _NONE_COLLECTED or (status == _USAGE and "not found:" in output):
        verdict, note = "survived", "its tests are no longer collected, and nothing failed"
    elif status and "CompileError" in output:
        verdict, note = "invalid", "it does not compile"
    return Outcome(mutant, verdict, tests, answer["seconds"], note)
