"""The result of a measurement: a series of samples with its statistics, and the ratio of two series."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

from cuassay.errors import ArgumentError

__all__ = ["Cache", "Clock", "Mode", "Ratio", "Timing", "ratio"]

Cache = Literal["cold", "warm"]
Mode = Literal["stream", "graph"]
Clock = Literal["device", "host"]


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured series.

    Attributes
    ----------
    samples_s, host_s : tuple of float
        Seconds per call, in order: by the device's clock, and the time that the host needed to launch the call.
    clock : str
        The clock that measured `samples_s`: ``device``, or ``host`` if the device has no clock.
    cache : str
        ``cold``: the last-level cache was flushed before each sample. ``warm``: it was not.
    mode : str
        ``stream``: each sample makes the call. ``graph``: the call was captured once, and each sample replays it.
    queued : bool or None
        Whether all work of each sample was in the stream before the first of it ran, so that samples include no gaps
        of the host. None if the device does not queue work.
    empty_s : float
        The part of each sample that is the empty interval: the time between two events with nothing between them,
        divided by the number of calls in a sample. `samples_s` include it. 0 if it is unknown.
    settled : bool or None
        Whether the standard error of the median was within the requested precision when sampling ended; None if no
        precision was requested.
    throttled : int or None
        How many samples were taken while the device limited its clocks; None if the device does not report it.
    unit : str
        ``s``, or ``virtual s`` for the times of a simulated device, which must not be compared with measured times.
    """

    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    clock: Clock
    cache: Cache
    mode: Mode = "stream"
    queued: bool | None = None
    empty_s: float = 0.0
    settled: bool | None = None
    throttled: int | None = None
    unit: str = "s"

    @property
    def net_s(self) -> float:
        """The median without the empty interval."""
        return max(self.median_s - self.empty_s, 0.0)

    @property
    def median_s(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The first and third quartile."""
        if len(self.samples_s) < 2:
            return self.samples_s[0], self.samples_s[0]
        low, _, high = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return low, high

    @property
    def launches(self) -> str | None:
        """``queued`` or ``live``, as in result rows; None if the device does not queue work."""
        return None if self.queued is None else "queued" if self.queued else "live"

    @property
    def spread(self) -> float:
        """The distance between the quartiles, divided by the median."""
        low, high = self.quartiles_s
        return (high - low) / self.median_s if self.median_s else 0.0

    def __repr__(self) -> str:
        figures = f"median {self.median_s:.3g} {self.unit}, spread {self.spread:.1%}, n {len(self.samples_s)}"
        return f"Timing({figures}, {self.clock}, {self.cache}, {self.mode}{', queued' if self.queued else ''})"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The time of one call relative to another: the ratio of medians, and the quartiles of the paired ratios."""

    value: float
    low: float
    high: float


def ratio(of: Timing, to: Timing) -> Ratio:
    """Return the time of `of` divided by that of `to`, both from the same `interleave`. Below 1, `of` is faster.

    Raises
    ------
    ArgumentError
        If no sample of `to` is longer than its empty interval.
    """
    pairs = zip(of.samples_s, to.samples_s, strict=False)
    paired = [(a - of.empty_s) / (b - to.empty_s) for a, b in pairs if b > to.empty_s]
    if not paired or not to.net_s:
        raise ArgumentError("a ratio needs two series with samples longer than no time; measure more work")
    low, high = Timing(tuple(paired), (), of.clock, of.cache).quartiles_s
    return Ratio(of.net_s / to.net_s, low, high)
