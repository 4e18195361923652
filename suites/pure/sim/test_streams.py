"""An object that is not a stream or event of the simulated device is rejected with a message everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from cuassay import cuda, devices
from cuassay.errors import ArgumentError, CaptureError

BACKEND = devices.backend("sim")

CALLS: dict[str, Any] = {
    "empty": lambda one: devices.empty(3, "float32", "sim", stream=one),
    "set_stream": BACKEND.set_stream,
    "use_stream": BACKEND.use_stream,
    "record": lambda one: BACKEND.new_event(0).record(one),
    "wait": lambda one: BACKEND.new_event(0).wait(one),
    "begin": lambda one: BACKEND.new_capture(0).begin(one),
    "elapsed_time": lambda one: BACKEND.new_event(0, timing=True).elapsed_time(one),
    "graph": lambda one: cuda.graph(BACKEND.new_capture(0), stream=one).__enter__(),
}


@pytest.mark.parametrize("given", [5, "default", object()], ids=["number", "word", "object"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_no_stream_is_refused(call: Any, given: Any) -> None:
    with pytest.raises(ArgumentError, match=r"simulated (stream|event)"):
        call(given)


def test_another_thread_may_use_the_machine_after_a_call(elsewhere: Any) -> None:
    BACKEND.synchronize(0)
    lock = BACKEND.machine.lock

    assert elsewhere(lambda: lock.acquire(timeout=5))
    elsewhere(lock.release)


@pytest.mark.parametrize("asked", ["query", "synchronize"])
def test_an_event_recorded_inside_a_capture_is_not_waited_for(asked: str) -> None:
    stream, event, capture = BACKEND.new_stream(0), BACKEND.new_event(0), BACKEND.new_capture(0)
    with BACKEND.use_stream(stream):
        capture.begin(stream)
        event.record(stream)
        capture.end()

    with pytest.raises(CaptureError, match=rf"Event\.{asked} is illegal on an event recorded inside a capture"):
        getattr(event, asked)()
