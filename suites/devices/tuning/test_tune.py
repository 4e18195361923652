"""The search over two ways to compute one op, on any device: it serves whatever has several implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.testing import devices as only_on
from cuassay.tune.results import Result, Results
from cuassay.tune.search import Limits, Outcome, search
from cuassay.tune.space import Candidate

FUSED, COMPOSED, WRONG = Candidate.of("fused"), Candidate.of("composed"), Candidate.of("without the bias")

SHAPES = (64, 32), (48, 32), (48,)

Ways = Mapping[Candidate, Callable[[], Any]]


def ways_of_a_layer(device: Device) -> Ways:
    random = np.random.default_rng(0)
    x, weight, bias = (from_host(random.uniform(-1, 1, shape).astype(np.float32), device) for shape in SHAPES)
    out = devices.empty((64, 48), np.float32, device)
    return {
        FUSED: lambda: ops.linear(x, weight, bias, activation="relu", out=out),
        COMPOSED: lambda: ops.relu(ops.add(ops.mm(x, weight.T), bias), out=out),
        WRONG: lambda: ops.relu(ops.mm(x, weight.T), out=out),
    }


def raced(device: Device, default: Candidate, ways: Ways) -> Outcome:
    """By the device's own clock, with the results compared."""
    backend = devices.backend(device.kind)
    start, end = (backend.new_event(device.index, timing=True) for _ in range(2))
    right = to_host(ways[default]())

    def timer(candidate: Candidate) -> float:
        start.record()
        ways[candidate]()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def check(candidate: Candidate) -> str | None:
        worst = float(abs(to_host(ways[candidate]()) - right).max())
        return f"{worst} away" if worst > 1e-4 else None

    others = [one for one in ways if one != default]
    return search(default, others, timer, check=check, limits=Limits(seconds=5.0, iterations=40))


@pytest.mark.parametrize("default", [FUSED, COMPOSED], ids=str)
def test_what_is_chosen_is_right(device: Device, default: Candidate) -> None:
    ways = ways_of_a_layer(device)

    outcome = raced(device, default, ways)

    assert outcome.choice in (FUSED, COMPOSED)
    assert outcome.tried == len(ways)
    np.testing.assert_allclose(to_host(ways[outcome.choice]()), to_host(ways[default]()), rtol=1e-5, atol=1e-5)


@only_on("sim")
@pytest.mark.parametrize("default", [FUSED, COMPOSED], ids=str)
def test_one_pass_is_chosen_before_three(device: Device, default: Candidate) -> None:
    """Where time is virtual it is the same in every run."""
    outcome = raced(device, default, ways_of_a_layer(device))

    assert outcome.choice == FUSED
    assert (outcome.gain > 0.02) == (default == COMPOSED)


def test_the_choice_is_kept_for_any_op(device: Device, tmp_path: Path) -> None:
    outcome = raced(device, COMPOSED, ways_of_a_layer(device))
    problem = {"shapes": [list(shape) for shape in SHAPES], "dtype": "float32", "activation": "relu"}
    machine = dict(devices.backend(device.kind).identity(device.index))
    Results(machine).append(Result.of("linear", problem, outcome), tmp_path / "results.jsonl")

    results = Results(machine)
    results.read(tmp_path / "results.jsonl")

    found = results.find("linear", problem)
    assert found is not None
    assert found.choice == outcome.choice
