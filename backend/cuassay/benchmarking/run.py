"""The command ``cuassay run``: test and measure the declared operations in child processes.

A child that crashes, hangs in the driver or loses its device does not affect the others, and the rows that it wrote are
kept. Children end with this process, even if it is killed. Several children may run tests at once, while measurements
run alone on the machine. This module starts the children, shows their progress, and reports how they ended.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from cuassay.errors import ArgumentError, SettingError
from cuassay.results.fingerprint import usable_cores
from cuassay.results.lifeline import Lifeline
from cuassay.results.part import TESTS, TIMES, Part
from cuassay.results.record import Recorder, begin
from cuassay_reports.lines import parse

__all__ = ["Child", "Step", "default_jobs", "progress_line", "run"]

_GENERATED_TESTS = "cuassay.testing.generated"
_MEASUREMENTS = "cuassay.benchmarking.measure"

#: The name of this process in a run.
_PART = "cuassay run"
_POLL_SECONDS = 0.25

#: Seconds between progress lines if the output is not a terminal, so that a log stays short but shows progress.
_LINE_SECONDS = 15.0

#: Seconds that a child may take to end after it was asked to.
_STOP_SECONDS = 5.0

#: Seconds to wait for the processes of ended children, which are killed but may be delayed by a driver.
_PATIENCE_SECONDS = 10.0

#: The largest default number of processes. More would wait for each other on one device, where each holds a context.
_MOST_JOBS = 8

_EXPECTED = re.compile(rb"^(?:collected|measuring) (\d+)", re.MULTILINE)
_FAILURES = re.compile(r"=+ (?:FAILURES|ERRORS) =+")


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """One child process: its part of the run, the module and arguments that it runs, and the file of its output."""

    part: str
    command: Sequence[str]
    log: Path


@dataclass(slots=True)
class Step:
    """The work of some children: those that run at the same time, then one that runs alone. All write to one file."""

    name: str
    rows: Path
    record: str
    children: Sequence[Child]
    alone: Child | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    _planned: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    _begun: dict[str, str] = field(default_factory=dict)
    _read: int = field(init=False)

    @property
    def all(self) -> list[Child]:
        """Every child of this step."""
        return [*self.children, *([self.alone] if self.alone is not None else [])]

    def __post_init__(self) -> None:
        self._read = self.rows.stat().st_size if self.rows.exists() else 0  # rows of an earlier run in the same folder

    def done(self) -> int:
        """Return the number of rows written so far."""
        if self.rows.exists():
            with self.rows.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._read += len(line)
                    self._count(line)
        return self.outcomes.total()

    def _count(self, line: bytes) -> None:
        for row in parse(line).rows.values():
            if row.get("record") == self.record:
                self.outcomes[row.get("outcome", "measured")] += 1
            elif row.get("record") == "plan":
                self._planned.add(row["part"])
            elif row.get("record") == "begin":
                self._begun[row["part"]] = row["nodeid"]
            elif row.get("record") == "end":
                self._ended.add(row["part"])

    def unfinished(self, statuses: Mapping[str, int]) -> Iterator[str]:
        """Yield a line for each part that did not finish. Its exit status may be 0, as after `os._exit(0)`."""
        self.done()
        for part, status in statuses.items():
            if part not in self._ended and (part in self._planned or not status):
                begun = f"; the last test that it began is {self._begun[part]}" if part in self._begun else ""
                yield f"process {part!r} did not finish{begun}"

    def expected(self) -> int | None:
        """Return the total number of rows once a child has printed it. Each part of the tests collects all tests."""
        found = (_EXPECTED.search(child.log.read_bytes()) for child in self.children)
        return next((int(number[1]) for number in found if number), None)


def default_jobs() -> int:
    """Return the default number of test processes: the number of cores, at most 8."""
    return min(usable_cores(), _MOST_JOBS)


def run(
    selectors: Sequence[str],
    out: Path,
    *,
    jobs: int = 1,
    processes: int = 1,
    tests: bool = True,
    times: bool = True,
) -> int:
    """Test, then measure, and write result files into `out`.

    Parameters
    ----------
    selectors : sequence of str
        Devices, in the form that ``--device`` takes.
    out : path
        The folder of the result files and the children's logs. It is created.
    jobs : int
        The number of processes that run tests at the same time.
    processes : int
        The number of fresh processes that measure, one after the other. A timing is the median of their medians.
    tests, times : bool
        Whether to run the tests, and whether to measure.

    Returns
    -------
    int
        0 if every test passed or was skipped with a reason and everything was measured, else 1.

    Raises
    ------
    SettingError
        If `jobs` or `processes` is less than 1.
    ArgumentError
        If nothing can be written into `out`.
    """
    if jobs < 1:
        raise SettingError(f"the tests need at least one process; got --jobs {jobs}; give 1 or more")
    if processes < 1:
        raise SettingError(f"the timings need at least one process; got --processes {processes}; give 1 or more")
    _make_folder(out)
    print(f"cuassay's own operations on {', '.join(selectors)}; results go to {out}", flush=True)
    with Recorder(out / "run.jsonl") as recorder:
        begin(recorder, f"cuassay run {' '.join(f'--device {selector}' for selector in selectors)}")
        steps = _wanted(_steps(selectors, out, recorder.run, jobs, processes), tests=tests, times=times)
        part = Part(recorder, _PART)
        part.plan(parts=_names(steps))
        try:
            failed = [step.name for step in steps if not _finish(step)]
        except (KeyboardInterrupt, SystemExit):
            part.end("interrupted")
            print(f"{_line_start()}results until here: {out}")
            raise
        part.plan(parts=_names(steps))  # without those that had nothing to do
        part.end()
    print(f"results: {out}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    if part.lost:
        print(part.told())
    return 1 if failed or part.lost else 0


def _make_folder(folder: Path) -> None:
    """Make the folder of results. Raises `ArgumentError` if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ArgumentError(
            f"--out {folder} cannot be written: {error.strerror}; name a folder that you may write to"
        ) from error


