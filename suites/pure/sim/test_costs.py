"""What the simulated device thinks an array function computes: its virtual times follow from that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import from_host
from cuassay.devices.sim.calls import _flops


def sim(*shape: int) -> Any:
    return from_host(np.ones(shape, np.float32), "sim")


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("add", [(1000,), (1000,)], 2e3),
        ("dot", [(1000,), (1000,)], 2e3),
        ("matmul", [(1000,), (1000,)], 2e3),
        ("inner", [(1000,), (1000,)], 2e3),
        ("matmul", [(100, 50), (50, 100)], 2 * 5000 * 50),
        ("matmul", [(50,), (50, 100)], 2 * 5000 * 50),
        ("matmul", [(100, 50), (50,)], 2 * 5000 * 50),
        ("dot", [], 0),
    ],
    ids=lambda value: str(value),
)
def test_a_product_of_vectors_is_one_of_its_elements(name: str, shapes: Any, flops: float) -> None:
    assert _flops(name, [sim(*shape) for shape in shapes]) == flops
