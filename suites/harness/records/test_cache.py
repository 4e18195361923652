"""Large folders of results: read by two processes, kept as Parquet, and the same frames either way."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cuassay_reports import cache, gather
from cuassay_reports.analysis import load
from cuassay_reports.load import Results

Make = Callable[..., Any]
FRAMES = ("runs", "devices", "tests", "times", "limits", "mutations", "shards", "verdicts")

pytest.importorskip("pyarrow", reason="pyarrow, which writes the copy, is not installed")


@pytest.fixture
def folder(write_rows: Make, device_row: Make, time_row: Make, test_row: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four runs with every kind of column, in a folder that is large enough for a copy."""
    monkeypatch.setattr(cache, "_WORTH", 0)
    for number in range(4):
        times = [time_row(1e-3 * (number + 1), samples=[1e-3, 2e-3], empty=1e-6), time_row(2.0, benchmark="b", bytes=8)]
        tests = [test_row(), test_row("failed", nodeid="it.py::µ", message="was µ")]
        rows = [
            device_row(),
            *times,
            *tests,
            ("mutation", {"source": "a.py", "killed": 1, "survived": 0, "uncovered": 0}),
        ]
        path: Path = write_rows(f"r{number}", *rows, started=f"2026-01-0{number + 1}T00:00:00Z")
    return path


def require_equal(first: Results, second: Results) -> None:
    """Fail where a frame or a fact differs."""
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name))
    assert (first.files, first.torn, first.rejected) == (second.files, second.torn, second.rejected)
    assert dict(first.begun) == dict(second.begun)


def append(file: Path, text: str) -> None:
    file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")


def unread(*_: object, **__: object) -> None:
    raise AssertionError("a result file was read")


def test_a_copy_gives_the_same_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(folder / "r1.jsonl", '{"record":"time"}\n{"torn')
    first = load(folder)
    monkeypatch.setattr("cuassay_reports.load.gather", unread)

    require_equal(load(folder), first)


def test_the_copy_is_ignored_by_git(folder: Path) -> None:
    load(folder)

    assert (folder / cache.FOLDER / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("keeps_time", [True, False], ids=["same-time", "other-time"])
def test_a_file_that_changed_is_read_again(folder: Path, keeps_time: bool) -> None:
    file = folder / "r1.jsonl"
    load(folder)
    found = file.stat()
    time.sleep(0.05)  # longer than the clock of file systems needs for its next tick
    file.write_text(file.read_text().replace('"b"', '"c"'))  # of the same size
    if keeps_time:
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))

    assert "c" in set(load(folder).times["benchmark"])


def test_no_copy_is_kept_of_a_file_that_changed_while_it_was_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*files: Any, **options: Any) -> Any:
        found = gather.gather(*files, **options)
        append(folder / "r1.jsonl", (folder / "r0.jsonl").read_text().replace('"b"', '"late"'))
        return found

    with monkeypatch.context() as patched:
        patched.setattr("cuassay_reports.load.gather", slow)
        assert "late" not in set(load(folder).times["benchmark"])

    assert "late" in set(load(folder).times["benchmark"])


def test_a_file_that_was_only_touched_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(folder)
    os.utime(folder / "r1.jsonl", ns=(0, 0))
    monkeypatch.setattr("cuassay_reports.load.gather", unread)

    assert len(load(folder).runs) == 4


def test_a_new_file_and_a_missing_one_are_noticed(folder: Path) -> None:
    load(folder)
    (folder / "r0.jsonl").rename(folder / "r9.jsonl")
    (folder / "r1.jsonl").unlink()

    assert [file.name for file in load(folder).files] == ["r2.jsonl", "r3.jsonl", "r9.jsonl"]


@pytest.mark.parametrize("name", ["times.parquet", "copy.json"])
def test_a_broken_copy_is_made_again(folder: Path, name: str) -> None:
    first = load(folder)
    broken = folder / cache.FOLDER / name
    broken.write_bytes(broken.read_bytes()[:40])

    require_equal(load(folder), first)
    assert len(broken.read_bytes()) > 40


def test_half_of_another_copy_is_not_used(folder: Path) -> None:
    load(folder)
    old = (folder / cache.FOLDER / "times.parquet").read_bytes()
    (folder / "r1.jsonl").unlink()
    first = load(folder)
    (folder / cache.FOLDER / "times.parquet").write_bytes(old)

    require_equal(load(folder), first)


def test_a_copy_by_another_version_of_the_package_is_not_used(folder: Path) -> None:
    first = load(folder)
    told = folder / cache.FOLDER / "copy.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "version": "0"}))
    (folder / cache.FOLDER / "times.parquet").unlink()

    require_equal(load(folder), first)


def test_without_pyarrow_there_is_no_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_pyarrow", lambda: None)

    assert len(load(folder).times) == 8
    assert not (folder / cache.FOLDER).exists()


def test_strict_reads_the_files(folder: Path) -> None:
    load(folder)
    (folder / cache.FOLDER / "times.parquet").unlink()

    assert len(load(folder, strict=True).times) == 8


def test_two_processes_read_what_one_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(folder / "r3.jsonl", "[1]\n")
    alone = load(folder, cached=False)
    started = []
    monkeypatch.setattr(gather, "_SHARED", 0)
    monkeypatch.setattr(gather.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(gather.subprocess, "Popen", lambda *a, **k: started.append(a) or Popen(*a, **k))

    require_equal(load(folder, cached=False), alone)
    assert len(started) == 1


@pytest.mark.parametrize("program", ["no-such-interpreter", "false"])
def test_where_the_second_process_fails_one_reads_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    alone = load(folder, cached=False)
    monkeypatch.setattr(gather, "_SHARED", 0)
    monkeypatch.setattr(gather.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(gather.sys, "executable", program)

    require_equal(load(folder, cached=False), alone)


Popen = subprocess.Popen
