"""Counts the samples that were taken while the device held its clocks down, for its power or its temperature."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cuassay.benchmarking.sampling import Series
from cuassay.core.protocols import Backend

__all__ = ["EVERY_SECONDS", "Throttling"]

#: Seconds between two questions: the driver may take a tenth of a millisecond for an answer.
EVERY_SECONDS = 0.01


class Throttling:
    """Asks a backend's ``throttled(index)`` now and then; an answer holds for the samples since the question before.

    Parameters
    ----------
    series : sequence of Series
        Whose `throttled` is counted; it stays None if the backend does not tell.
    """

    def __init__(self, backend: Backend, index: int, series: Sequence[Series]) -> None:
        self._ask: Callable[[int], bool | None] | None = getattr(backend, "throttled", None)
        self._index, self._series = index, series
        self._counted = [0] * len(series)
        self._asked = time.perf_counter()

    def look(self, *, at_once: bool = False) -> None:
        """Ask if that is due."""
        if self._ask is None or not (at_once or time.perf_counter() - self._asked >= EVERY_SECONDS):
            return
        is_throttled = self._ask(self._index)
        self._asked = time.perf_counter()
        for place, one in enumerate(self._series):
            new, self._counted[place] = len(one.device_s) - self._counted[place], len(one.device_s)
            if is_throttled is not None:
                one.throttled = (one.throttled or 0) + new * is_throttled
