"""All timing there is: device time by events, host time beside it, cold or warm cache, until it settles.

A sample is one call (warm: as many as fill `BATCH_SECONDS`) between two events of the device. On cpu the events
read the host's clock, on sim virtual time; the interface is the same. What a series is compared with, and what a
difference means, stands elsewhere.

Where the device has a clock of its own, a sample is *queued*: the stream is kept busy, by `spin`, until the host has
given it everything from the first event to the last. Else the device waits for the host between two launches, and
before the first where it is short, and the sample counts that too: a sum by two launches on an H200 took 30 µs live
and 19 queued. NVBench does so with a kernel that waits for a flag of the host's, which never ends where the
call itself waits for the device, loads a kernel or fills the queue, or a profiler serialises (NVIDIA/nvbench#45, #136,
#240). `spin` ends by itself. That it was long enough is read from each sample: its first event is still pending when
its last has been recorded. A call for which that cannot be reached is measured *live*, and its series says so.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from cuassay import devices
from cuassay.benchmarking import settling
from cuassay.benchmarking.settling import is_enough, standard_error
from cuassay.core.device import Device
from cuassay.core.protocols import Backend, Spinning
from cuassay.errors import ArgumentError, CaptureError, MeasurementError

__all__ = ["Cache", "Empty", "Mode", "Ratio", "Timing", "empty_interval", "interleave", "measure", "ratio"]

Cache = Literal["cold", "warm"]
Mode = Literal["stream", "graph"]
Call = Callable[[], Any]

#: A warm sample shorter than this is a batch of calls: one event pair costs about a microsecond of device time.
BATCH_SECONDS = 100e-6

#: Fewest samples a median and its spread are worth stating of, where time is short.
MIN_SAMPLES = settling.FEWEST

#: Calls before the first sample: compilation, tuning, first touch of pages, clocks rising.
WARM_UP = 3

#: The stream is held for this many times what the host took to give a sample without, and for some launches around it.
HOLD_FACTOR, HOLD_MARGIN = 2.0, 20e-6

#: Not held for longer than this, seconds: where the host is that slow, its gaps are what there is to see. A backend may
#: have a limit of its own.
LONGEST_HOLD = 0.05

#: Calls of a warm sample that is held, at most: a queue of CUDA takes 1,024 launches, then the host waits.
MOST_QUEUED = 100

#: Takes of a sample, and doublings of the hold, before a series is measured live.
TAKES = 4

#: Samples of the empty interval: their median is known to a fiftieth of a microsecond.
EMPTY_SAMPLES = 50

#: A graph that takes less than this share of the live call's time has not captured all of its launches.
LEAST_OF_LIVE = 0.4

#: Cycles a second that `spin` is asked for; a slower clock only holds for longer.
_SPIN_HZ = 2e9


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
    queued : bool or None
        Everything of each sample was in the stream before the first of it ran, so that the host's gaps are not in it.
        None where nothing queues: by the host's clock, and on a device that is the host.
    empty_s : float
        What of each sample is the empty interval: two events with nothing between them, shared by the calls between
        them. It is part of `samples_s`; 0 where it is not known.
    settled : bool or None
        The standard error of the median was within the precision that was asked for when sampling ended; None where
        nobody asked.
    """

    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    clock: Literal["device", "host"]
    cache: Cache
    mode: Mode = "stream"
    queued: bool | None = None
    empty_s: float = 0.0
    settled: bool | None = None

    @property
    def net_s(self) -> float:
        """The middle sample without its empty interval."""
        return max(self.median_s - self.empty_s, 0.0)

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
    def launches(self) -> str | None:
        """``queued`` or ``live``, as rows of results say it; None where nothing queues."""
        return None if self.queued is None else "queued" if self.queued else "live"

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, high = self.quartiles_s
        return (high - low) / self.median_s if self.median_s else 0.0

    def __repr__(self) -> str:
        figures = f"median {self.median_s:.3g} s, spread {self.spread:.1%}, n {len(self.samples_s)}"
        return f"Timing({figures}, {self.clock}, {self.cache}, {self.mode}{', queued' if self.queued else ''})"


