"""Both sides of an arena in a device's memory, over a model of that memory; suites/nvidia has a GPU's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay.core.device import Device
from cuassay.errors import CapabilityError, DriverError, OutOfMemoryError
from cuassay.judging import device_arena
from cuassay.judging.arena import repeated
from cuassay.judging.device_arena import DeviceArena
from cuassay.judging.device_memory import DeviceMemory
from cuassay.judging.protocol import Placed, dtype_number

CUDA = Device("cuda:0")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


class DeviceArray(np.ndarray[Any, Any]):
    """An array of the model, with the methods of CuPy's that the arena uses."""

    def set(self, host: Any) -> None:
        self[...] = host

    def get(self) -> Any:
        return np.array(self)


class Memory:
    """One piece of memory for all processes, so that a test has both sides."""

    whole = np.zeros(1 << 22, np.uint8)
    pinned = np.zeros(1 << 22, np.uint8)
    count = 0

    def __init__(self, index: int, nbytes: int, descriptor: int | None = None) -> None:
        self.is_open = True
        Memory.count += 1

    def descriptor(self) -> int:
        return os.open(os.devnull, os.O_RDONLY)

    def array(self, shape: Any, dtype: Any, first: int, strides: Any = None) -> Any:
        return np.ndarray(shape, dtype, Memory.whole.data, first, strides).view(DeviceArray)

    def copy(self, to: Any, source: Any, spans: Iterable[tuple[int, int]]) -> None:
        for first, nbytes in spans:
            to[first : first + nbytes] = source[first : first + nbytes]

    def fill(self, to: Any, pattern: bytes) -> None:
        to[...] = repeated(pattern, to.nbytes)

    def on_host(self, array: Any) -> Any:
        return np.array(array)

    def seen(self, array: Any) -> Any:
        Memory.pinned[: array.nbytes] = array
        return Memory.pinned[: array.nbytes]

    def close(self) -> None:
        Memory.count -= self.is_open
        self.is_open = False


@pytest.fixture(autouse=True, params=[1 << 20, -1], ids=["written on the host", "written on the device"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_arena, "_SMALL", request.param)

    def empty(shape: Any, dtype: Any, device: Any) -> Any:
        return np.empty(shape, dtype).view(DeviceArray)

    backend = SimpleNamespace(activate=lambda index: nullcontext(), synchronize=lambda index: None)
    devices = SimpleNamespace(backend=lambda kind: backend, empty=empty)
    monkeypatch.setitem(sys.modules, "cuassay.devices.cuda.memory.shared", SimpleNamespace(SharedMemory=Memory))
    monkeypatch.setattr(device_arena, "devices", devices)
    monkeypatch.setattr(Memory, "count", 0)
    Memory.whole[:] = 0


def given(arena: DeviceArena, *inputs: Any) -> Any:
    layout = arena.place(inputs, [(X.shape, "float32")], seed=3)
    arena.prepare(layout, inputs)
    return layout


def theirs(placed: Placed) -> Any:
    return DeviceMemory(CUDA, 1 << 22, 7).array(placed)


def test_inputs_are_there_only_once_they_are_given() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    layout = given(arena, X, X.T)

    assert not Memory.whole.any()
    arena.give(layout, [X, X.T])

    for placed, array in zip(layout.inputs, (X, X.T), strict=True):
        np.testing.assert_array_equal(theirs(placed), array)
        assert theirs(placed).strides == array.strides


@pytest.mark.parametrize("result", [X * 2, (X * 2)[::-1], np.float64(3.0).reshape(())], ids=["plain", "strided", "0-d"])
def test_output_is_taken_as_it_was_then(result: Any) -> None:
    arena, memory = DeviceArena(CUDA, 1 << 22), DeviceMemory(CUDA, 1 << 22, 7)
    layout = given(arena, X)
    arena.give(layout, [X])
    memory.put(result, layout.rooms[0])

    taken = arena.take(layout)
    Memory.whole[:] = 1

    (found,) = taken()
    np.testing.assert_array_equal(found[: result.nbytes].view(result.dtype).reshape(result.shape), result)
    assert found.nbytes == X.nbytes


def test_room_holds_the_poison_before_the_call() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    layout = given(arena, X)
    arena.give(layout, [X])

    (found,) = arena.take(layout)()
    assert np.isnan(found.view(np.float32)).all()


def test_bytes_inside_a_strided_input_are_those_between_arrays() -> None:
    arena, strided = DeviceArena(CUDA, 1 << 22), X[:, ::2]
    layout = given(arena, strided)
    arena.give(layout, [strided])

    np.testing.assert_array_equal(theirs(layout.inputs[0]), strided)
    low = layout.inputs[0].low
    inside = Memory.whole[low : low + layout.inputs[0].nbytes].view(np.float32)[1::2]
    gap = Memory.whole[: layout.spans[0][0]]
    assert set(inside.tobytes()) == set(gap.tobytes())
    assert len(set(gap.tobytes())) == 1


def test_bytes_between_arrays_are_others_in_each_call() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    found = set()
    for seed in range(8):
        layout = arena.place([X], [(X.shape, "float32")], seed=seed)
        arena.prepare(layout, [X])
        arena.give(layout, [X])
        found |= {Memory.whole[first - 1] for first, _ in layout.spans if first}

    assert len(found) > 1


def test_write_after_the_snapshot_is_seen() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    layout = given(arena, X)
    arena.give(layout, [X])
    taken = arena.take(layout)()
    assert arena.is_as_taken(layout, taken)

    Memory.whole[layout.rooms[0].offset] ^= 1

    assert not arena.is_as_taken(layout, taken)


def test_changed_input_is_named() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    layout = given(arena, X, X + 1)
    arena.give(layout, [X, X + 1])
    assert arena.changed(layout, [X, X + 1]) == ()

    theirs(layout.inputs[1])[2, 3] = 0

    assert arena.changed(layout, [X, X + 1]) == (1,)


def test_larger_call_follows_a_smaller_one() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    given(arena, X)
    large = np.arange(3000, dtype=np.float64)

    layout = given(arena, large)
    arena.give(layout, [large])

    np.testing.assert_array_equal(theirs(layout.inputs[0]), large)


def test_scalar_is_read_on_the_host() -> None:
    arena, memory = DeviceArena(CUDA, 1 << 22), DeviceMemory(CUDA, 1 << 22, 7)
    layout = given(arena, np.asarray(np.float32(2.5)))
    arena.give(layout, [np.asarray(np.float32(2.5))])

    assert memory.host(layout.inputs[0])[()] == np.float32(2.5)
    assert layout.inputs[0].dtype == dtype_number("float32")


def test_memory_is_released_once() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    assert Memory.count == 1

    arena.close()
    arena.close()

    assert Memory.count == 0


def test_keeping_the_device_busy_changes_nothing() -> None:
    arena = DeviceArena(CUDA, 1 << 22)
    layout = given(arena, X)

    arena.rouse()
    assert not Memory.whole.any()

    arena.give(layout, [X])
    np.testing.assert_array_equal(theirs(layout.inputs[0]), X)


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_hosts_have_none(device: str) -> None:
    assert DeviceArena.made(Device(device), 1 << 22) is None


@pytest.mark.parametrize("error", [DriverError, OutOfMemoryError, CapabilityError])
def test_device_that_does_not_share_its_memory_has_none(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    def refused(memory: Memory) -> int:
        raise error("it cannot")

    monkeypatch.setattr(Memory, "descriptor", refused)

    assert DeviceArena.made(CUDA, 1 << 22) is None
    assert Memory.count == 0
