"""The times of a verdict: by the judge's clock, minus the time of an empty call, or withheld.

A call's time ends when the snapshot of its outputs is complete, so that it includes late work. For the figure of all
calls see `figures`. It is given only if the times do not drift over the calls. If a device's peak rates are known, a
time below the physical floor is rejected. On host devices the clock is the host's, and its times do not rank
candidates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.benchmarking.empty import empty_interval
from cuassay.benchmarking.timing import measure
from cuassay.core.device import HOST_KINDS, Device
from cuassay.judging.baseline import Baseline, Key
from cuassay.judging.figures import ERRORS, FIGURES, Figure, median_error
from cuassay.judging.protocol import BUSY_CYCLES
from cuassay.judging.results import Results
from cuassay.judging.trial import Trial
from cuassay.judging.verdict import CaseTime
from cuassay.testing.opspec import Work
from cuassay.testing.samples import Sample

__all__ = [
    "MOST_DRIFT",
    "MOST_ERROR",
    "Peaks",
    "busy_seconds",
    "case_times",
    "drift_of",
    "floor_of",
    "is_impossible",
    "peaks_of",
]

#: A figure is withheld if its relative error is larger.
MOST_ERROR = 0.05

#: A figure is withheld if later calls differ from earlier ones by a larger fraction.
MOST_DRIFT = 0.1

#: The fewest calls before and after a change that distinguish it from single slow calls.
_FEWEST_CALLS = 3

#: The interquartile ranges by which earlier and later calls must differ.
_CLEARLY = 3.0

#: If most calls take more than this many times as long as the fastest ones, the fastest are not the figure. On an H200
#: the median of a sort of 0.7 ms was up to 1.10 times as long.
_MOST_UNEVEN = 1.15

#: The standard errors by which a range is wider than its middle on either side.
_MARGIN = 2.0

#: Random orders of the times, and the fraction of them that may have as clear a change as the order of the calls.
_ORDERS, _BY_CHANCE = 300, 0.02

#: A time below this fraction of the physical floor is rejected. Clocks may boost above the rates that devices report.
FLOOR_SLACK = 0.9

#: Peak rates of a device: bytes/s under "bandwidth", FLOP/s under the name of a dtype.
Peaks = Mapping[str, float]


def drift_of(samples: Sequence[float]) -> float | None:
    """Return the median of later calls over that of earlier ones if there is a clear change, else None.

    A candidate may be fast only in its first calls, need more warm-up calls than are discarded, or heat its device. The
    change may be anywhere: the split with the largest ratio of the medians is used. It is clear if the medians differ
    by more than `MOST_DRIFT` and by several interquartile ranges of either side, and if hardly any random order of the
    same times has such a change: times of two levels may have one by chance.
    """
    ratio, order = _change(samples)
    if ratio is None:
        return None
    chance = np.random.default_rng(0)
    by_chance = (_change(chance.permutation(samples).tolist())[1] >= order for _ in range(_ORDERS))
    return ratio if sum(by_chance) <= _BY_CHANCE * _ORDERS else None


def _change(samples: Sequence[float]) -> tuple[float | None, float]:
    """Return the largest ratio of the medians after and before a place, and how well that place orders the times.

    Only places are tried that divide the times clearly; None and 0 if there is none. The order is that of the best
    place: the rank sum of the later times less its mean, in standard deviations (Mann & Whitney, 1947).
    """
    largest, order = None, 0.0
    for place in range(_FEWEST_CALLS, len(samples) - _FEWEST_CALLS + 1):
        before, after = samples[:place], samples[place:]
        ratio = statistics.median(after) / max(statistics.median(before), 1e-12)
        if abs(ratio - 1) > MOST_DRIFT and _is_clear(before, after):
            larger = sum((late > early) - (late < early) for late in after for early in before)
            order = max(order, abs(larger) / math.sqrt(len(before) * len(after) * (len(samples) + 1) / 3))
            if largest is None or abs(math.log(ratio)) > abs(math.log(largest)):
                largest = ratio
    return largest, order


def _is_clear(before: Sequence[float], after: Sequence[float]) -> bool:
    (low, early, high), (least, late, most) = _quartiles(before), _quartiles(after)
    return early > 0 < late and abs(late - early) > _CLEARLY * max(high - low, most - least)


def floor_of(work: Work, dtype: str, peaks: Peaks) -> float | None:
    """Return the least seconds that `peaks` allow for `work`, or None if they are unknown."""
    needed = [
        amount / peaks[rate] for rate, amount in (("bandwidth", work.bytes), (dtype, work.flops)) if peaks.get(rate)
    ]
    return max(needed, default=None)


def is_impossible(time: CaseTime) -> bool:
    """Return whether a time is below what its device can do."""
    return time.floor_s is not None and time.time_s is not None and time.time_s < FLOOR_SLACK * time.floor_s


def case_times(
    results: Results,
    trial: Trial,
    baseline: Baseline,
    *,
    tier: str,
    on: str,
    peaks: Callable[[int], Peaks],
) -> tuple[CaseTime, ...]:
    """Return the time of each case.

    Parameters
    ----------
    baseline : Baseline
        The times of empty calls, and of calls of the declared implementation, by the same protocol.
    tier : str
        ``program`` or ``kernel``.
    on : str
        ``device``, or ``host`` if the device is simulated or is the host itself.
    peaks : callable
        From the bytes that a call must move to the peak rates of the device; see `peaks_of`.
    """
    return tuple(
        _case(results, key, samples, trial.empty.get(key, ()), baseline, trial.shapes[key], tier, on, peaks)
        for key, samples in sorted(trial.times.items())
    )


def empty_intervals(device: Device, trial: Trial) -> dict[Key, list[float]]:
    """Return, for each case of the kernel tier, the empty interval of the device, which each of its times contains."""
    found = empty_interval(device)
    seconds = [0.0 if found is None else found.median_s]
    return dict.fromkeys(trial.times, seconds)


def busy_seconds(device: Device) -> float:
    """Return the seconds for which an empty call keeps `device` busy; 0 on host devices, where it does not."""
    if device.kind in HOST_KINDS:
        return 0.0
    backend: Any = devices.backend(device.kind)
    busy = measure(partial(backend.spin, device.index, BUSY_CYCLES), device, max_seconds=_SECONDS)
    return busy.median_s - busy.empty_s


def declared_times(results: Results, device: Device, trial: Trial) -> dict[Key, list[float]]:
    """Return the declared implementation's times in each case of the kernel tier, by the same clock, cache cold."""
    found = {}
    for key, sample in trial.shapes.items():
        args, kwargs = sample.on(device)
        timing = measure(partial(results.call, device, args, kwargs), device, max_seconds=_SECONDS)
        found[key] = list(timing.samples_s)
    return found


