"""Take samples of one call: hold the stream until a sample is queued, warm up, and take samples one by one.

If the device has its own clock, a sample is *queued*: `spin` keeps the stream busy until the host has queued everything
from the first event to the last. Otherwise the device would wait for the host between two launches, and the sample
would include that: a sum of two launches on an H200 took 30 µs live and 19 µs queued. NVBench holds the stream with a
kernel that waits for a flag of the host. Such a kernel never ends if the call itself waits for the device, loads a
kernel or fills the queue, or if a profiler serializes launches (NVIDIA/nvbench#45, #136, #240). `spin` ends by itself.
The spin was long enough if a sample's first event is still pending when its last one has been recorded. A call for
which this cannot be reached is measured *live*, and its series says so.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from cuassay import devices
from cuassay.benchmarking.series import Cache, Mode, Timing
from cuassay.benchmarking.settling import is_enough, standard_error
from cuassay.core.device import Device
from cuassay.core.protocols import Backend, Spinning

__all__ = ["BATCH_SECONDS", "Call", "Series", "time_unit"]

Call = Callable[[], Any]

#: Calls shorter than this are batched in a warm sample, because a pair of events costs about a microsecond itself.
BATCH_SECONDS = 100e-6

#: The stream is held for this many times the host's time for a sample, plus a margin in seconds for a few launches.
HOLD_FACTOR, HOLD_MARGIN = 2.0, 20e-6

#: The longest hold in seconds. If the host is slower, the sample is measured live. A backend may set another limit.
LONGEST_HOLD = 0.05

#: The largest number of calls in a held warm sample. CUDA's queue takes 1,024 launches before the host waits.
MOST_QUEUED = 100

#: How often a sample is retaken, and the hold doubled, before a series is measured live.
TAKES = 4

#: The clock rate assumed for `spin`. A slower clock only holds the stream for longer.
_SPIN_HZ = 2e9

#: The number of samples in a window. Warm-up ends when the medians of two windows agree.
WINDOW = 5

#: The shortest and longest warm-up in seconds. An idle H200 needs some milliseconds to raise its clocks.
LEAST_WARM_UP, MOST_WARM_UP = 0.01, 0.1

#: Two windows agree if their medians differ by no more than this share, or than the smaller of their spreads.
AGREE = 0.01


def time_unit(backend: Backend) -> str:
    """Return the unit of a backend's times: ``s``, or ``virtual s`` if they come from a model."""
    return str(getattr(backend, "time_unit", "s"))


class Series:
    """The samples of one call, as they are taken."""

    def __init__(
        self,
        backend: Backend,
        index: int,
        call: Call,
        cache: Cache,
        before_sample: Callable[[], None] | None = None,
        *,
        queued: bool,
    ) -> None:
        self.backend = backend
        self.index = index
        self.call = call
        self.cache: Cache = cache
        self.before_sample = before_sample
        self.times = [backend.new_event(index, timing=True) for _ in range(2)]
        self.has_clock = bool(devices.capabilities(Device(backend.kind, index)).answer("timing"))
        self.spins = backend if self.has_clock and isinstance(backend, Spinning) else None
        self.longest_hold: float = getattr(backend, "longest_hold_s", LONGEST_HOLD)
        self.queued = queued and self.spins is not None
        self.hold_s = 0.0
        self.repeats = 1
        self.device_s: list[float] = []
        self.host_s: list[float] = []
        self.settled = False
        self.throttled: int | None = None

    def calibrate(self) -> None:
        """Find how long the stream must be held, and how many calls a warm sample needs."""
        self.find_hold()
        if self.cache == "warm":
            once, _, _ = self.once()
            most = MOST_QUEUED if self.queued else 1000
            self.repeats = max(1, min(most, math.ceil(BATCH_SECONDS / max(once, 1e-9))))
            self.find_hold()

    def find_hold(self) -> None:
        """Find the hold, by doubling, in which the host can queue a sample. If there is none, measure live."""
        if not self.queued:
            return
        self.hold_s = 0.0
        _, host_s, _ = self.once()
        self.hold_s = HOLD_FACTOR * host_s * self.repeats + HOLD_MARGIN
        for _ in range(TAKES):
            if self.hold_s > self.longest_hold:
                break
            if self.once()[2]:
                return
            self.hold_s *= 2
        self.queued, self.hold_s = False, 0.0

    def warm_up(self, most_s: float = MOST_WARM_UP) -> None:
        """Take samples and discard them until their medians are stable or `most_s` seconds have passed.

        Virtual times need no warm-up.
        """
        if time_unit(self.backend) != "s":
            return
        begun, taken = time.perf_counter(), list[float]()
        least_s = min(LEAST_WARM_UP, most_s)
        while (passed := time.perf_counter() - begun) < most_s:
            if passed >= least_s and len(taken) >= 2 * WINDOW and _agree(taken[-2 * WINDOW : -WINDOW], taken[-WINDOW:]):
                return
            taken.append(self.once()[0])

    def add(self) -> None:
        """Take one sample. Retake it if the host was delayed so that the device waited for it."""
        for _ in range(TAKES):
            device_s, host_s, is_queued = self.once()
            if is_queued or not self.queued:
                break
        self.queued = self.queued and is_queued
        self.device_s.append(device_s)
        self.host_s.append(host_s)

    def once(self) -> tuple[float, float, bool]:
        """Return device and host seconds of one call, and whether everything was queued before the first work ran."""
        start, end = self.times
        if self.before_sample is not None:
            self.before_sample()
        if self.cache == "cold":
            self.backend.flush_cache(self.index)
        if self.hold_s and self.spins is not None:
            self.spins.spin(self.index, int(self.hold_s * _SPIN_HZ))
        start.record()
        begun = time.perf_counter()
        for _ in range(self.repeats):
            self.call()
        host = time.perf_counter() - begun
        end.record()
        is_queued = self.hold_s > 0 and not start.query()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / self.repeats, host / self.repeats, is_queued

    def is_settled(self, precision: float) -> bool:
        """Return whether there are enough samples and the median's standard error is within `precision`."""
        return is_enough(self.device_s, self.repeats) and standard_error(self.device_s) <= precision

    def timing(self, mode: Mode, empty_s: float | None) -> Timing:
        """Return the finished series. `empty_s` is the empty interval of its device."""
        return Timing(
            samples_s=tuple(self.device_s),
            host_s=tuple(self.host_s),
            clock="device" if self.has_clock else "host",
            cache=self.cache,
            mode=mode,
            queued=None if self.spins is None else self.queued,
            empty_s=empty_s / self.repeats if empty_s is not None and self.queued else 0.0,
            settled=self.settled,
            throttled=self.throttled,
            unit=time_unit(self.backend) if self.has_clock else "s",
        )


def _agree(earlier: list[float], later: list[float]) -> bool:
    (low, middle, high), (other_low, other, other_high) = (
        statistics.quantiles(window, n=4, method="inclusive") for window in (earlier, later)
    )
    return abs(other - middle) <= max(AGREE * other, min(high - low, other_high - other_low))
