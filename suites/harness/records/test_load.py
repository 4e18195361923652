"""Reading of result files: torn and broken lines, older rows, and which rows are the newest."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cuassay_reports.analysis import load
from cuassay_reports.columns import TABLES, ResultFormatError, validate
from cuassay_reports.shapes import rejections

Make = Callable[..., Any]
GOOD = '{"record":"test","schema":1,"run":"r","nodeid":"%s","outcome":"passed"}'


def test_a_folder_is_read_with_everything_below_it(write_rows: Make, test_row: Make) -> None:
    folder = write_rows("r1", test_row())
    (folder / "deep").mkdir()
    (folder / "r1.jsonl").rename(folder / "deep" / "r1.jsonl")
    write_rows("r2", test_row())

    results = load(folder)

    assert [file.name for file in results.files] == ["r1.jsonl", "r2.jsonl"]
    assert list(results.tests["run"]) == ["r1", "r2"]


def test_a_file_named_twice_is_read_once(write_rows: Make, test_row: Make) -> None:
    folder = write_rows("r1", test_row())

    assert len(load(folder, folder / "r1.jsonl").tests) == 1


def test_a_torn_last_line_is_counted_and_ignored(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(GOOD % "a" + "\n" + '{"record":"test","sch')

    results = load(path)

    assert (len(results.tests), results.torn) == (1, 1)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param('{"record":"test","sch', id="torn"),
        pytest.param("[1, 2]", id="no-object"),
        pytest.param('{"record":"test","schema":1,"run":"r","nodeid":"a"}', id="lacks-outcome"),
        pytest.param('{"record":"run","schema":1,"run":"r","started":"yesterday"}', id="no-time"),
        pytest.param('{"record":"test","schema":99,"run":"r","nodeid":"a","outcome":"passed"}', id="newer"),
    ],
)
def test_a_broken_line_before_the_last_is_named_and_the_others_are_read(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join([GOOD % "a", broken, GOOD % "b", ""]))

    results = load(path)

    assert results.tests["nodeid"].tolist() == ["a", "b"]
    assert [one.place for one in results.rejected] == [f"{path}:2"]
    with pytest.raises(ResultFormatError, match=r"r\.jsonl:2: "):
        load(path, strict=True)


def test_compressed_files_are_read_like_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((GOOD % "a" + "\n").encode()))
    (tmp_path / "b.jsonl").write_text(GOOD % "b" + "\n")

    results = load(tmp_path)

    assert results.tests["nodeid"].tolist() == ["a", "b"]
    assert load(tmp_path / "a.jsonl.gz").tests["nodeid"].tolist() == ["a"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(GOOD.encode(), "is not a whole gzip file: Not a gzipped file", id="plain"),
        pytest.param(gzip.compress(GOOD.encode())[:-9], "is not a whole gzip file: ", id="cut off"),
        pytest.param(gzip.compress(bytes(range(256)))[:14] + b"\xff" * 40, "is not a whole gzip file: ", id="changed"),
    ],
)
def test_a_compressed_file_that_cannot_be_read_is_named_and_the_others_are_read(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "bad.jsonl.gz").write_bytes(content)
    (tmp_path / "good.jsonl").write_text(GOOD % "a" + "\n")

    results = load(tmp_path)

    assert results.tests["nodeid"].tolist() == ["a"]
    assert [one.place for one in results.rejected] == [str(tmp_path / "bad.jsonl.gz")]
    assert why in results.rejected[0].reason
    with pytest.raises(OSError, match="is not a whole gzip file"):
        load(tmp_path / "bad.jsonl.gz", strict=True)


def test_a_small_file_that_unfolds_to_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuassay_reports.files._MOST_UNFOLDED", 1 << 20)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n" * ((1 << 20) + 1)))

    assert "unfolds to more than" in load(tmp_path).rejected[0].reason


def test_a_whole_last_line_that_breaks_the_schema_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(GOOD % "a" + '\n{"record":"test","schema":1,"run":"r"}')

    with pytest.raises(ResultFormatError, match=r"r\.jsonl:2: test row lacks"):
        load(path, strict=True)


@pytest.mark.parametrize(("name", "said"), [("absent", "does not exist"), ("", "holds no")], ids=["absent", "empty"])
def test_nothing_to_read_says_what_to_do(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(FileNotFoundError, match=said):
        load(tmp_path / name)


def test_every_frame_has_all_columns_even_without_rows(write_rows: Make) -> None:
    results = load(write_rows("r1"))

    frames = {"run": results.runs, "device": results.devices, "test": results.tests, "time": results.times}
    for record, frame in frames.items():
        assert {column.name for column in TABLES[record]} - {"record"} <= set(frame.columns)


def test_columns_that_a_row_leaves_out_are_filled_by_the_schema(write_rows: Make, time_row: Make) -> None:
    times = load(write_rows("r1", time_row(1.0))).times

    row = times.iloc[0]
    assert (row["unit"], row["better"], row["cache"]) == ("s", "less", "")
    assert pd.isna(row["bytes"])


def test_timings_know_the_digest_and_the_start_of_their_run(write_rows: Make, time_row: Make, device_row: Make) -> None:
    device = device_row()

    times = load(write_rows("r1", device, time_row(1.0))).times

    assert times["digest"].item() == device[1]["digest"]
    assert times["started"].item() == pd.Timestamp("2026-01-01T12:00Z")


def test_runs_are_ordered_by_their_start_not_by_their_file(write_rows: Make, test_row: Make) -> None:
    write_rows("a1", test_row(), started="2026-03-01T00:00:00Z")
    folder = write_rows("b2", test_row("failed"), started="2026-02-01T00:00:00Z")

    results = load(folder)

    assert list(results.runs["run"]) == ["b2", "a1"]
    assert results.latest().tests["outcome"].item() == "passed"


def test_rows_of_a_run_whose_own_row_was_never_written_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(GOOD % "a" + "\n")

    results = load(path)

    assert (list(results.runs["run"]), len(results.latest().tests)) == (["r"], 1)


def test_a_run_whose_own_row_was_never_written_is_older_than_all(write_rows: Make, test_row: Make) -> None:
    folder = write_rows("r1", test_row())
    (folder / "torn.jsonl").write_text(GOOD % "a" + "\n")

    assert list(load(folder).runs["run"]) == ["r", "r1"]


def test_a_device_of_which_a_run_wrote_two_rows_is_the_last(write_rows: Make, test_row: Make, device_row: Make) -> None:
    results = load(write_rows("r1", device_row(name="A"), device_row(name="B"), test_row()))

    assert results.devices["subject"].item() == results.tests["subject"].item() == "cuda:0 · B"


def test_a_device_without_a_row_stands_for_itself(write_rows: Make, test_row: Make) -> None:
    tests = load(write_rows("r1", test_row())).tests

    assert tests[["subject", "digest"]].iloc[0].tolist() == ["cuda:0", ""]


def test_the_tests_of_a_folded_row_are_named_by_its_first_star(write_rows: Make, test_row: Make) -> None:
    folded = test_row(nodeid="f.py::test_*[2*3]", checks="values out", check=None)

    tests = load(write_rows("r1", folded)).tests

    assert tests[["nodeid", "check"]].to_numpy().tolist() == [
        ["f.py::test_values[2*3]", "values"],
        ["f.py::test_out[2*3]", "out"],
    ]


def test_a_rerun_test_counts_once_with_its_last_outcome(write_rows: Make, test_row: Make) -> None:
    tests = load(write_rows("r1", test_row("failed"), test_row("passed"))).tests

    assert tests["outcome"].item() == "passed"


def test_the_newest_rows_are_chosen_by_device_and_for_tests_and_times_apart(
    write_rows: Make, test_row: Make, time_row: Make, device_row: Make
) -> None:
    write_rows(
        "r1", device_row("cpu:0", name="A"), test_row(device="cpu:0"), device_row(), test_row("failed"), time_row(1.0)
    )
    latest = load(write_rows("r2", device_row(), test_row())).latest()

    assert sorted(latest.tests["run"]) == ["r1", "r2"]
    assert latest.tests.set_index("device")["outcome"].to_dict() == {"cpu:0": "passed", "cuda:0": "passed"}
    assert latest.times["run"].item() == "r1"


def test_a_run_of_times_alone_hides_no_tests(write_rows: Make, test_row: Make, time_row: Make) -> None:
    write_rows("r1", test_row(), time_row(1.0))

    latest = load(write_rows("r2", time_row(2.0))).latest()

    assert (latest.tests["run"].item(), latest.times["run"].item()) == ("r1", "r2")


def test_limits_are_those_of_the_run_that_has_the_times(write_rows: Make, test_row: Make, time_row: Make) -> None:
    limit = {"device": "cuda:0", "limit": "bandwidth", "unit": "B/s", "how": "copy"}
    write_rows("r1", time_row(1.0), ("limit", {**limit, "value": 4.0}))

    latest = load(write_rows("r2", test_row(), ("limit", {**limit, "value": 9.0}))).latest()

    assert latest.limits["value"].tolist() == [4.0]


def test_two_machines_with_devices_of_one_name_are_two_subjects(
    write_rows: Make, test_row: Make, device_row: Make
) -> None:
    cpu = {"name": None, "driver": None}
    write_rows("r1", device_row("cpu:0", **cpu, cpu="X"), test_row(device="cpu:0"))
    latest = load(write_rows("r2", device_row("cpu:0", **cpu, cpu="Y"), test_row(device="cpu:0"))).latest()

    assert set(latest.tests["subject"]) == {"cpu:0 · X", "cpu:0 · Y"}


def test_an_accelerator_is_the_same_in_another_host(write_rows: Make, test_row: Make, device_row: Make) -> None:
    write_rows("r1", device_row(cpu="X"), test_row())
    results = load(write_rows("r2", device_row(cpu="Y"), test_row()))

    assert set(results.tests["subject"]) == {"cuda:0 · NVIDIA H200"}


def test_unknown_columns_of_an_older_schema_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuassay_reports.columns.SCHEMA", 2)
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({**json.loads(GOOD % "a"), "gone": 1}) + "\n")

    assert "gone" not in load(path).tests


def test_results_show_how_much_they_hold(write_rows: Make, test_row: Make) -> None:
    results = load(write_rows("r1", test_row()))

    assert repr(results) == "Results(1 runs, 0 devices, 1 tests, 0 times, 0 limits of 1 files)"


def _spoilt(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with one value or column spoilt, in every way that the schema knows."""
    values = ["", "µ", "\ud800", 0, 2**63, -(2**63) - 1, 10**400, 1.5, math.inf, math.nan, True, None, [], [1], {}]
    yield from ({**row, name: value} for name in row for value in values)
    yield from ({other: row[other] for other in row if other != name} for name in row)
    yield {**row, "unheard": 1}
    yield {**row, "samples": [1.0, math.nan]}
    yield {**row, "samples": [1.0, True]}


@pytest.mark.parametrize("record", ["time", "test", "device"])
def test_rows_checked_together_are_judged_as_each_alone(
    record: str, time_row: Make, test_row: Make, device_row: Make
) -> None:
    made = {"time": lambda: time_row(1.0, samples=[1.0]), "test": test_row, "device": device_row}[record]()
    row = {"record": record, "schema": 1, "run": "r", **made[1]}
    rows = [row, *_spoilt(row), row]

    refused = {place: str(error) for place, error in rejections(rows)}

    for place, one in enumerate(rows):
        assert refused.get(place) == _why_invalid(one), one


def _why_invalid(row: dict[str, Any]) -> str | None:
    try:
        validate(row)
    except ResultFormatError as error:
        return str(error)
    return None
