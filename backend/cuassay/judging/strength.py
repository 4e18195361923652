"""Whether a declaration is strong enough to judge by: stock mutants, which are all wrong, must fail.

They get the same kind of schedule as candidates, in this process. If a mutant passes, the declaration is weak, and a
candidate that it calls correct may be wrong in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuassay.judging.results import Outputs, Results
from cuassay.judging.schedule import Schedule, by_size
from cuassay.judging.subject import LocalSubject, differs
from cuassay.judging.trial import hear
from cuassay.mutation.stock import STOCK, Function

__all__ = ["weaknesses"]

#: Mutants whose output does not depend on the input. If one of them is right, any constant is.
_CONSTANT = ("zeros", "stale answer", "constant")

#: The most results of a list in which mutants are tried.
_MOST_RESULTS = 4


def weaknesses(results: Results, plan: Schedule, nonce: int) -> Iterator[str]:
    """Yield the stock mutants that pass `plan`, which must hold no timed calls; each mutant changes only one result.

    A mutant that never differs from the right answer does not count, such as rounding of results that are whole
    numbers. But if an output that does not depend on the input is right, the declaration is weak. Small samples come
    first, because most mutants fail by one of them.
    """
    plan = by_size(plan)
    count = len(results.of(plan.probes[plan.order[0]].draws[0]()))
    for name, mutation in STOCK.items():
        for place in range(count)[:_MOST_RESULTS]:
            watched = _Watched(results, mutation, place)
            trial = hear(LocalSubject(watched), plan, nonce)
            if trial.finding is None and (watched.differed or name in _CONSTANT):
                yield f"{name} in result {place}" if count > 1 else name


class _Watched:
    """The right function with one result from a mutant; records whether that result ever differed from the right."""

    def __init__(self, results: Results, mutation: Any, place: int) -> None:
        self._results, self._place = results, place
        self._mutant: Function = mutation(lambda *args, **kwargs: results.right(args, kwargs)[place])
        self.differed = False

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        right = self._results.right(args, kwargs)
        if self._place >= len(right):
            return right
        out = self._mutant(*args, **kwargs)
        self.differed = self.differed or differs(out, right[self._place])
        return (*right[: self._place], out, *right[self._place + 1 :])
