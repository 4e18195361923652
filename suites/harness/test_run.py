"""``cuassay run``: its children, what they leave, and what around it must not matter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cuassay import cli
from cuassay.benchmarking import measure, run

GOOD = "def test_it(device): pass\n"
BAD = "def test_it(device): raise ValueError\n"


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


def outcomes(out: Path) -> list[str]:
    rows = [json.loads(line) for line in (out / "tests.jsonl").read_text().splitlines()]
    return [row["outcome"] for row in rows if row["record"] == "test"]


@pytest.mark.parametrize(("text", "status", "outcome"), [(GOOD, 0, "passed"), (BAD, 1, "failed")], ids=["good", "bad"])
def test_the_status_says_whether_all_tests_held(generated: Path, text: str, status: int, outcome: str) -> None:
    generated.write_text(text)
    out = generated.parents[1] / "out"

    assert run.run(["cpu"], out, times=False) == status
    assert outcomes(out) == [outcome]


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

    (row,) = (json.loads(line) for line in (out / "run.jsonl").read_text().splitlines())
    tests = [json.loads(line) for line in (out / "tests.jsonl").read_text().splitlines()]
    assert (row["record"], row["command"]) == ("run", "cuassay run --device cpu")
    assert {one["run"] for one in tests} == {row["run"]}


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
    command = [sys.executable, "-m", "cuassay.cli", "settings"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        told = running.stderr.read()

    assert (told, running.returncode) == (b"", 0)
