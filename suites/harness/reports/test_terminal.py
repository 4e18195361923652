"""How wide a terminal is, and how lines are broken for it."""

from __future__ import annotations

import io
import os
import pty
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay_reports.terminal import columns, fitted


@given(st.lists(st.text("ab'/:-_[]", min_size=1, max_size=30), min_size=1, max_size=40), st.integers(20, 200))
def test_a_broken_line_has_the_same_words_within_the_width(words: list[str], width: int) -> None:
    line = "  " + " ".join(words)

    parts = fitted(line, width).split("\n")

    assert " ".join(parts).split() == words
    assert all(len(part) <= width or len(part.split()) == 1 for part in parts)
    assert all(part.startswith("      ") for part in parts[1:])


@pytest.mark.parametrize("line", ["", "a  b   c", "word" * 60], ids=["empty", "short", "one word"])
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert fitted(line, 60) == line
    assert fitted(line + " long" * 60, None) == line + " long" * 60


@pytest.mark.parametrize(("given", "found"), [("60", 60), ("3", 20), ("0", None), ("wide", None), ("-5", None)])
def test_the_variable_says_how_wide_the_terminal_is(
    monkeypatch: pytest.MonkeyPatch, given: str, found: int | None
) -> None:
    monkeypatch.setenv("COLUMNS", given)

    assert columns(io.StringIO()) == found


def test_without_the_variable_the_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "w") as terminal:
        assert columns(terminal) is None  # a new one has no size
        termios.tcsetwinsize(terminal.fileno(), (24, 97))

        assert columns(terminal) == 97
