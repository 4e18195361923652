"""All mutants of a run: the tests without one first, then each mutant in a copy of the project, several at a time."""

from __future__ import annotations

import itertools
import json
import math
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from cuassay.core import settings
from cuassay.errors import MutationError
from cuassay.mutation import baseline as first_run
from cuassay.mutation import collected
from cuassay.mutation.baseline import Baseline
from cuassay.mutation.mutant import Mutant
from cuassay.mutation.outcome import Outcome, Verdict
from cuassay.mutation.project import copy_project, covering, project_files
from cuassay.mutation.worker import KEPT

__all__ = [
    "Campaign",
    "measure_baseline",
    "require_coverage",
    "run_mutants",
    "sampled",
]

#: Least seconds for a mutant's tests, and how much longer than without a mutant they may take.
_LEAST_SECONDS, _SLOWER = 20.0, 5.0

#: Most seconds of tests, as measured without a mutant, and most tests, that a mutant is given.
_MOST_SECONDS, _MOST_TESTS = 60.0, 400

#: How many of them run first: most mutants fall there, and pytest need not collect the files of the others.
_FIRST = 12

#: Least seconds of a processor where the tests are collected already: an endless loop ends soon, on a busy machine too.
_LEAST_IN_FORK = 5.0

_AT_LIMIT = "ended at its time limit"

#: Exit statuses of pytest: a wrong call, and no test collected.
_USAGE, _NONE_COLLECTED = 4, 5


@dataclass(frozen=True, slots=True)
class Campaign:
    """What a campaign runs.

    Attributes
    ----------
    root : path
        The project.
    folder : str
        Where pytest is started, relative to the root.
    tests : tuple of str
        Arguments of pytest that choose the tests.
    options : tuple of str
        Other arguments of pytest, such as ``--device sim``.
    jobs : int
        Mutants at the same time.
    parts : int
        Processes that run the tests without a mutant; with more than one, tests that need a device alone are left out.
    budget : float
        Seconds for everything, infinite by default. Tests without a mutant start during the first half only; mutants
        that are not reached are left out of the score.
    begun : float
        When the budget began, by `time.monotonic`.
    sources : tuple of str
        Files that mutants change, relative to the root: lines are counted in these alone. By default in all files.
    """

    root: Path
    folder: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    jobs: int = 1
    parts: int = 1
    budget: float = float("inf")
    begun: float = field(default_factory=time.monotonic)
    sources: tuple[str, ...] = ()


def sampled(mutants: Sequence[Mutant], limit: int | None, seed: int) -> list[Mutant]:
    """At most `limit` of them, in their order: the same ones for one seed, spread over functions and operators."""
    if limit is None or limit >= len(mutants):
        return list(mutants)
    chance = random.Random(seed)  # noqa: S311  a sample, no secret
    groups: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault((mutant.path, mutant.function, mutant.edit.operator), []).append(mutant)
    for group in groups.values():
        chance.shuffle(group)
    turns = sorted(((turn, chance.random(), one) for group in groups.values() for turn, one in enumerate(group)),
                   key=lambda entry: entry[:2])  # fmt: skip
    chosen = {one.identity for *_, one in turns[:limit]}
    return [mutant for mutant in mutants if mutant.identity in chosen]


# ------------------------------------------------------------------------------------------------ without a mutant


def require_coverage() -> None:
    """Raise `MutationError` unless coverage.py is installed."""
    try:
        import coverage  # noqa: F401
    except ImportError:
        raise MutationError(
            "mutation needs coverage.py, which is not installed; install it with: pip install 'cuassay[mutate]'"
        ) from None


def measure_baseline(plan: Campaign) -> Baseline:
    """Run the tests as they are.

    Raises
    ------
    MutationError
        No test passed.
    """
    with tempfile.TemporaryDirectory(prefix="cuassay-mutate-") as folder:
        runs = [_Run(plan, Path(folder) / f"{part}.json", part) for part in range(plan.parts)]
        found = Baseline()
        for run in runs:
            found.merge(run.finish())
    if not set(found.durations) - set(found.failed):
        raise MutationError(f"no test passes without a mutant, so none can judge one; {runs[0].said}")
    return found