#: The most seconds for timing the declared implementation in one case.
_SECONDS = 0.3


def _case(
    results: Results,
    key: Key,
    samples: Sequence[float],
    own: Sequence[float],
    baseline: Baseline,
    sample: Sample,
    tier: str,
    on: str,
    peaks: Callable[[int], Peaks],
) -> CaseTime:
    label, dtype = key
    figure, error_of = _figure_of(key, samples, own, baseline, tier)
    empty, offset = baseline.empty_of(key, own, figure), baseline.offset_of(key, tier, figure)
    middle = figure(samples) - empty
    error = math.hypot(error_of(samples), error_of(own) if own else 0.0, offset * max(middle, 0.0))
    work = results.least_work(sample)
    least = floor_of(work, dtype, peaks(work.bytes))
    drift = drift_of(samples)
    withheld = _why_withheld(middle, error, on, drift)
    found = CaseTime(
        label=label, dtype=dtype, n=len(samples), error_s=error if math.isfinite(error) else 0.0, floor_s=least,
        time_s=None, q25=None, q75=None, tier=tier, clock=_CLOCKS[tier], withheld=withheld, drift=drift, offset=offset,
    )  # fmt: skip
    if withheld:
        return found
    low, _, high = (one - empty for one in _quartiles(samples))
    reference, ratios = _against(baseline.reference_of(key, figure), middle, error, offset)
    return replace(
        found, time_s=middle, q25=low, q75=high, fraction=least / middle if least else None, reference_s=reference,
        ratio_low=ratios[0], ratio_high=ratios[1],
    )  # fmt: skip


