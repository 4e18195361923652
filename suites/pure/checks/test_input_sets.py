"""Sets of inputs that timed calls have in turn, and the functions that are found by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.benchmarking.cases import Case, cases
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import input_sets as module
from cuassay.testing.generated import measured
from cuassay.testing.generated.input_sets import DrawnResults, InputSets
from cuassay.testing.generated.measured import check_timed, prepared_sets

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")
IN_PLACE = {"inputs_unchanged": "in place"}


def doubling(fn: Any = lambda xp, a: a * 2, bench: Any = lambda make, sizes: [make((4, 8))], **fields: Any) -> OpSpec:
    return OpSpec(
        fn=fn, name="doubled", dtypes=("float32",), samples=lambda make: [make(33)],
        **{"reference": lambda a: a * 2, **fields}, bench=bench,
    )  # fmt: skip


def case_of(spec: OpSpec) -> Case:
    return next(cases(spec, CPU, FLOAT32))


def sets_of(spec: OpSpec) -> InputSets:
    return InputSets(spec, CPU, "float32", 0, case_of(spec).arguments)


def timed(spec: OpSpec, calls: int = 12) -> str:
    """Make timed calls as a benchmark does; return what the check of their results says."""
    case = case_of(spec)
    sets = prepared_sets(spec, case, 0)
    results = DrawnResults(case.run, 1 if sets is None else len(sets))
    for _ in range(3):
        results.run()
    for _ in range(calls):
        if sets is not None:
            sets.turn(results)
        results.run()
    return failure(check_timed, spec, CPU, FLOAT32, 0, case, results, sets)


def sum_of_two(xp: Any, a: Any, b: Any = 0) -> Any:
    return a + b


# ------------------------------------------------------------------------------------------------ which sets there are


def test_three_sets_hold_different_numbers_of_the_declared_distribution() -> None:
    spec = doubling(lambda xp, *all: all[0], lambda make, sizes: [(make((4, 8), low=5, high=6), make(3), 7)])

    sets = sets_of(spec)

    arrays = [[one.values for one in sample.args[:2]] for sample in sets.samples]
    assert len(sets) == 3
    assert len({tuple(array.tobytes() for array in pair) for pair in arrays}) == 3
    assert all(5 <= number <= 6 for big, _ in arrays for number in big.flat)
    assert np.array_equal(case_of(spec).arguments[0], arrays[0][0])


@pytest.mark.parametrize(("most", "count"), [(3, 3), (2.9, 2), (2, 2), (1.9, 1)])
def test_sets_fit_a_limit_of_memory(most: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES_OF_SETS", int(most * 4 * 8 * 4))

    assert len(sets_of(doubling())) == count


def test_the_limit_of_memory_is_64_mib() -> None:
    assert module._MOST_BYTES_OF_SETS == 64 * 2**20


@pytest.mark.parametrize(
    ("bench", "fields"),
    [
        pytest.param(lambda make, sizes: [make((4, 8))], {"without": IN_PLACE}, id="in place"),
        pytest.param(lambda make, sizes: [make((4, 8)).laid_out("strided")], {}, id="strided"),
        pytest.param(lambda make, sizes: [np.ones((4, 8), np.float32)], {}, id="fixed numbers"),
        pytest.param(lambda make, sizes: [make(int(np.abs(make(1).values[0]) * 1e6) % 97 + 2)], {}, id="other shapes"),
        pytest.param(lambda make, sizes: [(make(8), float(make(1).values[0]))], {}, id="other scalars"),
        pytest.param(lambda make, sizes: [Sample((make(8),), {"b": make(8)})], {"fn": sum_of_two}, id="keyword"),
    ],
)  # fmt: skip
def test_there_is_one_set_where_others_would_be_another_benchmark(bench: Any, fields: Any) -> None:
    spec = doubling(**{"bench": bench, "fn": lambda xp, *arrays: arrays[0] * 2, **fields})

    assert prepared_sets(spec, case_of(spec), 0) is None


def test_there_is_one_set_if_no_result_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = OpSpec(op=ops.exp, samples=lambda make: [make(9)], reference=np.exp, bench=lambda make, sizes: [make(9)])
    assert prepared_sets(ours, case_of(ours), 0) is None

    assert prepared_sets(doubling(), case_of(doubling()), 0) is not None
    monkeypatch.setattr(measured, "_PATIENCE_S", -1.0)
    assert prepared_sets(doubling(), case_of(doubling()), 0) is None


def test_a_sample_that_another_seed_cannot_draw_leaves_one_set() -> None:
    def bench(make: Any, sizes: Any) -> list[Any]:
        drawn.append(1)
        if len(drawn) > 4:
            raise ValueError("no more")
        return [make((4, 8))]

    drawn: list[int] = []
    spec = doubling(bench=bench)
    case = case_of(spec)
    drawn[:] = [1, 1, 1]

    assert len(InputSets(spec, CPU, "float32", 0, case.arguments)) == 1


# ------------------------------------------------------------------------------------------------ how they take turns


def turns(calls: int) -> list[int]:
    """Make timed calls, and see that they have the inputs that are said; return the set of each."""
    case, order = case_of(doubling()), []
    sets, results = InputSets(doubling(), CPU, "float32", 0, case.arguments), DrawnResults(case.run, 3)
    for _ in range(calls):
        sets.turn(results)
        results.run()
        order.append(results.last.inputs)
        assert np.array_equal(case.arguments[0], sets.samples[order[-1]].args[0].values)
        assert np.array_equal(results.last.result, case.arguments[0] * 2)
    return order


def test_each_set_has_its_turn_and_the_first_sample_another_one_than_the_calls_before() -> None:
    order = turns(600)

    assert order[0] != 0
    assert {*order} == {0, 1, 2}


def test_the_call_is_made_once_after_each_change() -> None:
    made: list[bytes] = []
    case = case_of(doubling())
    array = case.arguments[0]
    sets = InputSets(doubling(), CPU, "float32", 0, case.arguments)
    results = DrawnResults(lambda: made.append(array.tobytes()), 3)

    changes = 0
    for _ in range(60):
        before = len(made)
        sets.turn(results)
        changes += len(made) - before
        assert len(made) == before or made[-1] == array.tobytes()
        results.run()

    assert 60 / 15 <= changes < 60
    assert results.count == len(made) == 60 + changes


def test_their_order_differs_from_time_to_time() -> None:
    orders = {tuple(turns(30)) for _ in range(20)}

    assert len(orders) > 1


def test_one_result_is_kept_for_each_set_with_the_number_of_its_call() -> None:
    calls = iter(range(1, 1000))
    results = DrawnResults(lambda: next(calls), sets=3)
    results.run()
    sets = {1: 0}
    for number in range(2, 40):
        results.take(number % 3, lambda result: result)
        results.run()
        sets[number] = number % 3

    drawn = results.drawn()
    assert sorted(one.inputs for one in drawn) == [0, 1, 2]
    assert all(one.number == one.result and one.inputs == sets[one.number] for one in drawn)
    assert results.last == (39, 0, 39)


def test_each_call_of_a_set_is_drawn_equally_often() -> None:
    found: Counter[int] = Counter()
    for _ in range(2000):
        results = DrawnResults(lambda: None, sets=3)
        results.run()
        for place in (1, 2, 0, 0, 1):  # calls 2 to 6
            results.take(place, lambda result: result)
            results.run()
        found.update(one.number for one in results.drawn())

    # Of set 0 calls 1, 4 and 5, of set 1 calls 2 and 6, of set 2 call 3; five standard deviations are 0.056.
    shares = {1: 1 / 3, 4: 1 / 3, 5: 1 / 3, 2: 1 / 2, 6: 1 / 2, 3: 1.0}
    assert all(abs(found[number] / 2000 - share) < 0.056 for number, share in shares.items())


def test_large_results_are_not_kept_after_a_turn_either() -> None:
    results = DrawnResults(lambda: np.broadcast_to(np.float32(0), (2**24 + 1,)), sets=3)
    for place in (0, 1, 2, 0, 1, 2):
        results.run()
        results.take(place, np.array)

    assert results.drawn() == []


def test_a_kept_view_of_an_input_is_copied_before_the_input_changes() -> None:
    spec = doubling(lambda xp, a: a[::2], reference=lambda a: a[::2])
    case = case_of(spec)
    sets, results = InputSets(spec, CPU, "float32", 0, case.arguments), DrawnResults(case.run, 3)
    for _ in range(60):
        sets.turn(results)
        results.run()

    assert results.drawn()
    for one in results.drawn():
        assert np.array_equal(one.result, sets.samples[one.inputs].args[0].values[::2])


# ------------------------------------------------------------------------------------------------ what is found


def kept_by(key: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A function that returns the result of its first call with the same key."""
    kept: dict[Any, Any] = {}
    return lambda xp, a: kept.setdefault(key(a), a * 2).copy()


