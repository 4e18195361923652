"""The generated check `bench`: what is measured is compared with the reference, as far as that can be afforded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec
from cuassay.testing.generated import measured
from cuassay.testing.generated.checks import CHECKS

SIZE = 2**21


def doubled(xp: Any, a: Any) -> Any:
    return a * 2


def undone_beyond_2_20(xp: Any, a: Any) -> Any:
    return a * 2 if a.size < SIZE else a * 1.999


def last_column_left_out(xp: Any, a: Any) -> Any:
    return a.sum(axis=-1) if len(a) < 1000 else a[:, :-1].sum(axis=-1)


def spec(fn: Any, **fields: Any) -> OpSpec:
    given: dict[str, Any] = {
        "reference": lambda a: a * 2,
        "samples": lambda make: [make(7), make((3, 5))],
        "bench": lambda make, sizes: [make(SIZE)],
        "dtypes": ("float32",),
    }
    return OpSpec(fn=fn, **{**given, **fields})


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.param)


def test_a_function_that_is_wrong_at_the_measured_size_is_found(device: Device) -> None:
    with pytest.raises(AssertionError, match="out of tolerance"):
        CHECKS["bench"](spec(undone_beyond_2_20), device)


def test_a_reduction_that_is_wrong_at_the_measured_size_is_found(device: Device) -> None:
    rows = spec(
        last_column_left_out,
        reference=lambda a: a.sum(axis=-1),
        samples=lambda make: [make((3, 5))],
        bench=lambda make, sizes: [make((1024, 768)), make((64, 64))],
    )

    with pytest.raises(AssertionError, match="out of tolerance"):
        CHECKS["bench"](rows, device)


def test_a_right_function_passes(device: Device) -> None:
    CHECKS["bench"](spec(doubled), device)


def test_a_sample_of_too_many_elements_is_neither_drawn_nor_compared(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "_MOST_ELEMENTS", SIZE - 1)
    drawn: list[tuple[int, ...]] = []

    def bench(make: Any, sizes: Any) -> Iterator[Any]:
        array = make(SIZE)
        drawn.append(array.values.strides)
        yield array

    CHECKS["bench"](spec(undone_beyond_2_20, bench=bench), device)

    assert drawn == [(0,)]


def test_a_slow_reference_is_asked_for_few_elements_only(device: Device) -> None:
    asked: list[int] = []

    def reference(a: Any) -> Any:
        asked.append(a.size)
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return np.asarray(a) * 2

    CHECKS["bench"](spec(undone_beyond_2_20, reference=reference), device)

    assert max(asked) <= 2**14


def test_the_check_is_for_functions_with_a_benchmark() -> None:
    assert CHECKS["bench"].applies(spec(doubled))
    assert not CHECKS["bench"].applies(spec(doubled, bench=None))
