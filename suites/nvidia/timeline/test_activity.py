"""CUPTI's records: what is taken out of them, by a module that is made up here and by the real one on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import itertools

import cupy

import cuassay
from cuassay import cuda, from_host, ops, to_host
from cuassay.devices.cuda import activity
from cuassay.errors import LibraryNotFoundError, StateError
from cuassay.testing import exclusive

Kind = IntEnum(
    "Kind", [("MEMCPY", 1), ("MEMSET", 2), ("DRIVER", 4), ("RUNTIME", 5), ("CONCURRENT_KERNEL", 10), ("MEMCPY2", 22)]
)
Driver = IntEnum("Driver", [("cuLaunchKernel", 307), ("cuEventRecord", 9), ("cuGraphLaunch", 514)])
Runtime = IntEnum("Runtime", [("cudaMemcpyAsync_v3020", 41), ("cudaFree_v3020", 22)])


class CuptiError(Exception):
    pass


class Cupti:
    """The part of `cupti.cupti` that a tracer uses; its clock is 1,000 s ahead of the host's, and runs as fast."""

    ActivityKind, driver_api_trace_cbid, runtime_api_trace_cbid, cuptiError = Kind, Driver, Runtime, CuptiError  # noqa: N815

    def __init__(self) -> None:
        self.on: set[int] = set()
        self.calls: set[str] = set()
        self.is_busy = self.is_over = False
        self.completed: Callable[[Any], None] = lambda records: None

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        assert requested()[0] > 4096
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.is_busy:
            raise CuptiError("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)")
        self.on.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.on.discard(kind)

    def activity_enable_driver_api(self, call: int, on: int) -> None:
        (self.calls.add if on else self.calls.discard)(Driver(call).name)

    def activity_enable_runtime_api(self, call: int, on: int) -> None:
        (self.calls.add if on else self.calls.discard)(Runtime(call).name)

    def get_timestamp(self) -> int:
        return activity.perf_counter_ns() + 10**12

    def activity_flush_all(self, flag: int) -> None:
        pass

    def finalize(self) -> None:
        self.is_over = True

    def activity_get_num_dropped_records(self, context: int, stream: int, address: int) -> None:
        pass


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cupti]:
    made = Cupti()
    monkeypatch.setattr(activity, "_bindings", lambda: made)
    yield made
    assert made.on == set()


def record(kind: Kind, **facts: Any) -> Any:
    return SimpleNamespace(kind=int(kind), **facts)


def test_a_kernel_has_its_times_and_those_of_the_call_that_gave_it(cupti: Cupti) -> None:
    tracer = activity.Tracer()
    tracer.start()
    now = activity.perf_counter_ns()
    times = {"start": now + 10**12 + 5_000, "end": now + 10**12 + 9_000}
    mangled = "_ZN2ns4scanIfLi4EEEvPKfi"
    work = {"device_id": 1, "stream_id": 13, "correlation_id": 7}
    cupti.completed([record(Kind.DRIVER, correlation_id=7, start=now + 10**12, thread_id=99, end=0)])
    cupti.completed([record(Kind.CONCURRENT_KERNEL, name=mangled, **times, **work)])
    cupti.completed([record(Kind.MEMCPY, copy_kind=2, bytes=64, **times, **work)])
    cupti.completed([record(Kind.MEMSET, bytes=8, **times, **work)])
    kernel, copy, fill = tracer.stop()

    assert cupti.is_over
    assert (kernel.event, kernel.name, kernel.device_index) == ("launched", "ns::scan<float, 4>", 1)
    assert (kernel.stream, kernel.lane, kernel.thread) == (-1, "CUPTI's stream 13", 99)
    assert (kernel.called, kernel.begin) == pytest.approx((now / 1e9, now / 1e9 + 5e-6), abs=2e-6)
    assert kernel.end - kernel.begin == pytest.approx(4e-6, rel=1e-3)
    assert (copy.event, copy.name, copy.nbytes) == ("copied", "to the host", 64)
    assert (fill.event, fill.name, fill.nbytes) == ("launched", "fill", 8)


def test_of_the_hosts_calls_those_are_asked_for_that_give_work(cupti: Cupti) -> None:
    tracer = activity.Tracer()
    tracer.start()
    asked = set(cupti.calls)
    tracer.stop()

    assert asked == {"cuLaunchKernel", "cuGraphLaunch", "cudaMemcpyAsync_v3020"}
    assert cupti.calls == set()


def test_another_profiler_is_named(cupti: Cupti) -> None:
    cupti.is_busy = True

    with pytest.raises(StateError, match=r"MULTIPLE_SUBSCRIBERS.*end the other profiler \(nsys, ncu, torch"):
        activity.Tracer().start()


