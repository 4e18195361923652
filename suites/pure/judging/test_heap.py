"""Memory of freed arrays is kept inside a block, and given back after the last one."""

from __future__ import annotations

from typing import Any

import pytest

from cuassay.judging import heap
from cuassay.judging.heap import keep_memory, kept_memory


class Library:
    """What is told to the C library."""

    def __init__(self) -> None:
        self.set: dict[int, int] = {}
        self.trimmed = 0

    def mallopt(self, name: int, value: int) -> None:
        self.set[name] = value

    def malloc_trim(self, left: int) -> None:
        self.trimmed += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(heap, "_library", lambda: found)
    return found


def test_memory_is_given_back_after_the_last_block(library: Library) -> None:
    with kept_memory():
        with kept_memory():
            inside = dict(library.set)
        assert (library.set, library.trimmed) == (inside, 0)

    assert library.trimmed == 1
    assert all(library.set[name] != value for name, value in inside.items())


def test_memory_is_kept_for_good(library: Library) -> None:
    keep_memory()

    assert (len(library.set), library.trimmed) == (2, 0)


def test_memory_is_given_back_after_an_error(library: Library) -> None:
    with pytest.raises(ZeroDivisionError), kept_memory():
        raise ZeroDivisionError

    assert library.trimmed == 1


def test_without_glibc_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(heap.sys, "platform", "linux")

    with kept_memory():
        told.append("ran")

    assert told == ["ran"]


def test_other_systems_have_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap.sys, "platform", "darwin")

    assert heap._library() is None
