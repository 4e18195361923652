"""The outcome of each mutant, and the score of each function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from cuassay.mutation.mutant import Mutant

__all__ = ["Outcome", "Score", "Verdict", "scores"]

Verdict = Literal["killed", "survived", "uncovered", "invalid", "equivalent"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one mutant: the verdict, how many tests ran, for how many seconds, and a note on the reason."""

    mutant: Mutant
    verdict: Verdict
    tests: int = 0
    seconds: float = 0.0
    note: str = ""


@dataclass(slots=True)
class Score:
    """The number of mutants of one function for each verdict."""

    path: str
    function: str
    counts: dict[Verdict, int] = field(default_factory=dict)

    @property
    def judged(self) -> int:
        """The number of mutants that count: all except equivalent ones and those that do not compile."""
        return sum(self.counts.get(verdict, 0) for verdict in ("killed", "survived", "uncovered"))

    @property
    def share(self) -> float | None:
        """The fraction of killed mutants among those that count, or None if there are none."""
        return self.counts.get("killed", 0) / self.judged if self.judged else None


def scores(outcomes: Sequence[Outcome]) -> list[Score]:
    """Return a score for each function, in the order of the outcomes."""
    found: dict[tuple[str, str], Score] = {}
    for outcome in outcomes:
        key = outcome.mutant.path, outcome.mutant.function
        score = found.setdefault(key, Score(*key))
        score.counts[outcome.verdict] = score.counts.get(outcome.verdict, 0) + 1
    return list(found.values())
