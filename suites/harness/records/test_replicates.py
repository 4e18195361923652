"""Replicates over fresh processes: one row a series, of the medians of the processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuassay.benchmarking import measure, run
from cuassay.benchmarking.ledger import read
from cuassay.benchmarking.replicates import merged, replicated
from cuassay.errors import MeasurementError, SettingError

#: A measuring process as anybody may write one: each that is started is slower than the one before.
CHILD = """
import json, pathlib, sys
record = pathlib.Path(sys.argv[sys.argv.index("--record") + 1])
told = {"schema": 1, "run": "r", "device": "cuda:0", "benchmark": "add", "case": "1", "implementation": "cuassay"}
median = 1.0 + int(record.stem)
rows = [{"record": "plan", "schema": 1, "run": "r", "times": 1},
        {"record": "condition", "schema": 1, "run": "r", "device": "cuda:0", "when": "before", "power": 100.0},
        {"record": "time", **told, "clock": "device", "median": median, "n": 30, "settled": True}]
record.write_text("".join(json.dumps(row) + chr(10) for row in rows))
"""


def time_row(median: float, **columns: Any) -> dict[str, Any]:
    told = {"benchmark": "add", "device": "cuda:0", "case": "1", "implementation": "cuassay", "clock": "device"}
    return {"record": "time", "schema": 1, "run": "r", **told, "median": median, "n": 30, **columns}


def test_the_samples_of_a_row_are_the_medians_of_the_processes() -> None:
    (row,) = merged([time_row(3.0, minimum=2.5), time_row(1.0, minimum=0.5), time_row(2.0, minimum=1.5)])

    assert (row["median"], row["q25"], row["q75"], row["minimum"]) == (2.0, 1.5, 2.5, 0.5)
    assert (row["samples"], row["n"], row["processes"]) == ([3.0, 1.0, 2.0], 3, 3)
    assert row.keys().isdisjoint({"record", "schema", "run"})


def test_series_are_kept_apart() -> None:
    rows = [time_row(1.0), time_row(5.0, dtype="float16"), time_row(2.0), time_row(6.0, dtype="float16")]

    assert [row["median"] for row in merged(rows)] == [1.5, 5.5]


def test_a_row_is_settled_if_all_its_processes_were_and_counts_all_throttled_samples() -> None:
    (row,) = merged([time_row(1.0, settled=True, throttled=2), time_row(1.0, settled=False, throttled=3)])

    assert (row["settled"], row["throttled"]) == (False, 5)


def test_processes_run_one_after_the_other_and_their_plans_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=None)

    rows = list(replicated(["child"], 3))

    assert [table for table, _ in rows] == ["condition"] * 3 + ["time"]
    assert rows[-1][1]["samples"] == [1.0, 2.0, 3.0]


def test_a_process_that_fails_ends_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "child.py").write_text("import sys; sys.exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=None)

    with pytest.raises(MeasurementError, match="process 1 of 2 ended with status 3"):
        list(replicated(["child"], 2))


def test_the_measuring_child_writes_what_its_processes_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def found(module: list[str], processes: int) -> Any:
        started.append((module, processes))
        return [("time", next(merged([time_row(1.0), time_row(2.0)])))]

    monkeypatch.setattr(measure, "replicated", found)
    record = tmp_path / "times.jsonl"

    assert measure.main(["--device", "sim", "--record", str(record), "--run", "r1", "--processes", "2"]) == 0
    assert started == [(["cuassay.benchmarking.measure", "--device=sim:0"], 2)]
    assert [row["record"] for row in read([record])] == ["plan", "time", "end"]
    assert json.loads(record.read_text().splitlines()[1])["processes"] == 2


def test_fewer_than_one_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="got --processes 0"):
        run.run(["sim"], tmp_path, processes=0)
