"""Streams, events and captures as the protocols have them, on every kind present."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.core import syncdebug
from cuassay.core.protocols import Backend, Capture, Event, Stream
from cuassay.core.round_robin import STREAMS_PER_PRIORITY
from cuassay.errors import ArgumentError, CaptureError, DeviceError, RaceError, SynchronizationError
from cuassay.testing import devices as on
from cuassay.testing import exclusive, racing, requires


@pytest.fixture
def ones(device: Device) -> Any:
    return from_host(np.ones(1000, np.float32), device)


# ------------------------------------------------------------------------------------------------ order


@requires("streams")
def test_streams_and_events_are_what_the_protocols_say(device: Device, backend: Backend, side: Any) -> None:
    event = backend.new_event(device.index)

    assert isinstance(side, Stream)
    assert isinstance(event, Event)
    assert side.device == event.device == device


def by_stream(waiting: Any, other: Any) -> None:
    waiting.wait_stream(other)


def by_event(waiting: Any, other: Any) -> None:
    waiting.wait_event(other.record_event())


def by_wait_of_the_event(waiting: Any, other: Any) -> None:
    other.record_event().wait(waiting)


@requires("streams")
@pytest.mark.parametrize("wait", [by_stream, by_event, by_wait_of_the_event])
def test_what_waits_sees_what_the_other_stream_wrote(
    device: Device, backend: Backend, side: Any, ones: Any, wait: Callable[[Any, Any], None]
) -> None:
    main = backend.current_stream(device.index)
    wait(side, main)
    with backend.use_stream(side):
        twice = ops.add(ones, ones)
    wait(main, side)

    assert (to_host(ops.add(twice, ones)) == 3).all()


@requires("streams")
def test_a_given_event_is_recorded_again_and_given_back(device: Device, backend: Backend, side: Any) -> None:
    event = backend.new_event(device.index)

    assert side.record_event(event) is event
    assert side.record_event(event) is event


@requires("streams")
def test_a_stream_without_work_and_an_event_never_recorded_are_done(
    device: Device, backend: Backend, side: Any
) -> None:
    assert side.query() is True
    assert backend.new_event(device.index).query() is True


@requires("streams")
def test_after_synchronize_stream_and_event_are_done(device: Device, backend: Backend, side: Any, ones: Any) -> None:
    side.wait_stream(backend.current_stream(device.index))
    with backend.use_stream(side):
        ops.add(ones, ones)
    event = side.record_event()

    event.synchronize()
    side.synchronize()

    assert event.query() is True
    assert side.query() is True


@on("sim:*", "cuda:*")
@pytest.mark.parametrize("wait", ["wait_stream", "wait_event"])
def test_what_is_no_stream_or_event_is_not_waited_for(device: Device, side: Any, wait: str) -> None:
    with pytest.raises(ArgumentError, match=r"'side'.*; give"):
        getattr(side, wait)("side")


@requires("streams")
def test_use_stream_makes_it_current_and_restores_the_former(device: Device, backend: Backend, side: Any) -> None:
    before, inner = backend.current_stream(device.index), backend.new_stream(device.index)

    with backend.use_stream(side):
        with backend.use_stream(inner):
            assert backend.current_stream(device.index) == inner
        assert backend.current_stream(device.index) == side

    assert backend.current_stream(device.index) == before


@requires("streams")
def test_use_stream_restores_the_former_after_an_error(device: Device, backend: Backend, side: Any) -> None:
    before = backend.current_stream(device.index)

    with pytest.raises(KeyError), backend.use_stream(side):
        raise KeyError

    assert backend.current_stream(device.index) == before


@on("sim:*", "cuda:*")
@requires("streams")
def test_a_stream_is_entered_as_it_is(device: Device, backend: Backend, side: Any) -> None:
    before = backend.current_stream(device.index)

    with side as entered, backend.new_stream(device.index) as inner:
        assert entered is side
        assert backend.current_stream(device.index) == inner
        with side:
            assert backend.current_stream(device.index) == side
        assert backend.current_stream(device.index) == inner

    assert backend.current_stream(device.index) == before


@on("sim:*", "cuda:*")
@requires("streams")
def test_to_use_no_stream_changes_nothing(device: Device, backend: Backend, side: Any) -> None:
    with side, backend.use_stream(None):
        assert backend.current_stream(device.index) == side


@on("sim:*", "cuda:*")
@requires("streams")
def test_a_stream_that_is_set_stays_and_comes_back_after_a_block(device: Device, backend: Backend, side: Any) -> None:
    seen: list[Any] = []

    def work() -> None:  # in a thread of its own, whose current stream is nobody else's
        backend.set_stream(side)
        seen.append(backend.current_stream(device.index))
        backend.set_stream(None)
        with backend.new_stream(device.index):
            pass
        seen.append(backend.current_stream(device.index))
        other = backend.new_stream(device.index)
        backend.set_stream(other)
        seen.append(backend.current_stream(device.index) == other)

    in_threads(work)

    assert seen == [side, side, True]


@on("sim:*", "cuda:*")
@requires("streams")
def test_a_stream_set_inside_a_block_ends_with_it(device: Device, backend: Backend, side: Any) -> None:
    before = backend.current_stream(device.index)

    with side:
        other = backend.new_stream(device.index)
        backend.set_stream(other)
        assert backend.current_stream(device.index) == other

    assert backend.current_stream(device.index) == before


@on("sim:*", "cuda:*")
@requires("streams")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(st.sampled_from(["leave", *"01234", "set 0", "set 1", "set 2"]), max_size=20))
def test_the_current_stream_is_the_one_a_stack_would_give(device: Device, backend: Backend, program: list[str]) -> None:
    streams = [backend.new_stream(device.index) for _ in range(5)]

    def run() -> None:
        current, outer = backend.current_stream(device.index), []
        for step in program:
            if step.startswith("set"):
                current = streams[int(step[4:])]
                backend.set_stream(current)
            elif step != "leave":
                outer.append((current, streams[int(step)]))
                current = streams[int(step)].__enter__()
            elif outer:
                current, entered = outer.pop()
                entered.__exit__(None, None, None)
            assert backend.current_stream(device.index) == current
        while outer:
            outer.pop()[1].__exit__(None, None, None)

    in_threads(run)


def in_threads(*works: Callable[[], None]) -> None:
    """Run each in a thread of its own; raise what the first that failed raised."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  it is raised below, in the test's thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@requires("streams")
