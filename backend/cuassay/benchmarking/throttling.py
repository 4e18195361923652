"""Count the samples that were taken while the device limited its clocks because of power or temperature."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cuassay.benchmarking.sampling import Series
from cuassay.core.protocols import Backend

__all__ = ["EVERY_SECONDS", "Throttling"]

#: Seconds between two queries, because the driver may need a tenth of a millisecond for an answer.
EVERY_SECONDS = 0.01


class Throttling:
    """Query a backend's ``throttled(index)`` periodically. An answer applies to all samples since the last query.

    Parameters
    ----------
    backend : Backend
        The device kind.
    index : int
        The index of the device.
    series : sequence of Series
        The series whose `throttled` is counted. It stays None if the backend does not report throttling.
    """

    def __init__(self, backend: Backend, index: int, series: Sequence[Series]) -> None:
        self._ask: Callable[[int], bool | None] | None = getattr(backend, "throttled", None)
        self._index, self._series = index, series
        self._counted = [0] * len(series)
        self._asked = time.perf_counter()

    def look(self, *, at_once: bool = False) -> None:
        """Query the device if that is due, or immediately with `at_once`."""
        if self._ask is None or not (at_once or time.perf_counter() - self._asked >= EVERY_SECONDS):
            return
        is_throttled = self._ask(self._index)
        self._asked = time.perf_counter()
        for place, one in enumerate(self._series):
            new, self._counted[place] = len(one.device_s) - self._counted[place], len(one.device_s)
            if is_throttled is not None:
                one.throttled = (one.throttled or 0) + new * is_throttled