def _names(steps: Iterable[Step]) -> str:
    return ", ".join(child.part for step in steps for child in step.all)


def _wanted(steps: Iterable[Step], *, tests: bool, times: bool) -> list[Step]:
    return [step for step, is_wanted in zip(steps, (tests, times), strict=True) if is_wanted]


def _steps(selectors: Sequence[str], out: Path, identity: str, jobs: int, processes: int) -> Iterator[Step]:
    devices = [f"--cuassay-device={selector}" for selector in selectors]
    rows = out / "tests.jsonl"
    pytest = ["pytest", "--pyargs", _GENERATED_TESTS, "-ra", "-p", "no:cacheprovider"]
    # Ignore the settings and conftest files of the surrounding project, so that they do not affect generated tests.
    pytest += ["-c", os.devnull, "--noconftest", "--rootdir", str(out), *devices]
    pytest += [f"--cuassay-record={rows}", f"--cuassay-run={identity}"]
    # If CI is set, pytest would repeat each message in full at the end. -q would hide "collected N", for `_EXPECTED`.
    pytest += ["--no-header", "--force-short-summary", "--cuassay-isolate"]
    if jobs == 1:
        yield Step("tests", rows, "test", [Child(TESTS, pytest, out / "tests.log")])
    else:
        parts = [_part(pytest, out, f"{number}/{jobs}") for number in range(1, jobs + 1)]
        yield Step("tests", rows, "test", parts, alone=_part(pytest, out, "alone"))
    rows = out / "times.jsonl"
    times = [
        _MEASUREMENTS,
        *(f"--device={selector}" for selector in selectors),
        f"--record={rows}",
        f"--run={identity}",
        f"--processes={processes}",
    ]
    yield Step("times", rows, "time", [Child(TIMES, times, out / "times.log")])


def _part(pytest: Sequence[str], out: Path, shard: str) -> Child:
    command = [*pytest, f"--cuassay-shard={shard}"]
    return Child(f"{TESTS} {shard}", command, out / f"tests-{shard.partition('/')[0]}.log")


