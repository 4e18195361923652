"""The sync debug mode's words: the modes, what each does with a wait, and the watchers of a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cuassay.core import syncdebug
from cuassay.errors import ArgumentError, SynchronizationError


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = syncdebug.get_mode()
    yield
    syncdebug.set_mode(before)


@pytest.mark.parametrize(("mode", "number"), [("default", 0), ("warn", 1), ("error", 2), (0, 0), (1, 1), (2, 2)])
def test_a_mode_is_set_by_name_or_number(mode: int | str, number: int) -> None:
    syncdebug.set_mode(mode)

    assert syncdebug.get_mode() == number


@pytest.mark.parametrize("mode", ["loud", 3, -1, True, None, 1.0])
def test_an_unknown_mode_is_refused_and_changes_nothing(mode: Any) -> None:
    syncdebug.set_mode("warn")

    with pytest.raises(ArgumentError, match=r"0 or 'default', 1 or 'warn', 2 or 'error'"):
        syncdebug.set_mode(mode)

    assert syncdebug.get_mode() == 1


def test_a_wait_is_silent_by_default() -> None:
    syncdebug.set_mode("default")

    syncdebug.waits("Stream.synchronize")  # a warning would be an error here


def test_a_wait_warns_at_the_line_that_waits() -> None:
    syncdebug.set_mode("warn")

    with pytest.warns(UserWarning, match=r"waits for the device in Stream\.synchronize") as caught:
        syncdebug.waits("Stream.synchronize")

    assert caught[0].filename == __file__


def test_a_wait_is_refused() -> None:
    syncdebug.set_mode("error")

    with pytest.raises(SynchronizationError, match=r"in Event\.synchronize, in sync debug mode 'error'; order"):
        syncdebug.waits("Event.synchronize")


def test_a_watcher_hears_of_the_mode_now_and_of_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncdebug.state, "watchers", [])
    heard: list[int] = []
    also: list[int] = []
    syncdebug.set_mode("warn")

    syncdebug.on_change(heard.append)
    syncdebug.on_change(also.append)
    syncdebug.set_mode("error")
    syncdebug.set_mode(0)

    assert heard == also == [1, 2, 0]
