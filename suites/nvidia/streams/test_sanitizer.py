"""What the sanitizer sees in addition to ops: kernels of users and functions of CuPy; each race has a clean twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda
from cuassay.core import watchers
from cuassay.core.watchers import Occurrence
from cuassay.devices.cuda import accesses, cupy_accesses, cupy_order
from cuassay.devices.cuda.launch.userkernel import parse_reads
from cuassay.errors import RaceError
from cuassay.observe.sanitizer import Sanitizer, sanitized
from cuassay.testing import racing

SIZE = 1024


@pytest.fixture
def unwatched() -> None:
    """A sanitized session would judge streams that are made up, which the driver does not know."""
    if watchers.wants_accesses():
        pytest.skip("the session's sanitizer asks for accesses")


DOUBLED = """
extern "C" __global__ void doubled(const float* a, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * a[i];
}
extern "C" __global__ void doubled_in_place(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] *= 2;
}
"""


# ------------------------------------------------------------------------------------------------ without a GPU


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param("const float* a, float* b, int n", (True, False, False), id="plain"),
        pytest.param("float const *__restrict__ a, float* const b", (True, False), id="after-the-type"),
        pytest.param("const float** a, const T* b", (False, True), id="pointers-to-pointers-are-written"),
        pytest.param("const Pair<int, float>* a, unsigned n, T* out", (True, False, False), id="template-type"),
        pytest.param("const float* a /* , b */, // c,\n float* d", (True, False), id="comments"),
        pytest.param("", (False,), id="none"),
    ],
)
@pytest.mark.parametrize("head", ['extern "C" __global__ void', "template <typename T> __global__ void"])
def test_parameters_that_point_to_const_are_read(head: str, parameters: str, expected: tuple[bool, ...]) -> None:
    source = f"__global__ void other(float* a) {{}}\n{head} __launch_bounds__(256) f({parameters}) {{ g(a, b); }}"

    assert parse_reads(source, "f") == expected
    assert parse_reads(source, "ns::f<float, 4>") == expected


def test_a_kernel_that_is_not_in_the_source_reads_nothing() -> None:
    assert parse_reads("__global__ void f(const float* a) {}", "g") == ()


@dataclass
class Told:
    """What was told, in words: ``add: read 0x1000, write 0x3000``."""

    lines: list[str]

    def __call__(self, occurrence: Occurrence) -> None:
        if occurrence.event == "accessed":
            words = (f"{'write' if write else 'read'} {extent.address:#x}" for extent, write in occurrence.accesses)
            self.lines.append(f"{occurrence.name}: {', '.join(words)}")
        else:
            self.lines.append(occurrence.event)


@pytest.fixture
def told(unwatched: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """Accesses and waits of CuPy, whose functions compute nothing here."""
    stream = SimpleNamespace(ptr=0, device_id=0)
    monkeypatch.setattr(accesses, "current_stream", lambda index=-1: stream)
    heard = Told([])
    with watchers.watch(heard, ("accessed", "stream_synchronized", "device_synchronized")):
        yield heard


def array(address: int, size: int = 4) -> Any:
    """A header over memory that nobody reads."""
    memory = cupy.cuda.UnownedMemory(address, 4 * size, None, 0)
    return cupy.ndarray((size,), np.float32, cupy.cuda.MemoryPointer(memory, 0))


def run(name: str, result: Any, *args: Any, writes: tuple[Any, ...] = (), **kwargs: Any) -> Any:
    """A function of CuPy called `name`, which gives `result`."""
    return cupy_accesses._run(name, lambda *args, **kwargs: result, args, kwargs, writes)


def test_operands_are_read_and_a_new_array_is_written(told: Told) -> None:
    run("add", array(0x3000), array(0x1000), array(0x2000))

    assert told.lines == ["add: read 0x1000, read 0x2000, write 0x3000"]


def test_out_is_written_and_not_new(told: Told) -> None:
    out = array(0x3000)

    run("add", out, array(0x1000), out=out)

    assert told.lines == ["add: read 0x1000, write 0x3000"]


def test_arrays_inside_lists_are_read(told: Told) -> None:
    run("concatenate", array(0x3000), [array(0x1000), array(0x2000)])

    assert told.lines == ["concatenate: read 0x1000, read 0x2000, write 0x3000"]


def test_a_view_is_no_access(told: Told) -> None:
    whole = array(0x1000)

    run("getitem", whole[1:], whole, slice(1, None))
    run("asarray", whole, whole)

    assert told.lines == []


def test_an_array_like_another_does_not_read_it(told: Told) -> None:
    run("zeros_like", array(0x3000), array(0x1000))
    run("empty_like", array(0x3000), array(0x1000))

    assert told.lines == ["zeros_like: write 0x3000"]


def test_what_a_function_calls_is_not_told_again(told: Told) -> None:
    def outer(a: Any) -> Any:
        return run("inner", array(0x2000), a)

    cupy_accesses._run("outer", outer, (array(0x1000),), {})

    assert told.lines == ["outer: read 0x1000, write 0x2000"]


def test_a_wait_inside_is_of_the_stream_and_one_outside_of_the_device(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)

    def get(a: Any) -> Any:
        cupy._core.syncdetect._declare_synchronize()
        return np.ones(4)

    cupy_accesses._run("get", get, (array(0x1000),), {})
    cupy._core.syncdetect._declare_synchronize()

    cupy_accesses._run("get", get, (array(0x1000),), {}, stream=SimpleNamespace(ptr=0x50, device_id=0))

    assert told.lines == [
        "get: read 0x1000",
        "stream_synchronized",
        "device_synchronized",
        *("get: read 0x1000", "stream_synchronized"),
    ]


def test_host_arrays_of_get_and_set_are_told_where_they_are_pinned(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    host = np.ones(4, np.float32)
    run("set", None, array(0x1000), host, writes=())
    monkeypatch.setattr(accesses, "pinned_extent", lambda one: SimpleNamespace(address=0x7000))
    run("set", None, array(0x1000), host)
    run("get", host, array(0x1000), out=host)

    assert told.lines == ["set: read 0x1000", "set: read 0x1000, read 0x7000", "get: read 0x1000, write 0x7000"]


def test_a_users_kernel_reads_what_is_const_and_writes_the_rest(told: Told) -> None:
    kernel, launched = SimpleNamespace(name="scaled", reads=(True, False)), list[Any]()
    arguments = (array(0x1000), array(0x2000), array(0x3000), np.int32(4))
    stream = SimpleNamespace(ptr=0x50, device_id=0)

    def plain(*given: Any, **named: Any) -> Any:
        launched.append((given, named))
        return lambda: launched.append("run")

    accesses._launching(plain)(kernel, 1, 32, arguments, stream=stream, shared=8)
    run_bound = accesses._binding(plain)(kernel, 1, 32, arguments)
    lines = list(told.lines)
    run_bound()

    line = "scaled: read 0x1000, write 0x2000, write 0x3000"
    assert (lines, told.lines) == ([line], [line, line])
    assert launched[0] == ((kernel, 1, 32, arguments), {"stream": stream, "shared": 8})
    assert launched[-1] == "run"


def test_work_is_told_on_the_stream_that_it_is_given(told: Told) -> None:
    found: list[Occurrence] = []
    with watchers.watch(found.append, ("accessed",)):
        accesses.tell("kernel", [(array(0x1000), True)], SimpleNamespace(ptr=0x50, device_id=1))
        accesses.tell("kernel", [(array(0x1000), True)])
        accesses.tell("nothing", [(np.ones(4), True)])

    assert [(one.device, one.stream) for one in found] == [("cuda:1", 0x50), ("cuda:0", 0)]


STREAM, EVENT = SimpleNamespace(ptr=0x50), SimpleNamespace(ptr=0x90)

#: A call of CuPy's, by what takes its place, and what is reported: the event, its subject, the stream.
ORDER: dict[str, tuple[Callable[[], object], tuple[str, int, int]]] = {
    "Stream.synchronize": (
        lambda: cupy_order._stream_synchronize(lambda stream: None)(STREAM), ("stream_synchronized", 0x50, 0)
    ),
    "Stream.record": (
        lambda: cupy_order._stream_record(lambda stream, event: EVENT)(STREAM), ("event_recorded", 0x90, 0x50)
    ),
    "Stream.wait_event": (
        lambda: cupy_order._stream_wait(lambda stream, event: None)(STREAM, EVENT), ("event_waited", 0x90, 0x50)
    ),
    "Stream.done": (
        lambda: cupy_order._stream_done(property(lambda stream: True)).fget(STREAM), ("stream_found_done", 0x50, 0)
    ),
    "Event.record": (
        lambda: cupy_order._event_record(lambda event, stream: None)(EVENT, STREAM), ("event_recorded", 0x90, 0x50)
    ),
    "Event.synchronize": (
        lambda: cupy_order._event_synchronize(lambda event: None)(EVENT), ("event_synchronized", 0x90, 0)
    ),
    "Event.done": (
        lambda: cupy_order._event_done(property(lambda event: True)).fget(EVENT), ("event_found_done", 0x90, 0)
    ),
}  # fmt: skip

#: The same of the runtime's functions, by their arguments.
CALLS = {
    "deviceSynchronize": ((), ("device_synchronized", 0, 0)),
    "streamSynchronize": ((0x50,), ("stream_synchronized", 0x50, 0)),
    "eventSynchronize": ((0x90,), ("event_synchronized", 0x90, 0)),
    "eventRecord": ((0x90, 0x50), ("event_recorded", 0x90, 0x50)),
    "streamWaitEvent": ((0x50, 0x90, 0), ("event_waited", 0x90, 0x50)),
}


@pytest.fixture
def order(unwatched: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """What is reported about CuPy's streams and events."""
    monkeypatch.setattr(cupy_order, "adopt", lambda stream: SimpleNamespace(ptr=stream.ptr, device_id=0))
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    found: list[tuple[str, int, int]] = []
    with watchers.watch(lambda one: found.append((one.event, one.subject, one.stream))):
        yield found


