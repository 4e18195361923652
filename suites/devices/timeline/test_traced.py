"""Work that a kind's tracer tells: on whose call it hangs, on which stream it lies, and what is said without one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import Device, devices, from_host, ops, to_host
from cuassay.core import watchers
from cuassay.core.traced import TracedWork
from cuassay.core.watchers import Occurrence
from cuassay.cuda import nvtx
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError, LibraryNotFoundError, StateError
from cuassay.observe import recorder
from cuassay.ops import Op

Tell = Callable[..., None]


class MadeUp:
    """A tracer whose work is what the test says."""

    def __init__(self) -> None:
        self.missed = 0
        self.work: list[TracedWork] = []
        self.met: list[tuple[int, int | None]] = []
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def meet(self, index: int, number: int | None = None) -> None:
        self.met.append((index, number))

    def stop(self) -> list[TracedWork]:
        self.calls.append("stop")
        return self.work

    def tell(self, name: str, *, event: str = "launched", nbytes: int = 0, stream: int = 0, lane: str = "") -> None:
        """Work that the calling thread asks for now, and that begins 1 s later on the device and takes 1 ms."""
        now, thread = perf_counter(), threading.get_ident() & 0xFFFFFFFF
        self.work.append(TracedWork(event, name, 0, stream, lane, now + 1, now + 1.001, now, nbytes, thread))


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    """Of a simulated machine that does not tell how long its work takes, as a GPU does not."""
    made = MadeUp()
    monkeypatch.setattr(BACKEND, "new_tracer", lambda: made, raising=False)
    monkeypatch.delattr(type(BACKEND), "now_s")
    return made


def traced(p: Any) -> dict[str, Any]:
    return {span.name: span for span in p.timeline.spans if span.kind in ("kernel", "copy")}


def test_work_belongs_to_what_its_thread_had_open(tracer: MadeUp) -> None:
    x = from_host(np.ones(4, np.float32), "sim:0")
    with cuassay.profile("sim", kernels=True) as p:
        tracer.tell("before")
        with nvtx.range("step"):
            tracer.tell("in the step")
            ops.exp(x)
            tracer.tell("after the op")
        tracer.tell("after")
        thread = threading.Thread(target=tracer.tell, args=("of a thread that is not known",))
        thread.start()
        thread.join()

    names = {name: p.timeline.spans[span.parent].name if span.parent >= 0 else "" for name, span in traced(p).items()}
    assert tracer.calls == ["start", "stop"]
    assert names == {
        "before": "",
        "in the step": "step",
        "exp": "exp",
        "after the op": "step",
        "after": "",
        "of a thread that is not known": "",
    }
    assert traced(p)["before"].seconds == pytest.approx(0.001)


def test_work_inside_an_op_is_the_ops(tracer: MadeUp) -> None:
    x = from_host(np.ones(4, np.float32), "sim:0")
    with watchers.watch(lambda told: tracer.tell("k"), ("launched",)), cuassay.profile("sim", kernels=True) as p:
        ops.exp(x)

    span = traced(p)["k"]
    assert p.timeline.spans[span.parent].name == "exp"


def test_no_pairs_of_events_are_recorded_where_a_tracer_tells(tracer: MadeUp) -> None:
    x = from_host(np.ones(4, np.float32), "sim:0")
    with cuassay.profile("sim", kernels=True) as p:
        ops.exp(x)

    assert [span.name for span in p.timeline.spans if span.kind == "kernel"] == ["exp"]  # the machine's own report
    assert (0, None) in tracer.met
    with cuassay.profile("sim") as plain:
        ops.exp(x)
    assert [span.name for span in plain.timeline.spans if span.kind == "kernel"] == ["exp", "exp"]  # and a pair's


def test_what_the_tracer_missed_is_counted(tracer: MadeUp) -> None:
    tracer.missed = 3
    with cuassay.profile("sim", kernels=True) as p:
        pass

    assert p.timeline.missed == 3


def test_a_copy_of_another_library_does_not_take_the_line_of_one_of_another_size(tracer: MadeUp) -> None:
    with cuassay.profile("sim", kernels=True) as p:
        tracer.tell("of another library", event="copied", nbytes=17)
        tracer.tell("ours", event="copied", nbytes=16)
        watchers.tell(Occurrence("copied", "sim:0", 0, 0, 16, "to the host"))

    copies = [(span.name, span.nbytes, span.site.partition(":")[0]) for _, span in p.timeline.of_kinds(["copy"])]
    assert copies == [("copy: of another library", 17, ""), ("copy: to the host", 16, "test_traced.py")]


def test_streams_that_are_not_known_are_named_by_the_tracer(tracer: MadeUp) -> None:
    with cuassay.profile("sim", kernels=True) as p:
        tracer.tell("known", stream=0)
        tracer.tell("not known", stream=-1, lane="CUPTI's stream 13")

    assert traced(p)["known"].track == "sim:0 default stream"
    assert traced(p)["not known"].track == "sim:0 CUPTI's stream 13"


def test_a_profile_that_cannot_trace_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise LibraryNotFoundError("not installed; pip install cupti-python")

    monkeypatch.setattr(BACKEND, "new_tracer", refuse, raising=False)
    with pytest.raises(LibraryNotFoundError, match="pip install cupti-python"):
        cuassay.profile("sim", kernels=True)

    busy = MadeUp()
    busy.start = lambda: (_ for _ in ()).throw(StateError("another profiler traces"))  # type: ignore[method-assign]
    monkeypatch.setattr(BACKEND, "new_tracer", lambda: busy, raising=False)
    with pytest.raises(StateError, match="another profiler"):
        cuassay.profile("sim", kernels=True).start()
    with cuassay.profile("sim"):
        pass


def test_asking_for_kernels_is_allowed_on_each_kind(device: Device) -> None:
    if hasattr(devices.backend(device.kind), "new_tracer"):
        pytest.importorskip("cupti", reason="cupti-python is not installed")
    x = from_host(np.ones((64, 64), np.float32), device)
    with cuassay.profile(device, kernels=True) as p:
        ops.mm(x, x)
        sleep(0.001)
        to_host(x)

    assert any(span.name == "mm" for span in p.timeline.spans if span.kind == "op")


def test_a_kind_that_is_named_is_traced_although_nothing_used_it_before() -> None:
    """A kind is loaded by its first use, which may come inside the block."""
    code = """
