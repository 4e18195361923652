"""Copies between a device and the host, and between devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, ops, to_host
from cuassay.core.capability import DTYPE_NAMES
from cuassay.ops import registry
from cuassay.testing import dtypes, requires
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.samples import LAYOUTS, Samples


@dtypes(*DTYPE_NAMES)
def test_numbers_survive_the_way_to_a_device_and_back(device: Device, dtype: np.dtype[Any]) -> None:
    host = Samples(1, dtype.name)((3, 5)).values

    there = ops.copy(host, device=device)

    assert registry.backend(device.kind).device_of(there) == device
    assert_same_bits(ops.copy(there, device="cpu"), host)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_view_is_copied_from_a_device(device: Device, layout: str) -> None:
    array = Samples(1, "float32")((3, 5)).laid_out(layout)

    assert_same_bits(ops.copy(array.on(device), device="cpu"), array.values)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_view_on_a_device_is_written_from_the_host(device: Device, layout: str) -> None:
    array = Samples(1, "float32")((3, 5))
    out = array.laid_out(layout).on(device)

    ops.copy(np.negative(array.values), out=out)

    assert_same_bits(to_host(out), np.negative(array.values))


@requires("count>=2")
def test_a_copy_goes_to_a_second_device_of_the_kind(device: Device) -> None:
    host = np.arange(7, dtype=np.float32)

    there = ops.copy(from_host(host, device), device=Device(device.kind, 1))

    assert registry.backend(device.kind).device_of(there) == Device(device.kind, 1)
    assert_same_bits(to_host(there), host)