@pytest.mark.parametrize("name", ORDER)
def test_order_that_cupys_streams_and_events_make_is_told(order: list[Any], name: str) -> None:
    call, expected = ORDER[name]
    call()

    assert order == [expected]


@pytest.mark.parametrize("name", CALLS)
def test_order_that_cupys_runtime_makes_is_told(order: list[Any], name: str) -> None:
    arguments, expected = CALLS[name]
    cupy_order._then(lambda *given: None, cupy_order._RUNTIME[name])(*arguments)

    assert order == [expected]


def test_a_stream_or_event_that_is_not_done_orders_nothing(order: list[Any]) -> None:
    cupy_order._stream_done(property(lambda stream: False)).fget(STREAM)
    cupy_order._event_done(property(lambda event: False)).fget(EVENT)

    assert order == []


@pytest.mark.usefixtures("unwatched")
def test_methods_operators_and_functions_are_replaced_while_somebody_asks_and_put_back_after() -> None:
    def state() -> tuple[Any, ...]:
        return dict(vars(cupy.ndarray)), dict(vars(cupy)), dict(vars(cupy.cuda.Event)), dict(vars(cupy.linalg))

    before = state()
    with watchers.watch(lambda _: None, ("accessed",)):
        inside = state()
    after = state()

    assert {"__add__", "__iadd__", "__setitem__", "fill", "get"} <= inside[0].keys() - before[0].keys()
    assert all(inside[1][name] is not before[1][name] for name in ("add", "copyto", "sum", "ElementwiseKernel"))
    assert after == before


