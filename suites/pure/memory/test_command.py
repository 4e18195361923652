"""``cuassay memory replay``: what it prints, as text and as JSON, for ours and for the peers' policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuassay.cli import main

TRACE = Path(__file__).parents[2] / "data" / "traces" / "mosaic_output.csv.gz"
KEYS = {"trace", "policy", "live_peak", "reserved_peak", "ratio", "driver_calls", "ns_per_op"}


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["memory", "replay", *arguments, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_each_trace_has_its_figures_and_all_their_mean(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, mean = replayed(capsys, str(TRACE), "volumes:3")

    assert (first.keys(), second.keys()) == (KEYS, KEYS)
    assert (first["trace"], second["trace"]) == ("mosaic_output", "volumes:3")
    assert mean["geomean"] == pytest.approx((first["ratio"] * second["ratio"]) ** 0.5)


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [("cuassay", 1.0, 1.06), ("segments", 1.27, 1.29), ("expandable", 1.02, 1.03), ("cupy", 1.31, 1.33)],
)
def test_policies_waste_what_they_are_known_to(
    capsys: pytest.CaptureFixture[str], policy: str, low: float, high: float
) -> None:
    row, _ = replayed(capsys, str(TRACE), "--policy", policy)

    assert row["policy"] == policy
    assert low <= row["ratio"] <= high


def test_a_folder_stands_for_its_traces(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / TRACE.name).write_bytes(TRACE.read_bytes())

    assert [row.get("trace") for row in replayed(capsys, str(tmp_path))] == ["mosaic_output", None]


def test_what_is_no_trace_is_named_and_passed_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "README.md"
    other.write_text("Traces of a kind.", encoding="utf-8")

    assert main(["memory", "replay", str(other), str(TRACE)]) == 0

    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["mosaic_output", "geomean"]
    assert told.err == f"cuassay memory replay: {other} is skipped: it is not a *.csv.gz file\n"


def test_as_text_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "replay", str(TRACE)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["mosaic_output", "geomean"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv.gz"], "nowhere.csv.gz does not exist; name a trace, a folder with some, or one of volumes"),
        ([str(Path(__file__).parent)], "holds no *.csv.gz file; name a trace"),
        ([__file__, __file__], "test_command.py is not a *.csv.gz file; name a trace"),
        (["volumes:x"], "a seed is a whole number"),
        (["volumes", "--policy", "cupy", "--device", "sim"], "omit --device"),
        (["volumes", "--device", "cpu"], "no source of memory"),
    ],
    ids=["missing", "folder", "file", "seed", "peer", "device"],
)
def test_what_cannot_be_done_is_told(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["memory", "replay", *arguments]) == 2

    assert message in capsys.readouterr().err
