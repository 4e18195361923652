"""Two devices of a kind: what is given to one while the other is current, what goes between them, what is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, devices, empty, from_host, linalg, ops, random, to_host, zeros
from cuassay.autograd import grad
from cuassay.benchmarking.timing import measure
from cuassay.core.protocols import Backend
from cuassay.errors import DeviceError
from cuassay.ops import registry
from cuassay.optim import Adam
from cuassay.testing import OpSpec, exclusive, requires
from cuassay.testing.compare import assert_same_bits
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs
from cuassay.testing.samples import LAYOUTS, Samples

pytestmark = requires("count>=2")

N = 1001


@pytest.fixture
def far(device: Device, backend: Backend) -> Iterator[Device]:
    """Another device; `device` is the current one meanwhile, and must still be at the end."""
    with backend.activate(device.index):
        yield Device(device.kind, 0 if device.index else 1)
        assert backend.is_current(device.index)


@pytest.fixture
def busy(backend: Backend) -> Iterator[Callable[[Device], Any]]:
    """From a device to a stream of its own that is busy for some milliseconds."""
    made = []

    def start(place: Device) -> Any:
        made.append(backend.new_stream(place.index))
        with backend.use_stream(made[-1]):
            backend.spin(place.index, 20_000_000)  # type: ignore[attr-defined] # a kind with two devices has it
        return made[-1]

    yield start
    for stream in made:
        stream.synchronize()


def counted(place: Device, start: int = 0) -> Any:
    return from_host(np.arange(start, start + N, dtype=np.float32), place)


def place_of(array: Any) -> Device:
    owner = registry.backend_of(type(array))
    assert owner is not None
    return owner.device_of(array)


# ------------------------------------------------------------------------------------------------ work on the other one


def test_arrays_are_made_on_the_device_that_is_named(far: Device, backend: Backend) -> None:
    made = [zeros(N, "float32", far), empty((2, 3), "int8", far), empty((0,), "float32", far), counted(far)]

    assert {place_of(array) for array in made} == {far}
    assert not to_host(made[0]).any()


#: Op to its shapes, of float32.
OPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "add": ((7, 33), (7, 33)),
    "gelu": ((7, 33),),
    "softmax": ((7, 33),),
    "layer_norm": ((7, 33), (33,), (33,)),
    "sum": ((7, 33),),
    "mm": ((17, 33), (33, 40)),
    "bmm": ((3, 17, 33), (3, 33, 40)),
    "linear": ((5, 33), (40, 33), (40,)),
}


def run(name: str, arrays: list[Any]) -> Any:
    return registry.op(name)(*arrays, **({"axis": -1} if name in ("softmax", "sum") else {}))


@pytest.mark.parametrize("name", OPS)
def test_an_op_runs_where_its_arrays_are(name: str, device: Device, far: Device) -> None:
    make = Samples(7, "float32")
    hosts = [make(shape).values for shape in OPS[name]]

    here, there = ([from_host(host, place) for host in hosts] for place in (device, far))
    results = [run(name, there) for _ in range(3)]  # a form of call that comes again may take another way

    assert {place_of(result) for result in results} == {far}
    for result in results:
        assert_same_bits(result, to_host(run(name, here)))


@pytest.mark.parametrize("spec", own_specs(), ids=lambda spec: spec.name)
def test_every_op_agrees_with_its_reference_there(spec: OpSpec, far: Device) -> None:
    """The generated tests run with their device current; here it is not."""
    claimed = spec.claims(far)

    CHECKS["values"](spec, far, "float32" if "float32" in claimed else claimed[0])


@pytest.mark.parametrize("name", ["add", "mm", "sum"])
def test_a_plan_runs_where_its_arrays_are(name: str, device: Device, far: Device) -> None:
    make = Samples(8, "float32")
    hosts = [make(shape).values for shape in OPS[name]]
    options = {"axis": -1} if name == "sum" else {}

    plan = registry.op(name).prepare(*[from_host(host, far) for host in hosts], **options)
    for _ in range(4):  # a product's becomes a graph
        plan.run()

    assert_same_bits(plan.out, to_host(run(name, [from_host(host, device) for host in hosts])))


def test_an_op_runs_there_in_a_thread_that_has_used_no_device(far: Device) -> None:
    results: list[Any] = []
    a = counted(far)

    thread = threading.Thread(target=lambda: results.append(to_host(ops.add(ops.mul(a, 2.0), 1.0))))
    thread.start()
    thread.join()

    assert results[0].tolist() == list(range(1, 2 * N, 2))


def test_the_namespace_of_a_device_computes_there(far: Device) -> None:
    xp = devices.namespace(far)

    made = xp.asarray(np.arange(6, dtype=np.float32)).reshape(2, 3)
    norm, total = xp.linalg.norm(made), xp.add.reduce(made, axis=None)

    assert {place_of(one) for one in (made, norm, xp.ones(3))} == {far}
    assert (float(norm), float(total)) == (pytest.approx(np.sqrt(55)), 15)


def test_a_system_is_solved_there(far: Device) -> None:
    a = np.eye(5) * 4 + np.arange(25).reshape(5, 5) % 3

    found = linalg.solve(from_host(a, far), from_host(a @ np.arange(5.0), far))

    np.testing.assert_allclose(to_host(found), np.arange(5.0), atol=1e-9)


def test_steps_of_an_optimizer_there_give_the_bits_of_here(device: Device, far: Device) -> None:
    """The second step has new gradients, for which a new plan is prepared."""
    results = []
    for place in (device, far):
        params = [counted(place), from_host(np.ones((3, 5), np.float32), place)]
        optimizer = Adam(params, lr=0.1)
        for step in (1, 2, 3):
            grads = [from_host(np.full(param.shape, 1.0 / step, np.float32), place) for param in params]
            optimizer.step(grads, max_norm=1.0)
        results.append([to_host(param) for param in params])

    for here, there in zip(*results, strict=True):
        assert_same_bits(there, here)


def test_a_list_is_changed_there(far: Device) -> None:
    arrays = [counted(far), counted(far, 5)]
    plan = ops.foreach_mul_.prepare(arrays, 2.0)

    ops.foreach_add_(arrays, [counted(far), counted(far)])
    plan.run()

    assert [to_host(array)[:3].tolist() for array in arrays] == [[0, 4, 8], [10, 14, 18]]


def test_pinned_memory_is_copied_there_and_back(far: Device, backend: Backend) -> None:
    up, down = (devices.empty_pinned((N,), "float32", far) for _ in range(2))
    up[...] = np.arange(N)
    there = empty(N, "float32", far)

    devices.copy(up, there, non_blocking=True)
    devices.copy(ops.mul(there, 2.0), down, non_blocking=True)
    backend.synchronize(far.index)

    assert np.asarray(down).tolist() == list(range(0, 2 * N, 2))


def test_a_call_there_is_timed(far: Device) -> None:
    a, out = counted(far), empty(N, "float32", far)

    timing = measure(lambda: ops.add(a, a, out=out), far, samples=3)

    assert len(timing.samples_s) == 3
    assert min(timing.samples_s) > 0


def test_memory_is_counted_where_it_is(device: Device, far: Device, backend: Backend) -> None:
    def in_use() -> tuple[int, int]:
        return tuple(backend.memory_in_use(place.index) for place in (device, far))  # type: ignore[attr-defined, return-value]

    gc.collect()  # what earlier tests left in cycles
    here, there = in_use()
    held = empty(2**20, "float32", far)
    grown = in_use()

    assert grown[0] == here
    assert grown[1] >= there + held.nbytes
    del held
    assert in_use() == (here, there)


# ------------------------------------------------------------------------------------------------ random, graphs


def test_one_seed_gives_the_same_numbers_on_both(device: Device, far: Device) -> None:
    here, there = (
        random.uniform(N, device=place, generator=random.Generator(place, seed=3)) for place in (device, far)
    )

    assert place_of(there) == far
    assert_same_bits(there, to_host(here))


def test_each_device_has_a_default_generator_of_its_own(device: Device, far: Device) -> None:
    random.default_generator(device).manual_seed(5)
    random.default_generator(far).manual_seed(5)

    first = random.uniform(N, device=device)
    second = random.uniform(N, device=far)

    assert_same_bits(first, to_host(second))


def test_a_generator_of_another_device_is_refused(device: Device, far: Device) -> None:
    with pytest.raises(DeviceError, match=f"cannot draw on {far}; give a generator of that device"):
        random.uniform(out=empty(N, "float32", far), generator=random.Generator(device))


@requires("graphs")
def test_a_graph_of_the_other_device_is_captured_and_replayed(far: Device, backend: Backend) -> None:
    a, out = counted(far), empty(N, "float32", far)
    graph = backend.new_capture(far.index)
    ops.add(a, 1.0, out=out)  # what a first call compiles

    with cuda.graph(graph):
        ops.add(ops.mul(a, 2.0), 1.0, out=out)
    ops.copy(counted(far, 10), out=a)
    backend.synchronize(far.index)  # the capture's stream knows nothing of the copy
    graph.replay()

    assert graph.device == far
    assert to_host(out).tolist() == list(range(21, 21 + 2 * N, 2))
    graph.reset()


@requires("graphs")
def test_replays_there_draw_what_calls_would(far: Device, backend: Backend) -> None:
    out, generator = empty(N, "float32", far), random.Generator(far, seed=11)
    random.uniform(out=out, generator=generator)
    graph = backend.new_capture(far.index)
    with cuda.graph(graph):
        random.uniform(out=out, generator=generator)
    wanted = random.Generator("cpu", seed=11)
    random.uniform(N, generator=wanted)

    for _ in range(2):
        graph.replay()
        assert_same_bits(out, random.uniform(N, generator=wanted))
    graph.reset()


@requires("graphs")
@pytest.mark.parametrize("way", ["call", "replay"])
def test_an_input_of_another_device_is_copied_to_the_graphs(way: str, device: Device, far: Device) -> None:
    step = cuda.make_graphed_callables(lambda a: ops.mul(a, 3.0), (counted(far),))
    given = [counted(device, 7), counted(far, 9), counted(device, 2)]

    found = [to_host(step(one) if way == "call" else step.replay([one]))[:2].tolist() for one in given]

    assert found == [[21, 24], [27, 30], [6, 9]]
    assert place_of(step.outputs) == far
    step.reset()


# ------------------------------------------------------------------------------------------------ between them


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("of", LAYOUTS)
def test_a_copy_goes_both_ways_whatever_the_layouts(of: str, to: str, device: Device, far: Device) -> None:
    array = Samples(1, "float32")((3, 5))
    for source, target in ((device, far), (far, device)):
        out = array.laid_out(to).on(target)
        ops.copy(from_host(np.zeros(out.shape, np.float32), target), out=out)

        ops.copy(array.laid_out(of).on(source), out=out)

        assert_same_bits(out, array.values)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)], ids=str)
def test_a_copy_of_one_element_or_none(shape: tuple[int, ...], device: Device, far: Device) -> None:
    copied = ops.copy(from_host(np.ones(shape, np.float32), device), device=far)

    assert (place_of(copied), copied.shape) == (far, shape)
    assert (to_host(copied) == 1).all()


@requires("streams")
@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
def test_a_copy_comes_after_what_both_streams_were_given_and_before_what_they_are_next(
    strided: bool, device: Device, far: Device, backend: Backend, busy: Callable[[Device], Any]
) -> None:
    step = slice(None, None, 2 if strided else None)
    source, target = counted(device), zeros(N, "float32", far)
    for place in (device, far):
        backend.synchronize(place.index)

    with backend.use_stream(busy(device)), backend.use_stream(busy(far)):
        ops.add(source, 1.0, out=source)
        before = ops.mul(target, 1.0)
        ops.copy(source[step], out=target[step])
        after = ops.mul(target, 1.0)
        ops.mul(source, 0.0, out=source)
        found = [to_host(array)[step] for array in (before, after, target)]
    backend.synchronize(device.index)

    wanted = np.arange(1, N + 1, dtype=np.float32)[step]
    assert not found[0].any()
    assert_same_bits(found[1], wanted)
    assert_same_bits(found[2], wanted)


@requires("streams")
def test_a_dropped_source_is_not_reused_before_it_was_copied(
    device: Device, far: Device, backend: Backend, busy: Callable[[Device], Any]
) -> None:
    target = zeros(2**18, "float32", far)
    for place in (device, far):
        backend.synchronize(place.index)

    with backend.use_stream(busy(device)), backend.use_stream(busy(far)):
        for value in range(8):
            source = devices.full(2**18, float(value + 1), "float32", device)
            ops.copy(source, out=target)
            del source
        found = to_host(target)

    assert (found == 8).all()


def test_a_gradient_comes_back_over_a_copy(device: Device, far: Device) -> None:
    a, factor = counted(device), counted(far, 1)

    found = grad(lambda a: ops.sum(ops.copy(a, device=far) * factor))(a)

    assert place_of(found) == device
    assert_same_bits(found, to_host(factor))


@requires("streams")
def test_a_gradient_comes_back_between_the_streams_of_the_call(
    device: Device, far: Device, backend: Backend, busy: Callable[[Device], Any]
) -> None:
    a, factor = counted(device), counted(far, 1)
    for place in (device, far):
        backend.synchronize(place.index)
    near, other = busy(device), busy(far)

    def moved(a: Any) -> Any:
        with backend.use_stream(near), backend.use_stream(other):
            return ops.sum(ops.copy(a * a, device=far) * factor)

    found = grad(moved)(a)

    assert place_of(found) == device
    assert_same_bits(found, to_host(a) * 2 * to_host(factor))


@exclusive
@requires("streams")
def test_an_event_of_the_other_device_marks_its_current_stream(
    device: Device, far: Device, backend: Backend, busy: Callable[[Device], Any]
) -> None:
    event = backend.new_event(far.index)
    for _ in range(2):  # the second record has a handle to begin with
        event.record()
    event.synchronize()

    stream = busy(far)
    with backend.use_stream(stream), backend.activate(device.index):
        event.record()
        is_done = event.query()
    stream.synchronize()

    assert not is_done
    assert event.query()


# ------------------------------------------------------------------------------------------------ refused

MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: ops.add(a, b),
    "out": lambda a, b: ops.add(a, a, out=b),
    "prepare": lambda a, b: ops.add.prepare(a, b),
    "list": lambda a, b: ops.foreach_add_([a, a], [a, b]),
    "lists": lambda a, b: ops.foreach_mul_([a, b], 2.0),
}


@pytest.mark.parametrize("call", MIXED)
def test_arrays_of_two_devices_in_one_call_are_refused_by_name(call: str, device: Device, far: Device) -> None:
    a, b = counted(device), counted(far)

    for one, other in ((a, b), (b, a)):
        with pytest.raises(DeviceError) as caught:
            MIXED[call](one, other)
        assert str(device) in str(caught.value)
        assert str(far) in str(caught.value)
    assert to_host(ops.add(b, b))[1] == 2


@requires("streams")
def test_memory_is_not_ordered_by_a_stream_of_another_device(device: Device, far: Device, backend: Backend) -> None:
    stream = backend.new_stream(device.index)
    for make in (empty, zeros):
        with pytest.raises(DeviceError, match=f"memory of {far} is not ordered by"):
            make(N, "float32", far, stream=stream)

    with backend.use_stream(stream):
        here, there = zeros(N, "float32", device), zeros(N, "float32", far)

    assert [place_of(array) for array in (here, there)] == [device, far]
    stream.synchronize()


@requires("streams")
def test_a_stream_that_is_set_is_that_of_its_own_device(device: Device, far: Device, backend: Backend) -> None:
    here, there, other = (backend.new_stream(place.index) for place in (device, far, device))
    seen: list[Any] = []

    def look() -> None:
        seen.append([backend.current_stream(place.index) for place in (device, far)])

    def work() -> None:  # in a thread of its own, whose current streams are nobody else's
        for stream in (here, there, other):
            backend.set_stream(stream)  # type: ignore[attr-defined] # a kind with two devices has it
            look()
        with backend.use_stream(here):
            look()
            with backend.use_stream(backend.new_stream(far.index)):
                backend.set_stream(other)  # type: ignore[attr-defined]
            look()
        look()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert [now for now, _ in seen] == [here, here, other, here, other, other]
    assert [now for _, now in seen[1:]] == [there] * 5


@requires("streams")
def test_work_of_one_device_does_not_go_to_the_others_current_stream(
    device: Device, far: Device, backend: Backend, busy: Callable[[Device], Any]
) -> None:
    a, stream = counted(far), busy(device)

    with backend.use_stream(stream):
        result = ops.add(a, 1.0)
        event = backend.current_stream(far.index).record_event()
    event.synchronize()

    assert backend.current_stream(far.index) != stream
    assert to_host(result)[-1] == N
