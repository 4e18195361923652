"""Samples that are drawn ahead are the same ones, each is drawn once, and none is drawn while a call runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.judging import ahead as ahead_module
from cuassay.judging.ahead import Ahead
from cuassay.judging.probes import Probe
from cuassay.judging.schedule import Schedule
from cuassay.testing import Sample


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "usable_cores", lambda: 4)


def judged(*_: Any) -> None:
    return None


class Drawn:
    """Probes whose draws are noted: by the number of the probe, and whether the thread was another one."""

    def __init__(self, *checks: str, fails: int = -1) -> None:
        self.noted: list[tuple[int, bool]] = []
        self.fails = fails
        probes = [
            Probe(check, "float32", (self._draw(place),), judged, case="8" if check == "timed calls" else "")
            for place, check in enumerate(checks)
        ]
        self.plan = Schedule(tuple(probes), tuple(range(len(probes))))

    def _draw(self, place: int) -> Callable[[], Sample]:
        home = threading.get_ident()

        def draw() -> Sample:
            self.noted.append((place, threading.get_ident() != home))
            if place == self.fails:
                raise ZeroDivisionError
            return Sample((np.full(3, place),))

        return draw

    def asked(self) -> list[int]:
        found = []
        with Ahead(self.plan) as ahead:
            for place in self.plan.order:
                found.append(int(ahead.sample(place, 0).args[0][0]))
                ahead.begin()
        return found


@pytest.mark.parametrize("first", ["values", "timed calls", "bench"])
def test_each_sample_is_drawn_once_and_those_to_be_measured_ahead(first: str) -> None:
    drawn = Drawn(first, "timed calls", "values", "influence", "bench", "timed calls", "values")

    assert drawn.asked() == list(range(7))
    assert sorted(drawn.noted) == [
        (0, False), (1, True), (2, False), (3, False), (4, True), (5, True), (6, False),
    ]  # fmt: skip


def test_with_few_cores_nothing_is_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "usable_cores", lambda: 3)
    drawn = Drawn("values", "bench", "timed calls")

    assert drawn.asked() == [0, 1, 2]
    assert drawn.noted == [(0, False), (1, False), (2, False)]


def test_nothing_is_being_drawn_once_a_sample_is_returned() -> None:
    started, goes_on = threading.Event(), threading.Event()

    def slow() -> Sample:
        started.set()
        goes_on.wait(10)
        noted.append("drawn")
        return Sample((np.zeros(1),))

    noted: list[str] = []
    quick = Probe("values", "float32", (lambda: Sample((np.ones(1),)),), judged)
    plan = Schedule((quick, Probe("bench", "float32", (slow,), judged)), (0, 0, 1))
    with Ahead(plan) as ahead:
        ahead.sample(0, 0)
        ahead.begin()
        started.wait(10)
        threading.Timer(0.05, goes_on.set).start()
        ahead.sample(0, 0)
        assert noted == ["drawn"]
        ahead.sample(1, 0)
    assert noted == ["drawn"]


def test_an_error_of_a_draw_is_raised_when_its_turn_comes() -> None:
    drawn = Drawn("values", "values", "bench", fails=2)
    with Ahead(drawn.plan) as ahead:
        ahead.sample(0, 0)
        ahead.begin()
        ahead.sample(1, 0)
        with pytest.raises(ZeroDivisionError):
            ahead.sample(2, 0)


def test_it_is_shown_what_is_drawn_ahead() -> None:
    drawn = Drawn("values", "timed calls")
    with Ahead(drawn.plan) as ahead:
        assert repr(ahead) == "Ahead(idle)"
        ahead.sample(0, 0)
        ahead.begin()
        assert repr(ahead) == "Ahead(probe 1)"
