"""Work that a call leaves on other streams is in no sample: the call is refused, unless the caller allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops
from cuassay.benchmarking import unfinished
from cuassay.benchmarking.timing import interleave, measure
from cuassay.errors import MeasurementError
from cuassay.testing import devices as on
from cuassay.testing import exclusive, requires

pytestmark = [requires("timing", "streams"), on("sim:*", "cuda:*")]

#: A millisecond of a 2 GHz clock: no host is interrupted for as long at each of the calls.
CYCLES = 2_000_000

Call = Callable[[], Any]


def calls(device: Device, *, joins: bool, cycles: int = CYCLES) -> Call:
    """An addition on the current stream, and work on another that is ordered after it."""
    backend: Any = devices.backend(device.kind)
    a = from_host(np.ones(1000, np.float32), device)
    out = from_host(np.zeros(1000, np.float32), device)
    other = backend.new_stream(device.index)

    def run() -> None:
        current = backend.current_stream(device.index)
        ops.add(a, a, out=out)
        other.wait_stream(current)
        with backend.use_stream(other):
            backend.spin(device.index, cycles)
        if joins:
            current.wait_stream(other)

    return run


@exclusive  # another process's work on the card makes the empty interval longer than the call
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_work_that_is_left_on_another_stream_is_refused(device: Device, cache: Any) -> None:
    said = f"left leaves work on another stream of {device}: it ran for .*wait_stream"

    with pytest.raises(MeasurementError, match=said):
        interleave({"joined": calls(device, joins=True), "left": calls(device, joins=False)}, device, cache=cache)


def test_a_host_that_is_interrupted_at_the_first_calls_refuses_nothing(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([30e-6] * 6 + [0.0] * 100)
    monkeypatch.setattr(unfinished, "_left_s", lambda *_: next(found))

    unfinished.call_first("adam", lambda: None, devices.backend(device.kind), device.index, 3)

    assert next(found) == 0.0


@exclusive  # another process's work on the card makes the empty interval longer than the call
def test_it_is_not_timed_where_the_caller_says_so(device: Device) -> None:
    alone = measure(calls(device, joins=False), device, joined=False, samples=5)

    assert alone.median_s < 0.5 * measure(calls(device, joins=True), device, samples=5).median_s


def test_work_left_by_others_before_does_not_count(device: Device) -> None:
    calls(device, joins=False, cycles=20 * CYCLES)()

    assert measure(calls(device, joins=True), device, samples=3).samples_s
