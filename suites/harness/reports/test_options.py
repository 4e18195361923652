"""Options of ``cuassay report``: the threshold, the baseline, and the suspects that ``cuassay ab -`` takes."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay.cli import main
from cuassay.commands.suspects import fill_in
from cuassay.errors import ArgumentError
from cuassay_reports.analysis import load
from cuassay_reports.command import run
from cuassay_reports.page import build
from cuassay_reports.verdicts import THRESHOLDS

Make = Callable[..., Any]


@pytest.fixture
def three(write_rows: Make, device_row: Make, time_row: Make) -> Path:
    """Three runs: 1, 1.10 and 1.13 ms."""
    for number, median in enumerate([1e-3, 1.10e-3, 1.13e-3]):
        folder: Path = write_rows(
            f"r{number}", device_row(), time_row(median, spread=0.001), commit=f"{number}a" * 20,
            started=f"2026-01-0{number + 1}T00:00:00Z",
        )  # fmt: skip
    return folder


@pytest.mark.parametrize(("threshold", "status"), [("2", 1), ("5", 0)])
def test_the_threshold_says_what_a_change_is(three: Path, threshold: str, status: int) -> None:
    assert main(["report", str(three), "--fail-on", "slower", "--threshold", threshold]) == status


@pytest.mark.parametrize("threshold", ["0", "-1", "100", "nan"])
def test_a_threshold_that_is_no_percentage_is_refused(
    three: Path, capsys: pytest.CaptureFixture[str], threshold: str
) -> None:
    assert main(["report", str(three), f"--threshold={threshold}"]) == 2
    assert "is not a percentage" in capsys.readouterr().err


@pytest.mark.parametrize(("baseline", "change"), [("", "+2.7 %"), ("0a0a", "+13.0 %"), ("r1", "+2.7 %")])
def test_the_baseline_is_what_the_newest_run_is_compared_with(three: Path, baseline: str, change: str) -> None:
    (section,) = build(load(three), baseline=baseline, thresholds=THRESHOLDS).timings

    assert section.rows[0].change == change


def test_an_unknown_baseline_is_refused_with_the_known_ones(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([three], baseline="ffff") == 2
    assert "no run or commit begins with 'ffff'; the newest here are: r0 (0a0a0a0a0a)" in capsys.readouterr().err


def test_a_run_without_a_commit_is_listed_by_its_id(
    write_rows: Make, device_row: Make, time_row: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder: Path = write_rows("r1", device_row(), time_row(1e-3), commit="")

    assert run([folder], baseline="ffff") == 2
    assert capsys.readouterr().err.endswith("the newest here are: r1\n")


# ------------------------------------------------------------------------------------------------ written files


@pytest.mark.parametrize("option", ["--html", "--md", "--json", "--junit"])
def test_a_file_of_another_kind_is_not_replaced(three: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    record = three / "r0.jsonl"
    rows = record.read_bytes()

    assert main(["report", str(three), option, str(record)]) == 2

    assert record.read_bytes() == rows
    said = capsys.readouterr().err
    assert said.startswith(f"cuassay report: {record} is not the ")
    assert said.endswith("so it is not replaced; name another file, or remove this one first\n")


@pytest.mark.parametrize("option", ["--html", "--md", "--json", "--junit"])
def test_an_earlier_report_is_replaced(three: Path, tmp_path: Path, option: str) -> None:
    written = tmp_path / "report"
    assert main(["report", str(three / "r0.jsonl"), option, str(written)]) == 0
    before = written.read_bytes()

    assert main(["report", str(three), option, str(written)]) == 0

    assert written.read_bytes() != before


def test_the_page_of_another_program_is_not_replaced(three: Path, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("<!DOCTYPE html>\n<html><head><title>home</title></head></html>\n")

    assert main(["report", str(three), "--html", str(page)]) == 2


# ------------------------------------------------------------------------------------------------ files without results


OTHERS = {
    "program": ("import numpy\n\ndef test_a(): pass\n", "none of its 2 lines is a row of a result"),
    "one line": ("hello\n", "its only line is not a row of a result"),
    "other object": ('{"format": "cuassay tuning results"}\n', "its only line is not a row of a result"),
    "empty": ("", "it has no complete line"),
}


@pytest.mark.parametrize(("text", "why"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize(
    "words",
    [["report"], ["report", "--strict"], ["compare", "a", "b", "--results"]],
    ids=["report", "strict", "compare"],
)
def test_a_file_of_another_kind_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str, why: str
) -> None:
    file = tmp_path / "test_norm.py"
    file.write_text(text)

    assert main([*words, str(file)]) == 2

    writers = "name a file that `cuassay run` or `pytest --cuassay-record` wrote"
    assert capsys.readouterr().err == f"cuassay {words[0]}: {file}: not a file of results: {why}; {writers}\n"


def test_each_of_several_files_of_other_kinds_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("import numpy\n")

    assert run(files) == 2

    *rejected, advice = capsys.readouterr().err.splitlines()
    assert [line.partition(": not a file")[0] for line in rejected] == [f"cuassay report: left out {f}" for f in files]
    assert advice.startswith(f"cuassay report: no result in {files[0]}, {files[1]}; name a file that")


def test_dash_is_answered_with_the_name_of_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-"]) == 2
    assert "name /dev/stdin" in capsys.readouterr().err


def test_a_device_file_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["/dev/null"]) == 2
    assert capsys.readouterr().err.startswith("cuassay report: /dev/null: not a file of results: ")


def test_results_are_read_from_a_pipe(three: Path) -> None:
    lines = b"".join(file.read_bytes() for file in sorted(three.rglob("*.jsonl")))
    command = [sys.executable, "-m", "cuassay_reports", "/dev/stdin"]

    done = subprocess.run(command, input=lines, capture_output=True, check=True)

    assert b"+2.7 %" in done.stdout


def test_the_text_says_once_that_a_run_is_incomplete(
    write_rows: Make, device_row: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = ("plan", {"part": "tests", "process": 1, "tests": 3})
    folder: Path = write_rows("r1", device_row(), planned)

    assert run([folder]) == 1

    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.count("process 'tests' did not finish; 0 of 3 planned tests have an outcome") == 1


@pytest.fixture
def suspicious(write_rows: Make, device_row: Make, time_row: Make) -> Path:
    """Twenty runs of twenty benchmarks, of which one, its peer and one on the host's clock are slower in the last."""
    dice = random.Random(3)  # noqa: S311  the same each time
    moved = {"b3": {}, "b4": {"implementation": "cupy"}, "b5": {"clock": "host"}}
    for number in range(20):
        rows = [
            time_row(1e-3 * dice.gauss(1, 0.002) * (1.1 if name in moved and number == 19 else 1.0), benchmark=name,
                     **moved.get(name, {}))
            for name in (f"b{place}" for place in range(20))
        ]  # fmt: skip
        started = f"2026-01-{number + 1:02}T00:00:00Z"
        folder: Path = write_rows(f"r{number:02}", device_row(), *rows, started=started, commit=f"{number:02}" * 20)
    return folder


