"""Turns of candidates: which ones may run at the same time."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from cuassay.judging.turns import Turns


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ("together", "together", True),
        ("together", "alone", False),
        ("alone", "together", False),
        ("alone", "alone", False),
    ],
    ids=["two-checked", "timed-after-checked", "checked-after-timed", "two-timed"],
)
def test_a_timed_candidate_runs_alone(first: str, second: str, is_shared: bool) -> None:
    turns, entered = Turns(), threading.Event()

    def enter() -> None:
        with getattr(turns, second)():
            entered.set()

    thread = threading.Thread(target=enter)
    with getattr(turns, first)():
        thread.start()
        was_shared = entered.wait(30 if is_shared else 0.2)  # in vain, if the second one has to wait
    thread.join()

    assert was_shared is is_shared
    assert entered.is_set()


@pytest.mark.parametrize("turn", ["together", "alone"])
def test_a_turn_ends_with_an_error(turn: str) -> None:
    turns = Turns()
    with suppress(ValueError), getattr(turns, turn)():
        raise ValueError

    with turns.alone():
        pass
