"""All timing there is: device time by events, host time beside it, cold or warm cache, until it settles.

A sample is one call (warm: as many as fill `BATCH_SECONDS`) between two events of the device. On cpu the events
read the host's clock, on sim virtual time; the interface is the same. What a series is compared with, and what a
difference means, stands elsewhere.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from cuassay import devices
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import ArgumentError

__all__ = ["Cache", "Mode", "Ratio", "Timing", "interleave", "measure", "ratio"]

Cache = Literal["cold", "warm"]
Mode = Literal["stream", "graph"]
Call = Callable[[], Any]

#: A warm sample shorter than this is a batch of calls: one event pair costs about a microsecond of device time.
BATCH_SECONDS = 100e-6

#: Fewest samples a median and its spread are worth stating of.
MIN_SAMPLES = 10

#: Calls before the first sample: compilation, tuning, first touch of pages, clocks rising.
WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured series.

    Attributes
    ----------
    samples_s, host_s : tuple of float
        Seconds a call, in order: by the device's clock, and how long the host was busy giving it the call.
    clock : str
        Whose clock `samples_s` are of: ``device``, or ``host`` where the device has none.
    cache : str
        ``cold``: the last-level cache was flushed before each sample. ``warm``: it was not.
    mode : str
        ``stream``: one launch a call. ``graph``: the call was captured once, and replayed.
    """

    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    clock: Literal["device", "host"]
    cache: Cache
    mode: Mode = "stream"

    @property
    def median_s(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """First and third quartile."""
        if len(self.samples_s) < 2:
            return self.samples_s[0], self.samples_s[0]
        low, _, high = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, high = self.quartiles_s
        return (high - low) / self.median_s if self.median_s else 0.0

    def __repr__(self) -> str:
        figures = f"median {self.median_s:.3g} s, spread {self.spread:.1%}, n {len(self.samples_s)}"
        return f"Timing({figures}, {self.clock}, {self.cache}, {self.mode})"


def measure(
    fn: Call,
    device: str | Device,
    *,
    cache: Cache = "cold",
    mode: Mode = "stream",
    samples: int = 200,
    max_seconds: float = 1.0,
    precision: float = 0.005,
) -> Timing:
    """Time `fn` on `device`, in order of its current stream.

    Parameters
    ----------
    fn : callable
        Gives work to the current stream; must not wait for it.
    cache, mode : str
        See `Timing`.
    samples : int
        Most samples.
    max_seconds : float
        No sample is begun later than this, once there are `MIN_SAMPLES`.
    precision : float
        Stop once the median's standard error is this small, relative to it.

    Raises
    ------
    CapabilityError
        For mode ``graph`` on a device without graphs.
    """
    options = {"cache": cache, "mode": mode, "samples": samples, "max_seconds": max_seconds, "precision": precision}
    return interleave({"fn": fn}, device, **options)["fn"]  # type: ignore[arg-type]


def interleave(
    calls: Mapping[str, Call],
    device: str | Device,
    *,
    cache: Cache = "cold",
    mode: Mode = "stream",
    samples: int = 200,
    max_seconds: float = 1.0,
    precision: float = 0.005,
) -> dict[str, Timing]:
    """Time several calls side by side, in the order A B B A, so that a drift of the clocks meets all alike.

    Parameters as for `measure`; `max_seconds` is for each call.
    """
    if not calls or samples < 1 or not max_seconds > 0:
        raise ArgumentError(f"timing needs a call, samples >= 1 and max_seconds > 0; got {samples!r}, {max_seconds!r}")
    found = devices.find(device)
    backend = devices.backend(found.kind)
    with backend.activate(found.index), _prepared(calls, backend, found, mode) as ready:
        series = {name: _Series(backend, found.index, call, cache) for name, call in ready.items()}
        _sample(list(series.values()), samples, max_seconds * len(calls), precision)
    return {name: one.timing(mode) for name, one in series.items()}


@dataclass(frozen=True, slots=True)
class Ratio:
    """How long one call takes relative to another: the ratio of medians, and the quartiles of the paired ratios."""

    value: float
    low: float
    high: float


def ratio(of: Timing, to: Timing) -> Ratio:
    """`of` over `to`, from one `interleave`: below 1, `of` is faster."""
    paired = [a / b for a, b in zip(of.samples_s, to.samples_s, strict=False) if b]
    if not paired or not to.median_s:
        raise ArgumentError("a ratio needs two series with samples longer than no time; measure more work")
    low, high = Timing(tuple(paired), (), of.clock, of.cache).quartiles_s
    return Ratio(of.median_s / to.median_s, low, high)


@contextmanager
def _prepared(calls: Mapping[str, Call], backend: Backend, device: Device, mode: Mode) -> Iterator[dict[str, Call]]:
    """Warm the calls up; in mode ``graph`` capture each, so that a replay stands for it."""
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    backend.synchronize(device.index)
    if mode == "stream":
        yield dict(calls)
        return
    side = backend.new_stream(device.index)
    captures = []
    with backend.use_stream(side):
        for call in calls.values():
            captures.append(backend.new_capture(device.index))
            captures[-1].begin()
            call()
            captures[-1].end()
        yield {name: capture.replay for name, capture in zip(calls, captures, strict=True)}
    side.synchronize()
    for capture in captures:
        capture.reset()


class _Series:
    """The samples of one call, as they come."""

    def __init__(self, backend: Backend, index: int, call: Call, cache: Cache) -> None:
        self.backend = backend
        self.index = index
        self.call = call
        self.cache: Cache = cache
        self.times = [backend.new_event(index, timing=True) for _ in range(2)]
        self.repeats = 1
        self.device_s: list[float] = []
        self.host_s: list[float] = []

    def calibrate(self) -> None:
        """Find how many calls fill a warm sample."""
        if self.cache == "warm":
            once, _ = self._once()
            self.repeats = max(1, min(1000, math.ceil(BATCH_SECONDS / max(once, 1e-9))))

    def add(self) -> None:
        """Take one sample."""
        device_s, host_s = self._once()
        self.device_s.append(device_s)
        self.host_s.append(host_s)

    def _once(self) -> tuple[float, float]:
        start, end = self.times
        if self.cache == "cold":
            self.backend.flush_cache(self.index)  # also covers the launch: the host runs ahead meanwhile
        start.record()
        begun = time.perf_counter()
        for _ in range(self.repeats):
            self.call()
        host = time.perf_counter() - begun
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / self.repeats, host / self.repeats

    def is_settled(self, precision: float) -> bool:
        """Whether the median's standard error, from the median absolute deviation, is within `precision`."""
        middle = statistics.median(self.device_s)
        deviation = statistics.median(abs(sample - middle) for sample in self.device_s)
        # 1.4826 makes it a standard deviation of normal samples, 1.2533 that of their median.
        return 1.4826 * 1.2533 * deviation <= precision * middle * math.sqrt(len(self.device_s))

    def timing(self, mode: Mode) -> Timing:
        """The series, closed."""
        can = devices.capabilities(Device(self.backend.kind, self.index))
        whose: Literal["device", "host"] = "device" if can.answer("timing") else "host"
        return Timing(tuple(self.device_s), tuple(self.host_s), whose, self.cache, mode)


def _sample(series: list[_Series], samples: int, max_seconds: float, precision: float) -> None:
    for one in series:
        one.calibrate()
    begun = time.perf_counter()
    with _no_collection():
        for turn in range(samples):
            for one in series if turn % 2 == 0 else reversed(series):
                one.add()
            if turn + 1 >= min(MIN_SAMPLES, samples) and (
                time.perf_counter() - begun > max_seconds or all(one.is_settled(precision) for one in series)
            ):
                return


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection inside a sample."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
