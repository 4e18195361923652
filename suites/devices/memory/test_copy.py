"""Copies between a device and the host, and between devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.core.capability import DTYPE_NAMES
from cuassay.errors import ArgumentError
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
    host, other = np.arange(7, dtype=np.float32), Device(device.kind, 0 if device.index else 1)

    there = ops.copy(from_host(host, device), device=other)

    assert registry.backend(device.kind).device_of(there) == other
    assert_same_bits(to_host(there), host)


@pytest.mark.parametrize(
    "target", [np.zeros((2, 3), np.float32), np.zeros(3, np.float64)], ids=["broadcast", "another-dtype"]
)
def test_a_copy_within_the_host_neither_broadcasts_nor_casts(target: np.ndarray[Any, Any]) -> None:
    source = np.ones(3, np.float32)

    with pytest.raises(ArgumentError, match=r"one shape and dtype; got \(3,\), float32"):
        devices.copy(source, target)

    assert not target.any()
    assert devices.copy(source, np.empty_like(source)).all()
