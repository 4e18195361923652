"""What a guard takes for a leak, a stray stream or a stray precision, and what it lets pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from cuassay import ops, precision, set_default_precision
from cuassay.core.precision import default_precision
from cuassay.devices.sim import BACKEND
from cuassay.ops import registry
from cuassay.testing.guards import (
    LeakError,
    _grouped,
    _of_two_parts,
    _Product,
    computed_precision,
    guarded,
    memory_returned,
    precision_kept,
    products_as_asked,
    stream_kept,
)


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    with BACKEND.simulated(devices=1, memory=2**20):
        yield


class Holder:
    """An array in a cycle of references."""

    def __init__(self) -> None:
        self.array, self.me = BACKEND.empty((100,), "float32", 0), self


def test_an_array_in_a_cycle_is_no_leak() -> None:
    with guarded("sim"):
        Holder()


def test_an_array_that_is_kept_is_one_and_its_bytes_are_told() -> None:
    kept: list[Any] = []

    with (
        pytest.raises(AssertionError, match=r"sim:0: 512 B \(512 bytes\) of device memory are still in use"),
        guarded("sim"),
    ):
        kept.append(BACKEND.empty((100,), "float32", 0))


def test_memory_that_is_given_back_inside_hides_nothing_and_is_no_error() -> None:
    kept = [BACKEND.empty((100,), "float32", 0)]

    with guarded("sim"):
        kept.clear()


@pytest.mark.parametrize(
    "shapes", [((3, 3), (3,)), ((3,), (3, 3)), ((3,), (3,)), ((0, 3), (3, 2)), ((2, 3, 3), (3, 3))], ids=str
)
def test_products_of_any_shape_may_be_watched(shapes: Any) -> None:
    a, b = (np.full(shape, 1 / 3, np.float32) for shape in shapes)

    with products_as_asked():
        ops.matmul(a, b)


@pytest.mark.parametrize("asked", ["ieee", "tf32", "bf16"])
def test_a_product_that_is_better_than_asked_is_none_that_leaks(asked: Any) -> None:
    a = np.arange(9, dtype=np.float32).reshape(3, 3)

    assert computed_precision(a, a, a @ a) == "ieee"  # no mode tells on whole numbers
    with products_as_asked():
        ops.matmul(a, a, precision=asked)


def in_tf32(kernel: Any) -> Any:
    return lambda *arrays, precision, **named: kernel(*arrays, precision="tf32", **named)


def test_a_leak_that_the_first_row_and_column_do_not_show_is_found() -> None:
    a = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    b = a.T.copy()
    a[0] = b[:, 0] = 1

    with (
        registry.substituted("mm", kind="cpu", wrap=in_tf32),
        products_as_asked(),
        pytest.raises(AssertionError, match="asked for in 'ieee', computed in 'tf32'"),
    ):
        ops.mm(a, b, precision="ieee")


@pytest.mark.parametrize("rest", [None, np.float32(2)], ids=["a product", "with what was added"])
def test_a_part_of_a_large_product_is_looked_at_in_rows_and_columns(rest: Any) -> None:
    chance = np.random.default_rng(0)
    a, b = (chance.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 70, 5), (2, 5, 80)))
    rows, columns, product = _Product(a, b, a @ b + (0 if rest is None else rest), rest).on_host()

    assert (rows.shape, columns.shape, product.shape) == ((2, 64, 5), (2, 5, 64), (2, 64, 64))
    assert np.array_equal(product, rows @ columns)


def test_memory_that_was_in_use_before_is_no_leak() -> None:
    kept = BACKEND.empty((100,), "float32", 0)
    with memory_returned("sim:0"):
        BACKEND.empty((100,), "float32", 0)

    with pytest.raises(LeakError, match="are still in use after the test"), memory_returned("sim:0"):
        more = BACKEND.empty((100,), "float32", 0)
    assert (kept.shape, more.shape) == ((100,), (100,))


def test_a_stream_that_is_left_current_is_named() -> None:
    before, other = BACKEND.current_stream(0), BACKEND.new_stream(0)
    with stream_kept("sim:0"):
        BACKEND.set_stream(other)
        BACKEND.set_stream(before)

    with pytest.raises(AssertionError, match=r"the current stream is .* after the test"), stream_kept("sim:0"):
        BACKEND.set_stream(other)
    BACKEND.set_stream(before)


def test_each_group_of_a_grouped_product_is_looked_at_with_its_own_matrix() -> None:
    chance = np.random.default_rng(0)
    a, b = (chance.integers(-3, 4, shape).astype(np.float32) for shape in ((6, 3), (2, 3, 4)))
    result = np.concatenate([a[:2] @ b[0], a[2:] @ b[1]])

    found = [one.on_host() for one in _grouped({"a": a, "b": b, "offs": np.array([2, 6])}, result)]

    assert [rows.shape for rows, *_ in found] == [(2, 3), (4, 3)]
    assert all(np.array_equal(rows @ columns, product) for rows, columns, product in found)


def test_sums_of_two_parts_are_exact() -> None:
    a = np.array([[4096, 1]], np.float32)

    assert _of_two_parts(a, a.T) == [[2**24 + 1]]


def test_what_was_added_is_taken_away_exactly() -> None:
    ones = np.ones((1, 1), np.float32)

    *_, product = _Product(ones, ones, ones * 2**24, -ones).on_host()

    assert product == [[2**24 + 1]]


def test_a_product_of_two_parts_is_as_exact_as_sixteen_bits() -> None:
    a, b = (np.random.default_rng(seed).uniform(1, 2, (5, 5)).astype(np.float32) for seed in (1, 2))
    exact = a.astype(np.float64) @ b.astype(np.float64)

    assert 2.0**-20 < np.abs(_of_two_parts(a, b) / exact - 1).max() < 2.0**-14


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 0.0), (-2.0, 3.0), (3.0, -0.25), (0.0, 1.0)])
@pytest.mark.parametrize("op", ["addmm", "baddbmm"])
def test_a_product_is_looked_at_without_what_is_added_to_it(op: str, alpha: float, beta: float) -> None:
    """With a factor of 0 there is none to look at."""
    stack = () if op == "addmm" else (2,)
    c, a, b = (np.random.default_rng(seed).uniform(1, 2, (*stack, 6, 6)).astype(np.float32) for seed in (1, 2, 3))
    call: Any = getattr(ops, op)

    with products_as_asked():
        call(c, a, b, alpha=alpha, beta=beta, precision="ieee")
        call(c, a, b, alpha=alpha, beta=beta, precision="ieee", out=c.copy())
    with (
        registry.substituted(op, kind="cpu", wrap=in_tf32),
        products_as_asked(),
        pytest.raises(AssertionError, match=f"{op} of .* was asked for in 'ieee', computed in 'tf32'")
        if alpha
        else nullcontext(),
    ):
        call(c, a, b, alpha=alpha, beta=beta, precision="ieee")


def test_a_result_in_place_of_what_is_added_is_looked_at_with_what_was_there() -> None:
    c, a, b = (np.random.default_rng(seed).uniform(1, 2, (6, 6)).astype(np.float32) for seed in (1, 2, 3))

    with products_as_asked():
        ops.addmm(c, a, b, beta=3.0, precision="ieee", out=c)
    with (
        registry.substituted("addmm", kind="cpu", wrap=in_tf32),
        products_as_asked(),
        pytest.raises(AssertionError, match="computed in 'tf32'"),
    ):
        ops.addmm(c, a, b, beta=3.0, precision="ieee", out=c)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_a_layer_is_looked_at_unless_it_has_an_activation(activation: Any) -> None:
    x, weight, bias = (
        np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32) for shape in ((5, 6), (4, 6), 4)
    )
    expects = nullcontext() if activation else pytest.raises(AssertionError, match=r"linear of .* computed in 'tf32'")

    with products_as_asked():
        ops.linear(x, weight, bias, activation=activation, precision="ieee")
    with registry.substituted("linear", kind="cpu", wrap=in_tf32), products_as_asked(), expects:
        ops.linear(x, weight, bias, activation=activation, precision="ieee")


@pytest.mark.parametrize("mode", ["ieee", "bf16x3", "tf32", "fp16", "bf16"])
def test_the_precision_of_a_product_is_known_by_its_errors(mode: Any) -> None:
    a, b = (np.random.default_rng(seed).uniform(1, 2, (9, 9)).astype(np.float32) for seed in (1, 2))

    found = computed_precision(a, b, np.asarray(ops.mm(a, b, precision=mode)))

    assert found == ("tf32" if mode == "fp16" else mode)  # both keep 10 bits of such numbers


def test_a_precision_mode_that_is_left_in_force_is_named() -> None:
    with precision_kept(), precision("tf32"):
        pass
    before = default_precision()
    set_default_precision("tf32")
    try:
        with (
            pytest.raises(AssertionError, match="precision mode is 'bf16' after the test, it was 'tf32'"),
            guarded("cpu"),
        ):
            set_default_precision("bf16")
    finally:
        set_default_precision(before)


def test_memory_in_use_before_is_not_a_leak_when_garbage_is_collected() -> None:
    kept = BACKEND.empty((100,), "float32", 0)

    with memory_returned("sim:0"):
        Holder()  # freed by a collection of garbage, after which only `kept` is in use

    assert kept.size == 100