def test_suspects_are_ours_by_the_clock_of_the_device(suspicious: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(suspicious), "--suspects"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "base": "18" * 20, "head": "19" * 20, "device": "cuda:0", "benchmarks": ["b3 float32 8x8"],
    }  # fmt: skip


def asked(monkeypatch: pytest.MonkeyPatch, text: str, **options: Any) -> Namespace:
    """Options of ``cuassay ab -`` with this on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return Namespace(**{"base": "-", "head": None, "device": "", "only": [], "run": None, **options})


def test_ab_takes_commits_benchmarks_and_device_of_the_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"base": "1" * 40, "head": "2" * 40, "device": "cuda:0", "benchmarks": ["add float32 8x8"]}
    options = asked(monkeypatch, json.dumps(told), only=["mm*"])

    assert fill_in(options)
    assert (options.base, options.head, options.device) == ("1" * 40, "2" * 40, "cuda:0")
    assert options.only == ["mm*", "add float32 8x8"]


def test_a_device_that_is_given_comes_before_that_of_the_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"base": "1" * 40, "head": "2" * 40, "device": "cuda:0", "benchmarks": ["add float32 8x8"]}
    options = asked(monkeypatch, json.dumps(told), device="cuda:1")

    assert fill_in(options)
    assert options.device == "cuda:1"


def test_the_device_of_the_suspects_is_not_that_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"base": "1" * 40, "head": "2" * 40, "device": "cuda:0", "benchmarks": ["add float32 8x8"]}
    options = asked(monkeypatch, json.dumps(told), run="python bench.py {record}")

    assert fill_in(options)
    assert not options.device


def test_without_suspects_ab_has_nothing_to_do(
    three: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(three), "--suspects"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(capsys.readouterr().out))

    assert main(["ab", "-"]) == 0
    assert "no suspects" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not suspects"),
        ("[1]", "not suspects"),
        ('{"base": "", "head": "1", "device": "", "benchmarks": ["a"]}', "inside a git checkout"),
        ('{"base": "1", "head": "1", "device": "", "benchmarks": ["a"]}', "of two commits"),
    ],
    ids=["empty", "other", "no-commit", "one-commit"],
)
def test_what_ab_cannot_compare_is_refused(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        fill_in(asked(monkeypatch, text))


def test_ab_of_one_side_is_refused() -> None:
    with pytest.raises(ArgumentError, match="HEAD is missing"):
        fill_in(Namespace(base="main", head=None, device="", only=[]))
