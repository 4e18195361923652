"""Functions whose results are rounded to 16 bits, at every number there is: what is approximated must not show."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_places import KINDS

from cuassay import Device, empty, from_host, ops, to_host
from cuassay.jit import elementwise
from cuassay.testing import devices

EVERY = np.arange(2**16, dtype=np.uint16)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda a: np.where(a < 0, np.exp(np.minimum(a, 0)), 1) / (1 + np.exp(-np.abs(a))),
    "log1p": np.log1p,
    "reciprocal": lambda a: 1 / a,
    "erf": np.vectorize(math.erf),
    "sin": np.sin,
    "cos": np.cos,
}

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value|overflow):RuntimeWarning")


def steps(a: Any) -> Any:
    """The place of each number among all of its dtype, in order."""
    bits = a.view(np.uint16).astype(np.int32)
    return np.where(bits < 2**15, bits, 2**15 - bits)


@devices(*KINDS)
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


@devices(*KINDS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_exponentials_in_a_body_are_the_nearest_ones_or_neighbours(device: Device, dtype: Any) -> None:
    pytest.importorskip("pycparser", reason="pycparser is not installed")
    host = EVERY.view(dtype)
    expected = np.exp(host.astype(np.float64)).astype(dtype)

    found = to_host(elementwise("template <typename T> T f(T x) { return std::exp(x); }")(from_host(host, device)))

    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    assert found[host == 0].tolist() == [1, 1]
    apart = np.abs(steps(found[~nan]) - steps(expected[~nan]))
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 0.005 * apart.size


#: Exponents where the sign or the edges of a power are special, and some where nothing is.
EXPONENTS = (0, -0.0, 1, -1, 2, -2, 3, 7, 8, 0.5, -0.5, 1 / 3, 1.7, -4.4, 1000, 3001, 65504, np.inf, -np.inf, np.nan)


@devices(*KINDS)
@pytest.mark.parametrize("is_scalar", [False, True], ids=["arrays", "scalar"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_every_power_is_the_nearest_number_or_its_neighbour(device: Device, dtype: Any, is_scalar: bool) -> None:
    host = EVERY.view(dtype)
    host = host[~np.isnan(host)]  # glibc's powf gives NaN for a signalling NaN to the power 0
    given = from_host(host, device)

    for exponent in np.array(EXPONENTS).astype(dtype):
        other = float(exponent) if is_scalar else from_host(np.full(host.size, exponent, dtype), device)
        found = to_host(ops.pow(given, other))

        expected = np.float_power(host.astype(np.float64), np.full(host.size, exponent, np.float64)).astype(dtype)
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(found), nan)
        assert np.array_equal(np.signbit(found[~nan]), np.signbit(expected[~nan]))
        assert np.abs(steps(found[~nan]) - steps(expected[~nan])).max() <= (exponent != 2)  # squares may be ties


EDGES = (0, 1, 2, 3, 0.5, 1.5, np.inf, np.nan, 1e-45, 1e-38, 3e38, 2.0**22 - 1, 2.0**22 + 1, 2.0**24 + 2, 1 + 2.0**-23)


@devices(*KINDS)
def test_powers_in_float32_are_right_to_two_units(device: Device) -> None:
    """Every pair of edges is in one array with usual numbers, so that packs have both."""
    edges = np.array([*EDGES, *(-one for one in EDGES)], np.float32)
    rng = np.random.default_rng(20)
    size = 40_000
    usual = rng.normal(size=size), 4 * rng.normal(size=size)
    whole = np.where(np.arange(size) % 3, usual[1], np.rint(usual[1]))
    a = np.concatenate([usual[0] * 2.0 ** rng.integers(-20, 20, size), np.repeat(edges, edges.size)]).astype(np.float32)
    b = np.concatenate([whole, np.tile(edges, edges.size)]).astype(np.float32)
    order = rng.permutation(a.size)
    a, b = a[order], b[order]

    found = to_host(ops.pow(from_host(a, device), from_host(b, device)))

    with np.errstate(all="ignore"):
        expected = np.float_power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(np.signbit(found[~nan]), np.signbit(expected[~nan]))
    assert np.abs(found[~nan].view(np.int32).astype(np.int64) - expected[~nan].view(np.int32)).max() <= 2


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
