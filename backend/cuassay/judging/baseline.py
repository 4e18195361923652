"""The times of trusted processes, which run the declared function and answer empty calls.

A program's time depends on the process that it runs in, such as on where its memory lies: the same program is a few
percent faster or slower in another process. The declared function is timed in several new processes, which show how
large this offset is here. The candidate itself has one process, because it may do other things in a second one.

An empty call does all that a call does but for the candidate's function, and its time is taken off the time of a call.
On a GPU it takes about 0.5 ms, and by a tenth more or less in another process, so each process answers its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from cuassay.judging.figures import LEAST_CALLS, Figure, fastest
from cuassay.judging.probes import LARGE, elements_of
from cuassay.judging.schedule import WARM_UP
from cuassay.judging.trial import given
from cuassay.testing.samples import Sample

__all__ = [
    "LEAST_OFFSET",
    "MOST_EMPTY",
    "PROCESSES",
    "Baseline",
    "Key",
    "Seconds",
    "StartTimed",
    "Timed",
    "measured",
    "times_of",
]

#: A case, by label and dtype, and its times.
Key = tuple[str, str]
Seconds = Mapping[Key, Sequence[float]]

#: The number of trusted processes.
PROCESSES = 2

#: The calls of a case in one process after warm-up, and those with large arrays, because each takes long.
_CALLS, _FEW_CALLS = 16, 8

#: At most this many times the time of the trusted processes' empty calls is taken off a candidate's times: it could
#: make its own empty calls longer.
MOST_EMPTY = 1.1

#: The least relative offset between two processes that is assumed, by tier: two processes may agree by chance. On an
#: H200 the figures of a program of 0.7 ms had a standard deviation of 1.0 to 1.5 % between processes. Kernels, which
#: the device times, differed by 1.5 % at most between verdicts, so by half of that from their middle.
LEAST_OFFSET: Mapping[str, float] = {"program": 0.015, "kernel": 0.0075}


class Timed(Protocol):
    """A trusted process."""

    @property
    def problem(self) -> str:
        """Why it cannot be called; empty if it can."""

    def time(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
        """Return the seconds of one call by the judge's clock, or None if it failed."""

    def empty(self) -> float | None:
        """Return the seconds of an empty call like the last call, or None if it failed."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The times of the trusted processes by case: of the declared function, and of empty calls, in each process.

    Parameters
    ----------
    busy_s : float
        Seconds for which each empty call keeps the device busy; they are not taken off the times of other calls.
    """

    reference: Sequence[Seconds] = ()
    empty: Sequence[Seconds] = ()
    busy_s: float = 0.0

    def reference_of(self, key: Key, figure: Figure = fastest) -> list[float]:
        """Return the figure of the declared function in each process, without that of its empty calls."""
        found, usual = [], self.empty_of(key, (), figure)
        for place, times in enumerate(self.reference):
            calls = times.get(key, ())
            own = self.empty[place].get(key) if place < len(self.empty) else None
            if len(calls) >= LEAST_CALLS:
                found.append(figure(calls) - (figure(own) - self.busy_s if own else usual))
        return found

    def empty_of(self, key: Key, own: Sequence[float] = (), figure: Figure = fastest) -> float:
        """Return the seconds to take off a candidate's times whose own empty calls took `own`.

        They are at most `MOST_EMPTY` times those of the trusted processes.
        """
        trusted = [figure(times[key]) for times in self.empty if times.get(key)]
        if not trusted:
            return 0.0
        found = min(figure(own), MOST_EMPTY * max(trusted)) if own else statistics.median(trusted)
        return found - self.busy_s

    def offset_of(self, key: Key, tier: str, figure: Figure = fastest) -> float:
        """Return the relative offset to expect of another process: the standard deviation of those of the reference.

        It is at least `LEAST_OFFSET`.
        """
        figures = self.reference_of(key, figure)
        if len(figures) < 2 or min(figures) <= 0:
            return LEAST_OFFSET[tier]
        return max(LEAST_OFFSET[tier], statistics.stdev(figures) / statistics.mean(figures))


#: Starts a trusted process that runs the declared function.
StartTimed = Callable[[Mapping[Any, Sample]], AbstractContextManager[Timed]]


def measured(start: StartTimed | None, samples: Mapping[Key, Sample], *, busy_s: float = 0.0) -> Baseline:
    """Start the trusted processes and time calls on one sample of each case, one process after another.

    All are started and called once at the same time, because on a GPU each takes a second until its first answer.

    Parameters
    ----------
    start : callable, optional
        Starts a trusted process; without it there are no times.
    busy_s : float
        Seconds for which an empty call keeps the device busy.
    """
    arguments = {key: given(sample) for key, sample in samples.items()}
    reference, empty = list[Seconds](), list[Seconds]()
    if start is None:
        return Baseline(busy_s=busy_s)
    with ExitStack() as held:

        def started(_: int) -> Timed:
            process = held.enter_context(start(samples))
            if not process.problem:
                for args, kwargs in arguments.values():
                    process.time(args, kwargs)
            return process

        with ThreadPoolExecutor(PROCESSES) as pool:
            processes = list(pool.map(started, range(PROCESSES)))
        for process in processes:
            calls, empty_calls = ({}, {}) if process.problem else times_of(process, samples)
            reference.append(calls)
            empty.append(empty_calls)
    return Baseline(reference, empty, busy_s)


def times_of(process: Timed, samples: Mapping[Key, Sample]) -> tuple[Seconds, Seconds]:
    """Time the calls of all cases in turn, each followed by an empty one; return the seconds without warm-up."""
    arguments = {key: given(sample) for key, sample in samples.items()}
    counts = {key: _FEW_CALLS if elements_of(sample) > LARGE else _CALLS for key, sample in samples.items()}
    calls: dict[Key, list[float]] = {}
    empty: dict[Key, list[float]] = {}
    for turn in range(WARM_UP + _CALLS):
        for key, (args, kwargs) in arguments.items():
            if turn >= WARM_UP + counts[key]:
                continue
            for found, seconds in ((calls, process.time(args, kwargs)), (empty, process.empty())):
                if seconds is not None and turn >= WARM_UP:
                    found.setdefault(key, []).append(seconds)
    return calls, empty
