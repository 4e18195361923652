"""Draws the next large sample while the judge compares the last answer.

A sample to be measured may have tens of megabytes, and drawing them takes as long as comparing them. Both are work of
libraries that other threads need not wait for. Nothing is drawn while the clock runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context

from cuassay.core.handle import Closing
from cuassay.judging.probes import Probe
from cuassay.judging.schedule import Schedule
from cuassay.results.fingerprint import usable_cores
from cuassay.testing.samples import Sample

__all__ = ["Ahead"]

#: The fewest cores with which a sample is drawn ahead: one each for the judge, the candidate and the draw, and one
#: for all else. With two, waiting for the thread takes longer than it saves.
_CORES = 4


class Ahead(Closing):
    """The samples of one schedule in the order of its calls.

    Only samples to be measured are drawn ahead: their draws call the declaration's `bench`, and no reference, which may
    not be safe to call from two threads. With few cores each is drawn when its turn comes.

    Parameters
    ----------
    plan : Schedule
        The schedule.
    """

    def __init__(self, plan: Schedule) -> None:
        self._plan = plan
        self._next = _measured(plan)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cuassay-draw")
        self._begun: tuple[int, Future[Sample]] | None = None

    def __repr__(self) -> str:
        return f"Ahead({'idle' if self._begun is None else f'probe {self._begun[0]}'})"

    def begin(self) -> None:
        """Begin to draw the next sample to be measured, unless one is drawn already."""
        if self._begun is None and usable_cores() >= _CORES and (place := next(self._next, None)) is not None:
            draw = self._plan.probes[place].draws[0]
            self._begun = place, self._pool.submit(copy_context().run, draw)

    def sample(self, place: int, index: int) -> Sample:
        """Return the sample of call number `index` of the probe at `place`, after waiting until nothing is drawn."""
        if self._begun is None:
            self._skip(place)
            return self._plan.probes[place].draws[index]()
        begun, drawn = self._begun
        if begun != place:
            drawn.exception()  # waits; an exception is raised when its turn comes
            return self._plan.probes[place].draws[index]()
        self._begun = None
        return drawn.result()

    def _skip(self, place: int) -> None:
        """Leave out a sample that is drawn without having been begun, so that it is not drawn again."""
        if _is_measured(self._plan.probes[place]):
            next(self._next, None)

    def close(self) -> None:
        """End the thread; a second call does nothing."""
        self._pool.shutdown()


def _is_measured(probe: Probe) -> bool:
    return bool(probe.case) or probe.check == "bench"


def _measured(plan: Schedule) -> Iterator[int]:
    return (place for place in plan.order if _is_measured(plan.probes[place]))
