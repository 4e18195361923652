"""Find the commit that made a benchmark slower by a binary search in which each step is a comparison by the gate.

The search follows the larger part of the slow-down. If a commit is slower than the older end of the range by at least
half of the remaining slow-down, the search continues among the commits before it, else among those after it. Commits
that are ambiguous or cannot be measured are skipped. If commits cannot be distinguished, the result is a range.

The caller defines what a comparison is and which commits can be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cuassay.benchmarking.ab import Verdict

__all__ = ["Found", "Step", "search"]

#: A commit that is slower by at least this share of the remaining slow-down has the larger part at or before it.
LARGER_PART = 0.5


@dataclass(frozen=True)
class Step:
    """One comparison: the older commit, the newer commit, and the verdict on the newer one."""

    base: str
    head: str
    verdict: Verdict


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    total : Step
        The comparison of the whole range. If its verdict is not ``slower``, there was nothing to search for.
    step : Step
        The smallest range that was compared and is slower, or the whole range if there was nothing to search for.
    commits : sequence of str
        The commits of that range, oldest first. One of them, or several together, made the benchmark slower.
    steps : sequence of Step
        All comparisons, in order.
    skipped : mapping
        From each commit that could not be measured to the reason.
    ambiguous : sequence of str
        The commits whose comparison was ambiguous.
    """

    total: Step
    step: Step
    commits: Sequence[str]
    steps: Sequence[Step]
    skipped: Mapping[str, str]
    ambiguous: Sequence[str]

    @property
    def is_slower(self) -> bool:
        """Whether the newest commit is slower than the oldest."""
        return self.total.verdict.word == "slower"


@dataclass
class _Search:
    commits: Sequence[str]
    compare: Callable[[str, str], Verdict]
    why_skipped: Callable[[str], str | None]
    steps: list[Step] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    ambiguous: list[str] = field(default_factory=list)
    slower: list[tuple[int, int, Step]] = field(default_factory=list)

    def step(self, low: int, high: int) -> Verdict:
        """Compare two commits, and remember the range if it is slower."""
        base, head = self.commits[low], self.commits[high]
        done = next((one for one in self.steps if (one.base, one.head) == (base, head)), None)
        if done is None:
            done = Step(base, head, self.compare(base, head))
            self.steps.append(done)
        if done.verdict.word == "slower":
            self.slower.append((low, high, done))
        return done.verdict

    def middle(self, low: int, high: int) -> int | None:
        """Return the usable commit nearest to the middle of a range, or None if there is none."""
        for place in _from_the_middle(low, high):
            commit = self.commits[place]
            if commit in self.skipped or commit in self.ambiguous:
                continue
            reason = self.why_skipped(commit)
            if reason is None:
                return place
            self.skipped[commit] = reason
        return None

    def narrow(self, effect: float) -> tuple[int, int]:
        """Return the smallest range that holds the larger part of `effect`, as far as commits can be distinguished."""
        low, high = 0, len(self.commits) - 1
        while (middle := self.middle(low, high)) is not None:
            verdict = self.step(low, middle)
            if verdict.word == "ambiguous":
                self.ambiguous.append(self.commits[middle])
            elif verdict.word == "slower" and verdict.effect >= LARGER_PART * effect:
                high, effect = middle, verdict.effect
            else:
                low, effect = middle, (1 + effect) / (1 + verdict.effect) - 1
        return low, high


def _from_the_middle(low: int, high: int) -> Iterable[int]:
    """Return the indices between two, sorted by distance from the middle."""
    return sorted(range(low + 1, high), key=lambda place: (abs(2 * place - low - high), place))


def search(
    commits: Sequence[str], compare: Callable[[str, str], Verdict], why_skipped: Callable[[str], str | None]
) -> Found:
    """Find which commit made a benchmark slower.

    Parameters
    ----------
    commits : sequence of str
        Two or more commits, oldest first. The first and the last must be measurable.
    compare : callable
        Takes an older and a newer commit, and returns the verdict on the newer one.
    why_skipped : callable
        Takes a commit, and returns why it cannot be measured, or None if it can.
    """
    work = _Search(commits, compare, why_skipped)
    total = work.step(0, len(commits) - 1)
    if total.word != "slower":
        return Found(work.steps[0], work.steps[0], commits[1:], work.steps, {}, [])
    work.step(*work.narrow(total.effect))  # compare the ends of the range with each other, not only with other commits
    low, high, step = min(reversed(work.slower), key=lambda one: one[1] - one[0])
    return Found(work.slower[0][2], step, commits[low + 1 : high + 1], work.steps, work.skipped, work.ambiguous)
