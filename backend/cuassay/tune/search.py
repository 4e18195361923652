"""Race candidates to find the fastest, and decide whether it is enough faster than the default to replace it.

Every stage samples the candidates in turn, forwards then backwards, so that a drift of the clocks affects all equally.
The default takes part in each stage. The last stage compares the default with the best candidates on fresh samples
only, because the fastest of a hundred noisy candidates was partly selected for its noise. The default is replaced only
if the gain is above 2 % and above twice the spread, and only by a candidate whose result agrees with the default's. A
rival is a candidate that other libraries use without a search. For a rival, twice the spread is enough, so that users
of those libraries do not lose by switching to ours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cuassay.errors import ArgumentError
from cuassay.tune.space import Candidate, distinct

__all__ = ["CONFIRMATION", "STAGES", "Check", "Limits", "Outcome", "Refine", "Stage", "Timer", "search"]

#: Takes one sample of a candidate, in seconds per call. The first sample may prepare it. Raises if it cannot run.
Timer = Callable[[Candidate], float]

#: Returns why a candidate's result does not agree with the default's, or None if it does. May raise.
Check = Callable[[Candidate], str | None]

#: Returns further candidates near the best ones so far, which may include the default.
Refine = Callable[[Sequence[Candidate]], Iterable[Candidate]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the race.

    Attributes
    ----------
    samples : int
        The number of samples of each candidate.
    keep : int
        The largest number of candidates that continue.
    within : float
        A candidate is eliminated if it takes longer than this times the best one.
    share : float
        The fraction of the total time that may be spent by the end of the stage.
    """

    samples: int
    keep: int
    within: float
    share: float


#: The stages. One sample of each of a hundred candidates only eliminates those that take twice as long as the best.
STAGES = (
    Stage(samples=1, keep=32, within=2.0, share=0.5),
    Stage(samples=2, keep=12, within=1.25, share=0.7),
    Stage(samples=5, keep=4, within=1.1, share=0.78),
    Stage(samples=10, keep=4, within=1.05, share=0.85),
)

#: The number of rounds in the last comparison; at least `_LEAST_ROUNDS` are run regardless of the limits.
CONFIRMATION = 20
_LEAST_ROUNDS = 5

#: The number of finalists besides the default and the best rival, and how far a finalist may be behind the default. A
#: candidate a few per cent behind may still be the fastest, because the samples were taken at different times.
_FINALISTS, _NEARLY = 3, 1.03

#: The number of candidates passed to `refine`, and the fraction of the time that its results may add to the first
#: stage.
_REFINED, _REFINING = 4, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The cost of a search, and the conditions for replacing the default.

    Attributes
    ----------
    seconds : float
        The time after which no sample is begun, except the few that the last comparison needs.
    iterations : int
        The largest number of samples of one candidate, except the few that the last comparison needs.
    gain : float
        The smallest gain of a candidate: the default's time over its own, minus 1. It does not apply to rivals.
    spreads : float
        The gain must also exceed this many times the distance between its quartiles.
    """

    seconds: float = 0.5
    iterations: int = 100
    gain: float = 0.02
    spreads: float = 2.0

    def __post_init__(self) -> None:
        if not self.seconds > 0 or self.iterations < 1 or self.gain < 0 or self.spreads < 0:
            raise ArgumentError(f"a search needs time, an iteration and no negative threshold; got {self!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a search.

    Attributes
    ----------
    choice : Candidate
        The candidate to use; the default unless another one is enough faster.
    reason : str
        The reason for the choice.
    default_s, chosen_s : float
        Seconds per call: the medians of the last comparison.
    gain, spread : float
        The median and quartile distance of the paired gains: the default's time over the choice's, minus 1. 0 for the
        default.
    tried, untried : int
        The number of candidates that ran, and of those for which there was no time.
    refused : tuple of (Candidate, str)
        The candidates that could not run or whose results differ, each with the reason.
    seconds : float
        The duration of the search.
    """

    choice: Candidate
    reason: str
    default_s: float
    chosen_s: float
    gain: float = 0.0
    spread: float = 0.0
    tried: int
    untried: int
    refused: tuple[tuple[Candidate, str], ...]
    seconds: float


