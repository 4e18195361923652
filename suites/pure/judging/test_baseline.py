"""Trusted processes: how often they are started and called, and the offset between processes that run the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cuassay.judging.baseline import LEAST_OFFSET, MOST_EMPTY, Baseline, measured, times_of
from cuassay.judging.probes import LARGE
from cuassay.judging.schedule import WARM_UP
from cuassay.testing import Sample

SMALL, LARGE_ONE = ("64", "float32"), ("large", "float32")
SAMPLES = {SMALL: Sample((np.zeros(64, np.float32),)), LARGE_ONE: Sample((np.zeros(LARGE + 1, np.float32),))}


class Process:
    """A trusted process whose calls take `seconds(number of the call)`, and its empty calls `empty`."""

    def __init__(
        self, seconds: Callable[[int], float | None] = lambda call: 1.0, problem: str = "", empty: float | None = 0.25
    ) -> None:
        self.seconds, self.problem, self._empty = seconds, problem, empty
        self.sizes: list[int] = []
        self.empty_calls = 0

    def time(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
        self.sizes.append(args[0].size)
        return self.seconds(len(self.sizes))

    def empty(self) -> float | None:
        self.empty_calls += 1
        return self._empty


def test_cases_take_turns_and_large_ones_are_called_less_often() -> None:
    process = Process()

    calls, empty = times_of(process, SAMPLES)

    assert process.sizes[:4] == [64, LARGE + 1] * 2
    assert process.empty_calls == len(process.sizes)
    for found in (calls, empty):
        assert {key: len(times) for key, times in found.items()} == {SMALL: 16, LARGE_ONE: 8}
    assert len(process.sizes) == 16 + 8 + 2 * WARM_UP


def test_first_calls_and_failed_ones_do_not_count() -> None:
    process = Process(lambda call: None if call == 5 else float(call), empty=None)

    calls, empty = times_of(process, {SMALL: SAMPLES[SMALL]})

    assert calls == {SMALL: [3.0, 4.0, *map(float, range(6, 19))]}
    assert empty == {}


def test_declared_function_runs_in_two_processes_each_with_its_own_empty_calls() -> None:
    empties = iter([0.25, 0.5])

    @contextmanager
    def start(samples: Any) -> Iterator[Process]:
        yield Process(empty=next(empties))

    found = measured(start, SAMPLES)
    assert sorted(found.reference_of(SMALL)) == [0.5, 0.75]

    @contextmanager
    def unloadable(samples: Any) -> Iterator[Process]:
        yield Process(problem="it cannot be loaded")

    found = measured(unloadable, SAMPLES)
    assert (found.reference_of(SMALL), found.empty_of(SMALL)) == ([], 0.0)
    assert measured(None, SAMPLES).reference_of(SMALL) == []


def of_processes(*medians: float, empty: Sequence[float] = ()) -> float:
    baseline = Baseline([{SMALL: [median] * 5} for median in medians], [{SMALL: [one] * 3} for one in empty])
    return baseline.offset_of(SMALL, "program")


def test_offset_is_the_deviation_of_processes_without_their_empty_calls() -> None:
    assert of_processes(1.0, 1.2) == pytest.approx(0.2 / 2**0.5 / 1.1)
    assert of_processes(2.0, 2.2, empty=[1.0, 1.0]) == pytest.approx(0.2 / 2**0.5 / 1.1)
    assert of_processes(2.0, 3.0, empty=[1.0, 2.0]) == LEAST_OFFSET["program"]


@pytest.mark.parametrize(
    "medians", [(), (1.0,), (1.0, 1.001), (0.5, 1.5)], ids=["none", "one", "equal", "not above the empty call"]
)
def test_offset_has_a_floor(medians: tuple[float, ...]) -> None:
    empty = (0.6, 0.6) if 0.5 in medians else ()
    assert of_processes(*medians, empty=empty) == LEAST_OFFSET["program"]


def test_a_candidates_empty_calls_count_up_to_those_of_the_trusted_processes() -> None:
    ours = Baseline(empty=[{SMALL: [0.4]}, {SMALL: [0.5]}, {}], busy_s=0.3)

    assert ours.empty_of(SMALL, [0.45, 0.46, 0.47]) == pytest.approx(0.155)
    assert ours.empty_of(SMALL, [0.1]) == pytest.approx(-0.2)
    assert ours.empty_of(SMALL, [5.0]) == pytest.approx(MOST_EMPTY * 0.5 - 0.3)
    assert ours.empty_of(SMALL) == pytest.approx(0.45 - 0.3)


def test_the_time_for_which_empty_calls_keep_a_device_busy_is_not_taken_off_the_reference() -> None:
    ours = Baseline([{SMALL: [1.0] * 5}], [{SMALL: [0.5]}], busy_s=0.3)

    assert ours.reference_of(SMALL) == pytest.approx([0.8])


def test_without_trusted_processes_nothing_is_taken_off() -> None:
    assert Baseline(busy_s=0.3).empty_of(SMALL, [0.5]) == 0.0
