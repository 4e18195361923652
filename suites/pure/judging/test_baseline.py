"""Trusted processes: how often they are started and called, and the offset between processes that run the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cuassay.judging.baseline import LEAST_OFFSET, Baseline, measured, times_of
from cuassay.judging.probes import LARGE
from cuassay.judging.schedule import WARM_UP
from cuassay.testing import Sample

SMALL, LARGE_ONE = ("64", "float32"), ("large", "float32")
SAMPLES = {SMALL: Sample((np.zeros(64, np.float32),)), LARGE_ONE: Sample((np.zeros(LARGE + 1, np.float32),))}


class Process:
    """A trusted process whose calls take `seconds(number of the call)`."""

    def __init__(self, seconds: Callable[[int], float | None] = lambda call: 1.0, problem: str = "") -> None:
        self.seconds, self.problem = seconds, problem
        self.sizes: list[int] = []

    def time(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
        self.sizes.append(args[0].size)
        return self.seconds(len(self.sizes))


def test_cases_take_turns_and_large_ones_are_called_less_often() -> None:
    process = Process()

    found = times_of(process, SAMPLES)

    assert process.sizes[:4] == [64, LARGE + 1] * 2
    assert {key: len(times) for key, times in found.items()} == {SMALL: 12, LARGE_ONE: 8}
    assert len(process.sizes) == 12 + 8 + 2 * WARM_UP


def test_first_calls_and_failed_ones_do_not_count() -> None:
    process = Process(lambda call: None if call == 5 else float(call))

    found = times_of(process, {SMALL: SAMPLES[SMALL]})

    assert found == {SMALL: [3.0, 4.0, *map(float, range(6, 15))]}


def test_declared_function_runs_in_two_processes_and_nothing_in_one() -> None:
    started: list[str] = []

    def starting(name: str, problem: str = "") -> Any:
        @contextmanager
        def start(samples: Any) -> Iterator[Process]:
            started.append(name)
            yield Process(problem=problem)

        return start

    found = measured({"null": starting("null"), "reference": starting("reference")}, SAMPLES)
    assert sorted(started) == ["null", "reference", "reference"]
    assert found.reference_of(SMALL) == [1.0] * 24
    assert found.null[LARGE_ONE] == [1.0] * 8

    found = measured({"reference": starting("reference", "it cannot be loaded")}, SAMPLES)
    assert (found.null, found.reference_of(SMALL)) == ({}, [])


def of_processes(*medians: float, null: float = 0.0) -> float:
    baseline = Baseline({SMALL: [null]}, [{SMALL: [median] * 5} for median in medians])
    return baseline.offset_of(SMALL, "program")


def test_offset_is_the_deviation_of_processes_without_the_empty_call() -> None:
    assert of_processes(1.0, 1.2) == pytest.approx(0.2 / 2**0.5 / 1.1)
    assert of_processes(2.0, 2.2, null=1.0) == pytest.approx(0.2 / 2**0.5 / 1.1)


@pytest.mark.parametrize(
    "medians", [(), (1.0,), (1.0, 1.001), (0.5, 1.5)], ids=["none", "one", "equal", "not above the empty call"]
)
def test_offset_has_a_floor(medians: tuple[float, ...]) -> None:
    assert of_processes(*medians, null=0.6 if 0.5 in medians else 0.0) == LEAST_OFFSET["program"]
