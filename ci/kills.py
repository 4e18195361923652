"""Kill sessions at random moments, and examine their reports, processes and records afterwards.

There are four kinds: plain pytest, pytest with isolation, pytest under xdist, and ``cuassay run``. Four of five kills
(SIGKILL) come after a random number of outcomes, the others during the start. Half of them hit the process that was
started, the others any of its processes. For each kill this checks whether a report calls the run passed, whether a
process is left, and whether an outcome that the session had finished is lost. Needs Linux (``/proc``).

``python ci/kills.py --kills 100 --seed 1`` prints the table; the exit status is 1 if any answer is yes.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from cuassay_reports.command import run as report
from cuassay_reports.load import load

__all__ = ["KINDS", "Tally", "main", "trial"]

#: The environment variable that names a trial in all its processes.
_MARK = "CUASSAY_KILLS_TRIAL"

#: Seconds that processes may take to end by themselves, and that a session may continue after a kill of another
#: process.
_ORPHAN_SECONDS, _SESSION_SECONDS = 30.0, 120.0

#: The share of the kills that come after a random number of outcomes, and the most seconds after it; the others come
#: within the first seconds.
_AMONG_TESTS, _JITTER_SECONDS, _START_SECONDS = 0.8, 0.05, 4.0

_TESTS = """
import time
import pytest
from cuassay.testing import exclusive

@pytest.mark.parametrize("number", range(150))
def test_it(number): time.sleep(0.005 + number % 5 * 0.005)

@exclusive
@pytest.mark.parametrize("number", range(5))
def test_alone(number): time.sleep(0.01)
"""

#: Writes the name of each test to a separate file when pytest has finished it; workers of xdist write nothing.
_WITNESS = """
import os
import pytest

