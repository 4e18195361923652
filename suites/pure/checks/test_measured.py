"""Which benchmark samples are compared with the reference, and which wrong ones are found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample, Work
from cuassay.testing.generated import measured
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.generated.input_sets import DrawnResults
from cuassay.testing.generated.measured import check_timed
from cuassay.testing.samples import BENCH_TILE, HostArray

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def spec_of(fn: Any, reference: Any = None, bench: Any = None, **fields: Any) -> OpSpec:
    return OpSpec(
        fn=fn, reference=reference or (lambda a: a * 2), name="given", dtypes=("float32",),
        samples=lambda make: [make(9)], bench=bench or (lambda make, sizes: [make(100), make(200)]), **fields,
    )  # fmt: skip


def ones(*shapes: Any) -> Sample:
    return Sample(tuple(HostArray(np.ones(shape, np.float32)) for shape in shapes))


def wrong_for(size: int) -> Any:
    return lambda xp, a: a * 2 + (a.size == size)


# ------------------------------------------------------------------------------------------------ what is affordable


@pytest.mark.parametrize(
    ("shapes", "smaller"),
    [
        ([(2**14,)], [(2**14,)]),
        ([(2**14 + 1,)], [(2**13 + 1,)]),
        ([(2**13,), (2**13,)], [(2**13,), (2**13,)]),
        ([(2**13 + 1,), (2**13 + 1,)], [(2**12 + 1,), (2**12 + 1,)]),
        ([(1000, 300), (300, 5)], [(125, 75), (75, 5)]),
        ([(100, 400)], [(100, 100)]),
        ([(3, 5), ()], [(3, 5), ()]),
    ],
    ids=str,
)
def test_longest_extents_are_halved_until_few_elements_are_left(shapes: Any, smaller: Any) -> None:
    assert [one.shape for one in measured._shrunk(ones(*shapes)).args] == smaller


@pytest.mark.parametrize(
    ("work", "times"),
    [
        (lambda a: Work(bytes=a.size), 4.0),
        (lambda a: Work(bytes=1, flops=a.size**2), 16.0),
        (lambda a: Work(bytes=a.size, flops=1), 4.0),
        (lambda a: Work(bytes=a.size - 2), 6.0),
        (None, 4.0),
    ],
)
def test_work_grows_by_bytes_or_flops(work: Any, times: float) -> None:
    spec = spec_of(lambda xp, a: a * 2, work=work)

    assert measured._times(spec, ones(2), ones(8)) == times


def timed(spec: OpSpec, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[Sample]:
    """Let the reference take the given seconds; the list gets the samples for which the time is asked."""
    asked: list[Sample] = []

    def time(self: OpSpec, sample: Sample) -> Any:
        asked.append(sample)
        return None, seconds

    monkeypatch.setattr(OpSpec, "timed", time)
    return asked


@pytest.mark.parametrize(
    ("size", "seconds", "expected"),
    [(2**14, 2.0, True), (2**14, 2.01, False), (2**16, 0.5, True), (2**16, 0.51, False), (2**24, 0.0, True),
     (2**24 + 1, 0.0, False)],
)  # fmt: skip
def test_two_seconds_of_the_reference_are_affordable(
    size: int, seconds: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(lambda xp, a: a * 2)
    monkeypatch.setattr(measured, "refusal_of", lambda spec, sample: None)
    monkeypatch.setattr(measured, "resized", lambda sample, extents: ones(*extents.values()))
    timed(spec, seconds, monkeypatch)
    sample = Sample((HostArray(np.broadcast_to(np.zeros((), np.float32), (size,))),))

    assert measured._is_affordable(spec, ones(9), sample) is expected


@pytest.mark.parametrize("refuses", [False, True])
def test_ordinary_sample_takes_the_place_of_a_smaller_call_that_is_refused(
    refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(a: Any) -> Any:
        if refuses and a.size == 2**14:
            raise RuntimeError("not so few")
        return a * 2

    spec, base = spec_of(lambda xp, a: a * 2, picky), ones(9)
    monkeypatch.setattr(
        OpSpec, "refusal", lambda self, sample: ValueError() if refuses and sample is not base else None
    )
    asked = timed(spec, 0.0, monkeypatch)

    assert measured._is_affordable(spec, base, ones(2**15))
    assert asked[0].args[0].shape == ((9,) if refuses else (2**14,))


def test_arrays_that_are_too_large_to_compare_take_no_memory() -> None:
    make = measured._Samples(1, "float32", "given")

    few, many = make(9).values, make((2**12, 2**12 + 1)).values
    assert (few.strides, few.any()) == ((4,), np.True_)
    assert (many.shape, many.strides, many.any()) == ((2**12, 2**12 + 1), (0, 0), np.False_)
    assert many.dtype == np.float32
    limit = make((2**24,)).values
    assert (limit[:BENCH_TILE] != 0).any()


# ------------------------------------------------------------------------------------------------ the checks


def bench(fn: Any, **fields: Any) -> str:
    return failure(CHECKS["bench"], spec_of(fn, **fields), CPU)


def test_benchmark_samples_are_compared() -> None:
    assert not bench(lambda xp, a: a * 2)
    assert "out of tolerance" in bench(wrong_for(200))
    assert "200" in bench(wrong_for(200))


def test_benchmark_sample_that_takes_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_PATIENCE_S", -1.0)

    assert not bench(wrong_for(200))


def test_functions_with_benchmark_samples_are_checked() -> None:
    ours = OpSpec(op=ops.exp, samples=lambda make: [make(9)], reference=np.exp, bench=lambda make, sizes: [make(9)])

    assert REGISTERED["bench"].applies(spec_of(lambda xp, a: a * 2))
    assert not REGISTERED["bench"].applies(OpSpec(fn=lambda xp, a: a, name="given"))
    assert not REGISTERED["bench"].applies(ours)


class Case:
    """A timed call of the function with one array."""

    def __init__(self, fn: Any, size: int, **keywords: Any) -> None:
        self.arguments = [np.ones(size, np.float32)]
        self.keywords = keywords
        self.fn = fn

    def run(self) -> Any:
        return self.fn(np, *self.arguments)


def after(fn: Any, result: Any, *, bench: Any = None, place: int = 0, size: int = 100, **keywords: Any) -> str:
    spec = spec_of(lambda xp, a: a * 2, bench=bench)
    sample = next(
        iter([one for at, one in enumerate(spec.draw_bench(0, "float32", measured.sizes_for(CPU))) if at == place])
    )
    given = sample.host()[0][0] * 2 if result == "right" else np.zeros(size, np.float32)
    case: Any = Case(fn, size, **keywords)
    results = DrawnResults(lambda: given)
    results.run()
    return failure(check_timed, spec, CPU, FLOAT32, place, case, results)


@pytest.fixture(autouse=True)
def _seed_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "seed", lambda: 0)


def test_result_of_the_timed_call_is_compared() -> None:
    assert not after(wrong_for(1), "right")
    assert after(wrong_for(1), "zeros").startswith("wrong in the timed call\n")
    assert not after(wrong_for(1), "right", place=1, size=200)
    assert after(wrong_for(1), "zeros", place=1, size=200).startswith("wrong in the timed call\n")


def test_timed_call_is_repeated_with_other_numbers() -> None:
    kept = np.zeros(100, np.float32)

    found = after(lambda xp, a: kept, "right")

    assert found.startswith("wrong once the timed arrays hold other numbers: is a result kept?\n")
    assert "new numbers" in found


def test_timed_call_with_options_is_not_compared() -> None:
    assert not after(wrong_for(100), "zeros", axis=0)


def test_timed_call_that_takes_long_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_PATIENCE_S", -1.0)

    assert not after(wrong_for(100), "zeros")


def test_timed_arrays_in_another_layout_are_not_overwritten() -> None:
    strided = lambda make, sizes: [make(100).laid_out("strided")]  # noqa: E731

    assert not after(wrong_for(100), "right", bench=strided)
    assert after(wrong_for(100), "zeros", bench=strided)
    assert after(wrong_for(100), "right")


def test_timed_call_with_a_number_is_compared() -> None:
    spec = OpSpec(
        fn=lambda xp, a, times: a * times, reference=lambda a, times: a * times, name="times", dtypes=("float32",),
        samples=lambda make: [(make(9), 2.0)], bench=lambda make, sizes: [(make(100), 2.0)],
    )  # fmt: skip
    sample = next(iter(spec.draw_bench(0, "float32", measured.sizes_for(CPU))))
    for factor in (2, 3):
        result = sample.host()[0][0] * factor
        case: Any = Case(lambda xp, a: a * 2, 100)
        case.arguments = [case.arguments[0], 2.0]
        case.run = lambda case=case: case.arguments[0] * 2
        results = DrawnResults(lambda result=result: result)
        results.run()

        found = failure(check_timed, spec, CPU, FLOAT32, 0, case, results)

        assert bool(found) is (factor == 3)


def test_timed_op_is_not_compared() -> None:
    spec = OpSpec(op=ops.exp, samples=lambda make: [make(9)], reference=np.exp, bench=lambda make, sizes: [make(9)])
    case: Any = SimpleNamespace(keywords={}, arguments=[np.ones(9, np.float32)], run=lambda: np.zeros(9, np.float32))

    assert not failure(check_timed, spec, CPU, FLOAT32, 0, case, np.zeros(9, np.float32))
