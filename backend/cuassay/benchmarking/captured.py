"""Capture calls as graphs for mode ``graph``, and reject captures that lack some of the call's launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from cuassay.benchmarking.empty import empty_interval
from cuassay.benchmarking.sampling import Call, Series
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import CaptureError

__all__ = ["captured"]

#: A graph that takes less than this share of the live call's time has not captured all of its launches.
LEAST_OF_LIVE = 0.4


@contextmanager
def captured(calls: Mapping[str, Call], backend: Backend, device: Device) -> Iterator[dict[str, Call]]:
    """Capture each call as a graph; inside the block, its replay replaces the call.

    Raises
    ------
    CaptureError
        If a graph holds no work, or lacks some of the work that the live call launches.
    """
    side = backend.new_stream(device.index)
    ready: dict[str, Call] = {}
    with ExitStack() as graphs:
        with backend.use_stream(side):
            for name, call in calls.items():
                graph = backend.new_capture(device.index)
                graphs.callback(graph.reset)
                graph.begin()
                try:
                    call()
                finally:  # a capture left open would break what the thread does next
                    graph.end()
                _refuse_gaps(name, graph, call, backend, device)
                ready[name] = graph.replay
            yield ready
        side.synchronize()


def _refuse_gaps(name: str, graph: Any, call: Call, backend: Backend, device: Device) -> None:
    """Raise if the capture lacks some of the call's launches, as when another library uses its own stream."""
    if not graph.statistics().nodes:
        raise CaptureError(
            f"{name} was captured on {device}, and the graph holds nothing: the call launches on a stream that was not "
            "being captured; give its library cuassay's current stream, or measure with mode='stream'"
        )
    times = ""
    for _ in range(_LOOKS):
        times = _differing_times(call, graph, backend, device)
        if not times:
            return
    raise CaptureError(
        f"the graph of {name} takes {times}: the capture lacks some of its launches; give its library cuassay's "
        "current stream, or measure with mode='stream'"
    )


#: How often the times must differ: another process on the device can make one live call long.
_LOOKS = 3


def _differing_times(call: Call, graph: Any, backend: Backend, device: Device) -> str:
    """Return both times in words if the graph's is far shorter than the live call's, and otherwise nothing."""
    live, replay = (_glance(one, backend, device) for one in (call, graph.replay))
    if live is None or replay is None or replay >= LEAST_OF_LIVE * live:
        return ""
    return f"{replay * 1e6:.2f} µs on {device} and the live call {live * 1e6:.2f} µs"


def _glance(call: Call, backend: Backend, device: Device) -> float | None:
    """Return the shortest time of three queued calls in seconds, without the empty interval; None if not queued."""
    one, empty = Series(backend, device.index, call, "warm", queued=True), empty_interval(device)
    one.find_hold()
    if not one.queued or empty is None:
        return None
    for _ in range(3):
        one.add()
    return max(min(one.device_s) - empty.median_s, 0.0)
