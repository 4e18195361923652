"""What the simulated device's arrays and functions refuse or tell apart, where a wrong answer would pass unnoticed."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from importlib import metadata
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.core import syncdebug
from cuassay.devices.sim import BACKEND
from cuassay.devices.sim.device import HOST_CALL, LAUNCH
from cuassay.errors import ArgumentError, CapabilityError, DeviceError, SynchronizationError


@pytest.fixture(autouse=True)
def machine() -> Iterator[Any]:
    with BACKEND.simulated(devices=2) as backend:
        yield backend.machine


@pytest.fixture
def xp() -> Any:
    return BACKEND.namespace(0)


def test_an_array_without_axes_is_not_iterated_over(xp: Any) -> None:
    with pytest.raises(TypeError, match="0-d array cannot be iterated over"):
        iter(xp.asarray(3))


@pytest.mark.parametrize("value", [1.0, [1]], ids=["a float", "an axis"])
def test_only_a_whole_number_is_an_index(xp: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="only a 0-d integer array is an index"):
        operator.index(xp.asarray(value))


@pytest.mark.parametrize("stacked", [False, True], ids=["one condition", "conditions in rows"])
def test_piecewise_tells_one_condition_from_rows_of_them(xp: Any, stacked: bool) -> None:
    host = np.linspace(-2, 2, 5)
    x = xp.asarray(host)
    one = np.stack([host < 0, host > 0]) if stacked else host > 0
    values = [-1.0, 1.0, 5.0] if stacked else [1.0, 5.0]

    found = xp.piecewise(x, xp.asarray(one), values)

    np.testing.assert_array_equal(found.get(), np.piecewise(host, one, values))


def test_memory_of_the_host_is_not_shown_without_a_copy(xp: Any) -> None:
    with pytest.raises(BufferError, match="shows memory of one place"):
        xp.from_dlpack(np.ones(3), device="sim:0", copy=False)


@pytest.mark.filterwarnings("ignore:the matrix subclass is not the recommended way:PendingDeprecationWarning")
@pytest.mark.parametrize("name", ["asmatrix", "bmat"])
def test_a_matrix_cannot_be_kept_on_the_device(xp: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} gives a matrix, which cannot be kept on sim:0"):
        getattr(xp, name)(xp.ones((2, 2)))


def test_an_iterator_cannot_be_kept_on_the_device(xp: Any) -> None:
    with pytest.raises(TypeError, match="nested_iters gives a nditer, which cannot be kept on sim:0"):
        xp.nested_iters(xp.ones((2, 2)), [[0], [1]])


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a list"])
def test_no_array_is_made_of_a_dict_of_arrays(xp: Any, nested: bool) -> None:
    value = {1: xp.ones(2)}

    with pytest.raises(TypeError, match="numbers, arrays and lists of them; got dict"):
        xp.asarray([value] if nested else value)


def test_a_device_that_is_not_there_does_not_become_current() -> None:
    with pytest.raises(DeviceError, match="sim:2 does not exist"):
        BACKEND.activate(2)


def test_the_driver_is_this_version() -> None:
    assert BACKEND.identity(0)["driver"] == f"cuassay {metadata.version('cuassay')}"


def test_launches_are_noted_until_they_are_no_longer(xp: Any) -> None:
    noted: list[str] = []
    a = xp.ones(3)
    try:
        BACKEND.note_launches(noted.append)
        ops.add(a, a)
    finally:
        BACKEND.note_launches(None)
    ops.mul(a, a)

    assert len(noted) == 1
    assert "add" in noted[0]


def test_an_array_like_one_of_another_device_costs_that_device_nothing(xp: Any) -> None:
    noted: list[str] = []
    model = xp.zeros(3)
    try:
        BACKEND.note_launches(noted.append)
        xp.ones_like(model, device="sim:1")
    finally:
        BACKEND.note_launches(None)

    assert noted
    assert all("on sim:1" in one for one in noted)


def test_an_array_that_is_only_a_model_is_not_read(xp: Any) -> None:
    model = xp.zeros(3)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(BACKEND.new_stream(0)):
        model.fill(1)

    assert xp.zeros_like(model).get().tolist() == [0, 0, 0]
    BACKEND.synchronize(0)


def test_a_simulated_machine_is_there_for_its_block_only(machine: Any) -> None:
    with BACKEND.simulated(devices=3):
        assert BACKEND.count() == 3

    assert BACKEND.machine is machine


def test_as_many_devices_are_there_as_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "1")
    monkeypatch.setenv("CUASSAY_SIM_VISIBLE_DEVICES", "SIM-a,SIM-b,SIM-c")

    with BACKEND.simulated() as backend:
        assert backend.count() == 3


def test_an_event_has_times_only_where_asked(machine: Any) -> None:
    first, second = BACKEND.new_event(0), BACKEND.new_event(0, timing=True)
    for event in (first, second):
        event.record()
        event.synchronize()

    with pytest.raises(ArgumentError, match="timing=True"):
        first.elapsed_time(second)
    assert second.elapsed_time(second) == 0


def test_a_look_at_pinned_memory_takes_time(machine: Any) -> None:
    pinned, before = BACKEND.empty_pinned((4,), "float32", 0), machine.host.now

    pinned.touch("a look")

    assert machine.host.now > before


def test_copies_of_every_other_pinned_number_do_not_race(xp: Any) -> None:
    pinned, streams = BACKEND.empty_pinned((8,), "float32", 0), [BACKEND.new_stream(0) for _ in range(2)]

    for place, stream in enumerate(streams):
        with BACKEND.use_stream(stream):
            BACKEND.transfer(xp.full(4, place, np.float32), pinned[place::2], non_blocking=True)
    BACKEND.synchronize(0)

    assert pinned.touch("a look").tolist() == [0, 1] * 4


@pytest.mark.parametrize("product", [ops.mm, np.matmul], ids=["op", "function"])
def test_a_product_takes_the_time_of_its_terms(xp: Any, machine: Any, product: Any) -> None:
    n, stream = 1024, BACKEND.new_stream(0)
    a = xp.ones((n, n), np.float32)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(stream):
        before = max(stream.queue.finished, machine.host.now)
        product(a, a)

    assert stream.queue.finished - before >= 2 * n**3 / machine.profile.throughput


def test_two_billion_cycles_of_a_spin_take_a_second() -> None:
    stream = BACKEND.new_stream(0)
    marks = [BACKEND.new_event(0, timing=True) for _ in range(3)]
    with BACKEND.use_stream(stream):
        for mark, cycles in zip(marks, (10**9, 2 * 10**9, 4 * 10**9), strict=True):
            BACKEND.spin(0, cycles)
            mark.record()
    stream.synchronize()
    shorter, longer = (a.elapsed_time(b) for a, b in pairwise(marks))

    assert longer - shorter == pytest.approx(1e3, rel=1e-12)


def test_an_empty_array_has_one_of_two_orders(xp: Any) -> None:
    with pytest.raises(ArgumentError, match="orders 'C' and 'F'"):
        xp.empty(3, order="K")


def test_piecewise_refuses_another_number_of_functions(xp: Any) -> None:
    x = xp.ones(3)

    with pytest.raises(ValueError, match="as many functions as conditions"):
        xp.piecewise(x, [x > 0], [1.0, 2.0, 3.0])


def test_a_capability_without_a_size_has_none() -> None:
    assert BACKEND.machine.answer("graphs").value == 0
    assert BACKEND.machine.answer("count").value == 2


@pytest.mark.parametrize("shape", [(2**18,), (8, 2**15), (2**18, 1)], ids=str)
def test_a_sum_of_two_arrays_takes_the_time_of_its_bytes(xp: Any, machine: Any, shape: Any) -> None:
    a = xp.ones(shape, np.float32)
    assert time_of(machine, lambda: ops.add(a, a)) == pytest.approx(LAUNCH + 3 * a.nbytes / machine.profile.bandwidth)


@pytest.mark.parametrize(("rows", "terms", "columns"), [(256, 2048, 512), (2048, 512, 256), (512, 256, 2048)])
def test_a_product_takes_the_time_of_its_rows_terms_and_columns(
    xp: Any, machine: Any, rows: int, terms: int, columns: int
) -> None:
    a, b = xp.ones((rows, terms), np.float32), xp.ones((terms, columns), np.float32)
    expected = LAUNCH + 2 * rows * terms * columns / machine.profile.throughput

    assert time_of(machine, lambda: ops.mm(a, b)) == pytest.approx(expected)


def test_a_batch_of_products_takes_the_time_of_each(xp: Any, machine: Any) -> None:
    a, b = xp.ones((4, 128, 512), np.float32), xp.ones((4, 512, 1024), np.float32)
    expected = LAUNCH + 2 * 4 * 128 * 512 * 1024 / machine.profile.throughput

    assert time_of(machine, lambda: ops.bmm(a, b)) == pytest.approx(expected)


def time_of(machine: Any, work: Any) -> float:
    """Virtual seconds of one launch on a stream that waits for nothing."""
    stream = BACKEND.new_stream(0)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(stream):
        begun = machine.host.now + HOST_CALL
        kept = work()
    stream.synchronize()
    del kept
    return float(stream.queue.finished - begun)


def test_facts_of_a_ufunc_are_numbers_and_its_methods_give_device_arrays(xp: Any) -> None:
    assert xp.add.nin == 2
    assert xp.add.outer([1, 2], [3]).device == xp.add.reduce([[1, 2]], axis=1).device == xp.zeros(1).device


def test_an_array_does_not_become_numpys_unasked(xp: Any) -> None:
    with pytest.raises(TypeError, match=r"is not converted to a numpy.ndarray implicitly.*\.get\(\)"):
        np.asarray(xp.ones(3))


@pytest.mark.parametrize("asked", [["C", "F"], ["X"], "X"], ids=str)
def test_require_takes_one_order_and_known_words(xp: Any, asked: Any) -> None:
    with pytest.raises(ValueError, match="require takes C or F, and A, W, O, E; got"):
        xp.require(xp.ones(3), requirements=asked)


@pytest.mark.parametrize("count", [1, 2])
def test_two_devices_reach_each_other(count: int) -> None:
    with BACKEND.simulated(devices=count) as backend:
        assert bool(backend.probe(0, "peer_access")) == (count == 2)


@pytest.mark.parametrize("method", ["nonzero", "compress"])
def test_a_method_whose_result_has_an_unknown_shape_makes_the_host_wait(
    xp: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = xp.ones(3)
    arguments = {"nonzero": (), "compress": ([True, False, True],)}[method]
    monkeypatch.setattr(syncdebug.state, "mode", 2)

    with pytest.raises(SynchronizationError, match=method):
        getattr(x, method)(*arguments)


@pytest.mark.parametrize(("version", "name"), [(None, '"dltensor"'), ((1, 0), '"dltensor_versioned"')], ids=str)
def test_a_dlpack_capsule_is_of_the_version_that_was_asked_for(xp: Any, version: Any, name: str) -> None:
    assert name in repr(xp.ones(3).__dlpack__(dl_device=(1, 0), max_version=version))


def test_a_dlpack_copy_keeps_the_order_of_the_axes(xp: Any) -> None:
    x = xp.asarray(np.arange(6.0).reshape(2, 3), order="F")

    assert np.from_dlpack(x, device="cpu").strides == x.strides


@pytest.mark.parametrize("make", [lambda xp, x: xp.asarray(x), lambda xp, x: xp.asarray([1.0], dtype=x.dtype)])
def test_a_dtype_that_was_asked_for_is_not_narrowed(make: Any) -> None:
    with BACKEND.simulated(devices=1, profile="mps") as backend, pytest.raises(CapabilityError, match="float64"):
        make(backend.namespace(0), np.ones(3))


def test_a_list_of_the_host_is_not_shuffled_in_its_place(xp: Any) -> None:
    numbers = [1, 2, 3]
    with pytest.raises(TypeError, match="list and an array on a simulated device"):
        xp.random.shuffle(numbers)
    assert numbers == [1, 2, 3]
