"""The writer of results: what reaches the disk, by several processes, and after one was killed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from json_rows import rows_of

from cuassay.errors import ResultError
from cuassay.results.fingerprint import device_fingerprint, digest, host_fingerprint, revision
from cuassay.results.part import Part
from cuassay.results.record import Recorder, new_run_id
from cuassay_reports.analysis import load
from cuassay_reports.columns import SCHEMA

TIME: dict[str, object] = {
    "benchmark": "add",
    "device": "cpu:0",
    "case": "8",
    "implementation": "cuassay",
    "clock": "host",
}
TIME |= {"median": 1.0, "n": 3}


def test_each_row_is_one_line_with_table_schema_and_run(tmp_path: Path) -> None:
    with Recorder(tmp_path / "deep" / "r.jsonl", run="r1") as recorder:
        recorder.write_run(started="2026-01-01T00:00:00Z")
        recorder.write_test(nodeid="t[line\nbreak]", outcome="passed")

    first, second = rows_of(recorder.path)
    assert first == {"record": "run", "schema": SCHEMA, "run": "r1", "started": "2026-01-01T00:00:00Z"}
    assert second["nodeid"] == "t[line\nbreak]"


def test_unknown_values_are_left_out_and_numpy_scalars_become_plain(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r.jsonl") as recorder:
        recorder.write_time(**{**TIME, "n": np.int64(3), "samples": np.ones(2), "dtype": None, "q25": math.nan})

    (row,) = rows_of(recorder.path)
    assert (row["n"], row["samples"]) == (3, [1.0, 1.0])
    assert not {"dtype", "q25"} & row.keys()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        pytest.param({"median": math.nan}, "lacks 'median'", id="required-not-finite"),
        pytest.param({"clock": "wall"}, "use one of: device, host", id="choice"),
        pytest.param({"n": 2.5}, "'n' must be a whole number, got 2.5", id="type"),
        pytest.param({"n": True}, "'n' must be a whole number, got True", id="bool-is-no-number"),
        pytest.param({"medain": 1.0}, "unknown column 'medain'", id="misspelt"),
        pytest.param({"samples": [1.0, "2"]}, "'samples' must be a list of finite numbers", id="item"),
    ],
)
def test_a_row_against_the_schema_is_refused_by_the_name_of_its_column(
    tmp_path: Path, columns: dict[str, object], said: str
) -> None:
    with Recorder(tmp_path / "r.jsonl") as recorder, pytest.raises(ResultError, match=said):
        recorder.write_time(**{**TIME, **columns})

    assert recorder.path.read_bytes() == b""


def test_a_closed_recorder_refuses_rows_and_closes_twice(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.jsonl")
    recorder.close()
    recorder.close()

    assert "closed" in repr(recorder)
    with pytest.raises(ResultError, match="is closed"):
        recorder.write_run()


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        pytest.param(b'{"record":"test","sch', 1, id="torn"),
        pytest.param(b'{"record":"test","message":"' + b"x" * 200_000, 1, id="long-and-torn"),
        pytest.param(
            b'{"record":"test","schema":1,"run":"r","nodeid":"a","outcome":"passed"}', 2, id="only-newline-lost"
        ),
    ],
)
def test_a_tail_left_by_a_killed_writer_is_mended_when_the_file_is_opened(
    tmp_path: Path, tail: bytes, kept: int
) -> None:
    path = tmp_path / "r.jsonl"
    with Recorder(path, run="r") as recorder:
        recorder.write_run()
    path.write_bytes(path.read_bytes() + tail)

    with Recorder(path, run="r") as recorder:
        recorder.write_test(nodeid="b", outcome="passed")

    assert len(rows_of(path)) == kept + 1


def test_series_are_written_in_one_piece_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes, write = tmp_path / "rows.jsonl", [], os.write
    series = [{**TIME, "implementation": name} for name in ("ours", "theirs")]

    def half(file: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(file, data[: len(data) // 2 + 10])

    with Recorder(path) as recorder:
        recorder.write_times(series)
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(ResultError, match="the file was restored; make room there"):
            recorder.write_times(series)

    assert before.count(b"\n") == 2
    assert sizes == [len(before)]
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ResultError, match="name a file in a writable folder"):
        Recorder(tmp_path / "file" / "r.jsonl")


_WRITER = """
import sys
from cuassay.results.record import Recorder
with Recorder(sys.argv[1], run="shared") as recorder:
    for number in range(200):
        recorder.write_test(nodeid=f"{sys.argv[2]}-{number}", outcome="passed", message="x" * 5000)
