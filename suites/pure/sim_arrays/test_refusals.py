"""What the simulated device's arrays and functions refuse or tell apart, where a wrong answer would pass unnoticed."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError


@pytest.fixture(autouse=True)
def machine() -> Iterator[Any]:
    with BACKEND.simulated(devices=2) as backend:
        yield backend.machine


@pytest.fixture
def xp() -> Any:
    return BACKEND.namespace(0)


def test_an_array_without_axes_is_not_iterated_over(xp: Any) -> None:
    with pytest.raises(TypeError, match="0-d array cannot be iterated over"):
        iter(xp.asarray(3))


@pytest.mark.parametrize("value", [1.0, [1]], ids=["a float", "an axis"])
def test_only_a_whole_number_is_an_index(xp: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="only a 0-d integer array is an index"):
        operator.index(xp.asarray(value))


@pytest.mark.parametrize("stacked", [False, True], ids=["one condition", "conditions in rows"])
def test_piecewise_tells_one_condition_from_rows_of_them(xp: Any, stacked: bool) -> None:
    host = np.linspace(-2, 2, 5)
    x = xp.asarray(host)
    one = np.stack([host < 0, host > 0]) if stacked else host > 0
    values = [-1.0, 1.0, 5.0] if stacked else [1.0, 5.0]

    found = xp.piecewise(x, xp.asarray(one), values)

    np.testing.assert_array_equal(found.get(), np.piecewise(host, one, values))


def test_memory_of_the_host_is_not_shown_without_a_copy(xp: Any) -> None:
    with pytest.raises(BufferError, match="shows memory of one place"):
        xp.from_dlpack(np.ones(3), device="sim:0", copy=False)


def test_the_driver_is_this_version() -> None:
    assert BACKEND.identity(0)["driver"] == f"cuassay {metadata.version('cuassay')}"


def test_launches_are_noted_until_they_are_no_longer(xp: Any) -> None:
    noted: list[str] = []
    a = xp.ones(3)
    try:
        BACKEND.note_launches(noted.append)
        ops.add(a, a)
    finally:
        BACKEND.note_launches(None)
    ops.mul(a, a)

    assert len(noted) == 1
    assert "add" in noted[0]


def test_a_look_at_pinned_memory_takes_time(machine: Any) -> None:
    pinned, before = BACKEND.empty_pinned((4,), "float32", 0), machine.host.now

    pinned.touch("a look")

    assert machine.host.now > before


def test_copies_of_every_other_pinned_number_do_not_race(xp: Any) -> None:
    pinned, streams = BACKEND.empty_pinned((8,), "float32", 0), [BACKEND.new_stream(0) for _ in range(2)]

    for place, stream in enumerate(streams):
        with BACKEND.use_stream(stream):
            BACKEND.transfer(xp.full(4, place, np.float32), pinned[place::2], non_blocking=True)
    BACKEND.synchronize(0)

    assert pinned.touch("a look").tolist() == [0, 1] * 4


@pytest.mark.parametrize("product", [ops.mm, np.matmul], ids=["op", "function"])
def test_a_product_takes_the_time_of_its_terms(xp: Any, machine: Any, product: Any) -> None:
    n, stream = 1024, BACKEND.new_stream(0)
    a = xp.ones((n, n), np.float32)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(stream):
        before = max(stream.queue.finished, machine.host.now)
        product(a, a)

    assert stream.queue.finished - before >= 2 * n**3 / machine.profile.throughput


def test_a_spin_of_two_billion_cycles_takes_a_second(machine: Any) -> None:
    stream = BACKEND.new_stream(0)
    with BACKEND.use_stream(stream):
        before = max(stream.queue.finished, machine.host.now)
        BACKEND.spin(0, 2 * 10**9)

    assert stream.queue.finished - before == pytest.approx(1, rel=0.01)


def test_an_empty_array_has_one_of_two_orders(xp: Any) -> None:
    with pytest.raises(ArgumentError, match="orders 'C' and 'F'"):
        xp.empty(3, order="K")


def test_piecewise_refuses_another_number_of_functions(xp: Any) -> None:
    x = xp.ones(3)

    with pytest.raises(ValueError, match="as many functions as conditions"):
        xp.piecewise(x, [x > 0], [1.0, 2.0, 3.0])


def test_a_capability_without_a_size_has_none() -> None:
    assert BACKEND.machine.answer("graphs").value == 0
    assert BACKEND.machine.answer("count").value == 2