def test_each_thread_has_its_own_current_stream(device: Device, backend: Backend, side: Any) -> None:
    inside: list[Any] = []

    with backend.use_stream(side):
        in_threads(lambda: inside.append(backend.current_stream(device.index)))

    assert inside[0] != side


@on("sim:*", "cuda:*")
@requires("count>=2")
def test_entering_a_stream_of_another_device_switches_it_and_back(device: Device, backend: Backend) -> None:
    near, far = backend.new_stream(device.index), backend.new_stream(1 - device.index)
    before = backend.current_stream(device.index), backend.current_stream(1 - device.index)

    with near, far:
        assert backend.is_current(1 - device.index)
        assert backend.current_stream(device.index) == near
        assert backend.current_stream(1 - device.index) == far

    assert (backend.current_stream(device.index), backend.current_stream(1 - device.index)) == before
    assert near != far


@on("sim:*", "cuda:*")
@requires("count>=2")
def test_an_event_belongs_to_one_device_and_streams_of_others_may_wait_for_it(device: Device, backend: Backend) -> None:
    near, far = backend.new_stream(device.index), backend.new_stream(1 - device.index)
    event = near.record_event()

    far.wait_event(event)
    far.wait_stream(near)

    with pytest.raises(DeviceError, match=r"cannot be recorded on .*make one there"):
        event.record(far)


# ------------------------------------------------------------------------------------------------ the pool


@on("sim:*", "cuda:*")
@requires("streams")
def test_streams_of_one_priority_are_32_in_turn(device: Device, backend: Backend) -> None:
    streams = [backend.new_stream(device.index) for _ in range(2 * STREAMS_PER_PRIORITY)]

    assert len(set(streams)) == STREAMS_PER_PRIORITY
    assert streams[STREAMS_PER_PRIORITY:] == streams[:STREAMS_PER_PRIORITY]


