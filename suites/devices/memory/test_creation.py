"""Arrays made on a device: shape, dtype, place, contents, and the stream in whose order they are made."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, devices, random
from cuassay.errors import ArgumentError, CapabilityError, DeviceError, OutOfMemoryError, ShapeError


@pytest.mark.parametrize("shape", [(3, 4), [3, 4], 12, (), (0, 5), np.int64(3), np.array([2, 3])], ids=str)
def test_an_empty_array_has_the_shape_and_place_asked_for(device: Device, shape: Any) -> None:
    array = cuassay.empty(shape, "float32", device)

    assert tuple(array.shape) == np.empty(shape).shape
    assert array.dtype == np.float32
    assert devices.backend(device.kind).device_of(array) == device


@pytest.mark.parametrize(("value", "dtype"), [(0, "float32"), (-2.5, "float16"), (7, "int64"), (True, "bool")])
def test_full_has_the_value_everywhere(device: Device, value: bool | float, dtype: str) -> None:
    array = cuassay.full((5, 3), value, dtype, device)

    np.testing.assert_array_equal(cuassay.to_host(array), np.full((5, 3), value, dtype))


def test_zeros_overwrite_what_the_memory_held(device: Device) -> None:
    cuassay.full(1000, 3.0, "float32", device)

    assert not cuassay.to_host(cuassay.zeros(1000, "float32", device)).any()


def test_empty_like_takes_what_is_not_given_from_the_array(device: Device) -> None:
    like = cuassay.zeros((2, 3), "float16", device)

    same, other = cuassay.empty_like(like), cuassay.empty_like(like, dtype="int32", device="cpu")

    assert (same.shape, same.dtype) == ((2, 3), np.float16)
    assert devices.backend(device.kind).device_of(same) == device
    assert type(other) is np.ndarray
    assert other.dtype == np.int32


def test_an_array_is_made_in_the_order_of_the_stream_given(device: Device) -> None:
    backend = devices.backend(device.kind)
    stream = backend.new_stream(device.index)

    array = cuassay.full(1000, 5, "int32", device, stream=stream)
    spare = cuassay.empty(10, "int32", device, stream=stream)
    with backend.use_stream(stream):
        host = cuassay.to_host(array)

    assert (host == 5).all()
    assert spare.shape == (10,)
    del array, spare
    gc.collect()


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="no device kind 'abacus'"):
        cuassay.empty(3, "float32", "abacus")


@pytest.mark.parametrize(
    "make",
    [
        lambda shape: cuassay.empty(shape, "float32", "cpu"),
        lambda shape: cuassay.empty(shape, "float32", "sim"),
        lambda shape: devices.empty_pinned(shape, "float32", "sim"),
        lambda shape: devices.namespace("sim").empty(shape, "float32"),
        lambda shape: random.uniform(shape, device="cpu"),
    ],
    ids=["cpu", "sim", "pinned", "namespace", "random"],
)
@pytest.mark.parametrize("shape", [-4, 2.5, (-4,), (3, -1), (-2, -3), "wide", (2, 3.5)], ids=str)
def test_what_is_no_shape_is_refused_and_takes_nothing(make: Callable[..., Any], shape: Any) -> None:
    free = devices.backend("sim").memory_info(0)[0]

    with pytest.raises(ShapeError, match=r"is not a shape: .*; give whole numbers, 0 or more"):
        make(shape)

    assert devices.backend("sim").memory_info(0)[0] == free
    assert cuassay.to_host(cuassay.zeros(3, "float32", "sim")).tolist() == [0, 0, 0]


def test_a_list_of_numbers_is_host_data(device: Device) -> None:
    array = cuassay.from_host([1.0, 2.0], device)

    assert cuassay.to_host(array).tolist() == [1.0, 2.0]


def test_like_what_is_no_array_is_refused() -> None:
    with pytest.raises(ArgumentError, match="not an array of any known device kind"):
        cuassay.empty_like(object())


def test_too_much_is_out_of_memory_and_changes_nothing(device: Device) -> None:
    with pytest.raises((OutOfMemoryError, CapabilityError)):
        cuassay.empty(2**58, "uint8", device)

    assert not cuassay.to_host(cuassay.zeros(10, "uint8", device)).any()
