"""A fleet in the report: who ran what on which card, and how long its shards waited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay_reports.fleet import fleet_sections
from cuassay_reports.load import load
from cuassay_reports.page import build
from cuassay_reports.render import render_html, render_markdown, render_text

Make = Callable[..., Any]

A100 = {"name": "NVIDIA A100", "uuid": "GPU-a100", "capability": "8.0"}


def on(worker: str, row: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return row[0], {**row[1], "worker": worker}


def shard(attempt: int, worker: str, waited: float, how: str = "ended") -> tuple[str, dict[str, Any]]:
    columns = {"attempt": attempt, "worker": worker, "kind": "cuda", "tests": 2, "waited": waited, "duration": 3.0}
    return "shard", {**columns, "how": how}


@pytest.fixture
def fleet(write_rows: Make, device_row: Make, test_row: Make, time_row: Make) -> Path:
    """Three workers, of which the last has another card than the others."""
    folder: Path = write_rows(
        "r1",
        *(on(f"gpu-{number}", device_row(uuid=f"GPU-{number}")) for number in (2, 10)),
        on("gpu-11", device_row(**A100)),
        on("gpu-2", test_row("passed", nodeid="tests/test_a.py::test_one")),
        on("gpu-10", test_row("failed", nodeid="tests/test_a.py::test_two")),
        on("gpu-11", test_row("passed", nodeid="tests/test_b.py::test_three")),
        on("gpu-11", time_row(1e-3)),
        shard(1, "gpu-2", 0.0),
        shard(2, "gpu-10", 1.5, how="lost"),
        shard(3, "gpu-10", 4.0),
        shard(4, "gpu-11", 7.25),
    )
    return folder


def test_each_worker_has_its_card_its_outcomes_and_its_shards(fleet: Path) -> None:
    (found,) = fleet_sections(load(fleet).latest())

    assert [(row.worker, row.cards, row.ran) for row in found.workers] == [
        ("gpu-2", ["cuda:0 NVIDIA H200 GPU-2"], "tests/test_a.py (1)"),
        ("gpu-10", ["cuda:0 NVIDIA H200 GPU-10"], "tests/test_a.py (1)"),
        ("gpu-11", ["cuda:0 NVIDIA A100 GPU-a100"], "tests/test_b.py (1), softmax (1)"),
    ]
    assert [(row.outcomes["passed"], row.outcomes["failed"], row.timings) for row in found.workers] == [
        (1, 0, 0), (0, 1, 0), (1, 0, 1),
    ]  # fmt: skip
    assert [(row.shards, row.waited, row.busy, row.unfinished) for row in found.workers] == [
        (1, "0.0 s", "3.0 s", ""), (2, "2.8 s", "6.0 s", "1 lost"), (1, "7.2 s", "3.0 s", ""),
    ]  # fmt: skip
    assert (found.waited, found.longest) == ("2.8 s", "7.2 s")


def test_a_test_belongs_to_the_card_of_its_worker(fleet: Path) -> None:
    page = build(load(fleet))

    assert {(card.name, card.outcomes["passed"], card.outcomes["failed"]) for card in page.devices} == {
        ("2 × NVIDIA H200", 1, 1), ("NVIDIA A100", 1, 0),
    }  # fmt: skip
    assert page.figures[0].number == 3


@pytest.mark.parametrize("render", [render_html, render_markdown, render_text])
def test_every_form_names_the_workers(fleet: Path, render: Make) -> None:
    text = render(build(load(fleet)))

    assert all(name in text for name in ("gpu-2", "gpu-10", "gpu-11", "7.2 s", "1 lost"))


def test_a_run_of_one_session_has_no_fleet(write_rows: Make, device_row: Make, test_row: Make) -> None:
    folder = write_rows("r1", device_row(), test_row("passed"))

    assert not build(load(folder)).fleets
