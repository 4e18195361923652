"""Files of JSON lines: which lines are objects, what is appended in one piece, what a killed writer leaves."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuassay_reports import lines
from cuassay_reports.lines import append, canonical, content, encoded, locked, opened, parse, repair


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """An open file in a folder that did not exist."""
    found = opened(tmp_path / "folder" / "rows.jsonl")
    yield found
    os.close(found)


def test_objects_are_known_by_the_numbers_of_their_lines() -> None:
    parsed = parse(b'{"a":1}\n\n  \n {"a":2} \r\n{"a":3}')

    assert parsed.rows == {1: {"a": 1}, 4: {"a": 2}, 5: {"a": 3}}
    assert (parsed.wrong, parsed.tail, parsed.is_torn) == ({}, b'{"a":3}', False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"notes", "is not JSON: ", id="text"),
        pytest.param(b"\x80\xff", "is not JSON: ", id="binary"),
        pytest.param(b"{} {}", "is not JSON: Extra data", id="two"),
        pytest.param(b"[" * 200_000, "is not JSON: ", id="deep"),
        pytest.param(b"9" * 5_000, "is not JSON: ", id="digits"),
        pytest.param(b"[1]", "is a list; a row is an object", id="list"),
        pytest.param(b"null", "is a NoneType; a row is an object", id="null"),
    ],
)
def test_another_line_is_wrong_and_the_rest_is_read(line: bytes, reason: str) -> None:
    parsed = parse(b'{"a":1}\n' + line + b'\n{"a":2}\n')

    assert list(parsed.rows) == [1, 3]
    assert list(parsed.wrong) == [2]
    assert parsed.wrong[2].startswith(reason)


def test_a_last_line_without_an_end_is_torn_if_it_is_not_json() -> None:
    parsed = parse(b'{"a":1}\n{"a"')

    assert (list(parsed.rows), parsed.wrong, parsed.tail, parsed.is_torn) == ([1], {}, b'{"a"', True)


def test_a_line_of_the_most_bytes_is_written_and_read_and_a_longer_one_is_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 20)
    longest = {"a": "é" * 6}

    assert parse(encoded(longest)).rows == {1: longest}
    with pytest.raises(ValueError, match="its line would have 21 bytes; 20 at most"):
        encoded({"a": "é" * 6 + "."})
    assert "it has 21 bytes; 20 at most" in parse(b'{"a": "123456789012"}\n').wrong[1]


def test_lines_are_appended_at_the_end_of_what_others_wrote(file: int, tmp_path: Path) -> None:
    other = opened(tmp_path / "folder" / "rows.jsonl")
    try:
        first, second = append(file, encoded({"a": 1})), append(other, encoded({"a": 2}))
    finally:
        os.close(other)

    assert content(file) == b'{"a":1}\n{"a":2}\n'
    assert (first, second) == (8, 16)


def test_a_write_in_part_is_taken_back(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    append(file, encoded({"a": 1}))
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))

    with pytest.raises(OSError, match="took only 3 of 8 bytes, and the file was restored"):
        append(file, encoded({"a": 2}))

    assert content(file) == b'{"a":1}\n'


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        pytest.param(b'{"a":2', b"", id="torn"),
        pytest.param(b'{"a":2}', b'{"a":2}\n', id="newline-lost"),
        pytest.param(b"[" * 200_000, b"", id="deep"),
        pytest.param(b"", b"", id="whole"),
    ],
)
def test_what_a_killed_writer_left_is_completed_or_dropped(file: int, tail: bytes, kept: bytes) -> None:
    append(file, b'{"a":1}\n' + tail)

    repair(file)

    assert content(file) == b'{"a":1}\n' + kept


def test_a_lock_is_released_when_its_block_raises(file: int, tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(file):
        raise KeyError

    with (tmp_path / "folder" / "rows.jsonl").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_equal_data_have_one_spelling() -> None:
    assert canonical({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}' == canonical({"a": [1.5, None], "b": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"gain": float("nan")})
