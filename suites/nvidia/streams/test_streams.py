"""Streams and events of a CUDA device together with those of others, in graphs, in other processes and after a fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda, devices, ops
from cuassay.devices.cuda.streams import stream as streams
from cuassay.devices.cuda.streams.event_handles import idle_events
from cuassay.devices.cuda.streams.stream import ExternalStream, _Switching, adopt
from cuassay.errors import ArgumentError, CaptureError
from cuassay.testing import exclusive

BACKEND = devices.backend("cuda")


class Foreign:
    """What another library's stream shows of itself."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.ptr


class ForeignProperty(Foreign):
    """The older form: an attribute instead of a method."""

    @property
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.ptr


FORMS: dict[str, Callable[[Any], Any]] = {
    "CuPy's": lambda stream: stream,
    "an address": lambda stream: stream.ptr,
    "__cuda_stream__()": Foreign,
    "__cuda_stream__": ForeignProperty,
}


@pytest.fixture
def theirs(on_cuda: None) -> Any:
    return cupy.cuda.Stream(non_blocking=True)


@pytest.mark.parametrize(
    "junk",
    [None, True, 1.5, "stream", pytest.param(object(), id="object"), -8, 3, 1_000_000, 2**22 + 1, 2**62],
    ids=repr,
)
def test_what_is_no_stream_is_refused(junk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)

    with pytest.raises(ArgumentError, match="is not a CUDA stream"):
        adopt(junk)


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_others_is_used_by_its_address(form: str, theirs: Any) -> None:
    given = FORMS[form](theirs)

    with BACKEND.use_stream(given) as adopted:
        assert cupy.cuda.get_current_stream().ptr == theirs.ptr
        result = ops.add(cupy.ones(3), cupy.ones(3))
    theirs.synchronize()

    assert adopted.ptr == theirs.ptr
    assert adopted.device.kind == "cuda"
    assert result.tolist() == [2, 2, 2]


def test_one_of_ours_is_adopted_as_it_is(theirs: Any) -> None:
    ours = BACKEND.new_stream(0)

    assert adopt(ours) is ours


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_others_outlives_its_wrapper(form: str, theirs: Any) -> None:
    wrapper = adopt(FORMS[form](theirs))

    del wrapper
    gc.collect()

    with theirs:
        assert (cupy.ones(3) + 1).tolist() == [2, 2, 2]
    theirs.synchronize()


def test_a_wrapper_keeps_its_owner_alive(theirs: Any) -> None:
    wrapper = adopt(Foreign(cupy.cuda.Stream(non_blocking=True)))
    gc.collect()

    wrapper.synchronize()

    assert isinstance(wrapper, ExternalStream)
    assert wrapper.query() is True


def test_the_current_stream_is_cupys(theirs: Any) -> None:
    with theirs:
        inside = BACKEND.current_stream(0)

    assert inside.ptr == theirs.ptr
    assert BACKEND.current_stream(0).ptr == cupy.cuda.get_current_stream().ptr


def test_cupys_current_stream_is_ours_inside_use_stream(theirs: Any) -> None:
    ours = BACKEND.new_stream(0)

    with BACKEND.use_stream(ours):
        assert cupy.cuda.get_current_stream().ptr == ours.ptr


def test_a_wait_for_a_stream_of_others_is_ordered(theirs: Any) -> None:
    main = BACKEND.current_stream(0)
    a = cupy.ones(1_000_000, cupy.float32)
    theirs.wait_event(main.record_event())
    with theirs:
        for _ in range(20):
            a += 1
    main.wait_stream(theirs)

    assert float(a.max()) == float(a.min()) == 21


def test_a_capture_dropped_while_open_leaves_the_thread_able_to_allocate(theirs: Any) -> None:
    with BACKEND.use_stream(theirs):
        capture = BACKEND.new_capture(0)
        capture.begin()
        del capture
        gc.collect()
        fresh = cupy.zeros(12_345, cupy.float32)
    assert not theirs.is_capturing()
    theirs.synchronize()

    assert float(fresh.sum()) == 0


def test_a_call_that_cannot_be_captured_is_told_at_the_end_and_forgotten_then(theirs: Any) -> None:
    with BACKEND.use_stream(theirs):
        capture = BACKEND.new_capture(0)
        capture.begin()
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            theirs.synchronize()
        with pytest.raises(CaptureError, match="cannot be captured"):
            capture.end()
        assert cupy.ones(3).tolist() == [1, 1, 1]


# ------------------------------------------------------------------------------------------------ several devices


