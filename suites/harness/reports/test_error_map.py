"""The picture of where a failed result is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cuassay_reports.analysis import load
from cuassay_reports.error_map import error_map_picture
from cuassay_reports.page import build
from cuassay_reports.render import render_html

TAIL = {"rows": 8, "columns": 130, "percent": [[0, 0, 50], [0, 0, 100]]}


def test_each_wrong_cell_is_drawn_in_its_place() -> None:
    picture = error_map_picture(TAIL)

    assert picture.count("<rect") == 2
    assert '<rect x="16" y="8" width="7" height="7" fill-opacity="1.00"/>' in picture
    assert "8 rows, 130 columns" in picture


@pytest.mark.parametrize(
    "value",
    [
        None,
        float("nan"),
        {},
        {"rows": 1, "columns": 1, "percent": []},
        {"rows": 1, "columns": 1, "percent": [[]]},
        {"rows": 1, "columns": 1, "percent": [[1], [1, 2]]},
        {"rows": 1, "columns": 1, "percent": [["<script>"]]},
        {"rows": 1, "columns": 1, "percent": [[101]]},
        {"rows": "<b>", "columns": 1, "percent": [[100]]},
        {"rows": 1, "columns": 1, "percent": [[1] * 1000]},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_map_draws_nothing(value: Any) -> None:
    assert error_map_picture(value) == ""


def test_the_page_shows_it_with_the_failure(write_rows: Callable[..., Any], test_row: Callable[..., Any]) -> None:
    page = build(load(write_rows("r1", test_row("failed", reason="wrong", error_map=TAIL))))

    assert page.failures[0].picture == error_map_picture(TAIL)
    assert 'class="error-map"' in render_html(page)
