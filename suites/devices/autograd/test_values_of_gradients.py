"""Gradients that have known values: at ties, and where a product has a factor."""

from __future__ import annotations

import numpy as np
import pytest

from cuassay import Device, from_host, ops, to_host
from cuassay.autograd import grad
from cuassay.ops import registry
from cuassay.testing import requires

pytestmark = requires("float64")


@pytest.mark.parametrize(("name", "of_larger"), [("maximum", [0.5, 0.0, 1.0]), ("minimum", [0.5, 1.0, 0.0])])
def test_a_tie_shares_the_gradient_equally(device: Device, name: str, of_larger: list[float]) -> None:
    a, b = (from_host(np.array(values), device) for values in ([1.0, 2.0, 3.0], [1.0, 5.0, 0.0]))

    for place, expected in ((0, np.array(of_larger)), (1, 1 - np.array(of_larger))):
        found = grad(lambda *both: ops.sum(getattr(ops, name)(*both)), place)(a, b)
        np.testing.assert_array_equal(to_host(found), expected)


def test_the_factor_of_a_product_is_in_its_gradients(device: Device) -> None:
    c, a, b = (from_host(np.ones(shape), device) for shape in ((1, 2, 2), (1, 2, 3), (1, 3, 2)))

    for place, expected in ((0, 1.5), (1, 2.5 * 2), (2, 2.5 * 2)):
        found = grad(lambda *given: ops.sum(ops.baddbmm(*given, alpha=2.5, beta=1.5)), place)(c, a, b)
        np.testing.assert_array_equal(to_host(found), np.full(found.shape, expected))


@pytest.mark.parametrize("host", ["cpu", "sim:0"])
def test_the_gradient_of_a_copy_is_on_the_device_of_the_original(device: Device, host: str) -> None:
    a, factor = from_host(np.array([1.0, 2.0]), device), from_host(np.array([3.0, 5.0]), host)

    found = grad(lambda a: ops.sum(ops.copy(a, device=host) * factor))(a)

    assert registry.device_of(found, "the gradient") == device
    np.testing.assert_array_equal(to_host(found), [3.0, 5.0])