def test_clocks_that_drift_are_brought_together() -> None:
    seconds = activity._clock((1_000, 50_000), (2_000, 52_000))

    assert [seconds(time) * 1e9 for time in (50_000, 51_000, 52_000)] == pytest.approx([1_000, 1_500, 2_000])


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("cupy_add__float32", "cupy_add__float32"),
        ("_ZN3cub6detail6reduceIiEEvPi", "cub::detail::reduce<int>"),
        ("_Z1fPFvvE", "f"),
        ("_Znot_one", "_Znot_one"),
    ],
)
def test_kernels_have_readable_names(name: str, readable: str) -> None:
    assert activity._readable(name) == readable


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "find_spec", lambda name: None)
    activity._bindings.cache_clear()

    with pytest.raises(LibraryNotFoundError, match="pip install cupti-python"):
        activity.Tracer()


# ------------------------------------------------------------------------------------------------ on a GPU


@pytest.fixture
def traces(on_cuda: None) -> None:
    pytest.importorskip("cupti", reason="cupti-python is not installed")


def spans(p: Any, kind: str) -> list[Any]:
    return [span for span in p.timeline.spans if span.kind == kind]


@pytest.mark.usefixtures("traces")
def test_kernels_of_ours_and_of_cupys_belong_to_what_called_them() -> None:
    x = from_host(np.ones(1 << 16, np.float32), "cuda:0")
    other = cupy.ones(1 << 16, cupy.float32)
    side = cuda.Stream()
    ops.exp(x), cupy.sqrt(other)
    cuda.synchronize()
    with cuassay.profile("cuda:0", kernels=True) as p:
        with cuda.nvtx.range("mine"):
            y = ops.exp(x)
            with side:
                side.wait_stream(cuda.default_stream())
                cupy.sqrt(other)
        to_host(y)
        side.synchronize()

    kernels = {span.name: span for span in spans(p, "kernel")}
    (exp,) = (span for span in kernels.values() if p.timeline.spans[span.parent].name == "exp")
    (sqrt,) = (span for span in kernels.values() if p.timeline.spans[span.parent].name == "mine")
    assert "sqrt" in sqrt.name
    assert exp.track != sqrt.track
    assert exp.end <= sqrt.begin
    (copy,) = spans(p, "copy")
    assert (copy.name, copy.nbytes, copy.is_timed) == ("copy: to the host", 1 << 18, True)
    assert copy.site.startswith("test_activity.py:")
    assert copy.begin >= exp.end
    assert all(0 <= span.begin <= span.end <= p.timeline.seconds for span in (exp, sqrt, copy))
    assert [flow.waiter for flow in p.timeline.flows] == [sqrt.track]


@pytest.mark.usefixtures("traces")
def test_each_kernel_of_a_replay_is_told() -> None:
    x = from_host(np.ones(1 << 12, np.float32), "cuda:0")
    graphed = cuda.make_graphed_callables(lambda a: ops.mul(ops.exp(a), ops.exp(a)), (x,))
    graphed.replay((x,))
    cuda.synchronize()
    with cuassay.profile("cuda:0", kernels=True) as p:
        graphed.replay((x,))
        cuda.synchronize()

    kernels = [span for span in spans(p, "kernel") if p.timeline.spans[span.parent].kind == "replay"]
    assert len(kernels) == 3
    assert all(a.end <= b.begin for a, b in itertools.pairwise(kernels))


@exclusive
@pytest.mark.usefixtures("traces")
def test_pairs_of_events_agree_with_it_for_long_kernels() -> None:
    """An event pair holds the host's part as well, unless the device is busy until then; and what others do there."""
    big = from_host(np.ones(1 << 28, np.float32), "cuda:0")
    work = {"exp": lambda: ops.exp(big), "add": lambda: ops.add(big, big), "sum": lambda: ops.sum(big)}
    found: dict[bool, list[float]] = {}
    for kernels in (False, True):
        with cuassay.profile("cuda:0", kernels=kernels, memory=False) as p:
            for call in work.values():
                call()  # the first call with these shapes is explained, which takes the host longer
            cuda.spin(20_000_000)
            for call in work.values():
                call()
        calls = [place for place, span in p.timeline.of_kinds(["op"])][-len(work) :]
        found[kernels] = [sum(one.seconds for one in spans(p, "kernel") if one.parent == place) for place in calls]

    assert found[False] == pytest.approx(found[True], rel=0.1)


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")
@pytest.mark.usefixtures("traces")
def test_it_starts_again_after_torchs_profiler() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones(1000, device="cuda")
    for _ in range(2):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
            x + 1
            torch.cuda.synchronize()
        with cuassay.profile("cuda:0", kernels=True) as p:
            x + 1

        assert any("elementwise" in span.name for span in spans(p, "kernel"))
