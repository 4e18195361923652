"""Which results of timed calls are compared, and what is said of those that are wrong."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec
from cuassay.testing.generated.input_sets import DrawnResults
from cuassay.testing.generated.measured import check_timed


class Counting:
    """Returns the number of its call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


def test_the_last_result_is_kept_and_each_drawn_one_is_that_of_its_call() -> None:
    results = DrawnResults(Counting())

    assert [results.run() for _ in range(50)] == list(range(1, 51))
    assert (results.last, results.count) == ((50, 0, 50), 50)
    assert all(number == result for number, _, result in results.drawn())
    assert 1 <= len(results.drawn()) <= 3


def test_each_call_is_drawn_equally_often() -> None:
    found: Counter[int] = Counter()
    for _ in range(2000):
        results = DrawnResults(Counting())
        for _ in range(5):
            results.run()
        found.update(one.number for one in results.drawn())

    # A call is missed by three independent draws with probability (4 / 5)^3; five standard deviations are 0.056.
    assert all(abs(found[number] / 2000 - (1 - 0.8**3)) < 0.056 for number in range(1, 6))


LARGE = SimpleNamespace(nbytes=2**26 + 1)
HALF = SimpleNamespace(nbytes=2**25)


@pytest.mark.parametrize("result", [LARGE, (HALF, LARGE), [HALF, 0.5, HALF, HALF]], ids=["one", "a tuple", "a list"])
def test_large_results_are_not_kept_but_for_the_last(result: Any) -> None:
    results = DrawnResults(lambda: result)
    for _ in range(9):
        results.run()

    assert results.drawn() == []
    assert results.last.result is result


@pytest.mark.parametrize("result", [HALF, (HALF, HALF), 0.5])
def test_results_up_to_the_limit_are_kept(result: Any) -> None:
    results = DrawnResults(lambda: result)
    results.run()

    assert results.drawn() == [(1, 0, result)]


@pytest.mark.parametrize("wrong", [1, 2, 4])
def test_a_wrong_result_of_a_drawn_call_is_told_by_its_number(wrong: int) -> None:
    spec = OpSpec(
        fn=lambda xp, a: a * 2, name="doubled", dtypes=("float32",), samples=lambda make: [make(33)],
        reference=lambda a: a * 2, bench=lambda make, sizes: [make((4, 8))],
    )  # fmt: skip
    ((a,), _) = next(iter(spec.draw_bench(2026, "float32", None))).on(Device("cpu"))
    calls = Counting()

    def run() -> Any:
        return a * (3 if calls() == wrong else 2)

    messages = set()
    for _ in range(40):  # each time with another draw
        calls.calls = 0
        results = DrawnResults(run)
        for _ in range(4):
            results.run()
        held = np.array(a)
        case: Any = SimpleNamespace(keywords={}, arguments=[held], run=partial(np.multiply, held, 2))
        drawn = [one.number for one in results.drawn()]
        message = failure(check_timed, spec, Device("cpu"), np.dtype("float32"), 0, case, results)
        if wrong == 4:
            assert "wrong in the timed call" in message
        elif wrong in drawn:
            messages.add(message.partition("\n")[0])
            assert f"wrong in call {wrong} of 4 of the benchmark, but not in the last one" in message
    assert wrong == 4 or messages