@on("sim:*", "cuda:*")
@requires("streams")
def test_streams_of_two_priorities_are_never_the_same(device: Device, backend: Backend) -> None:
    plain = {backend.new_stream(device.index) for _ in range(STREAMS_PER_PRIORITY)}
    urgent = {backend.new_stream(device.index, -1) for _ in range(STREAMS_PER_PRIORITY)}

    assert not plain & urgent
    assert {stream.priority for stream in urgent} == {-1}


@exclusive
@on("sim:*", "cuda:*")
@requires("streams")
def test_a_new_event_knows_nothing_of_its_forerunner_that_is_pending(
    device: Device, backend: Backend, side: Any
) -> None:
    with side:
        backend.spin(device.index, LONG)
    pending = side.record_event()
    assert pending.query() is False
    del pending
    gc.collect()

    fresh = backend.new_event(device.index)

    assert fresh.query() is True
    assert "not recorded" in repr(fresh)


# ------------------------------------------------------------------------------------------------ right and wrong

#: Cycles of `spin`: some 20 ms of an H200, longer than the host needs for what follows.
LONG = 40_000_000

STALE, FRESH = 1.0, 3.0


def consumed(backend: Backend, device: Device, ones: Any, *, waits: bool) -> float:
    """One stream produces, slowly, another consumes, and waits for it or does not."""
    main = backend.current_stream(device.index)
    data, zeros = ops.add(ones, 0.0), ops.mul(ones, 0.0)
    producer, consumer = backend.new_stream(device.index), backend.new_stream(device.index)
    for stream in (producer, consumer):
        stream.wait_stream(main)
    try:
        with backend.use_stream(producer):
            backend.spin(device.index, LONG)
            ops.add(ones, 2.0, out=data)
        if waits:
            consumer.wait_stream(producer)
        with backend.use_stream(consumer):
            seen = ops.add(data, zeros)
            return float(to_host(seen)[0])
    finally:
        for stream in (producer, consumer):
            stream.synchronize()


@racing
@exclusive
@on("sim:*", "cuda:*")
@requires("streams")
def test_a_consumer_that_does_not_wait_reads_what_was_there_before(device: Device, backend: Backend, ones: Any) -> None:
    consumed(backend, device, ones, waits=True)  # compiles what must not take longer than the spin

    if backend.probe(device.index, "race_detection"):
        with pytest.raises(RaceError, match=r"insert stream\d+\.wait_stream\(stream\d+\)"):
            consumed(backend, device, ones, waits=False)
    else:
        assert consumed(backend, device, ones, waits=False) == STALE


@on("sim:*", "cuda:*")
@requires("streams")
def test_a_consumer_that_waits_reads_what_was_produced(device: Device, backend: Backend, ones: Any) -> None:
    assert consumed(backend, device, ones, waits=True) == FRESH


def read_back(backend: Backend, device: Device, ones: Any, *, waits: bool) -> float:
    """The host reads what a stream copies to it, slowly, and waits for it or does not."""
    host = devices.empty_pinned(ones.shape, ones.dtype, device)
    host[...] = STALE
    thrice, stream = ops.add(ones, 2.0), backend.new_stream(device.index)
    stream.wait_stream(backend.current_stream(device.index))
    try:
        with backend.use_stream(stream):
            backend.spin(device.index, LONG)
            devices.copy(thrice, host, non_blocking=True)
        if waits:
            stream.record_event().synchronize()
        return float(host[0])
    finally:
        stream.synchronize()


@racing
@exclusive
@on("sim:*", "cuda:*")
@requires("streams", "pinned_memory")
def test_a_host_that_does_not_wait_reads_what_was_there_before(device: Device, backend: Backend, ones: Any) -> None:
    read_back(backend, device, ones, waits=True)  # compiles what must not take longer than the spin

    if backend.probe(device.index, "race_detection"):
        with pytest.raises(RaceError):
            read_back(backend, device, ones, waits=False)
    else:
        assert read_back(backend, device, ones, waits=False) == STALE


@on("sim:*", "cuda:*")
@requires("streams", "pinned_memory")
def test_a_host_that_waits_reads_what_was_copied(device: Device, backend: Backend, ones: Any) -> None:
    assert read_back(backend, device, ones, waits=True) == FRESH


