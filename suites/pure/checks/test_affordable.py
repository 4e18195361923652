"""Which longer calls a check can afford."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import affordable as cost
from cuassay.testing.generated.affordable import affordable
from cuassay.testing.samples import HostArray

CPU, SIM = Device("cpu"), Device("sim")
BASE = Sample((HostArray(np.ones(3, np.float32)),))


def spec_of(fn: Any, reference: Any = None) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, name="given", dtypes=("float32",), samples=lambda make: [make(3)])


def lengths(
    fn: Any = None, reference: Any = None, *, device: Device = CPU, wanted: Any = (5, 50, 500), **options: Any
) -> Any:
    spec = spec_of(fn or (lambda xp, a: a * 1), reference)
    found = affordable(spec, device, BASE, [{3: length} for length in wanted], **options)
    return [one.args[0].shape[0] for one in found]


class Clock:
    """The CPU time; each call of the function takes the given seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def taking(self, seconds: float, size: int = 5) -> Any:
        def fn(xp: Any, a: Any) -> Any:
            self.now += seconds * (a.size >= size)
            return a * 1

        return fn

    def thread_time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(cost, "time", made)
    return made


def test_calls_of_at_most_as_many_elements_are_affordable() -> None:
    assert lengths() == [5, 50, 500]
    assert lengths(most=50) == [5, 50]
    assert lengths(most=49) == [5]
    assert lengths(wanted=(5, 0, 7)) == [5, 0, 7]
    assert lengths(wanted=(2**20 + 2**18,)) == [2**20 + 2**18]
    assert lengths(wanted=(2**20 + 2**18 + 1,)) == []


@pytest.mark.parametrize(("times", "expected"), [(2**18, [5]), (2**18 + 1, [])])
def test_results_of_at_most_as_many_elements_are_affordable(times: int, expected: Any) -> None:
    assert (
        lengths(lambda xp, a: xp.broadcast_to(a[:1], (5, times) if a.size == 5 else a.shape), wanted=(5,)) == expected
    )


def test_call_that_the_host_cannot_compute_is_not_affordable() -> None:
    assert lengths(lambda xp, a: a.reshape(50) if a.size > 5 else a) == [5, 50]


def test_overflow_on_the_host_does_not_count() -> None:
    with np.errstate(all="raise"):
        assert cost._size_on_host(spec_of(lambda xp, a: xp.exp(a * 1e4)), BASE) == 3
    assert cost._size_on_host(spec_of(lambda xp, a: a.reshape(2) if a.size == 3 and a[0] == 1 else a), BASE) == 2**62


@pytest.mark.parametrize(("seconds", "expected"), [(0.0024, [5, 50, 500]), (0.0026, [5]), (0.3, [5])])
def test_time_grows_with_the_square_of_the_size(seconds: float, expected: Any, clock: Clock) -> None:
    """The second call takes a fraction of it, because only those of fewer than 50 numbers take time."""
    fn = clock.taking(seconds)

    assert lengths(lambda xp, a: fn(xp, a) if a.size < 50 else a) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.01, [5, 50]), (0.0101, [5])])
def test_reference_may_take_four_times_as_long(seconds: float, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cost, "seconds_of_reference", lambda spec, sample: seconds if sample.args[0].shape[0] == 5 else 0
    )

    assert lengths(reference=lambda a: a * 1, wanted=(5, 50)) == expected
    assert lengths(wanted=(5, 50)) == [5, 50]


@pytest.mark.parametrize(("seconds", "expected"), [(0.0099, [5, 50]), (0.0101, [5])])
def test_device_may_take_four_times_as_long(seconds: float, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_seconds_on", lambda *args: seconds if args[2].args[0].shape[0] == 5 else 0)

    assert lengths(device=SIM, wanted=(5, 50)) == expected
    assert lengths(device=CPU, wanted=(5, 50)) == [5, 50]


def test_call_for_which_a_device_has_too_little_memory_is_not_affordable() -> None:
    def large(xp: Any, a: Any) -> Any:
        if xp is not np and a.size >= 50:
            raise MemoryError("too little")
        return a * 1

    assert lengths(large, device=SIM) == [5]
    assert lengths(large) == [5, 50, 500]


@pytest.mark.parametrize(("size", "calls"), [(2**14, 2), (2**14 + 1, 1)])
def test_small_call_is_repeated_so_that_its_compilation_does_not_count(size: int, calls: int, clock: Clock) -> None:
    times = iter([7.0, 2.0])

    def fn(xp: Any, a: Any) -> Any:
        clock.now += next(times) if a.size == size else 0
        return a * 1

    sample = Sample((HostArray(np.ones(size, np.float32)),))

    assert cost._seconds_on(spec_of(fn), SIM, sample) == [None, 7.0, 2.0][calls]


def test_call_that_fails_takes_no_time(clock: Clock) -> None:
    def fn(xp: Any, a: Any) -> Any:
        if xp is not np and a.size == 3:
            clock.now += 5
            raise RuntimeError("no")
        return a

    assert cost._seconds_on(spec_of(fn), SIM, BASE) == 0.0