def _finish(step: Step) -> bool:
    """Run the children of `step` to their end and show progress. Returns True if all succeeded."""
    started = time.monotonic()
    ended = _at_once(step, step.children, started)
    if step.alone is not None and step.done() == step.expected():
        step.alone = None  # the others have done all
    if step.alone is not None:
        ended |= _at_once(step, [step.alone], started)
    line = progress_line(step.name, step.done(), step.done(), time.monotonic() - started)
    counts = ", ".join(f"{number:,} {what}" for what, number in sorted(step.outcomes.items()))
    print(f"{_line_start()}{line}: {counts or 'nothing'}")
    # A message that every part prints, such as that a device is absent, is shown once.
    messages = {(status, _tail(child.log)): child.log for child, status in ended.items() if status}
    for (status, text), log in messages.items():
        print(f"{step.name} ended with status {status}; the end of {log}:\n{text}")
    lost = list(step.unfinished({child.part: status for child, status in ended.items()}))
    print("\n".join(lost), end="\n" if lost else "")
    return not any(ended.values()) and not lost


def _at_once(step: Step, children: Sequence[Child], started: float) -> dict[Child, int]:
    """Run the `children` at the same time, and return the exit status of each. An exception here ends them.

    All processes of the children have ended when this returns, because a worker of a killed child could still hold the
    device's memory.
    """
    environment = dict(os.environ)
    if len(children) > 1:
        # References are computed on the host. With one thread per core in each process, threads would wait for others.
        threads = str(max(1, usable_cores() // len(children)))
        environment = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, **environment}
    with ExitStack() as opened:
        if len(children) > 1:
            reserved = opened.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            environment = {"CUASSAY_RESERVATIONS": reserved, **environment}
        lifeline = opened.enter_context(Lifeline())
        opened.callback(_await, lifeline, step.name)
        processes = []
        for child in children:
            log = opened.enter_context(child.log.open("wb"))
            process = subprocess.Popen(
                lifeline.command(child.command),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=lifeline.inherited,
            )
            opened.callback(_stop, process)
            processes.append(process)
        shown = 0.0
        while any(process.poll() is None for process in processes):
            time.sleep(_POLL_SECONDS)
            shown = _show(step, time.monotonic() - started, shown)
    return {child: process.returncode for child, process in zip(children, processes, strict=True)}


def _await(lifeline: Lifeline, name: str) -> None:
    """Wait for the processes that the children started, and print a line if they do not end."""
    if not lifeline.wait_ended(_PATIENCE_SECONDS):
        print(f"{_line_start()}{name}: a process of the tests has not ended after {_PATIENCE_SECONDS:g} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process if it still runs; kill it if it hangs in a driver."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _line_start() -> str:
    return "\r\033[K" if sys.stdout.isatty() else ""


def _show(step: Step, elapsed: float, shown: float) -> float:
    """Show the progress of `step` if that is due. Returns when it was last shown, in seconds since the start."""
    if not sys.stdout.isatty() and elapsed - shown < _LINE_SECONDS:
        return shown
    line = progress_line(step.name, step.done(), step.expected(), elapsed)
    print(_line_start() + line, end="" if sys.stdout.isatty() else "\n", flush=True)
    return elapsed


def progress_line(name: str, done: int, expected: int | None, elapsed: float) -> str:
    """Return a line with the progress, the time so far, and the estimated time left."""
    if expected is None:
        return f"{name}: starting, {elapsed:.0f} s"
    line = f"{name}: {done:,} of {expected:,}, {elapsed:.0f} s"
    if 0 < done < expected:
        line += f", about {elapsed * (expected - done) / done:.0f} s left"
    return line


def _tail(log: Path, usual: int = 40, most: int = 400) -> str:
    """Return the last lines of a log: `usual` lines, or all from the first failure on, but at most `most`."""
    lines = log.read_text(errors="replace").splitlines()
    first = next((number for number, line in enumerate(lines) if _FAILURES.fullmatch(line)), len(lines))
    return "\n".join(lines[-min(most, max(usual, len(lines) - first)) :])
