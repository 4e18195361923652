"""Sums over long axes of 16-bit numbers, which a device may add in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, to_host
from cuassay.testing import dtypes


@dtypes("float16", "bfloat16")
@pytest.mark.parametrize(("shape", "axis"), [((2, 70_001), 1), ((70_001, 3), 0), ((70_001,), 0)], ids=str)
def test_parts_of_a_sum_are_held_to_float32(
    device: Device, dtype: np.dtype[Any], shape: tuple[int, ...], axis: int
) -> None:
    """The first half alone is infinite in float16, and bfloat16 has 8 bits for each part; float32 holds all of them."""
    lifted = np.where(np.arange(70_001) < 35_000, 8, -8).reshape([-1 if at == axis else 1 for at in range(len(shape))])
    host = np.random.default_rng(2026).integers(-8, 9, shape) + lifted

    found = to_host(ops.sum(from_host(host.astype(dtype), device), axis=axis))

    np.testing.assert_array_equal(found, host.sum(axis).astype(np.float32).astype(dtype))