def measure(
    fn: Call,
    device: str | Device,
    *,
    cache: Cache = "cold",
    mode: Mode = "stream",
    queued: bool = True,
    samples: int = 200,
    max_seconds: float = 1.0,
    precision: float = 0.005,
) -> Timing:
    """Time `fn` on `device`, in order of its current stream.

    Parameters
    ----------
    fn : callable
        Gives work to the current stream; one that waits for it is measured live.
    cache, mode : str
        See `Timing`.
    queued : bool
        Hold the stream while the host gives it a sample, where that can be; False measures live: with the host's gaps,
        and for the host's own time on an idle device.
    samples : int
        Most samples.
    max_seconds : float
        No sample is begun later than this, once there are `MIN_SAMPLES`.
    precision : float
        Stop once the median's standard error by batch means is this small, relative to it, and there are 30 samples or
        20 ms of the device's time.

    Raises
    ------
    CapabilityError
        For mode ``graph`` on a device without graphs.
    CaptureError
        For mode ``graph`` if the capture holds nothing, or not all that the live call launches.
    MeasurementError
        If a queued sample cannot be told from the empty interval: `fn` gave the device nothing to do.
    """
    return interleave(
        {"fn": fn},
        device,
        cache=cache,
        mode=mode,
        queued=queued,
        samples=samples,
        max_seconds=max_seconds,
        precision=precision,
    )["fn"]


def interleave(
    calls: Mapping[str, Call],
    device: str | Device,
    *,
    cache: Cache = "cold",
    mode: Mode = "stream",
    queued: bool = True,
    samples: int = 200,
    max_seconds: float = 1.0,
    precision: float = 0.005,
) -> dict[str, Timing]:
    """Time several calls side by side, in the order A B B A, so that a drift of the clocks meets all alike.

    Parameters as for `measure`; `max_seconds` is for each call.

    Raises
    ------
    ArgumentError
        Without a call, or with fewer than one sample or no time.
    CapabilityError, CaptureError, MeasurementError
        As `measure`.
    """
    if not calls or samples < 1 or not max_seconds > 0:
        raise ArgumentError(f"timing needs a call, samples >= 1 and max_seconds > 0; got {samples!r}, {max_seconds!r}")
    found = devices.find(device)
    backend = devices.backend(found.kind)
    with backend.activate(found.index), _prepared(calls, backend, found, mode) as ready:
        series = {name: _Series(backend, found.index, call, cache, queued=queued) for name, call in ready.items()}
        _sample(list(series.values()), samples, max_seconds * len(calls), precision)
    empty = empty_interval(found)
    for name, one in series.items():
        _refuse_nothing(name, one, empty)
    return {name: one.timing(mode, empty) for name, one in series.items()}


@dataclass(frozen=True, slots=True)
class Empty:
    """The interval of two events with nothing between them: its median, and how far its quartiles are apart."""

    median_s: float
    spread_s: float

    @property
    def most_s(self) -> float:
        """What a sample must exceed to be told from it."""
        return self.median_s + max(3 * self.spread_s, 0.1 * self.median_s)

    @property
    def is_steady(self) -> bool:
        """Whether nobody else used the device: quartiles 4 % apart on an H200 of its own, 100 % on a shared one."""
        return self.spread_s <= _STEADY * self.median_s


#: Most spread of an empty interval, of its median, for a sample to be judged by it.
_STEADY = 0.13

_empty: dict[Device, Empty] = {}


def empty_interval(device: str | Device, *, fresh: bool = False) -> Empty | None:
    """The empty interval of `device`, measured once a process; None where nothing queues.

    On an H200 it was 1.28 µs on one kind of host and 2.9 µs on another, and every cold sample holds it.

    Parameters
    ----------
    fresh : bool
        Measure it again, as before and after a run.
    """
    found = devices.find(device)
    if fresh or found not in _empty:
        backend = devices.backend(found.kind)
        with backend.activate(found.index):
            one = _Series(backend, found.index, lambda: None, "warm", queued=True)
            one.find_hold()
            if not one.queued:
                return None
            for _ in range(EMPTY_SAMPLES):
                one.add()
        low, middle, high = statistics.quantiles(one.device_s, n=4, method="inclusive")
        _empty[found] = Empty(middle, high - low)
    return _empty[found]


