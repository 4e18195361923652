"""Queued samples: all work of a sample is in the stream before it runs; a series for which that fails is live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.benchmarking import sampling, timing
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.timing import Timing, measure
from cuassay.testing import devices as on
from cuassay.testing import requires

Call = Callable[[], Any]

#: Questions to a device between two launches: on sim each takes 2 µs of the host's virtual time.
QUESTIONS = 30


def adding(device: Device) -> Call:
    a = from_host(np.ones(1000, np.float32), device)
    out = from_host(np.zeros(1000, np.float32), device)
    return lambda: ops.add(a, a, out=out)


def hesitating(device: Device, questions: int) -> Call:
    """Two launches, with that many queries by the host between them."""
    backend, add = devices.backend(device.kind), adding(device)
    add()
    passed = backend.new_event(device.index)
    passed.record()
    passed.synchronize()

    def run() -> None:
        add()
        for _ in range(questions):
            passed.query()
        add()

    return run


def waiting(device: Device) -> Call:
    """A launch whose result the host reads."""
    a = from_host(np.ones(1000, np.float32), device)
    return lambda: to_host(ops.add(a, a))


@on("sim")
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_the_hosts_gaps_are_in_live_samples_and_in_no_queued_one(device: Device, cache: Any) -> None:
    at_once, hesitant = hesitating(device, 0), hesitating(device, QUESTIONS)

    queued = measure(hesitant, device, cache=cache, samples=3)
    live = measure(hesitant, device, cache=cache, queued=False, samples=3)

    assert queued.median_s == pytest.approx(measure(at_once, device, cache=cache, samples=3).median_s)
    assert live.median_s > queued.median_s + (QUESTIONS - 5) * 2e-6
    assert (queued.launches, live.launches) == ("queued", "live")


@on("sim:*", "cuda:*")
@requires("timing")
def test_samples_are_queued_where_streams_run_behind_the_host(device: Device) -> None:
    found = measure(adding(device), device, samples=3)

    assert (found.queued, found.launches) == (True, "queued")


@on("sim:*", "cuda:*")
@requires("timing", "graphs")
def test_replays_are_queued(device: Device) -> None:
    assert measure(adding(device), device, mode="graph", samples=3).queued


@on("cpu")
def test_nothing_queues_where_the_host_is_the_device(device: Device) -> None:
    found = measure(adding(device), device, samples=3)

    assert (found.queued, found.launches) == (None, None)


@on("sim:*", "cuda:*")
@requires("timing")
def test_a_call_that_waits_for_the_device_is_measured_live(device: Device) -> None:
    found = measure(waiting(device), device, samples=3)

    assert (found.queued, found.launches, len(found.samples_s)) == (False, "live", 3)


@on("sim")
def test_a_sample_that_was_held_up_is_taken_again(device: Device) -> None:
    add, wait, calls = adding(device), waiting(device), 0

    def run() -> None:
        nonlocal calls
        calls += 1
        (wait if calls in (8, 10, 11) else add)()

    found = measure(run, device, samples=6, precision=1e-9)

    assert found.queued
    assert found.samples_s == pytest.approx([found.median_s] * 6)  # none of them has the wait
    assert calls == timing.WARM_UP + 2 + 6 + 3


@on("sim")
def test_a_series_with_one_live_sample_is_live(device: Device) -> None:
    add, wait, calls = adding(device), waiting(device), 0

    def run() -> None:
        nonlocal calls
        calls += 1
        (wait if 0 <= calls - 8 < sampling.TAKES else add)()

    assert measure(run, device, samples=6, precision=-1.0).launches == "live"


@on("sim")
def test_a_host_slower_than_the_longest_hold_is_measured_live(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.backend(device.kind), "longest_hold_s", 0.0)

    assert measure(adding(device), device, samples=3).launches == "live"


@on("sim")
@pytest.mark.parametrize("queued", [True, False])
def test_calls_of_a_warm_sample_fit_into_the_queue(
    device: Device, queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MOST_QUEUED", 2)
    add, calls = adding(device), 0

    def run() -> None:
        nonlocal calls
        calls += 1
        add()

    measure(run, device, cache="warm", queued=queued, samples=1)

    if queued:
        assert calls == timing.WARM_UP + 2 + 1 + 2 * 2 + 2  # warm-up, hold, length, hold of two calls, sample
    else:
        assert calls > timing.WARM_UP + 1 + 2  # a live sample has as many as fill it


def test_a_row_says_how_its_samples_were_given(device: Device) -> None:
    found = measure(adding(device), device, samples=3)

    assert timing_row("add", device, "cuassay", found, case="1000")["launches"] == found.launches


def test_queued_is_said_of_a_series() -> None:
    assert repr(Timing((1.0,), (), "device", "cold", queued=True)).endswith("device, cold, stream, queued)")
