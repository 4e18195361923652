"""Boards of judged candidates on the page: the newest verdict of each, the correct and fast ones first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay_reports.command import run
from cuassay_reports.judged import boards
from cuassay_reports.load import load
from cuassay_reports.page import build
from cuassay_reports.render import render_html

Make = Callable[..., Any]


def verdict(candidate: str, word: str, **columns: Any) -> tuple[str, dict[str, Any]]:
    row = {
        "declaration": "rms", "candidate": f"{candidate}.py", "digest": candidate * 16, "device": "cuda:0",
        "tier": "program", "verdict": word, "reason": "why", "nonce": "f", "calls": 50,
        "probes": "hidden_shapes=6 values=2",
    }  # fmt: skip
    return "verdict", {**row, **columns}


@pytest.fixture
def judged(write_rows: Make) -> Path:
    write_rows(
        "r1", verdict("a", "correct", ratio=9.0, clock="device"), verdict("b", "correct", ratio=2.0, clock="device")
    )
    folder: Path = write_rows(
        "r2", verdict("a", "refused", message="<b>kept</b>", cheats="T9 proven"), verdict("c", "wrong"),
        verdict("d", "correct", ratio=3.0, clock="device", weak="zeros"),
        verdict("e", "correct", ratio=90.0, clock="host"), verdict("f", "undecided", jail="net: no namespace"),
    )  # fmt: skip
    return folder


def test_correct_candidates_come_first_and_the_hosts_clock_ranks_nobody(judged: Path) -> None:
    (board,) = boards(load(judged))

    assert [(row.candidate[0], row.ratio) for row in board.rows] == [
        ("d", "3"), ("b", "2"), ("e", ""), ("f", ""), ("c", ""), ("a", ""),
    ]  # fmt: skip
    assert board.counts == "3 correct, 1 undecided, 1 wrong, 1 refused"


def test_each_declaration_and_device_has_a_board(write_rows: Make) -> None:
    folder = write_rows("r1", verdict("a", "correct"), verdict("a", "wrong", device="sim:0"))

    assert [(board.device, len(board.rows)) for board in boards(load(folder))] == [("cuda:0", 1), ("sim:0", 1)]


def test_the_page_shows_what_was_seen_and_probed(judged: Path) -> None:
    page = render_html(build(load(judged)))

    assert 'href="#judged"' in page
    assert "T9 proven" in page
    assert "hidden shapes=6, values=2" in page
    assert "&lt;b&gt;kept&lt;/b&gt;" in page


def test_without_verdicts_there_is_no_section(write_rows: Make, test_row: Make) -> None:
    assert 'id="judged"' not in render_html(build(load(write_rows("r1", test_row()))))


def test_the_terminal_shows_each_board(judged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no test ran the verdicts are the headline."""
    assert run([judged]) == 0

    first, *lines = capsys.readouterr().out.splitlines()
    (board,) = boards(load(judged))
    assert first == f"{board.declaration} on {board.device}: {board.counts}"
    told = [line.split(":")[0].split() for line in lines if line.startswith("  ")]
    assert [[row.verdict, row.candidate] for row in board.rows] == [words[:2] for words in told][-len(board.rows) :]
