"""Streams, events and captures as the protocols have them, on every kind present."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.core.protocols import Backend, Capture, Event, Stream
from cuassay.errors import ArgumentError, CaptureError
from cuassay.testing import requires


@pytest.fixture
def backend(device: Device) -> Backend:
    return devices.backend(device.kind)


@pytest.fixture
def side(backend: Backend, device: Device) -> Any:
    """A stream of its own, done with when the test ends."""
    stream = backend.new_stream(device.index)
    yield stream
    stream.synchronize()


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
