"""The empty interval of a device: the time between two events with nothing between them.

On an H200 it was 1.28 µs on one kind of host and 2.9 µs on another, and every cold sample contains it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from cuassay import devices
from cuassay.benchmarking.sampling import Series
from cuassay.core.device import Device
from cuassay.errors import MeasurementError

__all__ = ["Empty", "empty_interval", "refuse_nothing"]

#: The number of samples of the empty interval. Their median is accurate to a fiftieth of a microsecond.
EMPTY_SAMPLES = 50

#: The largest spread of an empty interval, relative to its median, at which samples are compared with it.
_STEADY = 0.13

_empty: dict[Device, Empty] = {}


@dataclass(frozen=True, slots=True)
class Empty:
    """The empty interval of a device: its median, and the distance between its quartiles, in seconds."""

    median_s: float
    spread_s: float

    @property
    def most_s(self) -> float:
        """The largest time in seconds of a sample that cannot be distinguished from the empty interval."""
        return self.median_s + max(3 * self.spread_s, 0.1 * self.median_s)

    @property
    def is_steady(self) -> bool:
        """Whether the device was not shared: quartiles were 4 % apart on an exclusive H200, 100 % on a shared one."""
        return self.spread_s <= _STEADY * self.median_s


def empty_interval(device: str | Device, *, fresh: bool = False) -> Empty | None:
    """Return the empty interval of `device`, measured once per process, or None if work is not queued there.

    Parameters
    ----------
    device : str or Device
        The device.
    fresh : bool
        Whether to measure it again, as is done before and after a run.
    """
    found = devices.find(device)
    if fresh or found not in _empty:
        backend = devices.backend(found.kind)
        with backend.activate(found.index):
            one = Series(backend, found.index, lambda: None, "warm", queued=True)
            one.find_hold()
            if not one.queued:
                return None
            for _ in range(EMPTY_SAMPLES):
                one.add()
        low, middle, high = statistics.quantiles(one.device_s, n=4, method="inclusive")
        _empty[found] = Empty(middle, high - low)
    return _empty[found]


def refuse_nothing(name: str, series: Series, empty: Empty | None) -> None:
    """Reject queued samples that are as short as the empty interval, unless the device is shared.

    Raises
    ------
    MeasurementError
        If the samples are that short, because the call then gave the device no work.
    """
    sample_s = statistics.median(series.device_s) * series.repeats
    if empty is None or not empty.is_steady or not series.queued or sample_s > empty.most_s:
        return
    where = Device(series.backend.kind, series.index)
    raise MeasurementError(
        f"{name} gave {where} nothing to do: its samples of {sample_s * 1e6:.2f} µs cannot be told from two events "
        f"with nothing between them ({empty.median_s * 1e6:.2f} µs); launch on cuassay's current stream, or measure "
        "the host's own time with queued=False"
    )
