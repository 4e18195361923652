"""Every handle and value of ours under every protocol an object has: repr, equality and hash, pickle, copy."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, devices, namespace, ops
from cuassay.random import Generator
from cuassay.results.record import Recorder
from cuassay.testing import OpSpec, Sample, Tolerance, requires
from cuassay.testing.samples import HostArray, Samples


def on_a_stream(make: Callable[[Any, int], Any]) -> Callable[[Device], Any]:
    return lambda device: make(devices.backend(device.kind), device.index)


#: What a device hands out; each needs the capability in front.
HANDLES: dict[str, tuple[str, Callable[[Device], Any]]] = {
    "stream": ("streams", on_a_stream(lambda backend, index: backend.new_stream(index))),
    "current stream": ("streams", on_a_stream(lambda backend, index: backend.current_stream(index))),
    "event": ("streams", on_a_stream(lambda backend, index: backend.new_event(index))),
    "recorded event": ("streams", on_a_stream(lambda backend, index: backend.new_stream(index).record_event())),
    "capture": ("graphs", on_a_stream(lambda backend, index: backend.new_capture(index))),
    "generator": ("random:float32", Generator),
}
HANDLE = pytest.mark.parametrize(
    "make", [pytest.param(make, marks=requires(needs), id=name) for name, (needs, make) in HANDLES.items()]
)


@HANDLE
def test_a_handle_prints_its_type_and_its_device(device: Device, make: Callable[[Device], Any]) -> None:
    handle = make(device)

    assert re.fullmatch(r"\w+\(.*\)", repr(handle))
    assert " object at 0x" not in repr(handle)
    assert str(device) in repr(handle) or device.kind == "cpu"


@HANDLE
def test_a_handle_equals_itself_and_hashes(device: Device, make: Callable[[Device], Any]) -> None:
    one, other = make(device), make(device)

    assert one == one  # noqa: PLR0124
    assert (one == other) == (hash(one) == hash(other))
    assert one != "a string"
    assert {one: 1}[one] == 1


@HANDLE
@pytest.mark.parametrize("through", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_handle_is_neither_pickled_nor_copied(
    device: Device, make: Callable[[Device], Any], through: Callable[[Any], Any]
) -> None:
    with pytest.raises(TypeError, match=r"belongs to this process"):
        through(make(device))


@requires("streams")
def test_two_views_of_the_current_stream_are_equal_and_two_streams_are_not(device: Device) -> None:
    backend = devices.backend(device.kind)
    first, second = backend.new_stream(device.index), backend.new_stream(device.index)

    assert first != second
    with backend.use_stream(first):
        assert backend.current_stream(device.index) == first
        assert hash(backend.current_stream(device.index)) == hash(first)


def test_an_array_of_a_device_is_copied_to_that_device(device: Device) -> None:
    array = devices.from_host(np.arange(3.0), device)

    with devices.backend(device.kind).activate(device.index):  # an array library's own operators need it
        twin = copy.deepcopy(array)
        twin += 1

    assert devices.to_host(array).tolist() == [0, 1, 2]
    assert devices.to_host(twin).tolist() == [1, 2, 3]


def test_a_plan_prints_op_dtype_and_device_and_computes_when_copied(device: Device) -> None:
    a = devices.from_host(np.ones(3, np.float32), device)
    plan = ops.add.prepare(a, a)

    assert repr(plan) == f"Plan(add, float32, {device})"
    assert devices.to_host(copy.copy(plan).run()).tolist() == [2, 2, 2]


# ------------------------------------------------------------------------------------------------ without a device


@pytest.fixture
def recorder(tmp_path: Path) -> Any:
    with Recorder(tmp_path / "run.jsonl") as opened:
        yield opened


@pytest.mark.parametrize("through", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_open_recorder_is_neither_pickled_nor_copied(recorder: Recorder, through: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"Recorder\(.*open\) belongs to this process"):
        through(recorder)


@pytest.mark.parametrize("through", [pickle.dumps, copy.copy, copy.deepcopy])
def test_the_namespace_of_sim_is_neither_pickled_nor_copied(through: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"Namespace\(numpy on sim:0\) belongs to this process"):
        through(namespace("sim"))


@pytest.mark.parametrize("through", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_kernel_is_neither_pickled_nor_copied(through: Callable[[Any], Any]) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    kernel = cuda.compile_kernel("__global__ void f(float* a) {}", "f")

    with pytest.raises(TypeError, match=r"UserKernel\(f, not loaded\) belongs to this process"):
        through(kernel)


def test_a_sim_array_says_why_it_is_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"SimArray\(.*\) cannot be pickled"):
        pickle.dumps(devices.empty((3,), "float32", "sim:0"))


#: Values: equal when their parts are.
VALUES: dict[str, Callable[[], Any]] = {
    "Device": lambda: Device("sim:1"),
    "Tolerance": lambda: Tolerance(ulps=2),
    "Meta": lambda: ops.add.meta(((3,), "float32"), ((3,), "float32")),
    "Sample": lambda: Sample((1, 2), label="two numbers"),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_a_value_is_equal_after_pickle_and_copy(make: Callable[[], Any]) -> None:
    value = make()

    assert make() == value
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301  our own bytes
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert " object at 0x" not in repr(value)


@pytest.mark.parametrize("make", [VALUES["Device"], VALUES["Tolerance"], VALUES["Meta"]])
def test_a_value_hashes_by_its_parts(make: Callable[[], Any]) -> None:
    assert len({make(), make()}) == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ops.add, "Op('add(a, b) -> out')"),
        (OpSpec(op=ops.exp, reference=np.exp), "OpSpec(exp)"),
        (HostArray(np.ones((2, 3), np.float32), "strided"), "HostArray((2, 3), float32, strided)"),
        (Samples(7, "float32"), "Samples(seed 7, float32)"),
    ],
    ids=["Op", "OpSpec", "HostArray", "Samples"],
)
def test_what_a_log_shows_of_an_object(value: Any, shown: str) -> None:
    assert repr(value) == shown