# ------------------------------------------------------------------------------------------------ sync debug mode

WAITS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "to_host": lambda backend, stream, array, index: to_host(array),
    "stream": lambda backend, stream, array, index: stream.synchronize(),
    "event": lambda backend, stream, array, index: stream.record_event().synchronize(),
    "device": lambda backend, stream, array, index: backend.synchronize(index),
    "get": lambda backend, stream, array, index: array.get(),
    "item": lambda backend, stream, array, index: array[0].item(),
    "bool": lambda backend, stream, array, index: bool(array[0] > 0),
}


@pytest.fixture
def debugged() -> Iterator[Callable[[str], None]]:
    """Sets the mode; the former comes back."""
    before = syncdebug.get_mode()
    yield syncdebug.set_mode
    syncdebug.set_mode(before)


@on("sim:*", "cuda:*")
@requires("streams")
@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_of_the_host_is_an_error_a_warning_or_nothing(
    device: Device, backend: Backend, side: Any, ones: Any, debugged: Callable[[str], None], wait: str
) -> None:
    backend.synchronize(device.index)

    debugged("error")
    with pytest.raises(SynchronizationError, match="the host waits for the device"):
        WAITS[wait](backend, side, ones, device.index)
    debugged("warn")
    with pytest.warns(UserWarning, match="the host waits for the device"):
        WAITS[wait](backend, side, ones, device.index)
    debugged("default")
    WAITS[wait](backend, side, ones, device.index)


@on("sim:*", "cuda:*")
@requires("streams")
def test_work_that_makes_nobody_wait_is_let_be(
    device: Device, backend: Backend, side: Any, ones: Any, debugged: Callable[[str], None]
) -> None:
    debugged("error")

    side.wait_stream(backend.current_stream(device.index))
    with side:
        twice = ops.add(ones, ones)
    event = side.record_event()
    event.wait()
    event.query()
    side.query()

    debugged("default")
    assert (to_host(twice) == 2).all()


# ------------------------------------------------------------------------------------------------ time


@requires("timing")
def test_time_passes_between_two_events(device: Device, backend: Backend, ones: Any) -> None:
    start, end = (backend.new_event(device.index, timing=True) for _ in range(2))

    start.record()
    ops.add(ones, ones)
    end.record()
    end.synchronize()

    assert start.elapsed_time(end) >= 0
    assert start.elapsed_time(start) == 0


@requires("timing")
@pytest.mark.parametrize("untimed", ["start", "end"])
def test_no_time_is_read_from_an_event_made_without_timing(device: Device, backend: Backend, untimed: str) -> None:
    start, end = (backend.new_event(device.index, timing=which != untimed) for which in ("start", "end"))
    start.record()
    end.record()
    backend.synchronize(device.index)

    with pytest.raises(ArgumentError, match="timing=True"):
        start.elapsed_time(end)


@requires("timing")
@pytest.mark.parametrize("missing", ["start", "end"])
def test_no_time_is_read_from_an_event_never_recorded(device: Device, backend: Backend, missing: str) -> None:
    start, end = (backend.new_event(device.index, timing=True) for _ in range(2))
    (end if missing == "start" else start).record()
    backend.synchronize(device.index)

    with pytest.raises(ArgumentError, match="recorded"):
        start.elapsed_time(end)


# ------------------------------------------------------------------------------------------------ life


@requires("streams")
def test_handles_may_be_dropped_while_their_work_is_under_way(device: Device, backend: Backend, ones: Any) -> None:
    main, side = backend.current_stream(device.index), backend.new_stream(device.index)
    side.wait_stream(main)
    with backend.use_stream(side):
        twice = ops.add(ones, ones)
    event = side.record_event()
    main.wait_event(event)

    del side, event
    gc.collect()

    assert (to_host(ops.add(twice, ones)) == 3).all()


