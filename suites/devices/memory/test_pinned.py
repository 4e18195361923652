"""Pinned host memory and copies in stream order, on every kind that has them."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.core import syncdebug
from cuassay.core.capability import DTYPE_NAMES
from cuassay.core.protocols import Backend, PinnedMemory
from cuassay.errors import ArgumentError, CapabilityError, CaptureError, DeviceError, SynchronizationError
from cuassay.testing import dtypes, requires
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.samples import Samples

pytestmark = requires("pinned_memory", "streams")

N = 1000


def pinned(device: Device, values: Any) -> Any:
    """The values in pinned memory."""
    array = devices.empty_pinned(np.shape(values), np.asarray(values).dtype, device)
    array[...] = values
    return array


@pytest.fixture
def numbers() -> Any:
    return np.random.default_rng(7).standard_normal(N).astype(np.float32)


# ------------------------------------------------------------------------------------------------ arrays


def test_the_backend_is_what_the_protocol_says(backend: Backend) -> None:
    assert isinstance(backend, PinnedMemory)


@dtypes(*DTYPE_NAMES)
def test_an_array_is_made_in_every_dtype(device: Device, dtype: np.dtype[Any]) -> None:
    array = devices.empty_pinned((3, 5), dtype, device)

    assert (array.shape, array.dtype, array.nbytes) == ((3, 5), dtype, 15 * dtype.itemsize)
    assert array.strides == (5 * dtype.itemsize, dtype.itemsize)


def test_an_array_and_its_views_are_pinned_and_other_arrays_are_not(device: Device) -> None:
    array = devices.empty_pinned((4, 6), np.float32, device)

    assert devices.is_pinned(array)
    assert devices.is_pinned(array[1:, ::2])
    assert devices.is_pinned(array.T.reshape(6, 4))
    assert not devices.is_pinned(np.empty(24, np.float32))


def test_the_host_computes_with_a_pinned_array_as_with_any(device: Device, numbers: Any) -> None:
    array = pinned(device, numbers)

    array += 1
    array[::2] = 0
    np.multiply(array, 2, out=array)

    expected = numbers + 1
    expected[::2] = 0
    np.testing.assert_array_equal(np.asarray(array), expected * 2)
    assert float(array.sum()) == pytest.approx(float((expected * 2).sum()))


@pytest.mark.parametrize("shape", [0, (0,), (3, 0), ()])
def test_arrays_without_elements_and_without_axes_are_made(device: Device, shape: Any) -> None:
    array = devices.empty_pinned(shape, np.int32, device)

    assert array.shape == (shape if isinstance(shape, tuple) else (shape,))


def test_a_negative_extent_is_refused(device: Device) -> None:
    with pytest.raises(ValueError, match=r"-\d|negative"):
        devices.empty_pinned((-1,), np.float32, device)


def test_a_dropped_array_is_reused_at_once(device: Device) -> None:
    def address() -> int:
        array = devices.empty_pinned(123_457, np.uint8, device)
        raw = getattr(array, "raw", array)
        return int(raw.__array_interface__["data"][0])

    assert address() == address()


# ------------------------------------------------------------------------------------------------ copies


@dtypes(*DTYPE_NAMES)
def test_numbers_go_to_the_device_and_back_bit_for_bit(device: Device, dtype: np.dtype[Any], side: Any) -> None:
    host = pinned(device, Samples(1, dtype.name)((33, 5)).values)
    there, back = devices.empty((33, 5), dtype, device), devices.empty_pinned((33, 5), dtype, device)
    side.wait_stream(devices.backend(device.kind).current_stream(device.index))

    with devices.backend(device.kind).use_stream(side):
        devices.copy(host, there, non_blocking=True)
        devices.copy(there, back, non_blocking=True)
    side.synchronize()

    assert_same_bits(np.array(back), np.array(host))


def test_a_copy_gives_its_destination(device: Device, numbers: Any) -> None:
    out = devices.empty((N,), np.float32, device)

    assert devices.copy(pinned(device, numbers), out) is out


@pytest.mark.parametrize("non_blocking", [False, True])
def test_pageable_memory_is_copied_and_waited_for(device: Device, numbers: Any, non_blocking: bool) -> None:
    there, back = devices.empty((N,), np.float32, device), np.empty_like(numbers)
    host = numbers.copy()

    devices.copy(host, there, non_blocking=non_blocking)
    host[:] = 0
    devices.copy(there, back, non_blocking=non_blocking)

    np.testing.assert_array_equal(back, numbers)


def test_a_blocking_copy_is_done_when_it_returns(device: Device, numbers: Any) -> None:
    back = devices.empty_pinned(N, np.float32, device)

    devices.copy(from_host(numbers, device), back)

    np.testing.assert_array_equal(np.asarray(back), numbers)


LAYOUTS = {
    "transposed": lambda a: a.T,
    "every other": lambda a: a[:, ::2],
    "fortran": lambda a: np.asfortranarray(a),
    "reversed": lambda a: a[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_pinned", [False, True], ids=["pageable", "pinned"])
def test_views_of_the_host_are_copied_both_ways(device: Device, layout: str, is_pinned: bool) -> None:
    if layout == "fortran" and is_pinned:
        pytest.skip("pinned arrays are made C-contiguous")
    values = np.arange(60, dtype=np.float32).reshape(6, 10)
    host = LAYOUTS[layout](pinned(device, values) if is_pinned else values)
    expected = np.array(host)
    there = devices.empty(expected.shape, np.float32, device)

    devices.copy(host, there, non_blocking=True)
    devices.backend(device.kind).current_stream(device.index).synchronize()
    doubled = from_host(to_host(there) * 2, device)
    devices.copy(doubled, host, non_blocking=True)
    devices.backend(device.kind).current_stream(device.index).synchronize()

    np.testing.assert_array_equal(to_host(there), expected)
    np.testing.assert_array_equal(np.array(host), expected * 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_on_the_device_are_copied_both_ways(device: Device, layout: str, numbers: Any) -> None:
    base = from_host(numbers[:60].reshape(6, 10), device)
    view = base if layout == "fortran" else LAYOUTS[layout](base)
    back = devices.empty_pinned(view.shape, np.float32, device)

    devices.copy(view, back, non_blocking=True)
    devices.backend(device.kind).current_stream(device.index).synchronize()
    taken = np.array(back)
    devices.copy(pinned(device, taken + 1), view, non_blocking=True)

    np.testing.assert_array_equal(to_host(view), taken + 1)


def test_the_memory_of_a_dropped_array_is_not_reused_before_its_copy_is_done(device: Device, side: Any) -> None:
    """The early free: on sim a reuse would race, on cuda it would bring wrong numbers."""
    size = 8 * 2**20 if device.kind == "cuda" else N
    outs = [devices.empty((size,), np.float32, device) for _ in range(6)]
    devices.backend(device.kind).synchronize(device.index)

    with devices.backend(device.kind).use_stream(side):
        for number, out in enumerate(outs):
            host = devices.empty_pinned(size, np.float32, device)
            host[...] = number
            devices.copy(host, out, non_blocking=True)
            del host
    side.synchronize()

    for number, out in enumerate(outs):
        assert float(to_host(out).min()) == float(to_host(out).max()) == number


def test_other_work_goes_on_while_a_copy_runs(device: Device, backend: Backend, side: Any, numbers: Any) -> None:
    host, there = pinned(device, numbers), devices.empty((N,), np.float32, device)
    side.wait_stream(backend.current_stream(device.index))
    with backend.use_stream(side):
        devices.copy(host, there, non_blocking=True)
        doubled = ops.add(there, there)
    backend.current_stream(device.index).wait_stream(side)

    np.testing.assert_array_equal(to_host(doubled), numbers * 2)


def test_only_copies_that_wait_are_told_in_sync_debug_mode(device: Device, numbers: Any) -> None:
    host, there = pinned(device, numbers), devices.empty((N,), np.float32, device)
    syncdebug.set_mode("error")
    try:
        devices.copy(host, there, non_blocking=True)
        with pytest.raises(SynchronizationError, match="a copy between host and device"):
            devices.copy(host, there)
        with pytest.raises(SynchronizationError, match="a copy between host and device"):
            devices.copy(numbers, there, non_blocking=True)
    finally:
        syncdebug.set_mode("default")


# ------------------------------------------------------------------------------------------------ refused


def test_other_shapes_and_dtypes_are_refused(device: Device, numbers: Any) -> None:
    host = pinned(device, numbers)

    with pytest.raises(ArgumentError, match=r"one shape and dtype; got \(1000,\), float32 and \(10,\)"):
        devices.copy(host, devices.empty((10,), np.float32, device))
    with pytest.raises(ArgumentError, match=r"float32 and .*float16; cast"):
        devices.copy(host, devices.empty((N,), np.float16, device))


@requires("graphs")
def test_a_captured_copy_moves_what_is_there_at_each_replay(
    device: Device, backend: Backend, side: Any, numbers: Any
) -> None:
    host, there = pinned(device, numbers), from_host(np.zeros(N, np.float32), device)
    capture = backend.new_capture(device.index)
    backend.synchronize(device.index)

    with backend.use_stream(side):
        capture.begin(side)
        devices.copy(host, there, non_blocking=True)
        capture.end()
        capture.replay()
        side.synchronize()
        first = to_host(there)
        host[...] = numbers + 1
        capture.replay()
        second = to_host(there)
    capture.reset()

    np.testing.assert_array_equal(first, numbers)
    np.testing.assert_array_equal(second, numbers + 1)


@requires("graphs")
def test_memory_of_a_captured_copy_is_not_reused_while_the_graph_may_run(
    device: Device, backend: Backend, side: Any, numbers: Any
) -> None:
    host, there = pinned(device, numbers), from_host(np.zeros(N, np.float32), device)
    capture = backend.new_capture(device.index)
    backend.synchronize(device.index)
    with backend.use_stream(side):
        capture.begin(side)
        devices.copy(host, there, non_blocking=True)
        capture.end()
        del host
        gc.collect()
        others = [pinned(device, np.full(N, 99, np.float32)) for _ in range(4)]
        capture.replay()
        side.synchronize()

    np.testing.assert_array_equal(to_host(there), numbers)
    assert len(others) == 4
    capture.reset()


@requires("graphs")
@pytest.mark.parametrize("is_warm", [False, True], ids=["first use", "copied before"])
def test_memory_of_a_captured_copy_is_kept_when_nothing_runs(
    device: Device, backend: Backend, side: Any, numbers: Any, is_warm: bool
) -> None:
    host, there = pinned(device, numbers), from_host(np.zeros(N, np.float32), device)
    capture = backend.new_capture(device.index)
    backend.synchronize(device.index)
    with backend.use_stream(side):
        if is_warm:
            devices.copy(host, there, non_blocking=True)
            side.synchronize()
        capture.begin(side)
        devices.copy(host, there, non_blocking=True)
        capture.end()
    is_there = weakref.ref(host)
    del host
    gc.collect()
    backend.synchronize(device.index)  # what a stream was given is done: only the graph still needs the memory
    assert is_there() is not None, "its memory may be given to the next array that asks"
    others = [pinned(device, np.full(N, 99, np.float32)) for _ in range(2000)]  # all that is free, and more
    with backend.use_stream(side):
        capture.replay()
        side.synchronize()

    np.testing.assert_array_equal(to_host(there), numbers)
    assert len(others) == 2000
    capture.reset()
    gc.collect()
    assert is_there() is None, "a graph that is reset keeps nothing"


@requires("graphs")
@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_copy_that_the_host_waits_for_is_refused_in_a_capture(
    device: Device, backend: Backend, side: Any, numbers: Any, non_blocking: bool
) -> None:
    host = numbers if non_blocking else pinned(device, numbers)
    there = devices.empty((N,), np.float32, device)
    capture = backend.new_capture(device.index)
    backend.synchronize(device.index)

    with backend.use_stream(side):
        capture.begin(side)
        with pytest.raises(CaptureError, match="the host waits for is illegal while"):
            devices.copy(host, there, non_blocking=non_blocking)
        capture.reset()


def test_a_pinned_array_is_refused_next_to_device_arrays(device: Device, numbers: Any) -> None:
    there = from_host(numbers, device)

    with pytest.raises((DeviceError, ArgumentError, TypeError)):
        ops.add(there, pinned(device, numbers))


def test_a_pinned_array_is_pickled_as_a_plain_one_or_not_at_all(device: Device, numbers: Any) -> None:
    array = pinned(device, numbers)
    if device.kind == "sim":
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(array)
    else:
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), numbers)  # noqa: S301  # our own bytes


def test_a_kind_without_pinned_memory_says_so(device: Device) -> None:
    del device
    with pytest.raises(CapabilityError, match="pinned_memory"):
        devices.empty_pinned(3, np.float32, "cpu")
    with devices.backend("sim").simulated(profile="minimal"):
        assert devices.empty_pinned(3, np.float32, "sim").nbytes == 12
