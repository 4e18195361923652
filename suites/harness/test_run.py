"""``cuassay run``: its children, what they leave, and what around it must not matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuassay.benchmarking import run

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
