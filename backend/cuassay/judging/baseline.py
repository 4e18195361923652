"""The times of the trusted processes: one that does nothing, and several that run the declared function.

A program's time depends on the process that it runs in, such as on where its memory lies: the same program is a few
percent faster or slower in another process. The declared function is timed in several new processes, which show how
large this offset is here. The candidate itself has one process, because it may do other things in a second one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from cuassay.judging.probes import LARGE, elements_of
from cuassay.judging.schedule import WARM_UP
from cuassay.judging.trial import given
from cuassay.testing.samples import Sample

__all__ = ["LEAST_OFFSET", "PROCESSES", "Baseline", "Key", "Seconds", "StartTimed", "Timed", "measured", "times_of"]

#: A case, by label and dtype, and its times.
Key = tuple[str, str]
Seconds = Mapping[Key, Sequence[float]]

#: The number of processes of each trusted candidate.
PROCESSES: Mapping[str, int] = {"null": 1, "reference": 2}

#: The calls of a case in one process after warm-up, and those with large arrays, because each takes long.
_CALLS, _FEW_CALLS = 12, 8

#: The least relative offset between two processes that is assumed, by tier: two processes may agree by chance. On an
#: H200 programs of 0.7 ms differed by 2 to 4 % between processes. Kernels, which the device times, differed by 1.5 % at
#: most between verdicts, so by half of that from their middle.
LEAST_OFFSET: Mapping[str, float] = {"program": 0.02, "kernel": 0.0075}


class Timed(Protocol):
    """A trusted process."""

    @property
    def problem(self) -> str:
        """Why it cannot be called; empty if it can."""

    def time(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
        """Return the seconds of one call by the judge's clock, or None if it failed."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The times of the trusted processes by case: null calls, and the declared function in each of its processes."""

    null: Seconds = field(default_factory=dict)
    reference: Sequence[Seconds] = ()

    def reference_of(self, key: Key) -> list[float]:
        """Return the times of the declared function in all processes."""
        return [seconds for times in self.reference for seconds in times.get(key, ())]

    def offset_of(self, key: Key, tier: str) -> float:
        """Return the relative offset to expect of another process: the standard deviation of those of the reference.

        It is at least `LEAST_OFFSET`.
        """
        empty = statistics.median(self.null.get(key) or (0.0,))
        medians = [statistics.median(times[key]) - empty for times in self.reference if times.get(key)]
        if len(medians) < 2 or min(medians) <= 0:
            return LEAST_OFFSET[tier]
        return max(LEAST_OFFSET[tier], statistics.stdev(medians) / statistics.mean(medians))


#: Starts a trusted process for calls with these samples.
StartTimed = Callable[[Mapping[Any, Sample]], AbstractContextManager[Timed]]


def measured(ours: Mapping[str, StartTimed], samples: Mapping[Key, Sample]) -> Baseline:
    """Start the trusted processes and time calls on one sample of each case, one process after another.

    All are started and called once at the same time, because on a GPU each takes a second until its first answer.
    """
    arguments = {key: given(sample) for key, sample in samples.items()}
    names = [name for name in ours for _ in range(PROCESSES[name])]
    found: dict[str, list[Seconds]] = {name: [] for name in PROCESSES}
    with ExitStack() as held:

        def started(name: str) -> Timed:
            process = held.enter_context(ours[name](samples))
            if not process.problem:
                for args, kwargs in arguments.values():
                    process.time(args, kwargs)
            return process

        with ThreadPoolExecutor(max(len(names), 1)) as pool:
            processes = list(pool.map(started, names))
        for name, process in zip(names, processes, strict=True):
            found[name].append({} if process.problem else times_of(process, samples))
    return Baseline(next(iter(found["null"]), {}), found["reference"])


def times_of(process: Timed, samples: Mapping[Key, Sample]) -> dict[Key, list[float]]:
    """Time the calls of all cases in turn; return the seconds without those of warm-up."""
    arguments = {key: given(sample) for key, sample in samples.items()}
    counts = {key: _FEW_CALLS if elements_of(sample) > LARGE else _CALLS for key, sample in samples.items()}
    found: dict[Key, list[float]] = {}
    for turn in range(WARM_UP + _CALLS):
        for key, (args, kwargs) in arguments.items():
            seconds = process.time(args, kwargs) if turn < WARM_UP + counts[key] else None
            if seconds is not None and turn >= WARM_UP:
                found.setdefault(key, []).append(seconds)
    return found
