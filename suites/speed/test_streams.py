"""What streams and events cost the host, also in C, CuPy and torch: rows of the host's clock, a batch of calls each.

Every call is made on handles that exist, as a program does in its loop. C calls the driver in a compiled loop.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import warnings
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from cuassay import Device, devices
from cuassay.testing import devices as on

pytestmark = pytest.mark.usefixtures("emptied_queue")

#: Calls a sample.
CALLS = 200

#: Streams that are forked from one and joined again.
WIDTH = 8

Call = Callable[[], Any]

IN_C = """
typedef int (*record_t)(void *, void *);
typedef int (*wait_t)(void *, void *, unsigned);
typedef int (*query_t)(void *);

int record_many(record_t record, void *event, void *stream, int count) {
    int status = 0;
    while (count-- && !status) status = record(event, stream);
    return status;
}
int wait_many(wait_t wait, void *stream, void *event, int count) {
    int status = 0;
    while (count-- && !status) status = wait(stream, event, 0);
    return status;
}
int query_many(query_t query, void *event, int count) {
    int status = 0;
    while (count--) status |= query(event);
    return status == 600 ? 0 : status;
}
int fork_and_join(record_t record, wait_t wait, void *event, void *stream, void **events, void **streams, int width) {
    int status = 0;
    for (int i = 0; i < width && !status; i++) {
        status = record(event, stream);
        if (!status) status = wait(streams[i], event, 0);
    }
    for (int i = 0; i < width && !status; i++) {
        status = record(events[i], streams[i]);
        if (!status) status = wait(stream, events[i], 0);
    }
    return status;
}
"""


@pytest.fixture
def libraries(device: Device) -> dict[str, Any]:
    """Who makes streams and events, by name; each with torch's names, CuPy apart."""
    from cuassay import cuda

    found: dict[str, Any] = {"cuassay": cuda}
    if importlib.util.find_spec("torch") is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
            import torch

            torch.ones(1, device=str(device))
        found["torch"] = torch.cuda
    return found


@pytest.fixture
def cupy(device: Device) -> Any:
    """CuPy's module of streams and events."""
    return devices.backend(device.kind).namespace(device.index).cuda


@pytest.fixture
def measured(host_times: Callable[..., None]) -> Callable[..., None]:
    """Keeps the host's time of one of `CALLS` calls, which may leave work on other streams."""
    return partial(host_times, "streams", per_sample=CALLS, joined=False)


def many(call: Call) -> Call:
    def run() -> None:
        for _ in repeat(None, CALLS):
            call()

    return run


def many_blocks(stream: Any) -> Call:
    def run() -> None:
        for _ in repeat(None, CALLS):
            with stream:
                pass

    return run


@pytest.fixture
def in_c(tmp_path: Path) -> Callable[..., Call]:
    """A function of `IN_C`, its first arguments the driver's functions by name."""
    if shutil.which("cc") is None:
        return lambda *_: None
    source, library = tmp_path / "streams.c", tmp_path / "streams.so"
    source.write_text(IN_C)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    driver, compiled = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(str(library))

    def made(name: str, calls: tuple[str, ...], *arguments: Any) -> Call:
        given = [getattr(driver, call) for call in calls] + list(arguments)

        def run() -> None:
            assert getattr(compiled, name)(*given) == 0

        return run

    return made


def with_c(calls: dict[str, Call], c: Call | None) -> dict[str, Call]:
    return calls if c is None else {**calls, "c": c}


@on("cuda")
def test_current_stream(libraries: dict[str, Any], cupy: Any, measured: Callable[..., None]) -> None:
    calls = {name: many(library.current_stream) for name, library in libraries.items()}

    measured("current_stream", {**calls, "cupy": many(cupy.get_current_stream)})


@on("cuda")
def test_with_stream(libraries: dict[str, Any], cupy: Any, measured: Callable[..., None]) -> None:
    calls = {name: many_blocks(library.Stream()) for name, library in libraries.items()}

    measured("with stream", {**calls, "cupy": many_blocks(cupy.Stream(non_blocking=True))})


@on("cuda")
@pytest.mark.parametrize("what", ["record", "wait", "query"])
def test_event(
    what: str, libraries: dict[str, Any], cupy: Any, measured: Callable[..., None], in_c: Callable[..., Any]
) -> None:
    calls: dict[str, Call] = {}
    for name, library in libraries.items():
        stream, event = library.Stream(), library.Event()
        event.record(stream)
        calls[name] = many(call_of(what, stream, event))
    stream, event = cupy.Stream(non_blocking=True), cupy.Event(disable_timing=True)
    event.record(stream)
    calls["cupy"] = many(
        {"record": lambda: event.record(stream), "wait": lambda: stream.wait_event(event), "query": lambda: event.done}[
            what
        ]
    )
    e, s = ctypes.c_void_p(event.ptr), ctypes.c_void_p(stream.ptr)
    c = {
        "record": in_c("record_many", ("cuEventRecord",), e, s, CALLS),
        "wait": in_c("wait_many", ("cuStreamWaitEvent",), s, e, CALLS),
        "query": in_c("query_many", ("cuEventQuery",), e, CALLS),
    }[what]

    measured(f"event {what}", with_c(calls, c))

    assert event.ptr


def call_of(what: str, stream: Any, event: Any) -> Call:
    return {
        "record": lambda: event.record(stream),
        "wait": lambda: stream.wait_event(event),
        "query": lambda: event.query(),
    }[what]


@on("cuda")
def test_fork_and_join(
    libraries: dict[str, Any], cupy: Any, measured: Callable[..., None], in_c: Callable[..., Any]
) -> None:
    calls = {
        name: forked(library.Stream(), [library.Stream() for _ in range(WIDTH)]) for name, library in libraries.items()
    }
    streams = [cupy.Stream(non_blocking=True) for _ in range(WIDTH + 1)]
    events = [cupy.Event(disable_timing=True) for _ in range(WIDTH + 1)]
    handles = [(ctypes.c_void_p * WIDTH)(*[one.ptr for one in some[:WIDTH]]) for some in (events, streams)]
    last = [ctypes.c_void_p(some[-1].ptr) for some in (events, streams)]
    c = in_c("fork_and_join", ("cuEventRecord", "cuStreamWaitEvent"), *last, *handles, WIDTH)

    measured(f"fork and join {WIDTH} streams", with_c(calls, c), per_sample=1)

    assert len(events) == len(streams)


def forked(main: Any, sides: list[Any]) -> Call:
    def run() -> None:
        for side in sides:
            side.wait_stream(main)
        for side in sides:
            main.wait_stream(side)

    return run


@on("cuda")
def test_a_new_event_recorded(libraries: dict[str, Any], measured: Callable[..., None]) -> None:
    measured("record_event", {name: many(library.Stream().record_event) for name, library in libraries.items()})