def _refuse_nothing(name: str, series: _Series, empty: Empty | None) -> None:
    """Refuse queued samples that two events with nothing between them could be, unless others use the device."""
    sample_s = statistics.median(series.device_s) * series.repeats
    if empty is None or not empty.is_steady or not series.queued or sample_s > empty.most_s:
        return
    where = Device(series.backend.kind, series.index)
    raise MeasurementError(
        f"{name} gave {where} nothing to do: its samples of {sample_s * 1e6:.2f} µs cannot be told from two events "
        f"with nothing between them ({empty.median_s * 1e6:.2f} µs); launch on cuassay's current stream, or measure "
        "the host's own time with queued=False"
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """How long one call takes relative to another: the ratio of medians, and the quartiles of the paired ratios."""

    value: float
    low: float
    high: float


def ratio(of: Timing, to: Timing) -> Ratio:
    """`of` over `to`, from one `interleave`: below 1, `of` is faster.

    Raises
    ------
    ArgumentError
        If no sample of `to` took any time.
    """
    pairs = zip(of.samples_s, to.samples_s, strict=False)
    paired = [(a - of.empty_s) / (b - to.empty_s) for a, b in pairs if b > to.empty_s]
    if not paired or not to.net_s:
        raise ArgumentError("a ratio needs two series with samples longer than no time; measure more work")
    low, high = Timing(tuple(paired), (), of.clock, of.cache).quartiles_s
    return Ratio(of.net_s / to.net_s, low, high)


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
    """Refuse a capture that lacks what the live call launches, as when another library uses a stream of its own."""
    if not graph.statistics().nodes:
        raise CaptureError(
            f"{name} was captured on {device}, and the graph holds nothing: the call launches on a stream that was not "
            "being captured; give its library cuassay's current stream, or measure with mode='stream'"
        )
    live, replay = (_glance(one, backend, device) for one in (call, graph.replay))
    if live is not None and replay is not None and replay < LEAST_OF_LIVE * live:
        raise CaptureError(
            f"the graph of {name} takes {replay * 1e6:.2f} µs on {device} and the live call {live * 1e6:.2f} µs: the "
            "capture lacks some of its launches; give its library cuassay's current stream, or measure with "
            "mode='stream'"
        )


def _glance(call: Call, backend: Backend, device: Device) -> float | None:
    """Seconds of one queued call without the empty interval, the least of three; None where it cannot be queued."""
    one, empty = _Series(backend, device.index, call, "warm", queued=True), empty_interval(device)
    one.find_hold()
    if not one.queued or empty is None:
        return None
    for _ in range(3):
        one.add()
    return max(min(one.device_s) - empty.median_s, 0.0)


class _Series:
    """The samples of one call, as they come."""

    def __init__(self, backend: Backend, index: int, call: Call, cache: Cache, *, queued: bool) -> None:
        self.backend = backend
        self.index = index
        self.call = call
        self.cache: Cache = cache
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

    def calibrate(self) -> None:
        """Find how long the stream must be held, and how many calls fill a warm sample."""
        self.find_hold()
        if self.cache == "warm":
            once, _, _ = self._once()
            most = MOST_QUEUED if self.queued else 1000
            self.repeats = max(1, min(most, math.ceil(BATCH_SECONDS / max(once, 1e-9))))
            self.find_hold()

    def find_hold(self) -> None:
        """The shortest hold, of doublings, in which the host gives a sample; where there is none, samples are live."""
        if not self.queued:
            return
        self.hold_s = 0.0
        _, host_s, _ = self._once()
        self.hold_s = HOLD_FACTOR * host_s * self.repeats + HOLD_MARGIN
        for _ in range(TAKES):
            if self.hold_s > self.longest_hold:
                break
            if self._once()[2]:
                return
            self.hold_s *= 2
        self.queued, self.hold_s = False, 0.0

    def add(self) -> None:
        """Take one sample; again where the host was held up, and the device waited for it."""
        for _ in range(TAKES):
            device_s, host_s, is_queued = self._once()
            if is_queued or not self.queued:
                break
        self.queued = self.queued and is_queued
        self.device_s.append(device_s)
        self.host_s.append(host_s)

    def _once(self) -> tuple[float, float, bool]:
        """Seconds of the device and of the host, a call; and whether all was given before the first of it ran."""
        start, end = self.times
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
        """Whether there are samples enough, and the median's standard error by batch means is within `precision`."""
        return is_enough(self.device_s, self.repeats) and standard_error(self.device_s) <= precision

    def timing(self, mode: Mode, empty: Empty | None) -> Timing:
        """The series, closed."""
        whose: Literal["device", "host"] = "device" if self.has_clock else "host"
        queued = None if self.spins is None else self.queued
        share = empty.median_s / self.repeats if empty is not None and queued else 0.0
        return Timing(tuple(self.device_s), tuple(self.host_s), whose, self.cache, mode, queued, share, self.settled)


def _sample(series: list[_Series], samples: int, max_seconds: float, precision: float) -> None:
    for one in series:
        one.calibrate()
    begun = time.perf_counter()
    with _no_collection():
        for turn in range(samples):
            for one in series if turn % 2 == 0 else reversed(series):
                one.add()
            if turn + 1 < min(MIN_SAMPLES, samples):
                continue
            for one in series:
                one.settled = one.is_settled(precision)
            if time.perf_counter() - begun > max_seconds or all(one.settled for one in series):
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