def first_of_all() -> Callable[[Any, Any], Any]:
    """A function that returns the result of its first call with an array of two dimensions."""
    kept: list[Any] = []

    def fn(xp: Any, a: Any) -> Any:
        if a.ndim == 2 and not kept:
            kept.append(a * 2)
        return kept[0].copy() if a.shape == (4, 8) else a * 2

    return fn


FAULTS = {
    "identity": kept_by(id),
    "address": kept_by(lambda a: a.ctypes.data),
    "shape": kept_by(lambda a: a.shape),
    "first": first_of_all(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kept_result_is_told_by_the_number_of_a_timed_call(fault: str) -> None:
    said = timed(doubling(FAULTS[fault])).partition("\n")[0]

    assert said.startswith("wrong in call ")
    assert " of the benchmark: its result is that of call " in said
    assert said.endswith(", which had other inputs: is a result kept?")


def test_a_failure_names_the_seed_of_its_numbers() -> None:
    known = case_of(doubling()).arguments[0].copy()
    right_for_the_first = doubling(lambda xp, a: a * (2 if a.ndim == 1 or np.array_equal(a, known) else 3))

    assert "sample: 0: shape 4x8, numbers from seed 20" in timed(right_for_the_first)


RIGHT: dict[str, dict[str, Any]] = {
    "plain": {"fn": lambda xp, a: a * 2},
    "view": {"fn": lambda xp, a: a[::-2], "reference": lambda a: a[::-2]},
    "input": {"fn": lambda xp, a: a, "reference": lambda a: a},
    "two results": {"fn": lambda xp, a: (a, a * 2), "reference": lambda a: (a, a * 2)},
    "same result for all": {"fn": lambda xp, a: xp.zeros_like(a), "reference": np.zeros_like},
    "number": {"fn": lambda xp, a: a.sum(), "reference": lambda a: a.sum()},
    "cache of the right kind": {"fn": kept_by(lambda a: a.tobytes())},
    "in place": {"fn": lambda xp, a: np.multiply(a, 2, out=a), "without": IN_PLACE},
    "strided": {"fn": lambda xp, a: a * 2, "bench": lambda make, sizes: [make((4, 8)).laid_out("strided")]},
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name: str) -> None:
    assert not timed(doubling(**RIGHT[name]))


def test_a_wrong_function_in_place_is_found_after_the_timed_calls() -> None:
    spec = doubling(lambda xp, a: np.multiply(a, 3 if a.ndim == 2 else 2, out=a), without=IN_PLACE)

    assert "wrong once the timed arrays hold other numbers" in timed(spec)
