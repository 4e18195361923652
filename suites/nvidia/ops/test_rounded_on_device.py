"""Functions whose results are rounded to 16 bits, at every number there is: what is approximated must not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay import Device, empty, from_host, ops, to_host
from cuassay.testing import devices

EVERY = np.arange(2**16, dtype=np.uint16)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda a: np.where(a < 0, np.exp(np.minimum(a, 0)), 1) / (1 + np.exp(-np.abs(a))),
}

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")


def steps(a: Any) -> Any:
    """The place of each number among all of its dtype, in order."""
    bits = a.view(np.uint16).astype(np.int32)
    return np.where(bits < 2**15, bits, 2**15 - bits)


@devices("cuda")
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_has_the_nearest_result_or_its_neighbour(
    device: Device, name: str, dtype: Any, layout: str
) -> None:
    host = EVERY.view(dtype)
    expected = FUNCTIONS[name](host.astype(np.float64)).astype(dtype)
    given = from_host(host, device)
    if layout == "strided":
        spread = empty((host.size, 2), dtype, device)
        ops.copy(given, out=spread[:, 0])
        given = spread[:, 0]

    found = to_host(getattr(ops, name)(given))

    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(np.signbit(found[~nan]), np.signbit(expected[~nan]))
    apart = np.abs(steps(found[~nan]) - steps(expected[~nan]))
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 0.005 * apart.size


@devices("cuda")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_slope_of_gelu_is_right_to_a_few_units_of_float32(device: Device, approximate: str) -> None:
    a = np.linspace(-12, 12, 24_001).astype(np.float32)
    ones = np.ones(a.size)

    found = to_host(
        ops.gelu_backward(from_host(ones.astype(np.float32), device), from_host(a, device), approximate=approximate)
    )

    expected = to_host(ops.gelu_backward(ones, a.astype(np.float64), approximate=approximate))
    assert np.abs(found - expected).max() < 1e-6


@devices("cuda")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_slope_of_gelu_far_out(device: Device, approximate: str) -> None:
    a = np.array([3e38, -3e38, np.inf, -np.inf, np.nan, 50, -50], np.float32)
    ones = from_host(np.ones(a.size, np.float32), device)

    found = to_host(ops.gelu_backward(ones, from_host(a, device), approximate=approximate))

    np.testing.assert_array_equal(found, np.array([1, 0, 1, 0, np.nan, 1, 0], np.float32))
