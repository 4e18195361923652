"""Functional forms of ops that write their arguments, on every kind present."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, to_host
from cuassay.autograd import grad, gradcheck, gradgradcheck
from cuassay.errors import GradientError
from cuassay.testing import requires

add, mul, lerp, copy, zero = (
    getattr(ops, f"foreach_{name}_").functional for name in ("add", "mul", "lerp", "copy", "zero")
)


@pytest.fixture
def drawn(device: Device) -> Any:
    """Makes arrays of numbers from 0.3 to 2."""
    generator = np.random.default_rng(0)
    return lambda *shape: from_host(generator.uniform(0.3, 2, shape), device)


@requires("float64")
def test_copies_are_written_and_returned(device: Device, drawn: Any) -> None:
    a, b = [drawn(3), drawn(2, 2)], [drawn(3), drawn(2, 2)]
    before = [to_host(one) for one in a]

    found = add(a, b, alpha=2)

    for one, old, other, new in zip(a, before, b, found, strict=True):
        np.testing.assert_array_equal(to_host(one), old)
        np.testing.assert_allclose(to_host(new), old + 2 * to_host(other))


@requires("float64")
def test_out_takes_the_copies(device: Device, drawn: Any) -> None:
    a, out = [drawn(3)], [drawn(3)]

    assert mul(a, 2.0, out=out) is out
    np.testing.assert_allclose(to_host(out[0]), 2 * to_host(a[0]))


def test_index_add_has_an_in_place_form(device: Device) -> None:
    a = from_host(np.ones((3, 2), np.float32), device)
    index, source = from_host(np.array([2, 0, 2]), device), from_host(np.full((3, 2), 4, np.float32), device)

    assert ops.index_add.inplace(a, index, source) is a
    assert to_host(a).tolist() == [[5.0, 5.0], [1.0, 1.0], [9.0, 9.0]]


CALLS: dict[str, Any] = {
    "add": lambda a, b: add([a * a, b], [b, a], alpha=0.5),
    "add a number": lambda a, b: add([a, b], ops.sum(b), alpha=0.5),
    "mul": lambda a, b: mul([a, b], [b, b]),
    "mul by a number": lambda a, b: mul([a, a], ops.sum(b)),
    "mul by 0.7": lambda a, b: mul([a, b], 0.7),
    "lerp": lambda a, b: lerp([a], [b], 0.3),
    "lerp by a number": lambda a, b: lerp([a, b], [b, a], ops.sum(b)),
    "copy": lambda a, b: copy([a * b, b], [b, a]),
    "zero": lambda a, b: [*zero([a, b]), a],
}


@requires("float64")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck], ids=["first", "second"])
def test_derivatives_of_lists(drawn: Any, name: str, check: Any) -> None:
    check(lambda a, b: [ops.exp(one) for one in CALLS[name](a, b)], (drawn(3), drawn(3)))


@requires("float64")
def test_a_result_that_is_not_used_has_no_part_in_the_gradient(drawn: Any) -> None:
    a, b = drawn(3), drawn(3)

    first, second = grad(lambda a, b: ops.sum(mul([a, b], [b, 2.0 * a])[0]), (0, 1))(a, b)

    np.testing.assert_allclose(to_host(first), to_host(b))
    np.testing.assert_allclose(to_host(second), to_host(a))


@requires("float16")
def test_gradients_have_the_dtypes_of_the_arrays(device: Device) -> None:
    a, factor = from_host(np.full(600, 8, np.float16), device), from_host(np.float32(2).reshape(()), device)

    first, second = grad(lambda a, b: ops.sum(ops.mul(mul([a], b)[0], 1 / 16)), (0, 1))(a, factor)

    assert (str(first.dtype), to_host(first).tolist()) == ("float16", [0.125] * 600)
    assert (str(second.dtype), float(to_host(second))) == ("float32", 300.0)


@requires("float64")
def test_what_has_no_derivative_says_so(drawn: Any) -> None:
    plain = drawn(3)

    with pytest.raises(GradientError, match=r"foreach_add_, called at .*; call foreach_add_.functional, which makes"):
        grad(lambda x: ops.foreach_add_([plain], [x]))(plain)
    with pytest.raises(GradientError, match=r"foreach_unscale_.functional, called at .*: it writes several arrays"):
        grad(lambda x: ops.foreach_unscale_.functional([x], plain, plain))(plain)
