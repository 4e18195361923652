"""``cuassay run``: its children, what they leave, and what around it must not matter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuassay import cli
from cuassay.benchmarking import measure, run

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

    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"cuassay's own operations on cpu; results go to {out}"
    assert told[1].startswith("tests: 1 of 1, ")
    assert len(outcomes(out)) == 2


RESERVING = """
import os, time
import pytest
from cuassay.testing import requires

@requires("memory>=600MiB")
@pytest.mark.parametrize("n", range(6))
def test_it(device, n):
    with open(os.environ["NOTES"], "a") as file:
        file.write("begin ")
    time.sleep(0.1)
    with open(os.environ["NOTES"], "a") as file:
        file.write("end ")
"""


def test_parts_reserve_the_memory_that_tests_declare(generated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = generated.parents[1] / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    monkeypatch.setenv("CUASSAY_SIM_MEMORY", "1GiB")
    generated.write_text(RESERVING)

    assert run.run(["sim"], generated.parents[1] / "out", jobs=3, times=False) == 0
    assert notes.read_text() == "begin end " * 6


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


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "cuassay", "settings"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        told = running.stderr.read()

    assert (told, running.returncode) == (b"", 0)