class Witness:
    def __init__(self):
        self._fd = os.open(os.environ["CUASSAY_KILLS_SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid):
        os.write(self._fd, f"{nodeid}\\n".encode())

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Witness())
"""

_RUN = """
from pathlib import Path
from cuassay.benchmarking import run
run._GENERATED_TESTS = "test_killed"
raise SystemExit(run.run(["cpu"], Path("results"), jobs=2, times=False))
"""

_PYTEST = ["-m", "pytest", "-q", "--device", "cpu", "--cuassay-record", "results/rows.jsonl", "-p", "no:cacheprovider"]

#: The interpreter's arguments that start each kind of session.
KINDS = {
    "pytest": [*_PYTEST, "test_killed.py"],
    "pytest --cuassay-isolate": [*_PYTEST, "--cuassay-isolate", "test_killed.py"],
    "pytest -n 2": [*_PYTEST, "-n", "2", "test_killed.py"],
    "cuassay run": ["-c", _RUN],
}


@dataclass
class Tally:
    """The observations in the trials of one kind."""

    kills: int = 0
    of_children: int = 0
    before_tests: int = 0
    all_done: int = 0
    finished: int = 0
    called_passed: int = 0
    processes_left: int = 0
    outcomes_lost: int = 0
    slowest_end_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def row(self, kind: str) -> str:
        """Return a line of the table."""
        cells = (self.kills, self.of_children, self.before_tests, self.all_done, f"{self.finished:,}")
        held = (self.called_passed, self.processes_left, self.outcomes_lost, f"{self.slowest_end_s:.1f} s")
        return f"| {kind} | " + " | ".join(map(str, (*cells, *held))) + " |"


HEAD = (
    "| kind | kills | of a child | before any test | all done | outcomes finished | called passed | processes left | "
    "outcomes lost | slowest end |\n|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def trial(kind: str, folder: Path, dice: random.Random, tally: Tally) -> None:
    """Start a session of `kind` in `folder`, kill one of its processes at a random moment, and examine what is left."""
    started, mark = _start(kind, folder), folder.name
    outcomes = dice.randrange(_COUNT) if dice.random() < _AMONG_TESTS else -1
    seconds = dice.uniform(0, _START_SECONDS if outcomes < 0 else _JITTER_SECONDS)
    while started.poll() is None and len(_seen(folder)) < outcomes:
        time.sleep(0.005)
    time.sleep(seconds)
    victims = sorted(_processes(mark)) if dice.random() < 0.5 else []
    victim = dice.choice(victims or [started.pid])
    if started.poll() is None:
        os.kill(victim, signal.SIGKILL)
    tally.kills += 1
    tally.of_children += victim != started.pid
    status = started.wait(_SESSION_SECONDS)
    tally.slowest_end_s = max(tally.slowest_end_s, _wait_until_gone(mark))
    left = list(_processes(mark))
    for process in left:
        os.kill(process, signal.SIGKILL)
    description = f"{kind}: process {victim} of {started.pid}, after {outcomes} outcomes and {seconds:.3f} s"
    _judge(description, folder, status, len(left), tally)


def _seen(folder: Path) -> list[str]:
    """Return the tests that the session had finished, in order."""
    return (folder / "seen").read_text().split() if (folder / "seen").exists() else []


def _start(kind: str, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "test_killed.py").write_text(_TESTS)
    (folder / "kills_witness.py").write_text(_WITNESS)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTEST_PLUGINS": "kills_witness",
        "CUASSAY_KILLS_SEEN": str(folder / "seen"),
        _MARK: folder.name,
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *KINDS[kind]], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )


def _processes(mark: str) -> Iterator[int]:
    """Yield the living processes of a trial."""
    entry = f"{_MARK}={mark}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if entry in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                yield int(process.name)
        except OSError:  # the process has ended, or belongs to another user
            continue


def _wait_until_gone(mark: str) -> float:
    begun = time.monotonic()
    while time.monotonic() - begun < _ORPHAN_SECONDS and any(_processes(mark)):
        time.sleep(0.02)
    return time.monotonic() - begun


def _judge(description: str, folder: Path, status: int, left: int, tally: Tally) -> None:
    seen, text = _seen(folder), io.StringIO()
    with redirect_stdout(text), redirect_stderr(io.StringIO()):
        reported = report([folder / "results"])
    results = load(folder / "results") if seen else None
    tests = {} if results is None else dict(zip(results.tests["nodeid"], results.tests["outcome"], strict=True))
    lost = len({*map(_name, seen)} - {*map(_name, tests)})
    is_whole = len(seen) == _COUNT and set(tests.values()) == {"passed"}  # the kill came after all tests were done
    called_passed = reported == 0 and text.getvalue().startswith("Everything that ran passed") and not is_whole
    tally.before_tests += not seen
    tally.all_done += is_whole
    tally.finished += len(seen)
    tally.called_passed += called_passed
    tally.processes_left += left
    tally.outcomes_lost += lost
    if called_passed or left or lost:
        headline = text.getvalue().partition("\n")[0]
        tally.faults.append(
            f"{description}: status {status}, {left} left, {lost} of {len(seen)} lost, report: {headline!r}"
        )


_COUNT = 155


def _name(nodeid: str) -> str:
    return nodeid.rpartition("::")[2]


def _leave_alone(kind: str, folder: Path) -> None:
    """Check that a session without a kill is called passed; otherwise the trials mean nothing."""
    status, tally = _start(kind, folder).wait(_SESSION_SECONDS), Tally()
    _judge(kind, folder, status, 0, tally)
    if status or not tally.all_done:
        raise SystemExit(f"{kind}: a session that nobody killed did not pass:\n{(folder / 'log').read_text()}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials and print the table; return the exit status."""
    asked = _parser().parse_args(argv)
    dice = random.Random(asked.seed)  # noqa: S311  moments of kills, repeatable by the seed
    faults: list[str] = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="kills") as root:
        for place, kind in enumerate(asked.kind or KINDS):
            tally = Tally()
            _leave_alone(kind, Path(root, f"{os.getpid()}-{place}-whole"))
            for number in range(asked.kills):
                trial(kind, Path(root, f"{os.getpid()}-{place}-{number}"), dice, tally)
            print(tally.row(kind), flush=True)
            faults += tally.faults
    print("\n".join(faults), end="\n" if faults else "")
    return int(bool(faults))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python ci/kills.py", description="Kill sessions at random moments.")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: %(default)s)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated; default: all")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