def _figure_of(
    key: Key, samples: Sequence[float], own: Sequence[float], baseline: Baseline, tier: str
) -> tuple[Figure, Figure]:
    """Return the figure of a case and its standard error, as functions of times; the declared function has the same.

    If the fastest calls are much faster than most, it is the median: the candidate may do part of its work in others.
    """
    net, usual = (one(samples) - baseline.empty_of(key, own, one) for one in (FIGURES[tier], statistics.median))
    return (statistics.median, median_error) if usual > _MOST_UNEVEN * net else (FIGURES[tier], ERRORS[tier])


#: The clock of each tier. The host's clock also includes a candidate's host code.
_CLOCKS = {"program": "host", "kernel": "device"}


#: The advice if the error of a time is too large, on the host and on a device with its own clock.
_REMEDY = {
    "host": "times on the host are not for ranking: give --no-times",
    "device": "the call is too short, so measure a larger size by bench=, or give --no-times",
}


def _why_withheld(time: float, error: float, on: str, drift: float | None) -> str:
    if not math.isfinite(error):
        return "too few calls were timed"
    if drift is not None:
        return (
            f"it drifts: its later calls take {drift:.3g} times as long as its earlier ones, and at most "
            f"{100 * MOST_DRIFT:g} % more or less is allowed; judge it again, and if it drifts again it depends on the "
            "number of its calls"
        )
    if time <= 0:
        return "the calls took no longer than empty ones, which leave the candidate out"
    if error > MOST_ERROR * time:
        return f"its error is {100 * error / time:,.1f} %, and at most {100 * MOST_ERROR:g} % is allowed; {_REMEDY[on]}"
    return ""


def _against(
    baseline: Sequence[float], mine: float, error: float, offset: float
) -> tuple[float | None, tuple[float | None, float | None]]:
    """Return the baseline's figure, and its ratio to the candidate's less and plus two standard errors.

    `baseline` has the figure of each trusted process.
    """
    if not baseline or min(baseline) <= 0:
        return None, (None, None)
    reference = statistics.fmean(baseline)
    margin = 1 + _MARGIN * math.hypot(error / mine, offset / math.sqrt(len(baseline)))
    return reference, (reference / mine / margin, reference / mine * margin)


def _quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    if len(samples) < 2:
        return (samples[0],) * 3
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


#: FLOP/s per multiprocessor and clock, by major compute capability, of dense products of 8-bit floats (16-bit floats
#: before 9), the cheapest that a candidate could use. Sources: NVIDIA's architecture white papers.
_FLOPS_A_CLOCK: Mapping[int, int] = {8: 4096, 9: 8192, 10: 16384, 12: 8192}


def peaks_of(device: Device, dtypes: Sequence[str], nbytes: int) -> Peaks:
    """Return the peak rates of a GPU from its driver's properties; empty for other device kinds.

    Parameters
    ----------
    dtypes : sequence of str
        The dtypes; each gets the peak rate of the cheapest dtype, because a candidate may use it within its tolerance.
    nbytes : int
        The bytes that a call reads and writes. Memory bandwidth does not limit what fits into the last-level cache.
    """
    if device.kind != "cuda":
        return {}
    from cuassay.devices.cuda.driver.runtime import get_device_properties

    found = get_device_properties(device.index)
    flops = 1e3 * found.clock_rate * found.multi_processor_count * _FLOPS_A_CLOCK.get(found.major, 0)
    return {name: flops for name in dtypes if flops} | (
        {"bandwidth": found.bandwidth} if nbytes > found.L2_cache_size else {}
    )