import cuassay
from cuassay.devices.sim.backend import SimBackend
asked = []
class Tracer:
    missed = 0
    def start(self): asked.append("start")
    def meet(self, index, number=None): pass
    def stop(self): return []
SimBackend.new_tracer = lambda backend: Tracer()
from cuassay.ops import registry
assert all(one.kind != "sim" for one in registry.backends())
with cuassay.profile("sim", kernels=True):
    pass
print(asked)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("['start']", 0), done.stderr


# ------------------------------------------------------------------------------------------------ pairs of events


class Watch:
    """A stopwatch that notes how each pair begins; pairs take 1 ms each."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.count = 0

    def start(self) -> str:
        self.began.append("start")
        return "mark"

    def follow(self) -> str:
        self.began.append("follow")
        return "mark"

    def stop(self, mark: str) -> int:
        assert mark == "mark"
        self.count += 1
        return self.count - 1

    def read(self) -> list[tuple[int, int, float, float]]:
        return [(number, 0, number * 2e-3, number * 2e-3 + 1e-3) for number in range(self.count)]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Of a simulated machine that does not tell how long its work takes, and a host's clock that shows one time."""
    made = Watch()
    monkeypatch.setattr(BACKEND, "new_stopwatch", lambda index: made, raising=False)
    monkeypatch.delattr(type(BACKEND), "now_s")
    monkeypatch.setattr(recorder, "perf_counter", lambda: 0.0)
    return made