class _Run:
    """The tests without a mutant, or one part of them, in a process that starts at once."""

    def __init__(self, plan: Campaign, out: Path, part: int) -> None:
        shard = [f"--cuassay-shard={part + 1}/{plan.parts}"] if plan.parts > 1 else []
        pytest = [sys.executable, "-m", "pytest", "-p", first_run.__name__, *_QUIET]
        environment = {**os.environ, first_run.OUT: str(out), first_run.ROOT: str(plan.root)}
        environment[first_run.SECONDS] = str(plan.budget / 2)
        if plan.sources:
            watched = out.with_suffix(".watched")
            watched.write_text("\n".join(str(plan.root / source) for source in plan.sources), encoding="utf-8")
            environment[first_run.WATCHED] = str(watched)
        self._out = out
        self._log = out.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*pytest, *plan.options, *shard, *plan.tests],
                cwd=plan.root / plan.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.said = ""

    def finish(self) -> Baseline:
        """What it found, once it has ended."""
        self._process.wait()
        self.said = f"pytest said:\n{self._log.read_text(errors='replace')[-4000:]}"
        if not self._out.exists():
            raise MutationError(f"the tests could not be run without a mutant; {self.said}")
        return first_run.read(self._out)


_QUIET = ("-q", "--no-header", "-p", "no:cacheprovider")
_ARGUMENTS = ("-x", *_QUIET, "--tb=short")

# ------------------------------------------------------------------------------------------------ with mutants


