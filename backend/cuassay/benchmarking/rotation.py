"""Time calls on rotating sets of operands. The sets exceed the cache, so each is cold when its turn comes.

`timing` measures one call on one set, and flushes the cache before it. This module measures calls of a few microseconds
that follow each other, as a model makes them. A pass is one call on each set. All passes of a sample are captured as
one graph whose replay is the sample, because the device would idle between replays of short graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from cuassay import devices
from cuassay.benchmarking.empty import empty_interval
from cuassay.benchmarking.sampling import BATCH_SECONDS, time_unit
from cuassay.benchmarking.series import Mode, Timing
from cuassay.core.device import Device
from cuassay.core.protocols import Backend, Spinning
from cuassay.errors import ArgumentError

__all__ = ["CACHE_MULTIPLE", "rotate", "sets_for"]

Pass = Callable[[], Any]

#: All sets together are three times as large as the last-level cache, if its size is known. There are at least two,
#: unless the cache holds less than a twentieth of one.
CACHE_MULTIPLE, NEGLIGIBLE = 3, 20

#: The smallest number of samples of each pass, even if time is short.
MIN_SAMPLES = 7

#: Seconds for which the stream is kept busy while the host queues a sample; `_SPIN_HZ` cycles take a second or more.
_HOLD, _SPIN_HZ = 40e-6, 2e9

#: How often a sample is taken if its first event was reached before its last was queued.
_TAKES = 3


def sets_for(nbytes: int, device: str | Device, *, most: int = 256) -> int:
    """Return how many sets of `nbytes` a rotation on `device` needs, at most `most`."""
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
    """Time passes side by side, in the order A B B A.

    Parameters
    ----------
    passes : mapping
        From names to callables that launch one call on each of the sets in turn on the current stream. A pass runs
        once, and is then captured if the device has graphs.
    sets : int
        The number of calls in a pass.
    device : str or Device
        The device.
    samples : int
        The number of samples of each pass. A sample is as many passes as fill `sampling.BATCH_SECONDS`.
    max_seconds : float
        No round of samples is begun after this time, once there are `MIN_SAMPLES`.
    live : collection of str
        The names of passes that cannot be captured. They are launched directly.

    Returns
    -------
    dict
        From names to the times of one call, in seconds.

    Raises
    ------
    ArgumentError
        If there is no pass, or `sets` or `samples` is less than 1.
    """
    if not passes or sets < 1 or samples < 1:
        raise ArgumentError(f"a rotation needs a pass, sets >= 1 and samples >= 1; got {sets!r}, {samples!r}")
    found = devices.find(device)
    backend = devices.backend(found.kind)
    with backend.activate(found.index), backend.use_stream(_stream(found)), _captures(found) as capture:
        backend.synchronize(found.index)
        for run in passes.values():
            run()
        backend.synchronize(found.index)
        graphs = {name for name in passes if name not in live and devices.capabilities(found).answer("graphs")}
        series = {
            name: _Rotation(backend, found, capture(run, 1) if name in graphs else run, sets, name in graphs)
            for name, run in passes.items()
        }
        repeats = max(one.repeats for one in series.values())
        for name, one in series.items():
            one.repeats = repeats  # the same for all, so that the fixed cost of a sample weighs equally
            if name in graphs and repeats > 1:
                one.capture_all(capture(passes[name], repeats))
        begun = time.perf_counter()
        for turn in range(samples):
            if turn >= MIN_SAMPLES and time.perf_counter() - begun > max_seconds:
                break
            for one in series.values() if turn % 2 == 0 else reversed(series.values()):
                one.add()
        empty = empty_interval(found) if any(one.is_queued for one in series.values()) else None
        return {name: one.timing(None if empty is None else empty.median_s) for name, one in series.items()}


@cache
def _stream(device: Device) -> Any:
    """Return one stream for all rotations of a device, because libraries keep a workspace for each stream."""
    return devices.backend(device.kind).new_stream(device.index)


@contextmanager
def _captures(device: Device) -> Iterator[Callable[[Pass, int], Pass]]:
    """Yield a function that captures passes as one graph and returns its replay. The block's end drops the graphs."""
    backend = devices.backend(device.kind)
    with ExitStack() as graphs:

        def capture(run: Pass, times: int) -> Pass:
            graph = backend.new_capture(device.index)
            graphs.callback(graph.reset)
            graph.begin()
            try:
                for _ in range(times):
                    run()
            finally:
                graph.end()
            return graph.replay

        yield capture
        backend.synchronize(device.index)


class _Rotation:
    """The samples of one pass, as they are taken."""

    def __init__(self, backend: Backend, device: Device, run: Pass, sets: int, is_graph: bool) -> None:
        self._backend, self._device, self._run, self._sets, self._is_whole = backend, device, run, sets, False
        self._mode: Mode = "graph" if is_graph else "stream"
        self._has_clock = bool(devices.capabilities(device).answer("timing"))
        self._spins = backend if self._has_clock and isinstance(backend, Spinning) else None
        self._times = [backend.new_event(device.index, timing=True) for _ in range(2)]
        self.repeats, self._is_queued = 1, True
        self._device_s: list[float] = []
        self._host_s: list[float] = []
        once, _, _ = self._once()
        self.repeats = max(1, round(BATCH_SECONDS / max(once * sets, 1e-9)))

    def capture_all(self, replay: Pass) -> None:
        """Use `replay`, which runs all passes of a sample, from now on."""
        self._run, self._is_whole = replay, True

    def add(self) -> None:
        """Take one sample; take it again if the device had to wait for the host."""
        for _ in range(_TAKES):
            device_s, host_s, is_queued = self._once()
            if is_queued or self._spins is None:
                break
        self._is_queued = self._is_queued and is_queued
        self._device_s.append(device_s)
        self._host_s.append(host_s)

    def _once(self) -> tuple[float, float, bool]:
        """Return device and host seconds of one call, and whether everything was queued before the first work ran."""
        start, end = self._times
        if self._spins is not None:
            self._spins.spin(self._device.index, int(_HOLD * _SPIN_HZ))
        start.record()
        begun = time.perf_counter()
        for _ in range(1 if self._is_whole else self.repeats):
            self._run()
        host_s = time.perf_counter() - begun
        end.record()
        is_queued = not start.query()
        end.synchronize()
        calls = self.repeats * self._sets
        return start.elapsed_time(end) * 1e-3 / calls, host_s / calls, is_queued

    @property
    def is_queued(self) -> bool | None:
        """Whether every sample was queued; None if the device does not queue."""
        return None if self._spins is None else self._is_queued

    def timing(self, empty_s: float | None) -> Timing:
        """Return the finished series. `empty_s` is the empty interval of its device."""
        return Timing(
            samples_s=tuple(self._device_s),
            host_s=tuple(self._host_s),
            clock="device" if self._has_clock else "host",
            cache="cold",
            mode=self._mode,
            queued=self.is_queued,
            empty_s=empty_s / (self.repeats * self._sets) if empty_s is not None and self.is_queued else 0.0,
            unit=time_unit(self._backend) if self._has_clock else "s",
        )
