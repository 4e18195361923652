"""The ledger's file of a run: what is kept, how small it is, what the reports read from it, how it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from json_rows import rows_of

from cuassay.benchmarking.ledger import MAX_MESSAGE_CHARACTERS, MAX_SAMPLES, file_name, main, read, trimmed, write
from cuassay.errors import ResultError
from cuassay.results.record import Recorder
from cuassay_reports.analysis import load
from cuassay_reports.matrix import support

Row = dict[str, Any]

COMMIT = "9f3c2100aa" * 4
H200 = {"device": "cuda:0", "present": True, "digest": "0123456789ab", "fingerprint": {"name": "NVIDIA H200"}}
CPU = {"device": "cpu:0", "present": True, "digest": "ba9876543210", "fingerprint": {"name": "Example CPU"}}
TIME = {"benchmark": "add", "device": "cuda:0", "case": "8", "implementation": "cuassay", "clock": "device"}


def passed(check: str, op: str = "add", **more: object) -> Row:
    nodeid = f"suites/devices/checks/test_conformance.py::test_{check}[cuda:0-float32-{op}]"
    told = {"device": "cuda:0", "dtype": "float32", "op": op, "check": check}
    return {"nodeid": nodeid, "outcome": "passed", "duration": 0.1, **told, **more}


def failed(check: str, op: str = "add", message: str = "E  wrong") -> Row:
    return {**passed(check, op), "outcome": "failed", "reason": "wrong", "message": message}


@pytest.fixture
def record(tmp_path: Path) -> Any:
    """Records a run of one H200 as its processes do: rows in one file, each device told twice."""

    def write_rows(*tests: Row, times: tuple[Row, ...] = (), run: str = "r1", **about: object) -> Path:
        with Recorder(tmp_path / f"{run}.jsonl", run=run) as recorder:
            recorder.write_run(started="2026-01-31T12:00:00Z", commit=COMMIT, **about)
            for device in (CPU, H200, H200):
                recorder.write_device(**device)
            for test in tests:
                recorder.write_test(**test)
            for time in times:
                recorder.write_time(**{**TIME, **time})
        return recorder.path

    return write_rows


def test_a_file_is_named_by_date_accelerator_and_commit(record: Any, tmp_path: Path) -> None:
    assert write([record()], tmp_path / "ledger").name == "2026-01-31-nvidia-h200-9f3c2100.jsonl.gz"


def test_changes_beside_the_commit_are_in_the_name(record: Any, tmp_path: Path) -> None:
    assert write([record(dirty=True)], tmp_path / "ledger").name.endswith("-9f3c2100-dirty.jsonl.gz")


def test_the_same_run_replaces_its_file_and_another_gets_a_number(record: Any, tmp_path: Path) -> None:
    first, second = record(run="r1"), record(run="r2")

    names = [write([path], tmp_path / "ledger").name for path in (first, first, second, second)]

    assert names[0] == names[1] == "2026-01-31-nvidia-h200-9f3c2100.jsonl.gz"
    assert names[2] == names[3] == "2026-01-31-nvidia-h200-9f3c2100-2.jsonl.gz"


def test_reports_read_the_same_tests_from_the_ledger_as_from_the_run(record: Any, tmp_path: Path) -> None:
    path = record(passed("values", headroom=0.25), passed("out"), failed("plan"), passed("values", "exp", headroom=0.5))

    kept = load(write([path], tmp_path / "ledger")).tests

    whole = load(path).tests
    assert sorted(kept["nodeid"]) == sorted(whole["nodeid"])
    columns = ["op", "dtype", "state", "passed", "failed", "headroom"]
    assert support(kept).sort_values("op")[columns].to_dict() == support(whole).sort_values("op")[columns].to_dict()


def test_passed_checks_of_a_cell_are_one_row(record: Any, tmp_path: Path) -> None:
    path = record(passed("values", headroom=0.25), passed("out", headroom=0.5), passed("meta"))

    (row,) = rows_of(write([path], tmp_path / "ledger"), "test")

    assert (row["checks"], row["headroom"]) == ("values out meta", 0.5)
    assert row["nodeid"] == "suites/devices/checks/test_conformance.py::test_*[cuda:0-float32-add]"


def test_a_test_of_no_op_keeps_its_own_row(record: Any, tmp_path: Path) -> None:
    path = record({"nodeid": "t.py::test_values", "outcome": "passed", "check": "values"})

    (row,) = rows_of(write([path], tmp_path / "ledger"), "test")

    assert row["nodeid"] == "t.py::test_values"
    assert "checks" not in row


def test_a_failure_keeps_its_text_and_a_skip_its_reason(record: Any, tmp_path: Path) -> None:
    skipped = {**passed("graph_replay"), "outcome": "skipped", "reason": "cuda:0: no graphs: why"}

    first, second = rows_of(write([record(failed("values"), skipped)], tmp_path / "ledger"), "test")

    assert (first["message"], first["duration"]) == ("E  wrong", 0.1)
    assert second["reason"] == "cuda:0: no graphs: why"


def test_texts_of_failures_name_no_folder_of_the_machine(record: Any, tmp_path: Path) -> None:
    found = {**failed("values", message=f"E  in {Path.cwd()}/a/b.py"), "reason": f"{Path.cwd()}/c.py"}

    (row,) = rows_of(write([record(found)], tmp_path / "ledger"), "test")

    assert (row["message"], row["reason"]) == ("E  in a/b.py", "c.py")


def test_the_ledger_keeps_what_a_run_that_died_had_begun(record: Any, tmp_path: Path) -> None:
    path = record({"nodeid": "t.py::test_a", "outcome": "passed"})
    with Recorder(path, run="r1") as recorder:
        recorder.write("plan", part="tests", process=7, tests=2)
        for name in ("a", "b"):
            recorder.write("begin", part="tests", process=7, nodeid=f"t.py::test_{name}")

    results = load(write([path], tmp_path / "ledger"))

    assert results.begun == {"r1": (("tests", "t.py::test_b"),)}
    assert main(["check", str(path)]) == 1


def test_a_run_begun_by_a_script_is_complete_when_the_script_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    main(["begin", str(path), "--command", "ci/run gpu"])
    open_run = load(path).runs["ended_early"].tolist()

    main(["end", str(path), "--run", capsys.readouterr().out.strip()])

    assert open_run == ["process 'command' did not finish"]
    assert load(path).runs["ended_early"].tolist() == [""]


def test_a_run_that_ended_early_says_so_in_the_ledger(record: Any, tmp_path: Path) -> None:
    path = record(passed("values"))
    with Recorder(path, run="r1") as recorder:
        recorder.write_end("interrupted")

    assert load(write([path], tmp_path / "ledger")).runs["ended_early"].tolist() == ["interrupted"]


def test_conditions_of_the_run_are_kept(record: Any, tmp_path: Path) -> None:
    path = record()
    with Recorder(path, run="r1") as recorder:
        recorder.write("condition", device="cuda:0", when="before", sm_clock=1980, temperature=41)

    (kept,) = rows_of(write([path], tmp_path / "ledger"), "condition")

    assert (kept["device"], kept["sm_clock"], kept["temperature"]) == ("cuda:0", 1980, 41)


def test_each_device_is_told_once(record: Any, tmp_path: Path) -> None:
    devices = rows_of(write([record()], tmp_path / "ledger"), "device")

    assert [row["device"] for row in devices] == ["cpu:0", "cuda:0"]


@pytest.mark.parametrize("count", [1, 19, 20, 21, 200])
def test_samples_are_thinned_in_order_and_the_figures_stay(record: Any, tmp_path: Path, count: int) -> None:
    samples = [1.0 + place for place in range(count)]
    path = record(times=({"median": 7.0, "n": count, "samples": samples},))

    (row,) = rows_of(write([path], tmp_path / "ledger"), "time")

    assert len(row["samples"]) == min(count, MAX_SAMPLES)
    assert row["samples"] == sorted(set(row["samples"]) & set(samples))
    assert (row["median"], row["n"]) == (7.0, count)


def test_figures_keep_six_digits(record: Any, tmp_path: Path) -> None:
    path = record(times=({"median": 1.23456789e-5, "n": 1},))

    (row,) = rows_of(write([path], tmp_path / "ledger"), "time")

    assert row["median"] == 1.23457e-5


def test_a_run_where_all_failed_keeps_each_failure_and_its_reason(record: Any, tmp_path: Path) -> None:
    path = record(*(failed("values", f"op{number}", "E" * 5000) for number in range(400)))

    written = write([path], tmp_path / "ledger")

    rows = rows_of(written, "test")
    assert len(rows) == 400
    assert {len(row["message"]) for row in rows} == {500}
    assert sum(len(row["message"]) for row in rows) <= MAX_MESSAGE_CHARACTERS


def test_a_failure_among_thousands_that_passed_keeps_its_text(record: Any, tmp_path: Path) -> None:
    passed = ({"nodeid": f"suites/test_it.py::test_{'x' * 100}{number}", "outcome": "passed"} for number in range(3000))
    path = record(failed("values", "add", "E" * 5000), *passed)

    rows = rows_of(write([path], tmp_path / "ledger"), "test")

    assert len(rows) == 3001
    assert [len(row["message"]) for row in rows if "message" in row] == [4000]


def test_files_of_two_runs_are_refused(record: Any, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="one run"):
        write([record(run="r1"), record(run="r2")], tmp_path / "ledger")


def test_rows_without_their_run_are_refused() -> None:
    with pytest.raises(ResultError, match="run rows of none"):
        file_name(trimmed([{"record": "device", "schema": 1, "run": "r1", **H200}]))


def test_a_run_in_which_nothing_started_still_has_a_file(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r.jsonl", run="r1") as recorder:
        recorder.write_run(started="2026-01-31T12:00:00Z")

    assert write([recorder.path], tmp_path / "ledger").name == "2026-01-31-no-device-unknown.jsonl.gz"


def test_a_line_that_is_no_row_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.jsonl").write_text('{"record": "run"}\n')

    assert main(["write", str(tmp_path), "--out", str(tmp_path / "ledger")]) == 2

    assert "r.jsonl:1: " in capsys.readouterr().err


def test_a_last_row_without_its_newline_is_a_row_and_a_torn_one_is_none(record: Any, tmp_path: Path) -> None:
    path = record()
    rows = read([path])
    text = path.read_text().rstrip("\n")

    path.write_text(text)
    assert read([path]) == rows

    path.write_text(text[:-1])
    assert read([path]) == rows[:-1]


def test_begin_writes_the_run_and_prints_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUASSAY_REVISION", COMMIT)

    status = main(["begin", str(tmp_path / "r.jsonl"), "--command", "ci/run gpu"])

    (row,) = rows_of(tmp_path / "r.jsonl", "run")
    assert status == 0
    assert row["run"] == capsys.readouterr().out.strip()
    assert (row["command"], row["commit"], row["revision_source"]) == ("ci/run gpu", COMMIT, "environment")