def test_a_call_that_follows_at_once_shares_an_event_and_others_do_not(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, event = from_host(np.ones(4, np.float32), "sim:0"), BACKEND.new_event(0)
    with cuassay.profile("sim") as p:
        ops.exp(x)
        ops.exp(x)
        ops.exp(x)
        event.record()
        ops.exp(x)
        ops.exp(x)
        monkeypatch.setattr(p._recorder, "_now", lambda: 1.0)
        ops.exp(x)

    assert watch.began == ["start", "follow", "follow", "start", "follow", "start"]
    timed = [span for span in p.timeline.spans if span.kind == "kernel" and span.seconds == pytest.approx(1e-3)]
    assert [span.name for span in timed] == ["exp"] * 6


@dataclass
class Host:
    """The host's clock, and a kind that tells when a call of `exp` launches kernels."""

    now: float = 0.0
    launches: Sequence[float] = ()
    ended: float = 0.0

    @contextmanager
    def launches_of(self, op: Op, operands: Sequence[Any]) -> Iterator[list[Any]]:
        assert (op, len(operands)) == (ops.exp, 1)
        yield [SimpleNamespace(time=time) for time in self.launches]


@pytest.fixture
def host(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Host:
    made, stop = Host(), watch.stop

    def stopped(mark: str) -> int:
        made.now = made.ended
        return stop(mark)

    monkeypatch.setattr(watch, "stop", stopped)
    monkeypatch.setattr(BACKEND, "launches_of", made.launches_of, raising=False)
    monkeypatch.setattr(recorder, "perf_counter", lambda: made.now)
    return made


def kernel_seconds(host: Host, calls: int) -> list[float]:
    """The seconds of the kernels of some calls; pair number n is from 2 n to 2 n + 1 ms."""
    x = from_host(np.ones(4, np.float32), "sim:0")
    launches, ended = host.launches, host.ended
    with cuassay.profile("sim") as p:
        for number in range(calls):
            host.launches = [2e-3 * number + launch for launch in launches]
            host.ended = 2e-3 * number + ended
            host.now = 2e-3 * number
            ops.exp(x)
    return [span.seconds for _, span in p.timeline.of_kinds(["kernel"]) if span.name == "exp"][-calls:]


@pytest.mark.parametrize(
    ("launches", "ended", "lasted"),
    [
        ([0.0007], 0.0008, 0.0003 - 3e-6),  # the device was idle until the launch
        ([0.0007, 0.00075], 0.0008, 0.0003 - 3e-6),
        ([], 0.0008, 1e-3),  # not known
        ([-0.001], 0.0, 1e-3),  # the device was busy
        ([0.5], 0.5, 1e-6),  # a comparison of the clocks was wrong by far
    ],
)
def test_the_work_of_a_first_call_begins_when_the_host_launches_it(
    host: Host, launches: list[float], ended: float, lasted: float
) -> None:
    host.launches, host.ended = launches, ended

    assert kernel_seconds(host, 2) == pytest.approx([lasted] * 2)


@pytest.mark.parametrize(
    ("launches", "lasted"),
    [([0.0007], 0.0002 + 2e-6), ([0.0005, 0.0007], 0.0005 - 3e-6), ([], 1e-3)],
    ids=["one", "two", "not known"],
)
def test_later_calls_launch_as_long_before_their_end(host: Host, launches: list[float], lasted: float) -> None:
    host.launches, host.ended = launches, 0.0008

    assert kernel_seconds(host, 4)[2:] == pytest.approx([lasted] * 2)


def test_a_call_inside_another_one_with_its_signature_is_among_the_first_two(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, asked = from_host(np.ones(4, np.float32), "sim:0"), []

    @contextmanager
    def launches_of(op: Op, operands: Sequence[Any]) -> Iterator[list[Any]]:
        asked.append(op.name)
        if len(asked) == 2:
            ops.exp(x)
        yield []

    monkeypatch.setattr(BACKEND, "launches_of", launches_of, raising=False)
    with cuassay.profile("sim"):
        for _ in range(10):
            ops.exp(x)

    assert len(asked) == 3


def test_the_first_call_ends_before_it_is_explained_in_words(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[int] = []
    stop, explained = watch.stop, recorder.explain
    monkeypatch.setattr(watch, "stop", lambda mark: stops.append(watch.count) or stop(mark))

    def explain(run: Any) -> Any:
        found = explained(run)
        assert stops == [0]
        return found

    monkeypatch.setattr(recorder, "explain", explain)
    with cuassay.profile("sim"):
        ops.exp(from_host(np.ones(4, np.float32), "sim:0"))

    assert stops == [0]


def test_a_stopwatch_that_cannot_follow_starts_each_time(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Watch, "follow")
    x = from_host(np.ones(4, np.float32), "sim:0")
    with cuassay.profile("sim"):
        ops.exp(x), ops.exp(x)

    assert watch.began == ["start", "start"]


def test_a_call_on_another_device_follows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, Watch] = {}
    with BACKEND.simulated(devices=2) as backend:
        monkeypatch.setattr(backend, "new_stopwatch", lambda index: made.setdefault(index, Watch()), raising=False)
        monkeypatch.delattr(type(backend), "now_s")
        monkeypatch.setattr(recorder, "perf_counter", lambda: 0.0)
        x, y = (from_host(np.ones(4, np.float32), f"sim:{index}") for index in range(2))
        with cuassay.profile("sim"):
            for array in (x, x, y, y, x):
                ops.exp(array)

    assert [made[index].began for index in range(2)] == [["start", "follow", "start"], ["start", "follow"]]


def test_a_call_on_another_kind_follows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Watch] = {}
    with BACKEND.simulated(devices=1) as backend:
        for one in (backend, devices.backend("cpu")):
            new = partial(lambda kind, index: made.setdefault(kind, Watch()), one.kind)
            monkeypatch.setattr(one, "new_stopwatch", new, raising=False)
        monkeypatch.delattr(type(backend), "now_s")
        monkeypatch.setattr(recorder, "needs_pairs", lambda backend: True)
        monkeypatch.setattr(recorder, "perf_counter", lambda: 0.0)
        host = np.ones(4, np.float32)
        x = from_host(host, "sim:0")
        with cuassay.profile("sim"):
            for array in (x, host, x, host, host, x):
                ops.exp(array)

    assert {kind: watch.began for kind, watch in made.items()} == {
        "sim": ["start", "start", "start"], "cpu": ["start", "start", "follow"],
    }  # fmt: skip


def test_an_empty_list_is_rejected_as_without_a_profile(watch: Watch) -> None:
    with cuassay.profile("sim"), pytest.raises(ArgumentError, match="empty"):
        ops.stack([])

    assert watch.began == []
