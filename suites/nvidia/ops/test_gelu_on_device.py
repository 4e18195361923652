"""gelu by the kernels' own formulas against float64: right where the textbook's 1 + erf and 1 + tanh have cancelled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, to_host
from cuassay.testing import devices

X = np.linspace(-12, 12, 24_001).astype(np.float32)


def normal(a: float) -> float:
    return a * math.erfc(-a / math.sqrt(2)) / 2


def by_tanh(a: float) -> float:
    return a / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


@devices("cuda")
@pytest.mark.parametrize(("approximate", "exact", "least"), [("none", normal, -12.0), ("tanh", by_tanh, -7.0)])
def test_gelu_of_float32_is_right_relative_to_its_value(
    device: Device, approximate: str, exact: Any, least: float
) -> None:
    a = X[least <= X]
    expected = np.array([exact(float(one)) for one in a])

    found = to_host(ops.gelu(from_host(a, device), approximate=approximate)).astype(np.float64)

    assert np.abs(found - expected).max() < 1e-6
    assert np.all(np.abs(found - expected) <= 1e-5 * np.abs(expected))


@devices("cuda")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_what_has_no_neighbours(device: Device, approximate: str) -> None:
    a = np.array([0.0, -0.0, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32)

    found = to_host(ops.gelu(from_host(a, device), approximate=approximate))

    np.testing.assert_array_equal(found[:7], np.array([0.0, -0.0, 3e38, -0.0, np.inf, np.nan, np.nan], np.float32))
    np.testing.assert_allclose(found[7:], [5e-41, -5e-41], atol=2e-45)