def run_mutants(
    plan: Campaign,
    mutants: Sequence[Mutant],
    baseline: Baseline,
    equivalents: Mapping[str, str],
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Judge each mutant; `tell` hears of each outcome as it comes, in one thread at a time.

    After Ctrl-C, or when the time is up, the outcomes until then are returned: a mutant that was cut short has none,
    nor has one whose tests may be among those that were left out without a mutant.
    """
    files = project_files(plan.root)
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    outcomes: dict[str, Outcome] = {}
    lock = threading.Lock()

    def enter(outcome: Outcome) -> None:
        with lock:
            outcomes[outcome.mutant.identity] = outcome
            tell(outcome)

    for mutant in mutants if plan.budget == float("inf") else _shuffled(mutants):
        if mutant.identity in equivalents:
            enter(Outcome(mutant, "equivalent", note=equivalents[mutant.identity]))
        else:
            waiting.put(mutant)
    until = plan.begun + plan.budget
    stopping = threading.Event()
    benches: list[_Bench] = []

    def serve() -> None:
        with ExitStack() as stack:
            bench = stack.enter_context(_Bench(plan, files, baseline, until))
            benches.append(bench)
            while time.monotonic() < until and not stopping.is_set():
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = bench.judge(mutant)
                if outcome is not None and not stopping.is_set():
                    enter(outcome)

    def stop() -> None:
        stopping.set()
        for bench in benches:
            bench.stop()

    _in_threads(serve, min(plan.jobs, max(1, waiting.qsize())), stop)
    return [outcomes[mutant.identity] for mutant in mutants if mutant.identity in outcomes]


def _shuffled(mutants: Sequence[Mutant]) -> list[Mutant]:
    """All in a fixed random order, so that those reached before the time is up are a sample of every file."""
    return random.Random(0).sample(mutants, len(mutants))  # noqa: S311  an order, no secret


def _in_threads(work: Callable[[], None], count: int, stop: Callable[[], None]) -> None:
    """Run `work` in `count` threads; the first error of one is raised once all have ended. Ctrl-C calls `stop`."""
    errors: list[BaseException] = []
    stopped = False

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                stopped = True
                stop()
    if errors and not stopped:
        raise errors[0]


class _Bench:
    """A copy of the project, and a process that runs tests in it."""

    def __init__(self, plan: Campaign, files: Sequence[str], baseline: Baseline, until: float) -> None:
        self._plan, self._files, self._baseline, self._until = plan, files, baseline, until
        self._folder = tempfile.TemporaryDirectory(prefix="cuassay-mutate-")
        self._copy = Path(self._folder.name).resolve() / "project"
        copy_project(plan.root, files, self._copy)
        self._seconds = itertools.count(1)
        self._cache = self._copy.parent / "cache"  # compiled mutants go with it
        known = Path(settings.get("CUASSAY_CACHE_DIR"))
        if known.is_dir():
            shutil.copytree(known, self._cache)
        self._worker: subprocess.Popen[str] | None = None
        self._forks = _Forks(self._command(), self._copy / plan.folder, self._environment(), self._copy.parent / "log")
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
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started = subprocess.Popen(command, text=True, env=self._environment(), **pipes)
        self._write(started, self._baseline.modules)
        return started

    @staticmethod
    def _write(worker: subprocess.Popen[str], message: Any) -> None:
        if worker.stdin is not None:
            worker.stdin.write(json.dumps(message) + "\n")
            worker.stdin.flush()

    def _paths(self) -> Iterator[str]:
        """The folders that Python looks into: those of the project in the copy, others as they are."""
        yield from (str(self._copy / name) for name in self._baseline.paths)
        yield from filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))

    def _end(self) -> None:
        self.stop()
        self._forks.end()
        if self._worker is not None:
            self._worker.communicate()

    def stop(self) -> None:
        """End the tests that run now: their mutant gets no outcome."""
        self._forks.stop()
        if self._worker is not None:
            self._worker.terminate()

    def judge(self, mutant: Mutant) -> Outcome | None:
        """Change the file, run the tests that see it, put the file back; None where the time was up before theirs."""
        tests = list(self._chosen(covering(mutant, self._plan.root, self._files, self._baseline)))
        if not tests:
            unknown = self._baseline.left_out > 0  # a test that did not start might run these lines
            return None if unknown else Outcome(mutant, "uncovered", note="no test that passes runs these lines")
        self._forks.wait_until_collected()  # from the files as they are
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
        """The outcome in a process that has collected the tests; None where only a new process can tell."""
        if not mutant.path.endswith(".py"):
            return None
        texts = {"path": str(self._copy / mutant.path), "right": right, "wrong": mutant.edit.apply(right)}
        seconds = sum(self._baseline.durations[test] for test in tests)
        cpu_seconds = math.ceil(_LEAST_IN_FORK + _SLOWER * seconds)
        answer = self._forks.ask({"tests": tests, **texts, "seconds": self._limit(tests), "cpu_seconds": cpu_seconds})
        if answer is None:
            return None
        outcome = _outcome(mutant, len(tests), answer)
        # What ran before the fork ran without the mutant.
        is_doubtful = self._baseline.is_run_outside(mutant.path, mutant.line, mutant.last_line)
        return None if outcome.verdict != "killed" and is_doubtful else outcome

    def _anew(self, mutant: Mutant, tests: Sequence[str]) -> Outcome | None:
        """The outcome in a process that loads the changed file and collects the tests."""
        outcome = _outcome(mutant, len(tests), self._ask(tests[:_FIRST]))
        if outcome.verdict == "survived" and len(tests) > _FIRST:
            outcome = _outcome(mutant, len(tests), self._ask(tests[_FIRST:]))
        return outcome

    def _write_source(self, place: Path, text: str) -> None:
        """Write a source with a time of its own: by that time in whole seconds Python knows what it compiled before."""
        place.write_text(text, encoding="utf-8")
        os.utime(place, 2 * (next(self._seconds),))

    def _limit(self, tests: Sequence[str]) -> float:
        seconds = sum(self._baseline.durations[test] for test in tests)
        return max(0.0, min(_LEAST_SECONDS + _SLOWER * seconds, self._until - time.monotonic()))

    def _chosen(self, tests: Sequence[str]) -> Iterator[str]:
        """As many as time allows; one that is too long is passed over, unless it is the only one."""
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


class _Forks:
    """A session of pytest that has collected the tests of a copy, as `collected` says; it may find that it cannot."""

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
        """Whether it can be asked."""
        if self._is_able is None:
            self._is_able = bool(self._answers.readline())
        return self._is_able

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any] | None:
        """How the tests of a mutant ended, and the end of what they printed; None where it could not be put in."""
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
        """Give it a line."""
        with suppress(BrokenPipeError):  # it has ended, as the answer will say
            self._jobs.write(json.dumps(message) + "\n")
            self._jobs.flush()

    def stop(self) -> None:
        """End what runs now."""
        self._process.terminate()

    def end(self) -> None:
        """Close everything."""
        self.stop()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._jobs.close()
        self._answers.close()


def _outcome(mutant: Mutant, tests: int, answer: Mapping[str, Any]) -> Outcome:
    """From how pytest ended to a verdict."""
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