def test_entering_a_stream_of_another_device_makes_that_current_and_restores_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current, steps = [0], []
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: current[0])
    monkeypatch.setattr(cupy.cuda.runtime, "setDevice", lambda index: current.__setitem__(0, index))

    class Theirs:
        device_id: int

        def __enter__(self) -> Any:
            steps.append(("enter", current[0]))
            return self

        def __exit__(self, *error: object) -> None:
            steps.append(("exit", current[0]))

        def use(self) -> None:
            steps.append((f"use {self.device_id}", current[0]))

    class Entered(_Switching, Theirs):
        def __init__(self, device_id: int) -> None:
            self.device_id = device_id

    monkeypatch.setattr(streams, "get_current_stream", Entered)  # what is current on a device before the block

    with Entered(1) as first, Entered(2):
        assert current == [2]
        current[0] = 3  # somebody sets another device inside the block
    with pytest.raises(KeyError), first:
        raise KeyError

    assert current == [0]
    left = [("exit", 1), ("use 1", 1)]
    assert steps == [("enter", 1), ("enter", 2), ("exit", 2), ("use 2", 2), *left, ("enter", 1), *left]


# ------------------------------------------------------------------------------------------------ by torch's names

MILLISECOND = 2_000_000  # cycles, about


@pytest.fixture
def side(theirs: Any) -> Any:
    """A stream of ours."""
    stream = cuda.Stream()
    yield stream
    stream.synchronize()


def test_ours_are_cupys_too_and_equal_by_device_and_handle(side: Any) -> None:
    again = ExternalStream(side.ptr, 0)

    assert isinstance(side, cupy.cuda.Stream)
    assert isinstance(cuda.Event(), cupy.cuda.Event)
    assert side == again
    assert hash(side) == hash(again)
    assert side != cuda.Stream()
    assert cuda.default_stream() != side
    assert cuda.default_stream(0) == cupy.cuda.Stream.null == cuda.default_stream("cuda:0")


def test_a_priority_is_brought_into_the_range_of_the_device(theirs: Any) -> None:
    least, greatest = cuda.Stream.priority_range()

    assert [cuda.Stream(priority=priority).priority for priority in (0, -1, greatest - 7, least + 7)] == [
        0,
        max(-1, greatest),
        greatest,
        least,
    ]


@exclusive
def test_streams_are_not_ordered_with_the_default_stream(side: Any) -> None:
    with side:
        cuda.spin(20 * MILLISECOND)
    cuda.default_stream().synchronize()

    assert side.is_non_blocking
    assert side.query() is False


def test_the_current_stream_is_one_of_ours_whoever_made_it_current(theirs: Any, side: Any) -> None:
    cuda.current_stream()
    with theirs:
        assert cuda.current_stream() == theirs
        assert cuda.current_stream().record_event().device.kind == "cuda"
    with cuda.stream(side), cuda.stream(None):
        assert cuda.current_stream("cuda:0") is side
    assert cuda.current_stream() == cuda.default_stream()


def test_events_of_others_are_waited_for(side: Any) -> None:
    event = cupy.cuda.Event(disable_timing=True)
    event.record(side)

    side.wait_event(event)
    with pytest.raises(ArgumentError, match="is not a CUDA event"):
        side.wait_event(side)


def test_cupy_records_and_waits_for_ours(theirs: Any) -> None:
    event = cuda.Event(enable_timing=True)

    theirs.record(event)
    theirs.wait_event(event)
    theirs.synchronize()

    assert event.done
    assert cupy.cuda.get_elapsed_time(event, event) == 0


def test_torch_takes_ours_and_ours_takes_torchs(side: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    foreign, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.get_stream_from_external(side.ptr, 0)):
        event.record()

    side.wait_event(event)
    side.wait_stream(foreign)
    with cuda.stream(foreign):
        assert cuda.current_stream().ptr == foreign.cuda_stream


def test_cuda_core_takes_ours_and_ours_takes_its(side: Any) -> None:
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    here = core.Device(0)
    here.set_current()

    wrapped = here.create_stream(side)
    own = here.create_stream()
    side.wait_stream(own)
    side.wait_event(own.record())

    assert int(wrapped.handle) == side.ptr


def test_an_events_handle_has_torchs_name(side: Any) -> None:
    event = cuda.Event()
    before = event.cuda_event

    event.record(side)

    assert (before, event.cuda_event) == (0, event.ptr)


def test_a_handle_of_an_event_that_was_never_recorded_refers_to_no_work(side: Any) -> None:
    """The handles of dropped events are used again, but they still refer to what they recorded."""
    gc.collect()  # not while the stream is busy: on a busy host it may take longer than that
    with cuda.stream(side):
        cuda.spin(400_000_000)
    dropped = [side.record_event() for _ in range(8)]
    del dropped
    event = cuda.Event()

    assert event.ptr
    is_done, was_busy = event.query(), not side.query()
    side.synchronize()

    assert was_busy
    assert is_done


