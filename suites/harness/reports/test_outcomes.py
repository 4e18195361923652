"""What a job reads of a report: exit statuses, JSON, JUnit; and the public functions over frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from cuassay.cli import main as cuassay
from cuassay_reports.analysis import compare, export, load
from cuassay_reports.command import main

Make = Callable[..., Any]


@pytest.fixture
def results(write_rows: Make, device_row: Make, test_row: Make, time_row: Make) -> Path:
    """Two runs: in the second a test fails, a benchmark is slower, and another is missing."""
    write_rows("r1", device_row(), test_row(), time_row(1.0), time_row(1.0, case="gone"), commit="a" * 40)
    again = test_row("failed", reason="wrong\x00")
    folder: Path = write_rows("r2", device_row(), again, time_row(1.5), commit="b" * 40)
    return folder


@pytest.mark.parametrize(
    ("words", "status"),
    [("", 0), ("failed", 1), ("slower", 1), ("vanished", 1), ("failed,slower", 1), ("uncompared", 0), ("slow", 2)],
)
def test_a_job_fails_on_what_it_names(results: Path, words: str, status: int) -> None:
    assert main([str(results), "--fail-on", words]) == status


@pytest.mark.parametrize("word", ["failed", "slower", "vanished"])
def test_a_clean_history_fails_on_nothing(demo_clean: Path, word: str) -> None:
    assert main([str(demo_clean), "--fail-on", word]) == 0


@pytest.mark.parametrize("other", [None, "NVIDIA A100"], ids=["one run", "another card"])
def test_a_job_can_fail_where_nothing_was_compared(
    write_rows: Make, device_row: Make, time_row: Make, capsys: pytest.CaptureFixture[str], other: str | None
) -> None:
    if other is not None:
        write_rows("r1", device_row(name=other, capability="8.0"), time_row(1.0))
    folder = write_rows("r2", device_row(), time_row(1.0))

    assert main([str(folder), "--fail-on", "slower,uncompared"]) == 1
    assert "uncompared: r2: none of its times (1) was compared with an earlier run" in capsys.readouterr().err
    assert main([str(folder), "--fail-on", "slower"]) == 0


@pytest.fixture
def demo_clean(write_rows: Make, device_row: Make, test_row: Make, time_row: Make) -> Path:
    write_rows("r1", device_row(), test_row(), time_row(1.0))
    folder: Path = write_rows("r2", device_row(), test_row(), time_row(1.0))
    return folder


@pytest.mark.parametrize("content", ["", '{"record":"run","sch'], ids=["empty", "cut"])
def test_a_file_without_a_row_is_not_success(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.jsonl").write_text(content)

    assert main([str(tmp_path)]) == 2


def test_json_and_junit_carry_the_same_verdicts(results: Path, tmp_path: Path) -> None:
    told, cases = tmp_path / "r.json", tmp_path / "r.xml"

    assert main([str(results), "--json", str(told), "--junit", str(cases)]) == 0

    found = json.loads(told.read_text())
    junit = [(case.get("classname"), case.get("name")) for case in ET.parse(cases).iter("testcase")]  # noqa: S314  ours
    assert [name for name, _ in junit] == ["failed", "slower", "vanished"]
    assert [name for _, name in junit] == [found[word][0]["name"] for word in ("failed", "slower", "vanished")]
    assert found["vanished"][0]["name"] == "softmax float32 gone on cuda:0"


def test_two_commits_are_compared_in_either_order(results: Path) -> None:
    read = load(results)

    assert compare(read, "aaa", "r2")["verdict"].tolist() == ["slower"]
    backwards = compare(read, "b", "a")
    assert dict(zip(backwards["case"], backwards["verdict"], strict=True)) == {"8x8": "faster", "gone": ""}


@pytest.mark.parametrize(("a", "told"), [("c0ffee", "no run or commit"), ("b", "same run")])
def test_a_comparison_of_nothing_is_an_error(results: Path, a: str, told: str) -> None:
    with pytest.raises(LookupError, match=told):
        compare(load(results), a, "r2")


def test_exports_hold_the_newest_medians(results: Path, tmp_path: Path) -> None:
    read, name = load(results), "cuda:0 · NVIDIA H200 softmax cuda:0 float32 8x8 device s cuassay"

    csv, bencher, github = (export(read, tmp_path / form, form) for form in ("csv", "bencher", "github"))

    assert len(csv.read_text().splitlines()) == 4
    assert json.loads(bencher.read_text())[name]["latency"]["value"] == 1.5e9
    assert [(row["name"], row["unit"], row["value"]) for row in json.loads(github.read_text())] == [(name, "s", 1.5)]


def test_exports_make_their_folders_and_leave_out_what_other_tools_cannot_read(
    write_rows: Make, device_row: Make, time_row: Make, tmp_path: Path
) -> None:
    more = time_row(9.0, benchmark="rate", unit="B/s", better="more")
    read = load(write_rows("r1", device_row(), time_row(1.5, spread=0.1), more, commit="b" * 40))

    csv, github = (export(read, tmp_path / "new" / "folder" / form, form) for form in ("csv", "github"))

    assert csv.read_text().partition(",")[0] in read.times.columns
    (row,) = json.loads(github.read_text())
    assert (row["unit"], row["range"]) == ("s", "0.075")


def test_parquet_holds_the_timings(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    found = pd.read_parquet(export(load(results), tmp_path / "times.parquet", "parquet"))

    assert sorted(found["median"]) == [1.0, 1.0, 1.5]
    assert found.columns[0] in load(results).times.columns


def test_an_unknown_form_is_an_error_that_lists_the_others(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bencher, csv, github, parquet"):
        export(load(results), tmp_path / "x", "xlsx")


@pytest.mark.parametrize(("a", "b", "status", "told"), [("aaa", "bbb", 1, "slower"), ("r2", "r1", 0, "faster")])
def test_the_command_compares_two_commits(
    results: Path, capsys: pytest.CaptureFixture[str], a: str, b: str, status: int, told: str
) -> None:
    assert cuassay(["compare", a, b, "--results", str(results)]) == status
    told_by_it = capsys.readouterr().out
    assert told_by_it.startswith(told)
    assert told_by_it.splitlines()[0].count("%") < 3  # the change is said once
    assert "cuassay" not in told_by_it  # the implementation of a user's benchmark has that name in a record


def test_the_command_compares_two_files(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = results / "r1.jsonl", results / "r2.jsonl"

    assert cuassay(["compare", str(old), str(new)]) == 1
    assert capsys.readouterr().out.startswith("slower")
    assert cuassay(["compare", str(new), str(old)]) == 0


def test_of_a_file_with_several_runs_the_newest_with_times_is_compared(
    write_rows: Make, device_row: Make, test_row: Make, time_row: Make, tmp_path: Path
) -> None:
    write_rows("r1", device_row(), time_row(9.0))
    write_rows("r2", device_row(), time_row(1.0))
    folder: Path = write_rows("r3", device_row(), test_row())
    old = tmp_path / "old.jsonl"
    old.write_text("".join((folder / f"r{n}.jsonl").read_text() for n in (1, 2, 3)))
    write_rows("r4", device_row(), time_row(1.5))

    assert cuassay(["compare", str(old), str(folder / "r4.jsonl")]) == 1


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ("r1.jsonl", "none.jsonl", "none.jsonl is not a file; A and B are two result files, or two runs or commits"),
        ("r1.jsonl", "r2", "give: cuassay compare RUN r2 --results r1.jsonl"),
        ("r2", "r1.jsonl", "give: cuassay compare r2 RUN --results r1.jsonl"),
        ("r1.jsonl", "r1.jsonl", "name the same run, r1; name two"),
        ("r1.jsonl", "r3.jsonl", "r3.jsonl holds no times"),
    ],
)
def test_files_that_cannot_be_compared_are_answered(
    results: Path, write_rows: Make, test_row: Make, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, a: str, b: str, told: str,
) -> None:  # fmt: skip
    write_rows("r3", test_row())
    monkeypatch.chdir(results)

    assert cuassay(["compare", a, b]) == 2
    assert told in capsys.readouterr().err


def test_two_runs_without_a_folder_of_results_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cuassay(["compare", "r1", "r2"]) == 2
    assert "does not exist; name the folder of result files by --results DIR" in capsys.readouterr().err


def test_the_command_names_a_commit_that_is_not_there(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cuassay(["compare", "c0ffee", "r2", "--results", str(results)]) == 2
    assert "no run or commit begins with 'c0ffee'" in capsys.readouterr().err
