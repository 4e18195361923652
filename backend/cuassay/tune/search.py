"""The race: which of several candidates is the fastest, and whether it is so much faster that a switch is worth it.

Every stage samples the candidates in turn, forwards then backwards, so that a drift of the clocks meets all alike; the
default takes part in each. The last stage is a race of few, the default and the best of the others, on fresh samples
only: the fastest of a hundred noisy figures is flattered by having been chosen. The default is left only for a gain
above 2 % and above twice the spread, and only for a candidate whose result agrees with its result. For a rival, what
others use without a search, twice the spread is enough: nobody who leaves them for ours shall lose by it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cuassay.errors import ArgumentError
from cuassay.tune.space import Candidate, distinct

__all__ = ["CONFIRMATION", "STAGES", "Check", "Limits", "Outcome", "Refine", "Stage", "Timer", "search"]

#: One sample of a candidate: seconds a call. The first of each may prepare it; it raises for what cannot run.
Timer = Callable[[Candidate], float]

#: Whether a candidate computes what the default does: the reason why not, or None. It may raise.
Check = Callable[[Candidate], str | None]

#: Further candidates near the best so far, of which the default may be one.
Refine = Callable[[Sequence[Candidate]], Iterable[Candidate]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One round of the race.

    Attributes
    ----------
    samples : int
        Of each candidate.
    keep : int
        Most candidates that go on.
    within : float
        Who takes longer than this times the best is out.
    share : float
        How much of all the time may be spent when it ends.
    """

    samples: int
    keep: int
    within: float
    share: float


#: A hundred candidates are told apart by one sample each where they differ by half, and only there.
STAGES = (
    Stage(samples=1, keep=32, within=2.0, share=0.5),
    Stage(samples=2, keep=12, within=1.25, share=0.7),
    Stage(samples=5, keep=4, within=1.1, share=0.78),
    Stage(samples=10, keep=4, within=1.05, share=0.85),
)

#: Rounds of the last race; at least `_LEAST_ROUNDS` are taken whatever the limits.
CONFIRMATION = 20
_LEAST_ROUNDS = 5

#: In it with the default and the best rival: what is within a few per cent of the best so far may be the best; and so
#: far behind the default it may be before it, as their samples were taken at other times.
_FINALISTS, _NEARLY = 3, 1.03

#: Candidates that `refine` is given, and the share of the time that what it gives may add to the first stage.
_REFINED, _REFINING = 4, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a search may cost, and what it takes to leave the default.

    Attributes
    ----------
    seconds : float
        After which no sample is begun but the few that the last comparison needs.
    iterations : int
        Most samples of one candidate, but for the few that the last comparison needs.
    gain : float
        Least gain of a candidate: the default's time over its own, less 1. Of a rival no more than `spreads` is asked.
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
    """What a search found.

    Attributes
    ----------
    choice : Candidate
        What to use; the default where nothing is worth a switch.
    reason : str
        Why.
    default_s, chosen_s : float
        Seconds a call: the medians of the last comparison.
    gain, spread : float
        Median and quartile distance of the default's time over the choice's, less 1, pair by pair; 0 of the default.
    tried, untried : int
        Candidates that ran, and those that the time did not reach.
    refused : tuple of (Candidate, str)
        Those that could not run, or computed something else; each with the reason.
    seconds : float
        What the search took.
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
        What is used without a search. An error of its timer is the caller's.
    candidates : iterable of Candidate
        The likeliest first: time may not suffice for all.
    timer, check, refine : callable
        See `Timer`, `Check`, `Refine`. The default itself is not checked.
    rivals : collection of Candidate
        Candidates too: what others use without a search, such as another library's first choice.
    limits : Limits
        By default `Limits()`.
    stages : sequence of Stage
        The rounds before the last comparison.
    clock : callable
        Seconds, for the limit.
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
    """The samples so far, and who is out."""

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
        """Of few samples the lower middle one: what disturbs a sample makes it longer."""
        return statistics.median_low(self.samples[candidate])

    def ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        return sorted(candidates, key=self.time_of)

    def hopeful(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those that may be faster than the default, the best first."""
        ran = (one for one in candidates if one in self.samples and one not in self.refused and one != self.default)
        most = _NEARLY * self.time_of(self.default)
        return [one for one in self.ranked(ran) if self.time_of(one) <= most][:_FINALISTS]

    def run(self, stage: Stage, entrants: Sequence[Candidate], extra: float = 0.0) -> list[Candidate]:
        """Those that go on, the fastest first; `extra` is added to the stage's share of the time."""
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
        """With what is near the best, and near what is best then, until that brings no change or takes too long."""
        former: list[Candidate] = []
        best = self.ranked([self.default, *entrants])[:_REFINED]
        while best != former and self.elapsed <= self.limits.seconds * (stage.share + _REFINING):
            near = [one for one in distinct(refine(best)) if not self.knows(one)]
            entrants = self.ranked([*entrants, *self.run(stage, near, extra=_REFINING)])
            former, best = best, self.ranked([self.default, *entrants])[:_REFINED]
        return entrants

    def sample(self, candidate: Candidate) -> float | None:
        """One more of a candidate that may have it."""
        return None if len(self.samples.get(candidate, ())) >= self.limits.iterations else self.timed(candidate)

    def timed(self, candidate: Candidate) -> float | None:
        """One more, however many there are; None of a candidate that is out, or is now."""
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
        except Exception as error:  # noqa: BLE001  whatever keeps a candidate from running keeps it out
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            self.refuse(candidate, reason)
        return reason is None

    def decide(self, finalists: Sequence[Candidate], rivals: Collection[Candidate]) -> Outcome:
        """The comparison of the default with the best of the others, on fresh samples."""
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
            return self._outcome(best.candidate, best.told, default_s, best.seconds, best.median, best.spread)
        return self._outcome(self.default, f"best of the others: {best.told}; not above {best.needed:.1%}", default_s)

    def _rounds(self, finalists: Sequence[Candidate]) -> list[dict[Candidate, float]]:
        """Samples of the default and of all finalists side by side, as long as any is left."""
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
    """What a finalist gained over the default: round by round, as a drift of the clocks is in both."""

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
    def told(self) -> str:
        return f"gain {self.median:.1%}, spread {self.spread:.1%}"
