"""``cuassay run``: how it ends, by itself, by a signal, and by the end of a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from cuassay import cli
from cuassay.benchmarking import run
from cuassay_reports.analysis import load

GOOD = "def test_it(device): pass\n"

#: Tests that never end. The kernel releases a process's locks of this kind before it closes any other file of it.
SLEEPING = """
import fcntl, os, pathlib, pytest, signal

@pytest.mark.parametrize("n", range(2))
def test_it(device, n):
    held = pathlib.Path(os.environ["STARTED"], f".{os.getpid()}").open("w")
    held.write(str(os.getppid()))
    held.flush()
    fcntl.lockf(held, fcntl.LOCK_EX)
    os.rename(held.name, pathlib.Path(os.environ["STARTED"], str(os.getpid())))
    while True:
        signal.pause()
"""

#: Far more than a process needs to end on a busy machine; only a fault comes to it.
A_MINUTE = 60.0


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def is_held(file: Path) -> bool:
    """Whether the process that wrote the file still runs."""
    with file.open("r+") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    latest = time.monotonic() + A_MINUTE
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.05)


class Sleeping:
    """Tests that never end, in workers of pytest; each writes a file when it has started.

    The parent acts when enough have.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch

    def _started(self) -> list[Path]:
        return [file for file in self._folder.iterdir() if not file.name.startswith(".")]

    def when_started(self, number: int, act: Callable[[], object]) -> None:
        def look(*_: object) -> float:
            if len(self._started()) == number:
                act()
            return 0.0

        self._monkeypatch.setattr(run, "_show", look)

    def wait_started(self, number: int) -> None:
        wait_until(lambda: len(self._started()) == number)

    def assert_ended(self, number: int) -> None:
        """Neither a worker nor the process that started it runs any more."""
        files = self._started()
        assert len(files) == number
        assert not any(map(is_held, files))
        for file in files:
            with pytest.raises(ProcessLookupError):
                os.kill(int(file.read_text()), 0)

    def wait_ended(self, number: int) -> None:
        """The workers end by themselves, when the kernel lets them."""
        files = self._started()
        assert len(files) == number
        wait_until(lambda: not any(map(is_held, files)))


@pytest.fixture
def sleeping(generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sleeping:
    generated.write_text(SLEEPING)
    folder = tmp_path / "started"
    folder.mkdir()
    monkeypatch.setenv("STARTED", str(folder))
    return Sleeping(folder, monkeypatch)


def outcomes(out: Path) -> list[str]:
    rows = [json.loads(line) for line in (out / "tests.jsonl").read_text().splitlines()]
    return [row["outcome"] for row in rows if row["record"] == "test"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_test_that_ends_its_process_costs_itself_alone(generated: Path, jobs: int) -> None:
    generated.write_text(f"import os\n{GOOD}def test_left(): os._exit(0)\ndef test_after(): pass\n")
    out = generated.parents[1] / "out"

    status = run.run(["cpu"], out, jobs=jobs, times=False)

    assert status == 1
    assert sorted(outcomes(out)) == ["error", "passed", "passed"]
    assert load(out).runs["ended_early"].tolist() == [""]


#: The process that collects and reports, the parent of the one that tests, leaves in the middle.
LEAVING = f"""
import os, pathlib, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))

{GOOD}
def test_left(pytestconfig):
    while "test_left" not in pathlib.Path(pytestconfig.option.cuassay_record).read_text():
        time.sleep(0.05)
    os.kill(os.getppid(), signal.SIGNAL)
    time.sleep(60)

def test_after(): pass
"""


def test_a_part_that_is_killed_is_an_error_and_the_others_go_on(
    generated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated.write_text(LEAVING.replace("SIGNAL", "SIGKILL"))
    out = generated.parents[1] / "out"

    status = run.run(["cpu"], out, jobs=3, times=False)

    assert status == 1
    assert "tests ended with status -9; the end of" in capsys.readouterr().out
    assert outcomes(out) == ["passed", "passed"]


def test_a_part_that_leaves_with_status_0_before_its_end_fails_the_run(
    generated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated.write_text(LEAVING.replace("signal.SIGNAL", "signal.SIGUSR1"))
    out = generated.parents[1] / "out"

    status = run.run(["cpu"], out, times=False)

    told = capsys.readouterr().out
    assert status == 1
    assert "process 'tests' did not finish; the last test that it began is ::test_left\n" in told
    results = load(out)
    assert results.runs["ended_early"].tolist() == [
        "process 'tests' did not finish; 1 of 3 planned tests have an outcome"
    ]


def test_a_run_that_came_to_its_end_is_complete(generated: Path) -> None:
    generated.write_text(f"from cuassay.testing import exclusive\n{GOOD}@exclusive\ndef test_alone(device): pass\n")
    out = generated.parents[1] / "out"

    for jobs in (1, 2):
        run.run(["cpu"], out, jobs=jobs, times=False)

    assert load(out).runs["ended_early"].tolist() == ["", ""]


def test_the_death_of_the_command_ends_every_part(generated: Path, sleeping: Sleeping, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"from cuassay.benchmarking import run; run._GENERATED_TESTS = {generated.stem!r}; "
    code += f"run.run(['cpu'], __import__('pathlib').Path({str(out)!r}), jobs=2, times=False)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as command:
        sleeping.wait_started(2)
        wait_until(lambda: sum(file.read_text().count('"begin"') for file in out.glob("*.jsonl")) == 2)
        command.kill()

    sleeping.wait_ended(2)
    results = load(out)
    (why,) = results.runs["ended_early"]
    ended = "processes 'cuassay run', 'tests 1/2', 'tests 2/2' did not finish; process 'tests alone' did not start"
    assert why.startswith(ended)
    (begun,) = results.begun.values()
    assert [part for part, _ in begun] == ["tests 1/2", "tests 2/2"]


def test_an_interruption_ends_every_part(generated: Path, sleeping: Sleeping) -> None:
    sleeping.when_started(2, interrupt)

    with pytest.raises(KeyboardInterrupt):
        run.run(["cpu"], generated.parents[1] / "out", jobs=2, times=False)

    sleeping.assert_ended(2)
    (why,) = load(generated.parents[1] / "out").runs["ended_early"]
    ended = "'tests 1/2', 'tests 2/2' did not finish; process 'tests alone' did not start; cuassay run: interrupted"
    assert ended in why


def test_an_interrupted_command_says_so_in_a_line(
    generated: Path, sleeping: Sleeping, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeping.when_started(1, interrupt)
    out = generated.parents[1] / "out"

    assert cli.main(["run", "--device", "cpu", "--jobs", "1", "--no-times", "--out", str(out)]) == 130

    shown = capsys.readouterr()
    assert shown.out.endswith(f"results until here: {out}\n")
    assert shown.err == "cuassay run: interrupted\n"


def test_sigterm_ends_every_part(generated: Path, sleeping: Sleeping) -> None:
    sleeping.when_started(2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    former = signal.getsignal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--device", "cpu", "--jobs", "2", "--no-times", "--out", str(generated.parents[1] / "out")])

    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is former
    sleeping.assert_ended(2)


def test_a_part_that_does_not_end_when_told_to_is_killed(
    generated: Path, sleeping: Sleeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated.write_text(f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPING}")
    monkeypatch.setattr(run, "_STOP_SECONDS", 0.1)
    sleeping.when_started(1, interrupt)

    with pytest.raises(KeyboardInterrupt):
        run.run(["cpu"], generated.parents[1] / "out", times=False)

    sleeping.assert_ended(1)
