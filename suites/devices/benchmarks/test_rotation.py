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
from cuassay.benchmarking import empty, rotation
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.rotation import CACHE_MULTIPLE, MIN_SAMPLES, rotate, sets_for
from cuassay.errors import ArgumentError
from cuassay.testing import devices as on
from cuassay.testing import exclusive, requires


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


@exclusive
def test_the_time_is_that_of_one_call(device: Device) -> None:
    (_, one), (_, many) = adding_to_each(device, 1), adding_to_each(device, 64)

    alone = rotate({"add": one}, 1, device)["add"]
    among = rotate({"add": many}, 64, device)["add"]

    assert among.median_s < 16 * alone.median_s  # 64 times, where a pass were taken for a call
    assert among.median_s > alone.median_s / 16  # a short pass that fills a sample is not one call


def test_passes_take_turns_in_abba_order(device: Device) -> None:
    if devices.capabilities(device).answer("graphs"):
        pytest.skip(f"{device} replays graphs of passes, which tell nobody")
    order: list[str] = []

    rotate({name: lambda name=name: order.append(name) for name in "ab"}, 10**9, device, samples=2)

    turns = [name for place, name in enumerate(order) if place == 0 or order[place - 1] != name]
    assert "".join(turns).endswith("aba")


@on("sim")
def test_a_sample_of_each_pass_has_as_many_calls(device: Device) -> None:
    counts, (_, add) = {"short": 0, "long": 0}, adding_to_each(device, 1)

    def count(name: str, calls: int) -> None:
        counts[name] += 1
        for _ in range(calls):
            add()

    passes = {"short": partial(count, "short", 1), "long": partial(count, "long", 20)}
    rotate(passes, 1, device, samples=3, live=list(passes))

    assert counts["short"] == counts["long"] > 3 * 2  # as many as fill a sample of the shorter


@on("sim")
def test_the_passes_of_a_sample_are_one_graph(device: Device) -> None:
    runs, replays, (_, add) = 0, 0, adding_to_each(device, 1)
    kind = type(devices.backend("sim").new_capture(0))
    right = kind.replay

    def run() -> None:
        nonlocal runs
        runs += 1
        add()

    def replay(graph: Any) -> None:
        nonlocal replays
        replays += 1
        right(graph)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kind, "replay", replay)
        patched.setattr(rotation, "_TAKES", 1)
        rotate({"x": run}, 1, device, samples=5)

    assert runs > 1 + 1 + 1  # alone, captured to be timed, and captured as often as fills a sample
    assert replays == 1 + 5


@on("sim")
def test_all_rotations_of_a_device_share_a_stream(device: Device) -> None:
    streams: list[Any] = []
    for _ in range(2):
        rotate({"x": lambda: streams.append(devices.backend("sim").current_stream(0))}, 1, device, samples=1)

    assert streams[0] != devices.backend("sim").current_stream(0)
    assert len(set(streams)) == 1


@on("sim")
def test_a_pass_that_fails_while_it_is_captured_leaves_the_next_rotation_alone(device: Device) -> None:
    _, add = adding_to_each(device, 1)
    runs = [add]

    with pytest.raises(IndexError):
        rotate({"x": lambda: runs.pop()()}, 1, device)

    assert rotate({"x": add}, 1, device, samples=2)["x"].mode == "graph"


@on("cpu")
def test_nothing_queues_where_the_host_is_the_device(device: Device) -> None:
    assert rotate({"x": lambda: None}, 1, device, samples=2)["x"].launches is None


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
@pytest.mark.parametrize(
    ("held_up", "launches"), [((), "queued"), ((3, 4), "queued"), ((4, 5), "queued"), ((3, 4, 5), "live")], ids=str
)
def test_a_series_is_live_where_all_takes_of_a_sample_are(
    device: Device, held_up: tuple[int, ...], launches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "BATCH_SECONDS", 0.0)
    (sums, add), passes = adding_to_each(device, 2), 0

    def run() -> None:
        nonlocal passes
        passes += 1
        add()
        if passes in held_up:  # the third is the first take of the first sample
            to_host(sums[0])

    assert rotate({"x": run}, 2, device, samples=4, live=["x"])["x"].launches == launches


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


@pytest.mark.parametrize(
    ("passes", "sets", "samples"),
    [({}, 1, 1), ({"add": print}, 0, 1), ({"add": print}, 1, 0)],
    ids=["no pass", "no set", "no sample"],
)
def test_a_rotation_of_nothing_is_refused(device: Device, passes: Any, sets: int, samples: int) -> None:
    with pytest.raises(ArgumentError, match="a rotation needs a pass"):
        rotate(passes, sets, device, samples=samples)


@on("sim")
def test_a_rotation_carries_the_share_of_a_call_in_the_empty_interval(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(empty._empty, devices.find(device), empty.Empty(6e-7, 0.0))
    monkeypatch.setattr(rotation, "_HOLD", 1e-2)  # a replay takes the simulated host as long as its launches
    _, run = adding_to_each(device, 2)

    found = rotate({"add": run}, 2, device, samples=3)["add"]

    calls = round(6e-7 / found.empty_s)
    assert calls % 2 == 0
    assert calls * found.median_s == pytest.approx(100e-6, rel=0.5)  # a sample fills the seconds of a batch
    assert timing_row("add", device, "cuassay", found, case="100")["empty"] == found.empty_s