@on("sim:*", "cuda:*")
@requires("streams")
def test_streams_and_events_serve_several_threads_at_once(device: Device, backend: Backend, ones: Any) -> None:
    backend.synchronize(device.index)
    totals: list[float] = []

    def work() -> None:
        first, second = backend.new_stream(device.index), backend.new_stream(device.index)
        with first:
            total = ops.add(ones, 0.0)
        for here, there in [(first, second), (second, first)] * 20:
            there.wait_event(here.record_event())
            with there:
                ops.add(total, ones, out=total)
            here.wait_stream(there)
        with first:
            totals.append(float(to_host(total)[0]))

    in_threads(*[work] * 4)

    assert totals == [41.0] * 4


def test_memory_in_use_follows_the_arrays_that_live(device: Device, backend: Backend) -> None:
    in_use = getattr(backend, "memory_in_use", None)
    if in_use is None:
        pytest.skip(f"{device}: its kind does not count the memory in use")
    gc.collect()  # what earlier tests left in reference cycles
    before = in_use(device.index)

    array = devices.empty((1000,), "float32", device)

    assert in_use(device.index) >= before + 4000
    del array
    assert in_use(device.index) == before


def test_flushing_the_cache_leaves_memory_stream_and_numbers_alone(device: Device, backend: Backend, ones: Any) -> None:
    in_use = getattr(backend, "memory_in_use", lambda index: 0)
    before = in_use(device.index), backend.current_stream(device.index)

    backend.flush_cache(device.index)
    backend.flush_cache(device.index)

    assert (in_use(device.index), backend.current_stream(device.index)) == before
    assert (to_host(ones) == 1).all()


# ------------------------------------------------------------------------------------------------ captures


@pytest.fixture
def capture(device: Device, backend: Backend, side: Any) -> Any:
    """A capture, and its stream current; ended whatever the test leaves."""
    made = backend.new_capture(device.index)
    with backend.use_stream(side):
        yield made
        made.reset()


@requires("graphs")
def test_a_capture_is_what_the_protocol_says(capture: Any) -> None:
    assert isinstance(capture, Capture)


@requires("graphs")
def test_what_is_captured_runs_at_each_replay_and_not_before(device: Device, capture: Any, side: Any) -> None:
    total, one = (from_host(np.full(8, value, np.float32), device) for value in (0, 1))
    ops.add(total, one)  # compiled outside of the capture
    side.synchronize()

    capture.begin()
    ops.add(total, one, out=total)
    capture.end()
    before = to_host(total).copy()
    capture.replay()
    capture.replay()

    assert (before == 0).all()
    assert (to_host(total) == 2).all()


@requires("graphs")
def test_beginning_twice_is_refused_and_the_first_goes_on(capture: Any) -> None:
    capture.begin()

    with pytest.raises(CaptureError):
        capture.begin()

    capture.end()


@requires("graphs")
@pytest.mark.parametrize("call", ["end", "replay"])
def test_an_empty_capture_has_nothing_to_end_or_to_replay(capture: Any, call: str) -> None:
    with pytest.raises(CaptureError, match=r"begin|captur"):
        getattr(capture, call)()


@requires("graphs")
def test_after_reset_there_is_nothing_to_replay_and_reset_again_is_allowed(capture: Any) -> None:
    capture.begin()
    capture.end()

    capture.reset()
    capture.reset()

    with pytest.raises(CaptureError):
        capture.replay()


@requires("graphs")
def test_reset_ends_a_capture_that_is_open(device: Device, capture: Any, ones: Any) -> None:
    capture.begin()

    capture.reset()

    assert (to_host(ops.add(ones, ones)) == 2).all()


@requires("graphs")
def test_the_default_stream_is_not_captured(device: Device, backend: Backend) -> None:
    capture = backend.new_capture(device.index)

    with pytest.raises(CaptureError, match="default"):
        capture.begin()


def raised(step: Callable[[], Any]) -> type[BaseException] | None:
    try:
        step()
    except RuntimeError as error:  # CaptureError, or the library's own
        return type(error)
    return None


@requires("graphs")
def test_a_host_read_inside_a_capture_is_an_error_of_the_read_or_of_the_end(
    device: Device, capture: Any, side: Any, ones: Any
) -> None:
    side.synchronize()
    capture.begin()

    errors = [raised(lambda: to_host(ones)), raised(capture.end)]

    assert CaptureError in errors
    capture.reset()
    assert (to_host(ops.add(ones, ones)) == 2).all()