def search(
    default: Candidate,
    candidates: Iterable[Candidate],
    timer: Timer,
    *,
    check: Check | None = None,
    refine: Refine | None = None,
    rivals: Collection[Candidate] = (),
    limits: Limits | None = None,
    stages: Sequence[Stage] = STAGES,
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Race `candidates` against `default`.

    Parameters
    ----------
    default : Candidate
        The candidate that is used without a search. Errors of its timer are raised.
    candidates : iterable of Candidate
        The other candidates, the most promising first, because there may not be time for all.
    timer, check, refine : callable
        See `Timer`, `Check`, `Refine`. The default itself is not checked.
    rivals : collection of Candidate
        Further candidates that other libraries use without a search, such as a library's first choice.
    limits : Limits
        By default `Limits()`.
    stages : sequence of Stage
        The stages before the last comparison.
    clock : callable
        Returns seconds, for the time limit.

    Returns
    -------
    Outcome
        The choice and its figures.
    """
    race = _Race(default, timer, limits or Limits(), clock)
    first, *later = stages
    entrants = race.run(first, [one for one in distinct((*rivals, *candidates)) if one != default])
    if refine is not None:
        entrants = race.refined(first, entrants, refine)
    for stage in later:
        entrants = race.run(stage, entrants)
    hopeful = [*race.hopeful(entrants), *race.hopeful(rivals)[:1]]
    return race.decide([one for one in distinct(hopeful) if race.agrees(one, check)], rivals)


@dataclass(slots=True)
class _Race:
    """The samples so far, and the candidates that were eliminated."""

    default: Candidate
    timer: Timer
    limits: Limits
    clock: Callable[[], float]
    begun: float = field(init=False)
    samples: dict[Candidate, list[float]] = field(default_factory=dict)
    refused: dict[Candidate, str] = field(default_factory=dict)
    untried: set[Candidate] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.begun = self.clock()
        self.samples[self.default] = [self.timer(self.default)]

    @property
    def elapsed(self) -> float:
        return self.clock() - self.begun

    def knows(self, candidate: Candidate) -> bool:
        return candidate in self.samples or candidate in self.refused or candidate in self.untried

    def time_of(self, candidate: Candidate) -> float:
        """Return the lower median of the samples, because disturbances only make a sample longer."""
        return statistics.median_low(self.samples[candidate])

    def ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        return sorted(candidates, key=self.time_of)

    def hopeful(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates that may be faster than the default, the best first."""
        ran = (one for one in candidates if one in self.samples and one not in self.refused and one != self.default)
        most = _NEARLY * self.time_of(self.default)
        return [one for one in self.ranked(ran) if self.time_of(one) <= most][:_FINALISTS]

    def run(self, stage: Stage, entrants: Sequence[Candidate], extra: float = 0.0) -> list[Candidate]:
        """Return the candidates that continue, the fastest first. `extra` is added to the stage's share of the time."""
        limit = self.limits.seconds * (stage.share + extra)
        self.untried |= set(entrants) - self.samples.keys()
        for turn in range(stage.samples):
            running = [self.default, *entrants]
            for one in running if turn % 2 == 0 else reversed(running):
                if self.elapsed <= limit:
                    self.sample(one)
        ranked = self.ranked(one for one in entrants if one in self.samples and one not in self.refused)
        best = min(self.time_of(one) for one in (self.default, *ranked[:1]))
        return [one for one in ranked[: stage.keep] if self.time_of(one) <= stage.within * best]

    def refined(self, stage: Stage, entrants: list[Candidate], refine: Refine) -> list[Candidate]:
        """Add candidates near the best ones, repeatedly, until the best do not change or the time is up."""
        former: list[Candidate] = []
        best = self.ranked([self.default, *entrants])[:_REFINED]
        while best != former and self.elapsed <= self.limits.seconds * (stage.share + _REFINING):
            near = [one for one in distinct(refine(best)) if not self.knows(one)]
            entrants = self.ranked([*entrants, *self.run(stage, near, extra=_REFINING)])
            former, best = best, self.ranked([self.default, *entrants])[:_REFINED]
        return entrants

    def sample(self, candidate: Candidate) -> float | None:
        """Take one more sample of a candidate, unless it has reached the limit."""
        return None if len(self.samples.get(candidate, ())) >= self.limits.iterations else self.timed(candidate)

    def timed(self, candidate: Candidate) -> float | None:
        """Take one more sample regardless of the limit. Returns None if the candidate was or is now rejected."""
        if candidate in self.refused:
            return None
        try:
            seconds = self.timer(candidate)
        except Exception as error:
            if candidate == self.default:
                raise
            self.refuse(candidate, f"{type(error).__name__}: {error}")
            return None
        self.samples.setdefault(candidate, []).append(seconds)
        self.untried.discard(candidate)
        return seconds

    def refuse(self, candidate: Candidate, reason: str) -> None:
        self.refused[candidate] = reason
        self.untried.discard(candidate)

    def agrees(self, candidate: Candidate, check: Check | None) -> bool:
        if check is None:
            return True
        try:
            reason = check(candidate)
        except Exception as error:  # noqa: BLE001  any error rejects the candidate
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            self.refuse(candidate, reason)
        return reason is None

    def decide(self, finalists: Sequence[Candidate], rivals: Collection[Candidate]) -> Outcome:
        """Compare the default with the finalists on fresh samples."""
        if not finalists:
            return self._outcome(self.default, "nothing else was faster", self.time_of(self.default))
        rounds = self._rounds(finalists)
        left = [one for one in finalists if one not in self.refused]
        if not left:
            return self._outcome(self.default, self.refused[finalists[0]], self.time_of(self.default))
        default_s = statistics.median(times[self.default] for times in rounds)
        gains = [_Gain(one, rounds, self.default, self.limits, is_rival=one in rivals) for one in left]
        best = max(gains, key=lambda one: (one.suffices, one.median))
        if best.suffices:
            return self._outcome(best.candidate, best.text, default_s, best.seconds, best.median, best.spread)
        return self._outcome(self.default, f"best of the others: {best.text}; not above {best.needed:.1%}", default_s)

    def _rounds(self, finalists: Sequence[Candidate]) -> list[dict[Candidate, float]]:
        """Sample the default and all finalists side by side, as long as a finalist is left."""
        rounds = []
        for turn in range(CONFIRMATION):
            if turn >= _LEAST_ROUNDS and self.elapsed > self.limits.seconds:
                break
            running = [self.default, *(one for one in finalists if one not in self.refused)]
            take = self.timed if turn < _LEAST_ROUNDS else self.sample
            taken = {one: take(one) for one in (running if turn % 2 == 0 else reversed(running))}
            times = {one: seconds for one, seconds in taken.items() if seconds is not None}
            if len(times) < 2 or self.default not in times:
                break
            rounds.append(times)
        return rounds

    def _outcome(
        self,
        choice: Candidate,
        reason: str,
        default_s: float,
        chosen_s: float | None = None,
        gain: float = 0.0,
        spread: float = 0.0,
    ) -> Outcome:
        return Outcome(
            choice=choice,
            reason=reason,
            default_s=default_s,
            chosen_s=default_s if chosen_s is None else chosen_s,
            gain=gain,
            spread=spread,
            tried=len(self.samples),
            untried=len(self.untried),
            refused=tuple(self.refused.items()),
            seconds=self.elapsed,
        )


class _Gain:
    """The gain of a finalist over the default, computed per round, so that a drift of the clocks cancels."""

    def __init__(
        self,
        candidate: Candidate,
        rounds: Sequence[Mapping[Candidate, float]],
        default: Candidate,
        limits: Limits,
        *,
        is_rival: bool,
    ) -> None:
        shared = [times for times in rounds if candidate in times]
        gains = [times[default] / times[candidate] - 1 for times in shared]
        low, _, high = statistics.quantiles(gains, n=4, method="inclusive")
        self.candidate = candidate
        self.seconds = statistics.median(times[candidate] for times in shared)
        self.median, self.spread = statistics.median(gains), high - low
        self.needed = max(0.0 if is_rival else limits.gain, limits.spreads * self.spread)

    @property
    def suffices(self) -> bool:
        return self.median > self.needed

    @property
    def text(self) -> str:
        return f"gain {self.median:.1%}, spread {self.spread:.1%}"
