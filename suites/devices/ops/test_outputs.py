"""What may be given as ``out=``, on every kind present."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, namespace, ops, to_host
from cuassay.errors import ArgumentError
from cuassay.testing import requires


@pytest.fixture
def ones(device: Device) -> Any:
    return from_host(np.ones((3, 4), np.float32), device)


@requires("views")
def test_an_out_whose_elements_share_memory_is_refused(device: Device, ones: Any) -> None:
    row = from_host(np.zeros((1, 4), np.float32), device)
    out = namespace(device).broadcast_to(row, (3, 4))

    with pytest.raises(ArgumentError, match="out has several elements in one place"):
        ops.add(ones, 1.0, out=out)
    assert (to_host(row) == 0).all()


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [((2,), (0,), True), ((2, 3), (8, 4), True), ((2, 3), (12, 4), False), ((2, 1), (4, 0), False)],
    ids=["two in one place", "rows that overlap", "rows behind rows", "one along an axis"],
)
def test_elements_are_apart_where_each_axis_steps_over_the_next(
    shape: tuple[int, ...], strides: tuple[int, ...], overlaps: bool
) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), shape, strides)

    with pytest.raises(ArgumentError, match="several elements") if overlaps else nullcontext():
        ops.add(np.ones(shape, np.float32), 1.0, out=out)


@requires("views")
@pytest.mark.parametrize("view", [np.s_[::2, 1:5], np.s_[::-2, 5:1:-1]], ids=["gaps", "reversed"])
def test_an_out_with_gaps_or_backwards_is_written(device: Device, ones: Any, view: Any) -> None:
    whole = from_host(np.zeros((6, 8), np.float32), device)
    expected = np.zeros((6, 8), np.float32)
    expected[view] = 2

    ops.add(ones, 1.0, out=whole[view])

    assert (to_host(whole) == expected).all()


@requires("views")
@pytest.mark.parametrize("name", ["add", "relu", "where", "cast"])
def test_an_out_that_is_an_input_transposed_is_refused(device: Device, name: str) -> None:
    numbers = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) - 2000
    a, b = from_host(numbers, device), from_host(np.ones((64, 64), np.float32), device)
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: ops.add(a.T, b, out=a),
        "relu": lambda: ops.relu(a.T, out=a),
        "where": lambda: ops.where(ops.greater(b, 0), a.T, b, out=a),
        "cast": lambda: ops.cast(a.T, dtype="float32", out=a),
    }

    with pytest.raises(ArgumentError, match="out shares memory with a, and would be read after it is written"):
        calls[name]()
    assert (to_host(a) == numbers).all()


IN_PLACE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "exp": (lambda a: ops.exp(a, out=a), np.exp),
    "with a number": (lambda a: ops.add(a, 1.0, out=a), lambda a: a + 1),
    "with itself": (lambda a: ops.add(a, a, out=a), lambda a: a + a),
}


@requires("views")
@pytest.mark.parametrize("name", IN_PLACE)
def test_each_element_is_computed_once_in_place(device: Device, name: str) -> None:
    """More blocks than run at a time, and a last one that is not full: a thread too many computes an element again."""
    act, expected = IN_PLACE[name]
    host = np.zeros(2 * (2**20 + 3), np.float32)
    host[::2] = np.linspace(-1, 1, host.size // 2)
    whole = from_host(host, device)

    act(whole[::2])

    np.testing.assert_allclose(to_host(whole)[::2], expected(host[::2]), rtol=1e-6)
    assert not to_host(whole)[1::2].any()


@requires("views")
def test_a_row_is_added_to_rows_in_place_once(device: Device) -> None:
    a, row = np.ones((4099, 1024), np.float32), np.arange(1024, dtype=np.float32)
    rows = from_host(a, device)

    ops.add(rows, from_host(row, device), out=rows)

    np.testing.assert_array_equal(to_host(rows), a + row)


@requires("views")
def test_an_out_in_another_order_of_axes_is_written(device: Device, ones: Any) -> None:
    out = from_host(np.zeros((4, 3), np.float32), device)

    ops.add(ones, 1.0, out=out.T)

    assert (to_host(out) == 2).all()


def test_an_op_that_makes_no_array_takes_no_out(device: Device) -> None:
    a = from_host(np.ones(3, np.float32), device)

    with pytest.raises(
        ArgumentError, match=r"foreach_zero_ makes no array, it writes its parameters; got out=; omit out="
    ):
        ops.foreach_zero_([a], out=a)
    assert to_host(a).tolist() == [1, 1, 1]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "options", [{}, {"alpha": 0.5, "beta": -2.0}, {"beta": 0.0}], ids=["plain", "factors", "beta 0"]
)
@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_a_product_is_added_to_its_third_operand_in_place(
    device: Device, name: str, options: dict[str, float], rows: int
) -> None:
    stack = (2,) if name == "baddbmm" else ()
    draw = np.random.default_rng(0).normal
    c, a, b = (draw(size=(*stack, *shape)).astype(np.float32) for shape in ((rows, 5), (rows, 4), (4, 5)))
    arrays = [from_host(one, device) for one in (c, a, b)]

    found = ops.op(name)(*arrays, **options, out=arrays[0])

    assert found is arrays[0]
    expected = options.get("alpha", 1) * (a @ b) + options.get("beta", 1) * c
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-5, atol=1e-5)


def test_a_plan_adds_its_product_at_each_run(device: Device) -> None:
    ones = from_host(np.ones((4, 4), np.float32), device)
    total = from_host(np.zeros((4, 4), np.float32), device)
    plan = ops.addmm.prepare(total, ones, ones, out=total)

    plan.run()
    plan.run()

    assert (to_host(total) == 8).all()


@requires("views")
def test_a_product_is_not_written_over_its_other_operands(device: Device) -> None:
    square, other = (from_host(np.ones((4, 4), np.float32), device) for _ in range(2))

    with pytest.raises(ArgumentError, match="addmm's out shares memory with a"):
        ops.addmm(other, square, other, out=square)
    with pytest.raises(ArgumentError, match="addmm's out shares memory with c"):
        ops.addmm(square, square, other, out=square)
    with pytest.raises(ArgumentError, match="addmm's out shares memory with c"):
        ops.addmm(square[0], other, other, out=square)
    assert (to_host(square) == 1).all()
