"""Which commit made a benchmark slower: a binary search, each step of which is a comparison by the gate.

The search follows the larger part of the slow-down: where a commit is slower than the older end of the range by at
least half of what is left to explain, the search goes on among the commits before it, else among those after it. A
commit whose comparison is ambiguous is passed over, as is one that cannot be measured. What cannot be told apart then
is reported as a range of commits.
What a comparison is, and when a commit can be measured, is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cuassay.benchmarking.ab import Verdict

__all__ = ["Found", "Step", "search"]

#: A commit that is slower by this share of what is left to explain has the larger part of it below.
LARGER_PART = 0.5


@dataclass(frozen=True)
class Step:
    """One comparison: the older commit, the newer, and the verdict on the newer."""

    base: str
    head: str
    verdict: Verdict


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes
    ----------
    total : Step
        The whole range; if its verdict is not ``slower``, there was nothing to search.
    step : Step
        The smallest range that was compared and is slower; the whole range if there was nothing to search.
    commits : sequence of str
        The commits of that range, oldest first: one of them, or several together, made the benchmark slower.
    steps : sequence of Step
        All comparisons, in order.
    skipped : mapping
        Commits that could not be measured, with the reason.
    ambiguous : sequence of str
        Commits that could be measured, but whose comparison was ambiguous.
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
        """Compare two commits; remembers a range that is slower."""
        base, head = self.commits[low], self.commits[high]
        done = next((one for one in self.steps if (one.base, one.head) == (base, head)), None)
        if done is None:
            done = Step(base, head, self.compare(base, head))
            self.steps.append(done)
        if done.verdict.word == "slower":
            self.slower.append((low, high, done))
        return done.verdict

    def middle(self, low: int, high: int) -> int | None:
        """The commit nearest to the middle of a range that may tell more; None if there is none."""
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
        """The smallest range that holds the larger part of `effect`, as far as commits can be told apart."""
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
    """The places between two, the middle first, then by distance from it."""
    return sorted(range(low + 1, high), key=lambda place: (abs(2 * place - low - high), place))


def search(
    commits: Sequence[str], compare: Callable[[str, str], Verdict], why_skipped: Callable[[str], str | None]
) -> Found:
    """Find which commit made a benchmark slower.

    Parameters
    ----------
    commits : sequence of str
        Two or more, oldest first; the first and the last can be measured.
    compare : callable
        Takes an older and a newer commit, and gives the verdict on the newer.
    why_skipped : callable
        Takes a commit, and says why it cannot be measured; None if it can.
    """
    work = _Search(commits, compare, why_skipped)
    total = work.step(0, len(commits) - 1)
    if total.word != "slower":
        return Found(work.steps[0], work.steps[0], commits[1:], work.steps, {}, [])
    work.step(*work.narrow(total.effect))  # the range itself: until here its ends were compared with others
    low, high, step = min(reversed(work.slower), key=lambda one: one[1] - one[0])
    return Found(work.slower[0][2], step, commits[low + 1 : high + 1], work.steps, work.skipped, work.ambiguous)