@pytest.mark.parametrize("call", ["record", "wait"])
@pytest.mark.parametrize("junk", [1.5, "stream", pytest.param(object(), id="object")], ids=repr)
def test_an_event_refuses_what_is_no_stream(call: str, junk: Any, side: Any) -> None:
    event = side.record_event()

    with pytest.raises(ArgumentError, match="is not a CUDA stream"):
        getattr(event, call)(junk)


def test_an_event_as_a_stream_is_refused(side: Any) -> None:
    event = side.record_event()

    with pytest.raises(ArgumentError, match="is not a CUDA stream"):
        event.record(side.record_event())


@exclusive
def test_the_time_of_a_spin_is_read_and_of_a_pending_event_refused(side: Any) -> None:
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with side:
        start.record()
        cuda.spin(20 * MILLISECOND)
        end.record()

    with pytest.raises(ArgumentError, match="end event is not done yet"):
        start.elapsed_time(end)
    end.synchronize()
    assert 5 < start.elapsed_time(end) < 80


def test_a_blocking_event_is_waited_for(side: Any) -> None:
    event = cuda.Event(blocking=True)
    with side:
        cuda.spin(MILLISECOND)
    event.record(side)

    event.synchronize()

    assert event.query()


@pytest.mark.parametrize("what", ["event", "stream"])
def test_other_python_threads_go_on_while_one_waits(side: Any, what: str) -> None:
    with side:
        cuda.spin(100 * MILLISECOND)
    event, ticks, done = side.record_event(), [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    (event if what == "event" else side).synchronize()
    after = ticks[0]
    done.set()
    thread.join()

    assert after - before > 5


# ------------------------------------------------------------------------------------------------ life


def test_handles_of_events_are_used_again_and_bounded(side: Any) -> None:
    event = side.record_event()
    handle = event.handle
    del event
    gc.collect()

    assert side.record_event().handle == handle
    many = [side.record_event() for _ in range(3000)]
    del many
    gc.collect()
    assert len(idle_events(0)) <= 1024


@exclusive
def test_streams_and_events_by_the_thousand_leave_no_memory_behind(side: Any) -> None:
    def churn(rounds: int) -> None:
        for _ in range(rounds):
            stream = cuda.Stream()
            with stream:
                cuda.spin(100)
            stream.record_event(cuda.Event(enable_timing=True))
            side.wait_stream(stream)
        side.synchronize()

    churn(64)  # the pool is filled: it stays
    gc.collect()
    before, _ = cuda.mem_get_info()

    churn(2000)
    gc.collect()

    assert abs(cuda.mem_get_info()[0] - before) <= 2 * 2**20


def in_process(code: str, **variables: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done.stdout


def test_a_forked_child_is_refused_by_every_call(theirs: Any) -> None:
    out = in_process("""
import os, warnings
warnings.simplefilter("ignore")  # of the fork while the driver's threads run
from cuassay import cuda
from cuassay.errors import ForkError
stream, event = cuda.Stream(), cuda.Event()
event.record(stream)
stream.wait_stream(cuda.Stream())
cuda.current_stream()
calls = [event.query, event.synchronize, lambda: event.record(stream), event.record, lambda: event.wait(stream),
         stream.query, stream.synchronize, stream.record_event, lambda: stream.wait_event(event),
         lambda: stream.wait_stream(stream), lambda: stream.__enter__(), cuda.Stream, cuda.current_stream,
         lambda: cuda.spin(1), lambda: cuda.Event().record(stream)]
if os.fork() == 0:
    for number, call in enumerate(calls):
        try:
            print(number, "answered", call(), flush=True)
        except ForkError:
            pass
        except BaseException as error:
            print(number, repr(error), flush=True)
    print("child done", flush=True)
    del calls, event, stream
    raise SystemExit(0)
_, status = os.wait()
event.synchronize()
print("status", status, event.query())
""")

    assert out.splitlines() == ["child done", "status 0 True"]


@pytest.mark.parametrize("holder", ["module", "cycle", "thread", "atexit"])
def test_the_interpreter_ends_well_with_work_under_way(theirs: Any, holder: str) -> None:
    out = in_process(f"""
import atexit, threading
from cuassay import cuda
stream, event = cuda.Stream(), cuda.Event(enable_timing=True)
with stream:
    cuda.spin(50_000_000)
event.record(stream)
class Cycle: pass
if {holder!r} == "cycle":
    cycle = Cycle()
    cycle.self, cycle.event, cycle.stream = cycle, event, stream
    del event, stream, cycle
elif {holder!r} == "thread":
    threading.Thread(target=lambda: event.synchronize()).start()
elif {holder!r} == "atexit":
    atexit.register(lambda: (event.query(), stream.record_event()))
print("end")
""")

    assert out.strip() == "end"


# ------------------------------------------------------------------------------------------------ processes, graphs


def test_an_event_of_another_process_is_waited_for(side: Any) -> None:
    event = cuda.Event(interprocess=True)
    event.record(side)

    out = in_process(f"""
from cuassay import cuda
event = cuda.Event.from_ipc_handle("cuda:0", bytes.fromhex({event.ipc_handle().hex()!r}))
stream = cuda.Stream()
stream.wait_event(event)
event.synchronize()
stream.synchronize()
print(event.query())
""")

    assert out.strip() == "True"


def test_an_event_that_is_not_shared_says_so(side: Any) -> None:
    with pytest.raises(ArgumentError, match="make it with interprocess=True"):
        cuda.Event().ipc_handle()
    with pytest.raises(ArgumentError, match="has no timing"):
        cuda.Event(enable_timing=True, interprocess=True)


def graph_of(stream: Any, work: Callable[[], None]) -> Any:
    with stream:
        stream.begin_capture()
        try:
            work()
        finally:
            graph = stream.end_capture()
    return graph


@exclusive
def test_external_events_order_a_graph_with_other_streams(side: Any) -> None:
    counter, seen = cupy.zeros(1), cupy.zeros(1)
    begun, ended = cuda.Event(external=True), cuda.Event(external=True)
    cupy.add(counter, 1, out=counter)
    cupy.copyto(seen, counter)
    begun.record(side)
    ended.record(side)  # outside a capture: as any other
    other = cuda.Stream()

    def work() -> None:
        begun.wait()
        cupy.add(counter, 1, out=counter)
        ended.record()

    side.wait_stream(cuda.default_stream())
    side.synchronize()
    graph = graph_of(side, work)
    for _ in range(3):
        with other:
            cuda.spin(5 * MILLISECOND)
        begun.record(other)
        graph.launch(side)
        assert side.query() is False  # the graph waits for what was recorded outside
        other.wait_event(ended)
        with other:
            cupy.copyto(seen, counter)
        other.synchronize()

    assert float(seen[0]) == float(counter[0]) == 4


def test_a_question_that_would_break_a_capture_is_an_error_of_captures(side: Any) -> None:
    event = cuda.Event()

    def work() -> None:
        event.record()
        assert "recorded" in repr(event)  # asks the driver nothing
        event.query()

    with pytest.raises((CaptureError, cupy.cuda.runtime.CUDARuntimeError)):
        graph_of(side, work)
    event.record(side)
    side.synchronize()
    assert event.query()


def test_waits_inside_a_capture_fork_and_join_it(side: Any) -> None:
    other, total = cuda.Stream(), cupy.zeros(1)
    cupy.add(total, 1, out=total)
    side.wait_stream(cuda.default_stream())
    other.wait_stream(side)  # the events that streams keep for this are captured next, and used outside again
    side.wait_stream(other)

    def work() -> None:
        other.wait_stream(side)
        with other:
            cupy.add(total, 1, out=total)
        side.wait_stream(other)
        cupy.add(total, 1, out=total)

    graph = graph_of(side, work)
    graph.launch(side)
    graph.launch(side)
    other.wait_stream(side)
    other.synchronize()

    assert float(total[0]) == 5


BLOCKING = """
from cuassay import cuda, ops
from cuassay.errors import DeviceLostError
import cupy
good = cuda.compile_kernel("__global__ void good(float* p) { p[0] += 1; }", "good")
bad = cuda.compile_kernel("__global__ void bad(float* p) { p[1ll << 40] = 1; }", "bad")
array, stream = cupy.zeros(1, "float32"), cuda.Stream()
ones, twos = cupy.ones((8, 8), "float32"), cupy.full((8, 8), 2, "float32")
product = ops.mm(ones, ones)
cuda.synchronize()
with stream:
    cuda.spin(40_000_000)
    print(stream.query())
    stream.begin_capture()
    good(1, 1, (array,))
    ops.mm(ones, twos, out=product)
    graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
print(array[0], product[0, 0])
try:
    bad(1, 1, (array,))
    print("not blocking")
except DeviceLostError as error:
    print("bad" in str(error))
"""


def test_launches_block_where_it_is_asked_for_and_captures_are_spared(theirs: Any) -> None:
    assert in_process(BLOCKING, CUASSAY_LAUNCH_BLOCKING="1").split() == ["True", "1.0", "16.0", "True"]


def test_launches_do_not_block_by_default(theirs: Any) -> None:
    assert in_process(BLOCKING, CUASSAY_LAUNCH_BLOCKING="0").split()[:3] == ["False", "1.0", "16.0"]