def test_other_watchers_leave_cupy_alone() -> None:
    before = dict(vars(cupy.ndarray)), dict(vars(cupy))

    with watchers.watch(lambda _: None, ("memory_taken",)):
        assert (dict(vars(cupy.ndarray)), dict(vars(cupy))) == before


# ------------------------------------------------------------------------------------------------ on a GPU


@dataclass
class Place:
    """Two streams, and arrays that are done; `is_safe` asks for the wait that is missing."""

    sanitizer: Sanitizer
    is_safe: bool
    a: Any
    b: Any
    one: Any
    two: Any
    doubled: Any
    in_place: Any

    def wait(self) -> None:
        if self.is_safe:
            self.two.wait_stream(self.one)

    def launch(self, stream: Any, kernel: Any, *arrays: Any) -> None:
        with stream:
            kernel(SIZE // 256, 256, (*arrays, np.int32(SIZE)))


@pytest.fixture(params=[True, False], ids=["clean", "racing"])
def place(on_cuda: None, request: pytest.FixtureRequest) -> Iterator[Place]:
    doubled, in_place = (cuda.compile_kernel(DOUBLED, name) for name in ("doubled", "doubled_in_place"))
    warm = cupy.zeros(SIZE, cupy.float32)
    doubled(SIZE // 256, 256, (warm, warm, np.int32(SIZE)))
    in_place(SIZE // 256, 256, (warm, np.int32(SIZE)))
    cuda.synchronize()
    with sanitized() as sanitizer:
        a, b = cupy.ones(SIZE, cupy.float32), cupy.zeros(SIZE, cupy.float32)
        cuda.synchronize()
        made = Place(sanitizer, request.param, a, b, cuda.Stream(), cuda.Stream(), doubled, in_place)
        yield made
        sanitizer.engine.is_quiet = True
        cuda.synchronize()


def two_kernels_that_read(p: Place) -> None:
    """The twin reads through ``const``; the other one's parameter is not const."""
    other = cupy.zeros(SIZE, cupy.float32)
    cuda.synchronize()
    p.launch(p.one, p.doubled, p.a, p.b)
    if p.is_safe:
        p.launch(p.two, p.doubled, p.a, other)
    else:
        p.launch(p.two, p.in_place, p.a)
    cuda.synchronize()


def a_kernel_reads_what_another_writes(p: Place) -> None:
    p.launch(p.one, p.doubled, p.a, p.b)
    p.wait()
    p.launch(p.two, p.doubled, p.b, p.a)


def a_kernel_on_the_stream_that_it_is_given(p: Place) -> None:
    p.doubled(SIZE // 256, 256, (p.a, p.b, np.int32(SIZE)), stream=p.one)
    p.wait()
    p.doubled(SIZE // 256, 256, (p.b, p.a, np.int32(SIZE)), stream=p.two)


def a_bound_launch(p: Place) -> None:
    run = p.doubled.bind(SIZE // 256, 256, (p.a, p.b, np.int32(SIZE)))
    with p.one:
        run()
    p.wait()
    with p.two:
        run()


def a_kernel_and_an_array_of_cupys(p: Place) -> None:
    p.launch(p.one, p.doubled, p.a, p.b)
    p.wait()
    with p.two:
        p.b + 1


def a_kernel_whose_array_is_freed(p: Place) -> None:
    given = cupy.ones(SIZE, cupy.float32)
    cuda.synchronize()
    p.launch(p.one, p.doubled, given, p.b)
    if p.is_safe:
        cuda.default_stream().wait_stream(p.one)
    del given


KERNELS = [
    two_kernels_that_read,
    a_kernel_reads_what_another_writes,
    a_kernel_on_the_stream_that_it_is_given,
    a_bound_launch,
    a_kernel_and_an_array_of_cupys,
    a_kernel_whose_array_is_freed,
]


def an_operator(p: Place) -> None:
    with p.one:
        p.b += p.a
    p.wait()
    with p.two:
        p.b * 2


def a_function(p: Place) -> None:
    with p.one:
        cupy.add(p.a, 1, out=p.b)
    p.wait()
    with p.two:
        cupy.sum(p.b)


def an_assignment(p: Place) -> None:
    with p.one:
        p.b[:8] = p.a[:8]
    p.wait()
    with p.two:
        p.b[4:12].copy()


def an_elementwise_kernel(p: Place) -> None:
    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x", "twice")
    with p.one:
        kernel(p.a, p.b)
    p.wait()
    with p.two:
        kernel(p.b)


def a_raw_kernel(p: Place) -> None:
    kernel = cupy.RawKernel(DOUBLED, "doubled")
    with p.one:
        kernel((SIZE // 256,), (256,), (p.a, p.b, np.int32(SIZE)))
    p.wait()
    with p.two:
        kernel((SIZE // 256,), (256,), (p.b, p.a, np.int32(SIZE)))


def a_function_of_numpys(p: Place) -> None:
    with p.one:
        np.multiply(p.a, 2, out=p.b)
    p.wait()
    with p.two:
        np.sum(p.b)


def streams_of_cupys(p: Place) -> None:
    one, two = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with one:
        p.b += p.a
    if p.is_safe:
        two.wait_event(one.record())
    with two:
        p.b * 2
    one.synchronize()
    two.synchronize()


def a_capture_of_others(p: Place) -> None:
    """What another library captures is not run: it needs no wait. What comes after the capture does."""
    side = cupy.cuda.Stream(non_blocking=True)
    with p.one:
        p.b += p.a
    with side:
        side.begin_capture()
        try:
            p.doubled(SIZE // 256, 256, (p.b, p.a, np.int32(SIZE)))
        finally:
            side.end_capture()
        if p.is_safe:
            side.wait_event(p.one.record())
        p.doubled(SIZE // 256, 256, (p.b, p.a, np.int32(SIZE)))


CUPY = [
    an_operator,
    a_function,
    an_assignment,
    an_elementwise_kernel,
    a_raw_kernel,
    a_function_of_numpys,
    streams_of_cupys,
    a_capture_of_others,
]


@pytest.mark.parametrize("work", [*KERNELS, *CUPY], ids=lambda work: work.__name__)
@racing
def test_kernels_of_the_users_and_of_cupys(place: Place, work: Callable[[Place], object]) -> None:
    if place.is_safe:
        work(place)
        cuda.synchronize()
        assert place.sanitizer.engine.found == []
        return
    with pytest.raises(RaceError, match=r"not ordered after the (read|write) by .*test_sanitizer\.py:\d+"):
        _finished(work, place)


def _finished(work: Callable[[Place], object], place: Place) -> None:
    work(place)
    cuda.synchronize()
