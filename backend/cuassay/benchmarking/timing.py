"""All timing there is: device time by events, host time with it, cold or warm cache, until it settles.

A sample is one call (warm: as many as fill `sampling.BATCH_SECONDS`) between two events of the device. On cpu the
events read the host's clock, on sim virtual time; the interface is the same. How a sample is taken is decided in
`sampling`, when there are enough in `settling`. What a series is compared with, and what a difference means, is decided
elsewhere.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from cuassay import devices
from cuassay.benchmarking import settling
from cuassay.benchmarking.captured import captured
from cuassay.benchmarking.empty import Empty, empty_interval, refuse_nothing
from cuassay.benchmarking.sampling import MOST_WARM_UP, Call, Series
from cuassay.benchmarking.series import Cache, Mode, Ratio, Timing, ratio
from cuassay.benchmarking.throttling import Throttling
from cuassay.benchmarking.unfinished import call_first
from cuassay.core.device import Device
from cuassay.errors import ArgumentError

__all__ = ["Cache", "Empty", "Mode", "Ratio", "Timing", "empty_interval", "interleave", "measure", "ratio"]

#: Fewest samples that a median and its spread are stated from, if time is short.
MIN_SAMPLES = settling.FEWEST

#: Calls before the warm-up by time: compilation, tuning, first touch of pages.
WARM_UP = 3

#: Longest warm-up, as a share of `max_seconds`.
WARM_UP_SHARE = 0.25


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
    joined: bool = True,
) -> Timing:
    """Time `fn` on `device`, in order of its current stream.

    Parameters
    ----------
    fn : callable
        Gives work to the current stream; one that waits for it is measured live.
    cache, mode : str
        See `Timing`.
    queued : bool
        Hold the stream while the host gives it a sample, if that is possible. False measures live: with the host's
        gaps, and for the host's own time on an idle device.
    samples : int
        Most samples.
    max_seconds : float
        No sample is begun later than this, once there are `MIN_SAMPLES`.
    precision : float
        Stop once the median's standard error by batch means is this small, relative to it, and there are 30 samples or
        20 ms of the device's time.
    joined : bool
        Refuse a call that leaves work on other streams, which no sample would contain. False times the current stream
        alone.

    Raises
    ------
    CapabilityError
        For mode ``graph`` on a device without graphs.
    CaptureError
        For mode ``graph`` if the capture holds nothing, or not all that the live call launches.
    MeasurementError
        If a queued sample cannot be told from the empty interval: `fn` gave the device nothing to do. If `fn` leaves
        work on other streams.
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
        joined=joined,
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
    joined: bool = True,
) -> dict[str, Timing]:
    """Time several calls side by side, in the order A B B A, so that a drift of the clocks affects all alike.

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
    with backend.activate(found.index):
        for name, call in calls.items():
            call_first(name, call, backend, found.index, WARM_UP, joined=joined)
        backend.synchronize(found.index)
        with captured(calls, backend, found) if mode == "graph" else nullcontext(dict(calls)) as ready:
            series = {name: Series(backend, found.index, call, cache, queued=queued) for name, call in ready.items()}
            throttling = Throttling(backend, found.index, list(series.values()))
            _sample(list(series.values()), throttling, samples, max_seconds, precision)
    empty = empty_interval(found)
    for name, one in series.items():
        refuse_nothing(name, one, empty)
    return {name: one.timing(mode, None if empty is None else empty.median_s) for name, one in series.items()}


def _sample(series: list[Series], throttling: Throttling, samples: int, max_seconds: float, precision: float) -> None:
    for one in series:
        one.calibrate()
        one.warm_up(min(MOST_WARM_UP, WARM_UP_SHARE * max_seconds))
    begun = time.perf_counter()
    with _no_collection():
        for turn in range(samples):
            for one in series if turn % 2 == 0 else reversed(series):
                one.add()
            throttling.look()
            if turn + 1 < min(MIN_SAMPLES, samples):
                continue
            for one in series:
                one.settled = one.is_settled(precision)
            if time.perf_counter() - begun > max_seconds * len(series) or all(one.settled for one in series):
                break
    throttling.look(at_once=True)


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
