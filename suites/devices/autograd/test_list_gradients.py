"""Derivatives of ops over lists: traced and plain arrays side by side, formulas that read a list, writes over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, to_host
from cuassay.autograd import grad, gradcheck, gradgradcheck, value_and_grad
from cuassay.errors import GradientError
from cuassay.ops import Formula, registry, rules
from cuassay.testing import requires

pytestmark = requires("float64")


def _inner(a: Any, b: Any) -> Any:
    return sum(ops.sum(ops.mul(x, y)) for x, y in zip(a, b, strict=True))


@pytest.fixture
def inner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The sum of the products of two lists, place by place: an op whose formulas read its lists."""
    for module, table in ((registry, "_ops"), (registry, "_implementations"), (rules, "_derivatives")):
        monkeypatch.setattr(module, table, dict(getattr(module, table)))
    found = ops.declare(
        "inner_of_lists(a: arrays, b: arrays) -> out",
        shape=lambda bound: (), dtypes=("float64",), op_class="reduction", composite=_inner, parts=("mul", "sum"),
        derivative={
            "a": Formula(lambda g, f: [ops.mul(g, one) for one in f.b], ("b",)),
            "b": Formula(lambda g, f: [ops.mul(g, one) for one in f.a], ("a",)),
        },
    )  # fmt: skip

    @ops.implement("inner_of_lists", kind="cpu", dtypes=("float64",))
    def _(a: Any, b: Any, *, out: Any) -> None:
        out[...] = sum((x * y).sum() for x, y in zip(a, b, strict=True))

    return found


@pytest.fixture
def drawn(device: Device) -> Callable[..., Any]:
    """Makes arrays of numbers from 0.3 to 2, the same ones in each test."""
    generator = np.random.default_rng(0)
    return lambda *shape, dtype="float64": from_host(generator.uniform(0.3, 2, shape).astype(dtype), device)


def test_plain_arrays_stand_beside_traced_ones(drawn: Callable[..., Any]) -> None:
    plain = drawn(2, 3)

    gradcheck(lambda a, b: ops.exp(ops.cat([a, plain, a * b, a])), (drawn(4, 3), drawn(4, 1)))


def test_each_member_has_its_part_of_the_gradient(drawn: Callable[..., Any], device: Device) -> None:
    weights = from_host(np.arange(6.0).reshape(3, 2), device)

    first, second = grad(lambda a, b: ops.sum(ops.stack([a, a, b], axis=-1) * weights.T), (0, 1))(drawn(2), drawn(2))

    assert to_host(first).tolist() == [2.0, 4.0]
    assert to_host(second).tolist() == [4.0, 5.0]


def test_the_gradient_has_the_dtype_of_each_member(drawn: Callable[..., Any]) -> None:
    value, (wide, narrow) = value_and_grad(lambda a, b: ops.sum(ops.cat([a, b])), (0, 1))(
        drawn(3), drawn(2, dtype="float32")
    )

    assert (str(value.dtype), str(wide.dtype), str(narrow.dtype)) == ("float64", "float64", "float32")


@pytest.mark.parametrize("join", [ops.cat, ops.stack])
def test_second_derivatives(drawn: Callable[..., Any], join: Callable[..., Any]) -> None:
    gradgradcheck(lambda a, b: ops.exp(join([a * a, a * b], axis=1)), (drawn(3, 2), drawn(3, 2)))


def test_a_formula_may_read_its_list(drawn: Callable[..., Any], inner: Any) -> None:
    gradcheck(lambda a, b: inner([a, b], [b * b, a]), (drawn(3), drawn(3)))


def test_a_write_over_a_member_that_is_read_is_an_error(drawn: Callable[..., Any], inner: Any) -> None:
    others = [drawn(3), drawn(3)]

    def function(a: Any) -> Any:
        value = inner([a, a], others)
        ops.copy(others[0], out=others[1])
        return value

    message = r"copy, .* over an array that the derivative of inner_of_lists, called at .*, reads as its b\[1\]"
    with pytest.raises(GradientError, match=message):
        grad(function)(drawn(3))


def test_a_list_that_no_formula_reads_may_be_written(drawn: Callable[..., Any]) -> None:
    plain = drawn(3)

    def function(a: Any) -> Any:
        joined = ops.cat([a, plain])
        ops.foreach_zero_([plain])
        return ops.sum(joined)

    assert to_host(grad(function)(drawn(3))).tolist() == [1.0] * 3
