"""Two timelines of the same work: which op got slower, and which launch was added, on the simulated clock."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, from_host, ops
from cuassay.devices import backend
from cuassay.observe.comparison import Figures, figures
from cuassay.testing import devices


def recorded(device: Device, size: int = 64, *, copies: bool = False) -> Any:
    x = from_host(np.ones((size, size), np.float32), device)
    backend(device.kind).synchronize(device.index)
    with cuassay.profile(device) as p:
        y = ops.mm(x, x)
        if copies:
            y = ops.copy(y)
        ops.add(y, y)
        backend(device.kind).synchronize(device.index)
    return p


@devices("sim:0")
def test_a_planted_copy_is_named_with_its_line(device: Device) -> None:
    before, after = recorded(device), recorded(device, copies=True)

    found = after.compare(before)

    assert [(launch.op, launch.name, launch.launches) for launch in found.added] == [("copy", "copy", (0, 1))]
    assert found.added[0].site.startswith("test_comparison.py:")
    assert [op.name for op in found.slower()] == ["copy"]
    assert str(found).splitlines()[1].startswith("added: copy in copy: 0 -> 1 launches")
    assert [launch.name for launch in before.compare(after).gone] == ["copy"]


@devices("sim:0")
def test_a_launch_that_moved_and_was_added_is_named_with_its_line_afterwards(device: Device) -> None:
    x = from_host(np.ones(4, np.float32), device)
    line = sys._getframe().f_lineno
    with cuassay.profile(device) as before:
        ops.exp(x)
    with cuassay.profile(device) as after:
        ops.exp(x)
        ops.exp(x)

    (added,) = after.compare(before).added
    assert (added.launches, added.site) == ((1, 2), f"test_comparison.py:{line + 4}")


@devices("sim:0")
def test_an_op_on_more_elements_is_slower_and_launches_no_more(device: Device) -> None:
    found = recorded(device, 512).compare(recorded(device))

    assert sorted(op.name for op in found.slower()) == ["add", "mm"]
    assert found.ops[0].seconds[1] > found.ops[0].seconds[0] > 0
    assert found.added == found.gone == ()


@devices("sim:0")
def test_the_same_work_is_neither_slower_nor_faster(device: Device) -> None:
    assert str(recorded(device).compare(recorded(device))) == "no op is slower or faster, and no launch was added"


@devices("sim:0")
def test_figures_pass_through_json(device: Device) -> None:
    found = figures(recorded(device, copies=True).timeline)

    assert Figures.of(json.loads(json.dumps(found.columns()))) == found


@devices("cpu:0")
def test_where_nothing_is_launched_ops_are_compared_by_the_host(device: Device) -> None:
    (op,) = (one for one in recorded(device, copies=True).compare(recorded(device)).ops if one.name == "copy")

    assert op.calls == (0, 1)
    assert op.seconds == pytest.approx(op.host)