"""


def test_several_processes_write_one_file_without_mixing_lines(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(name)]) for name in range(3)]

    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    tests = load(path).tests
    assert tests["nodeid"].nunique() == 600
    assert set(tests["message"]) == {"x" * 5000}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_a_fork_of_a_process_that_records_writes_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r.jsonl", run="r1") as recorder:
        part = Part(recorder, "tests")
        part.begin("first")
        child = os.fork()
        if child == 0:  # pragma: no cover  it is not measured
            try:
                part.begin("of the child")
                part.write("test", nodeid="of the child", outcome="passed")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        part.begin("second")

    assert [row["nodeid"] for row in rows_of(recorder.path)] == ["first", "second"]


def test_run_ids_differ_and_begin_with_the_time() -> None:
    first, second = new_run_id(), new_run_id()

    assert first != second
    assert len(first.partition("-")[0]) == len("20260131T120000")


def test_the_host_fingerprint_is_the_same_when_asked_again() -> None:
    once, again = host_fingerprint(), host_fingerprint()

    assert digest(once) == digest(again)
    assert {"system", "cpu", "cores", "python", "versions"} <= once.keys()


@pytest.mark.parametrize("variable", ["CUASSAY_WITHOUT", "WITHOUT_MODULES"])
def test_hidden_modules_are_a_fact_of_the_machine(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "without" not in host_fingerprint()

    monkeypatch.setenv(variable, "nvmath,cuda.core")
    assert host_fingerprint()["without"] == "cuda.core, nvmath"


@pytest.mark.parametrize(
    ("facts", "same"),
    [
        pytest.param({"sm_clock": 1755, "temperature": 61, "uptime": 9}, True, id="momentary"),
        pytest.param({"driver": None}, True, id="unknown"),
        pytest.param({"driver": "590.12"}, False, id="driver"),
        pytest.param({"uuid": "GPU-1"}, True, id="specimen"),
        pytest.param({"clocks": "locked at 1500 MHz"}, False, id="clock-policy"),
        pytest.param({"versions": {"cublas": "13.2"}}, True, id="library"),
    ],
)
def test_only_hard_facts_of_a_device_change_its_digest(facts: dict[str, object], same: bool) -> None:
    host = {"system": "Linux", "versions": {"numpy": "2.4.6"}}

    laid_over = device_fingerprint(facts, host=host)

    assert (digest(laid_over) == digest(host)) is same


def test_a_devices_versions_join_the_hosts() -> None:
    laid_over = device_fingerprint({"versions": {"cublas": "13.1"}}, host={"versions": {"numpy": "2.4.6"}})

    assert laid_over["versions"] == {"numpy": "2.4.6", "cublas": "13.1"}


@pytest.fixture
def no_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("CUASSAY_REVISION", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def test_the_revision_setting_comes_before_the_file(no_revision: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_revision / ".revision").write_text("a" * 40)
    monkeypatch.setenv("CUASSAY_REVISION", "b" * 40 + "+dirty")

    found = revision(no_revision)

    assert (found.commit, found.dirty, found.source) == ("b" * 40, True, "environment")


def test_a_copied_tree_is_known_by_its_revision_file(no_revision: Path) -> None:
    (no_revision / ".revision").write_text("a" * 40 + "\n2026-01-31T13:00:00+01:00\n")

    found = revision(no_revision)

    assert (found.commit, found.dirty, found.source) == ("a" * 40, False, "file")
    assert found.committed == "2026-01-31T12:00:00Z"


def test_without_any_history_the_revision_is_unknown_and_gives_no_columns(no_revision: Path) -> None:
    found = revision(no_revision)

    assert found.source == "none"
    assert set(found.columns().values()) == {None}


def test_git_names_the_commit_and_a_changed_file_makes_it_dirty(no_revision: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(no_revision), *identity, *arguments], check=True, capture_output=True)

    (no_revision / "file").write_text("one")
    git("init")
    git("add", "file")
    git("commit", "-m", "first")
    (no_revision / "untracked").write_text("one")
    clean = revision(no_revision)
    (no_revision / "file").write_text("two")

    assert (clean.source, clean.dirty, len(clean.commit or "")) == ("git", False, 40)
    assert revision(no_revision).dirty is True


def test_a_malformed_revision_is_an_error_that_names_its_source(no_revision: Path) -> None:
    (no_revision / ".revision").write_text("not a commit")

    with pytest.raises(ResultError, match=r"\.revision does not name a revision"):
        revision(no_revision)
