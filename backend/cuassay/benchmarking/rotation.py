"""Time of calls on operands in rotation: more sets of them than the cache holds, so that each is cold in its turn.

`timing` measures one call on one set, and flushes the cache before it. Calls of a few microseconds one after another,
as a model makes them, are measured here: a pass of one call on each set is captured once, and its replay is a sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Literal

from cuassay import devices
from cuassay.benchmarking.timing import BATCH_SECONDS, Mode, Timing
from cuassay.core.device import Device
from cuassay.core.protocols import Backend, Spinning
from cuassay.errors import ArgumentError

__all__ = ["CACHE_MULTIPLE", "rotate", "sets_for"]

Pass = Callable[[], Any]

#: Together the sets are so many times the last-level cache, where a device says how large that is; and there are two,
#: where what a cache may keep of one is more than a twentieth of it.
CACHE_MULTIPLE, NEGLIGIBLE = 3, 20

#: Fewest samples of each pass, where time is short.
MIN_SAMPLES = 7

#: Seconds for which the stream is kept busy while the host gives it a sample; `_SPIN_HZ` cycles are a second or more.
_HOLD, _SPIN_HZ = 40e-6, 2e9

#: Takes of a sample whose first event had passed before the last was given.
_TAKES = 3


def sets_for(nbytes: int, device: str | Device, *, most: int = 256) -> int:
    """How many sets of `nbytes` a rotation on `device` needs, and no more than `most`."""
    cache = devices.capabilities(device).answer("l2")
    if not cache or nbytes >= NEGLIGIBLE * cache.value:
        return 1
    return max(2, min(most, -(-CACHE_MULTIPLE * int(cache.value) // max(nbytes, 1))))


def rotate(
    passes: Mapping[str, Pass],
    sets: int,
    device: str | Device,
    *,
    samples: int = 15,
    max_seconds: float = 0.5,
    live: Collection[str] = (),
) -> dict[str, Timing]:
    """Time passes side by side, in the order A B B A; gives the seconds of one call.

    Parameters
    ----------
    passes : mapping
        By name, a callable that gives the current stream one call on each of the sets in turn. It runs once, and is
        captured where the device has graphs.
    sets : int
        How many calls a pass is.
    samples : int
        Of each pass, taken in rounds of all; one is as many passes as fill `timing.BATCH_SECONDS`.
    max_seconds : float
        No round is begun later than this, once there are `MIN_SAMPLES`.
    live : collection of str
        Passes that cannot be captured: they run as they are.
    """
    if not passes or sets < 1 or samples < 1:
        raise ArgumentError(f"a rotation needs a pass, sets >= 1 and samples >= 1; got {sets!r}, {samples!r}")
    found = devices.find(device)
    backend = devices.backend(found.kind)
    with backend.activate(found.index), backend.use_stream(_stream(found)), _captured(passes, found, live) as ready:
        series = {name: _Rotation(backend, found, replay, sets, mode) for name, (replay, mode) in ready.items()}
        repeats = max(one.repeats for one in series.values())
        for one in series.values():
            one.repeats = repeats  # what a sample costs beside its calls is then shared by as many of each
        begun = time.perf_counter()
        for turn in range(samples):
            if turn >= MIN_SAMPLES and time.perf_counter() - begun > max_seconds:
                break
            for one in series.values() if turn % 2 == 0 else reversed(series.values()):
                one.add()
        return {name: one.timing() for name, one in series.items()}


@cache
def _stream(device: Device) -> Any:
    """One for all rotations of a device: libraries keep a workspace for each stream that they meet."""
    return devices.backend(device.kind).new_stream(device.index)


@contextmanager
def _captured(
    passes: Mapping[str, Pass], device: Device, live: Collection[str]
) -> Iterator[dict[str, tuple[Pass, Mode]]]:
    """Each pass as one graph; as it is where that cannot be."""
    backend = devices.backend(device.kind)
    backend.synchronize(device.index)
    for run in passes.values():
        run()
    backend.synchronize(device.index)
    ready: dict[str, tuple[Pass, Mode]] = {}
    with ExitStack() as captures:
        for name, run in passes.items():
            if name in live or not devices.capabilities(device).answer("graphs"):
                ready[name] = run, "stream"
                continue
            capture = backend.new_capture(device.index)
            captures.callback(capture.reset)
            capture.begin()
            try:
                run()
            finally:
                capture.end()
            ready[name] = capture.replay, "graph"
        yield ready
        backend.synchronize(device.index)


class _Rotation:
    """The samples of one pass, as they come."""

    def __init__(self, backend: Backend, device: Device, replay: Pass, sets: int, mode: Mode) -> None:
        self._device, self._replay, self._sets, self._mode = device, replay, sets, mode
        self._has_clock = bool(devices.capabilities(device).answer("timing"))
        self._spins = backend if self._has_clock and isinstance(backend, Spinning) else None
        self._times = [backend.new_event(device.index, timing=True) for _ in range(2)]
        self.repeats, self._is_queued = 1, True
        self._device_s: list[float] = []
        self._host_s: list[float] = []
        once, _, _ = self._once()
        self.repeats = max(1, round(BATCH_SECONDS / max(once * sets, 1e-9)))

    def add(self) -> None:
        """Take one sample; again where the device had to wait for the host."""
        for _ in range(_TAKES):
            device_s, host_s, is_queued = self._once()
            if is_queued or self._spins is None:
                break
        self._is_queued = self._is_queued and is_queued
        self._device_s.append(device_s)
        self._host_s.append(host_s)

    def _once(self) -> tuple[float, float, bool]:
        """Seconds of the device and of the host, a call; and whether all was given before the first of it ran."""
        start, end = self._times
        if self._spins is not None:
            self._spins.spin(self._device.index, int(_HOLD * _SPIN_HZ))
        start.record()
        begun = time.perf_counter()
        for _ in range(self.repeats):
            self._replay()
        host_s = time.perf_counter() - begun
        end.record()
        is_queued = not start.query()
        end.synchronize()
        calls = self.repeats * self._sets
        return start.elapsed_time(end) * 1e-3 / calls, host_s / calls, is_queued

    def timing(self) -> Timing:
        """The series, closed."""
        clock: Literal["device", "host"] = "device" if self._has_clock else "host"
        is_queued = None if self._spins is None else self._is_queued
        return Timing(tuple(self._device_s), tuple(self._host_s), clock, "cold", self._mode, is_queued)
