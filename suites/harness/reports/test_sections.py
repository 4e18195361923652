"""Sections of the page with a past of their own: failures, mutation scores, noise, roofline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cuassay_reports.analysis import load
from cuassay_reports.mutations import mutation_section
from cuassay_reports.noise import noise, noise_sections
from cuassay_reports.page import build
from cuassay_reports.render import render_html
from cuassay_reports.roofline import Mark, roofline

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ("PFF", "failing since c1c1c1c1c1 (2026-01-02), 2 runs"),
        ("PFS", None),
        ("PFSF", "failing since c1c1c1c1c1 (2026-01-02), 2 runs"),
        ("FPF", "failing since c2c2c2c2c2 (2026-01-03), 1 run"),
        ("FFF", "failing in all 3 runs here"),
        ("F", "first run here"),
    ],
)
def test_a_failure_says_since_when(
    write_rows: Make, test_row: Make, device_row: Make, outcomes: str, told: str | None
) -> None:
    words = {"P": "passed", "F": "failed", "S": "skipped"}
    for number, letter in enumerate(outcomes):
        started = f"2026-01-0{number + 1}T00:00:00Z"
        folder = write_rows(
            f"r{number}", device_row(), test_row(words[letter]), started=started, commit=f"c{number}" * 20
        )

    assert [failure.since for failure in build(load(folder)).failures] == [told] * (told is not None)


def test_a_failure_of_a_moved_file_counts_from_before_the_move(
    write_rows: Make, test_row: Make, device_row: Make
) -> None:
    for number, file in enumerate(("test_ops.py", "test_ops.py", "ops/test_ops.py")):
        row = test_row("failed" if number else "passed", nodeid=f"suites/{file}::test_sum")
        folder = write_rows(f"r{number}", device_row(), row, started=f"2026-01-0{number + 1}T00:00:00Z")

    assert [failure.since for failure in build(load(folder)).failures] == ["failing since r1 (2026-01-02), 2 runs"]


def mutation(killed: int, survived: int, uncovered: int = 0, **columns: Any) -> tuple[str, dict[str, Any]]:
    row = {"source": "lib/a.py", "function": "f", "killed": killed, "survived": survived, "uncovered": uncovered}
    return "mutation", {**row, **columns}


@pytest.fixture
def scored(write_rows: Make) -> Path:
    write_rows("r1", mutation(5, 5), mutation(8, 0, function="g"))
    survivors = {"survivors": "-    return a + b\n+    return a - b"}
    folder: Path = write_rows(
        "r2", mutation(9, 1, **survivors), mutation(6, 0, 2, function="g"), mutation(0, 0, function="h")
    )
    return folder


def test_mutation_scores_are_of_the_newest_run_and_the_worst_comes_first(scored: Path) -> None:
    found = mutation_section(load(scored))

    assert found is not None
    assert (found.score, found.killed, found.judged) == ("83 %", 15, 18)
    assert [(row.function, row.score, row.change, row.is_worse) for row in found.rows] == [
        ("g", "75 %", "−25.0 points", True),
        ("f", "90 %", "+40.0 points", False),
        ("h", "–", "", False),
    ]


def test_the_page_shows_the_survivors_of_a_function(scored: Path) -> None:
    page = render_html(build(load(scored)))

    assert 'href="#mutation"' in page
    assert "return a - b" in page


def test_without_mutation_rows_there_is_no_section(write_rows: Make, test_row: Make) -> None:
    folder = write_rows("r1", test_row())

    assert mutation_section(load(folder)) is None
    assert 'id="mutation"' not in render_html(build(load(folder)))


def points(spread: float, step: float = 0.0, runs: int = 400) -> pd.DataFrame:
    """A series of one subject."""
    dice = np.random.default_rng(1)
    values = np.exp(dice.normal(0.0, spread, runs) + step * (np.arange(runs) > runs / 2))
    names = {"subject": "gpu", "device": "cuda:0", "benchmark": "b", "dtype": "", "case": "", "implementation": "c"}
    return pd.DataFrame({**names, "series": 0, "order": range(runs), "value": values})


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_noise_is_the_standard_deviation_between_runs_without_steps(step: float) -> None:
    assert noise(points(0.002, step))["noise"].item() == pytest.approx(0.002, rel=0.15)


@pytest.mark.parametrize(("spread", "place"), [(0.0, 0), (0.001, 0), (0.002, 1), (0.005, 2), (0.05, 3)])
def test_each_series_is_in_one_class_of_noise(spread: float, place: int) -> None:
    (section,) = noise_sections(points(spread))

    assert [one.count for one in section.classes] == [int(number == place) for number in range(4)]


def test_a_short_series_has_no_noise() -> None:
    assert noise_sections(points(0.002, runs=5)) == []


def test_a_roofline_places_marks_below_its_roofs() -> None:
    drawn = roofline([Mark(0.25, 1e12, "add"), Mark(300.0, 5e13, "mm")], 4e12, {"float32": 6e13}, "of a GPU")

    assert drawn.count("<circle") == 2
    assert drawn.count('class="roof"') == 2
    assert ">float32</text>" in drawn
    heights = [float(text.split('"')[0]) for text in str(drawn).split('cy="')[1:]]
    assert heights[0] > heights[1]


@pytest.mark.parametrize(("marks", "bandwidth"), [([], 4e12), ([Mark(1.0, 1e9, "")], 0.0)], ids=["marks", "bandwidth"])
def test_without_marks_or_a_limit_there_is_no_roofline(marks: list[Mark], bandwidth: float) -> None:
    assert roofline(marks, bandwidth, {}, "") == ""


def test_a_roofline_without_a_compute_limit_has_the_slope_alone() -> None:
    assert roofline([Mark(1.0, 1e9, "")], 4e12, {}, "").count('class="roof"') == 1
