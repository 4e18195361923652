"""``cuassay run``: its children, what they leave, and what around it must not matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cuassay import cli
from cuassay.benchmarking import measure, run
from cuassay_reports.load import load

GOOD = "def test_it(device): pass\n"
BAD = "def test_it(device): raise ValueError\n"
BAD_ALONE = f"from cuassay.testing import exclusive\n{GOOD}@exclusive\ndef test_alone(device): raise ValueError\n"
MIXED = """
import pytest
from cuassay.testing import exclusive

@pytest.mark.parametrize("n", range(4))
def test_plain(device, n): assert n != 3, f"{n} is three"

def test_skipped(device): pytest.skip("not today")

@exclusive
def test_alone(device): pass

def test_without_device(): pass
"""
TOTALS = ": 2 failed, 9 passed, 2 skipped"
SLEEPING = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("n", range(2))
def test_it(device, n):
    pathlib.Path(os.environ["STARTED"], str(os.getpid())).touch()
    time.sleep(60)
"""


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the generated tests, importable by the child; the working directory is a project of its own."""
    module = tmp_path / "lib" / "test_generated_stand_in.py"
    module.parent.mkdir()
    monkeypatch.syspath_prepend(module.parent)
    monkeypatch.setenv("PYTHONPATH", str(module.parent), prepend=":")
    monkeypatch.setattr(run, "_GENERATED_TESTS", module.stem)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return module


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def is_running(pid: int) -> bool:
    """Whether the process works; one that has ended may wait for its status to be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Sleeping:
    """Children that sleep; each writes a file when it has started. The parent acts when enough have."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch

    def when_started(self, number: int, act: Callable[[], object]) -> None:
        def look(*_: object) -> float:
            if len(list(self._folder.iterdir())) == number:
                act()
            return 0.0

        self._monkeypatch.setattr(run, "_show", look)

    def wait_started(self, number: int) -> None:
        while len(list(self._folder.iterdir())) < number:
            time.sleep(0.05)

    def wait_ended(self, number: int) -> None:
        pids = [int(file.name) for file in self._folder.iterdir()]
        assert len(pids) == number
        while any(is_running(pid) for pid in pids):
            time.sleep(0.05)


@pytest.fixture
def sleeping(generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sleeping:
    generated.write_text(SLEEPING)
    folder = tmp_path / "started"
    folder.mkdir()
    monkeypatch.setenv("STARTED", str(folder))
    return Sleeping(folder, monkeypatch)


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "tests.jsonl").read_text().splitlines()]
    return [row for row in rows if row["record"] == "test"]


def outcomes(out: Path) -> list[str]:
    return [row["outcome"] for row in rows_of(out)]


@pytest.mark.parametrize(("text", "status", "outcome"), [(GOOD, 0, "passed"), (BAD, 1, "failed")], ids=["good", "bad"])
def test_the_status_says_whether_all_tests_held(generated: Path, text: str, status: int, outcome: str) -> None:
    generated.write_text(text)
    out = generated.parents[1] / "out"

    assert run.run(["cpu"], out, times=False) == status
    assert outcomes(out) == [outcome]


def test_the_status_is_also_of_what_runs_alone(generated: Path) -> None:
    generated.write_text(BAD_ALONE)
    out = generated.parents[1] / "out"

    assert run.run(["cpu"], out, jobs=2, times=False) == 1
    assert outcomes(out) == ["passed", "failed"]


@pytest.mark.parametrize("name", ["conftest.py", "pytest.ini"])
def test_the_project_around_does_not_matter(generated: Path, name: str) -> None:
    generated.write_text(GOOD)
    Path(name).write_text("this is = no file of its kind\n")
    out = generated.parents[1] / "out"

    assert run.run(["cpu"], out, times=False) == 0


def test_rows_of_every_child_belong_to_the_run_whose_row_is_there(generated: Path) -> None:
    generated.write_text(GOOD)
    out = generated.parents[1] / "out"

    run.run(["cpu"], out, times=False)

    row = json.loads((out / "run.jsonl").read_text().splitlines()[0])
    tests = [json.loads(line) for line in (out / "tests.jsonl").read_text().splitlines()]
    assert (row["record"], row["command"]) == ("run", "cuassay run --device cpu")
    assert {one["run"] for one in tests} == {row["run"]}


def test_several_processes_leave_the_rows_of_one(generated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated.write_text(MIXED)
    found = {}
    for jobs in (1, 3):
        out = generated.parents[1] / f"out{jobs}"
        assert run.run(["cpu", "sim"], out, jobs=jobs, times=False) == 1
        rows = [{**row, "run": "", "duration": 0} for row in rows_of(out)]
        found[jobs] = sorted(rows, key=lambda row: row["nodeid"])

    assert found[3] == found[1]
    assert len(found[1]) == 13
    assert len([line for line in capsys.readouterr().out.splitlines() if line.endswith(TOTALS)]) == 2


def test_what_must_be_alone_runs_after_the_others(generated: Path) -> None:
    generated.write_text(MIXED)
    out = generated.parents[1] / "out"

    run.run(["cpu"], out, jobs=2, times=False)

    assert [row["nodeid"].partition("::")[2] for row in rows_of(out)][-1] == "test_alone[cpu:0]"
    assert "1 passed" in (out / "tests-alone.log").read_text()


@pytest.mark.parametrize("ci", ["", "true"], ids=["desk", "ci"])  # in CI pytest's summary has whole messages, too
def test_a_failure_in_one_part_is_told_once_and_wholly(
    generated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    lines = "\\n".join(f"line {number} of the message" for number in range(60))
    generated.write_text(f"{GOOD}def test_bad(device): raise ValueError('{lines}')\n")

    status = run.run(["cpu", "sim"], generated.parents[1] / "out", jobs=2, times=False)

    shown = capsys.readouterr().out
    assert status == 1
    assert [shown.count(f"line {number} of the message\n") for number in (5, 59)] == [2, 2]  # on cpu and on sim
    assert "tests ended with status 1; the end of" in shown
    assert shown.endswith("; failed: tests\n")


def test_what_all_parts_say_is_told_once(generated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated.write_text(GOOD)

    status = run.run(["sim:99"], generated.parents[1] / "out", jobs=3, times=False)

    assert status == 1
    assert capsys.readouterr().out.count("sim:99 does not exist") == 1


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
    assert "tests did not come to its end; the last test that it began is ::test_left\n" in told
    results = load(out)
    assert results.runs["ended_early"].tolist() == [
        "tests did not come to its end; 1 of 3 planned tests have an outcome"
    ]


def test_a_run_that_came_to_its_end_is_complete(generated: Path) -> None:
    generated.write_text(MIXED)
    out = generated.parents[1] / "out"

    for jobs in (1, 2):
        run.run(["cpu"], out, jobs=jobs, times=False)

    assert load(out).runs["ended_early"].tolist() == ["", ""]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_death_of_the_command_ends_every_part(generated: Path, sleeping: Sleeping, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"from cuassay.benchmarking import run; run._GENERATED_TESTS = {generated.stem!r}; "
    code += f"run.run(['cpu'], __import__('pathlib').Path({str(out)!r}), jobs=2, times=False)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as command:
        sleeping.wait_started(2)
        command.kill()

    sleeping.wait_ended(2)
    results = load(out)
    (why,) = results.runs["ended_early"]
    assert why.startswith("cuassay run, tests 1/2, tests 2/2 did not come to their end; tests alone was not begun")
    (begun,) = results.begun.values()
    assert [part for part, _ in begun] == ["tests 1/2", "tests 2/2"]


def test_an_interruption_ends_every_part(generated: Path, sleeping: Sleeping) -> None:
    sleeping.when_started(2, interrupt)

    with pytest.raises(KeyboardInterrupt):
        run.run(["cpu"], generated.parents[1] / "out", jobs=2, times=False)

    sleeping.wait_ended(2)
    (why,) = load(generated.parents[1] / "out").runs["ended_early"]
    assert "tests 1/2, tests 2/2 did not come to their end; tests alone was not begun; cuassay run: interrupted" in why


def test_an_interrupted_command_says_so_in_a_line(
    generated: Path, sleeping: Sleeping, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeping.when_started(1, interrupt)
    out = generated.parents[1] / "out"

    assert cli.main(["run", "--device", "cpu", "--jobs", "1", "--no-times", "--out", str(out)]) == 130

    shown = capsys.readouterr()
    assert shown.out.endswith(f"results until here: {out}\n")
    assert shown.err == "cuassay: interrupted\n"


def test_sigterm_ends_every_part(generated: Path, sleeping: Sleeping) -> None:
    sleeping.when_started(2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    former = signal.getsignal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--device", "cpu", "--jobs", "2", "--no-times", "--out", str(generated.parents[1] / "out")])

    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is former
    sleeping.wait_ended(2)


def test_a_part_that_does_not_end_when_told_to_is_killed(
    generated: Path, sleeping: Sleeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated.write_text(f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPING}")
    monkeypatch.setattr(run, "_STOP_SECONDS", 0.1)
    sleeping.when_started(1, interrupt)

    with pytest.raises(KeyboardInterrupt):
        run.run(["cpu"], generated.parents[1] / "out", times=False)

    sleeping.wait_ended(1)


@pytest.mark.parametrize(("cores", "jobs", "threads"), [(6, 1, None), (6, 2, "3"), (1, 2, "1")])
def test_parts_share_the_cores(
    generated: Path, monkeypatch: pytest.MonkeyPatch, cores: int, jobs: int, threads: str | None
) -> None:
    generated.write_text(f"import os\ndef test_it(device): assert os.environ.get('OMP_NUM_THREADS') == {threads!r}\n")
    monkeypatch.setattr(run, "usable_cores", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert run.run(["cpu"], generated.parents[1] / "out", jobs=jobs, times=False) == 0


def test_a_run_into_the_folder_of_another_counts_its_own_rows(
    generated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated.write_text(GOOD)
    out = generated.parents[1] / "out"
    run.run(["cpu"], out, times=False)
    capsys.readouterr()

    run.run(["cpu"], out, times=False)

    assert capsys.readouterr().out.startswith("tests: 1 of 1, ")
    assert len(outcomes(out)) == 2


def test_no_process_at_all_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--device", "cpu", "--jobs", "0", "--out", str(tmp_path / "out")]) == 2
    assert "got --jobs 0; give 1 or more" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_kind_nobody_knows_is_told_before_any_child_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    assert cli.main(["run", "--device", "nosuch", "--out", str(out)]) == 2
    assert "there is no device kind 'nosuch'" in capsys.readouterr().err
    assert not out.exists()


def test_measuring_where_a_device_is_absent_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = measure.main(["--device", "sim:99", "--record", str(tmp_path / "rows.jsonl")])

    assert status == 2
    assert capsys.readouterr().err.startswith("sim:99 does not exist")


def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-m", "cuassay", "settings"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        told = running.stderr.read()

    assert (told, running.returncode) == (b"", 0)
