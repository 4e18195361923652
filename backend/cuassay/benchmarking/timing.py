"""Measure device time by events, and host time with it, with a cold or warm cache, until the median has settled.

A sample is one call between two events of the device; with a warm cache it is as many calls as fill
`sampling.BATCH_SECONDS`. On cpu the events read the host's clock, and on sim virtual time. `sampling` takes samples,
and `settling` decides when there are enough.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
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

#: The smallest number of samples for a median and its spread, even if time is short.
MIN_SAMPLES = settling.FEWEST

#: Calls before the warm-up by time: compilation, tuning, first touch of pages.
WARM_UP = 3

#: The longest warm-up, as a fraction of `max_seconds`.
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
    """Time `fn` on `device`, in the order of its current stream.

    Parameters
    ----------
    fn : callable
        Launches work on the current stream. If it waits for the work, it is measured live.
    device : str or Device
        The device.
    cache, mode : str
        See `Timing`.
    queued : bool
        Whether to hold the stream while the host queues a sample, if that is possible. False measures live, including
        the host's gaps, which also gives the host's own time on an idle device.
    samples : int
        The largest number of samples.
    max_seconds : float
        No sample is begun after this time, once there are `MIN_SAMPLES`.
    precision : float
        Stop once the standard error of the median, relative to it, is this small, and there are 30 samples or 20 ms of
        device time.
    joined : bool
        Whether to reject a call that leaves work on other streams, which samples would not include. False times only
        the current stream.

    Returns
    -------
    Timing
        The samples and their statistics.

    Raises
    ------
    CapabilityError
        If mode is ``graph`` and the device has no graphs.
    CaptureError
        If mode is ``graph`` and the capture is empty or lacks some of the work that the live call launches.
    MeasurementError
        If a queued sample cannot be distinguished from the empty interval, because `fn` gave the device no work, or if
        `fn` leaves work on other streams.
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
    before_sample: Callable[[], None] | None = None,
) -> dict[str, Timing]:
    """Time several calls side by side, in the order A B B A, so that a drift of the clocks affects all equally.

    The parameters are those of `measure`; `max_seconds` applies to each call. `before_sample` is called before each
    sample, outside of its time and before the cache is flushed; it may, for example, give the call other inputs.

    Returns
    -------
    dict
        From names to `Timing`.

    Raises
    ------
    ArgumentError
        If there is no call, or `samples` or `max_seconds` is not positive.
    CapabilityError, CaptureError, MeasurementError
        As in `measure`.
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
            series = {
                name: Series(backend, found.index, call, cache, before_sample, queued=queued)
                for name, call in ready.items()
            }
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
    """Disable garbage collection inside the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
