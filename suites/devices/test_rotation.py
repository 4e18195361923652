"""Calls on operands in rotation: every set is met alike, passes take turns, and the time is that of one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.benchmarking import rotation
from cuassay.benchmarking.rotation import CACHE_MULTIPLE, MIN_SAMPLES, rotate, sets_for
from cuassay.errors import ArgumentError
from cuassay.testing import devices as on
from cuassay.testing import requires


def adding_to_each(device: Device, sets: int) -> tuple[list[Any], Callable[[], None]]:
    one = from_host(np.ones(100, np.float32), device)
    sums = [from_host(np.zeros(100, np.float32), device) for _ in range(sets)]

    def run() -> None:
        for total in sums:
            ops.add(one, total, out=total)

    return sums, run


def test_every_set_is_met_alike(device: Device) -> None:
    sums, run = adding_to_each(device, 5)

    timing = rotate({"add": run}, len(sums), device, samples=4)["add"]

    assert (timing.cache, len(timing.samples_s)) == ("cold", 4)
    assert min(timing.samples_s) > 0
    counts = {float(to_host(total)[0]) for total in sums}
    assert len(counts) == 1
    assert counts.pop() >= 4


def test_the_time_is_that_of_one_call(device: Device) -> None:
    (_, one), (_, many) = adding_to_each(device, 1), adding_to_each(device, 64)

    alone = rotate({"add": one}, 1, device)["add"]
    among = rotate({"add": many}, 64, device)["add"]

    assert among.median_s < 16 * alone.median_s  # 64 times, where a pass were taken for a call


def test_passes_take_turns_in_abba_order(device: Device) -> None:
    if devices.capabilities(device).answer("graphs"):
        pytest.skip(f"{device} replays graphs of passes, which tell nobody")
    order: list[str] = []

    rotate({name: lambda name=name: order.append(name) for name in "ab"}, 10**9, device, samples=2)

    turns = [name for place, name in enumerate(order) if place == 0 or order[place - 1] != name]
    assert "".join(turns).endswith("aba")


def test_a_sample_of_each_pass_has_as_many_calls(device: Device) -> None:
    if devices.capabilities(device).answer("graphs"):
        pytest.skip(f"{device} replays graphs of passes, which tell nobody")
    counts = {"short": 0, "long": 0}

    def count(name: str, seconds: float) -> None:
        counts[name] += 1
        time.sleep(seconds)

    rotate({"short": partial(count, "short", 0.0), "long": partial(count, "long", 1e-3)}, 1, device, samples=3)

    assert counts["short"] == counts["long"]


def test_a_sample_is_of_passes_not_of_calls(device: Device) -> None:
    if devices.capabilities(device).answer("graphs"):
        pytest.skip(f"{device} replays graphs of passes, which tell nobody")
    passes: list[float] = []

    found = rotate({"x": lambda: passes.append(time.sleep(1e-3) or 0.0)}, 1000, device, samples=3)["x"]

    assert len(passes) == 1 + 1 + 3  # one longer than a batch, alone
    assert found.host_s[0] < 2 * found.samples_s[0]


def test_some_samples_are_taken_whatever_the_time(device: Device) -> None:
    _, run = adding_to_each(device, 2)

    assert len(rotate({"add": run}, 2, device, max_seconds=0.0)["add"].samples_s) == MIN_SAMPLES


@requires("graphs")
def test_a_pass_that_cannot_be_captured_runs_as_it_is(device: Device) -> None:
    _, run = adding_to_each(device, 2)

    found = rotate({"captured": run, "live": run}, 2, device, samples=2, live=["live"])

    assert {name: one.mode for name, one in found.items()} == {"captured": "graph", "live": "stream"}


@on("sim")
def test_a_series_with_one_live_sample_is_live(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "BATCH_SECONDS", 0.0)
    (sums, add), passes = adding_to_each(device, 2), 0

    def run() -> None:
        nonlocal passes
        passes += 1
        add()
        if 3 <= passes < 6:  # all takes of the first sample
            to_host(sums[0])

    assert rotate({"x": run}, 2, device, samples=4, live=["x"])["x"].launches == "live"


@pytest.mark.parametrize(("nbytes", "sets"), [(0, 256), (999, 4), (1000, 3), (5000, 2), (19_999, 2), (20_000, 1)])
def test_sets_are_several_caches_and_two_where_one_could_stay(
    nbytes: int, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = SimpleNamespace(answer=lambda name: SimpleNamespace(value=1000))
    monkeypatch.setattr(rotation, "devices", SimpleNamespace(capabilities=lambda device: cache))

    assert sets_for(nbytes, "cpu") == sets


def test_sets_exceed_the_cache(device: Device) -> None:
    cache = devices.capabilities(device).answer("l2")
    if not cache:
        assert sets_for(2**20, device) == 1
        return
    sets = sets_for(2**20, device)
    assert sets * 2**20 >= CACHE_MULTIPLE * cache.value
    assert sets_for(10**12, device) == 1
    assert sets_for(1, device, most=8) == 8


@pytest.mark.parametrize(("passes", "sets"), [({}, 1), ({"add": print}, 0)], ids=["no pass", "no set"])
def test_a_rotation_of_nothing_is_refused(device: Device, passes: Any, sets: int) -> None:
    with pytest.raises(ArgumentError, match="a rotation needs a pass"):
        rotate(passes, sets, device)
