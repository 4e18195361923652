"""The decisions of ``cuassay ab`` and ``cuassay aa``: measure pairs of processes until each benchmark has a verdict.

Each process measures every benchmark that is still open, so hundreds of benchmarks need only a few processes. The order
is A B B A, on one device. `comparison` starts the processes, `stages` subtracts their common shift, and `gate` holds
the statistics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cuassay.benchmarking import gate, settling
from cuassay.benchmarking.comparison import Comparison
from cuassay.benchmarking.noise import Profile
from cuassay.benchmarking.stages import Stage
from cuassay.errors import MeasurementError
from cuassay.observe import comparison as timelines

__all__ = ["Outcome", "Verdict", "changes", "compare", "modes_of", "profile"]


#: The largest number of slower benchmarks for which the changes of their calls are reported.
_EXPLAINED = 20


@dataclass(frozen=True)
class Verdict:
    """The verdict on one benchmark.

    Attributes
    ----------
    word : str
        ``faster``, ``slower``, ``same`` or ``ambiguous``.
    effect : float
        Time of head over time of base, minus 1, without the common shift.
    smallest : float
        The smallest change that the pairs would have detected in nine of ten cases.
    pairs : int
        The number of pairs of processes, including the confirming ones.
    noise : float or None
        The standard deviation of a process' median according to the profile.
    promise : float
        The slow-down that is guaranteed to be found at that noise; infinite if the benchmark is only reported.
    why : str
        The reason in words.
    """

    name: str
    word: gate.Word
    effect: float
    smallest: float
    pairs: int
    noise: float | None
    promise: float
    why: str

    @property
    def gates(self) -> bool:
        """Whether the verdict may fail a build."""
        return math.isfinite(self.promise)


@dataclass(frozen=True)
class Outcome:
    """The result of a comparison.

    Attributes
    ----------
    base, head : str
        The names of the sides.
    verdicts : sequence of Verdict
        One for each benchmark that both sides measured.
    shift, shift_s : float
        The change that all benchmarks share: time of head over time of base, minus 1, and the seconds that each call
        takes longer. Both were subtracted.
    missing : sequence of str
        Benchmarks that only one side measured.
    starts : int
        The number of processes.
    seconds : float
        How long the comparison took.
    facts : mapping
        The fingerprint of the device.
    changes : mapping
        From a slower benchmark to lines that say what one call does differently under a profile.
    """

    base: str
    head: str
    verdicts: Sequence[Verdict]
    shift: float
    shift_s: float
    missing: Sequence[str]
    starts: int
    seconds: float
    facts: Mapping[str, Any]
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, word: gate.Word) -> list[Verdict]:
        """Return the verdicts whose word is `word`."""
        return [one for one in self.verdicts if one.word == word]

    def columns(self) -> dict[str, Any]:
        """Return the outcome as plain data. An infinite promise becomes None."""
        plain = {**asdict(self), "verdicts": [asdict(one) for one in self.verdicts]}
        for one in plain["verdicts"]:
            one["promise"] = one["promise"] if math.isfinite(one["promise"]) else None
        return plain


def compare(
    comparison: Comparison, profile: Profile | None = None, *, budget: float = gate.BUDGET, only: Sequence[str] = ()
) -> Outcome:
    """Compare two sides until every benchmark has a verdict.

    Parameters
    ----------
    comparison : Comparison
        The two sides.
    profile : Profile, optional
        The noise of this runner. Without it the variance is estimated from the pairs alone, and the promise is 2 %.
    budget : float
        The probability of any false alarm in the whole comparison.
    only : sequence of str
        Patterns of benchmark names; empty means all benchmarks.

    Raises
    ------
    MeasurementError
        If a process failed or ran on another device, or no benchmark was measured by both sides.
    """
    begun = time.monotonic()
    stage = Stage(comparison, "p", profile or Profile())
    found: dict[str, int] = {}
    for count in gate.LOOKS:
        while stage.done < count:
            stage.add(stage.open if found else only, stage.anchors(found) if found else ())
        found |= stage.look()
        if not stage.open:
            break
    suspects = {name: side for name, side in found.items() if side}
    confirming, anchors = Stage(comparison, "c", profile or Profile()), stage.anchors(found)
    kept = _confirmed(confirming, suspects, anchors, gate.confirmation_level(len(stage.pairs), budget))
    verdicts = [_verdict(name, stage, confirming, found.get(name), name in kept) for name in sorted(stage.pairs)]
    shift, shift_s = math.expm1(float(np.mean(stage.shift.share))), float(np.mean(stage.shift.seconds))
    explained = changes(comparison, [one.name for one in verdicts if one.word == "slower"][:_EXPLAINED])
    seconds = time.monotonic() - begun
    base, head = (comparison.sides[side].arm.name for side in ("base", "head"))
    return Outcome(
        base, head, verdicts, shift, shift_s, comparison.missing, comparison.starts, seconds, comparison.facts,
        explained,
    )  # fmt: skip


def _confirmed(confirming: Stage, suspects: Mapping[str, int], anchors: Sequence[str], level: float) -> set[str]:
    """Return the suspects that fresh pairs confirm.

    Each suspect is measured until a look confirms it or its noise class allows no more pairs.
    """
    kept = set[str]()
    for count in gate.CONFIRMING_LOOKS:
        goes_on = [name for name in suspects if name not in kept and confirming.noise_class(name).confirming >= count]
        while goes_on and confirming.done < count:
            confirming.add(goes_on, anchors, unchanged=True)
        kept.update(confirming.confirm({name: suspects[name] for name in goes_on}, level))
    return kept


def changes(comparison: Comparison, slower: Sequence[str]) -> dict[str, list[str]]:
    """Return what one call of each of these benchmarks does differently in head, according to profiles of both sides.

    The result is empty if a side cannot be profiled.
    """
    if not slower or not comparison.selects:
        return {}
    base, head = (comparison.figures(side, slower) for side in ("base", "head"))
    known = [name for name in slower if name in base and name in head]
    found = {name: list(timelines.compare(base[name], head[name]).lines()) for name in known}
    return {name: lines for name, lines in found.items() if lines}


def _verdict(name: str, stage: Stage, confirming: Stage, side: int | None, kept: bool) -> Verdict:
    noise, kind = stage.noise(name), stage.noise_class(name)
    own, again = np.array(stage.pairs[name]), np.array(confirming.pairs.get(name, []))
    decisive = again if side and len(again) else own
    effect = math.expm1(float(decisive.mean()))
    known = (0.0, 0.0) if noise is None else (noise.noise, noise.degrees)
    smallest = gate.smallest_effect(own, *known, kind.floor) if len(own) > 1 else math.inf
    word, why = _word(side, kept, effect, smallest, len(own), len(again))
    modes = modes_of(list(own))
    pairs = len(own) + (len(again) if side else 0)
    return Verdict(
        name, word, effect, smallest, pairs, None if noise is None else noise.noise, kind.promise,
        f"{why}; {modes}" if modes else why,
    )  # fmt: skip


def _word(
    side: int | None, kept: bool, effect: float, smallest: float, pairs: int, fresh: int
) -> tuple[gate.Word, str]:
    if side == 0:
        return "same", f"a change of {smallest:.2%} would have been seen"
    if side is None:
        return "ambiguous", f"undecided after {pairs} pairs"
    if not kept:
        return "ambiguous", f"accused by {pairs} pairs, not confirmed by {fresh} fresh ones"
    return ("slower" if side > 0 else "faster"), f"{effect:+.2%}, confirmed by {fresh} fresh pairs"


def modes_of(values: Sequence[float]) -> str:
    """Return a sentence about log-ratios that form two distant groups; empty if they do not."""
    found = settling.modes_of(values)
    if found is None:
        return ""
    low, high = found
    upper = sum(value > (low + high) / 2 for value in values)
    return f"two modes {math.expm1(high - low):.2%} apart, {upper} of {len(values)} in the upper"


def _nothing(number: int, only: Sequence[str]) -> str:
    """Return why no benchmark is left after process `number`, counted from 0, and what to do."""
    if number:
        return "no benchmark was measured in every process; look at the command, which must measure the same each time"
    if only:
        return f"no measured benchmark matches --only {' '.join(only)}; correct the pattern, or look at the command"
    return "no benchmark was measured; look at the command"


def profile(comparison: Comparison, processes: int, only: Sequence[str] = ()) -> tuple[Profile, dict[str, float]]:
    """Measure the noise of a runner with fresh processes of one side.

    Returns
    -------
    profile : Profile
        The noise of each benchmark.
    medians : dict
        From each benchmark to the median of its processes, in seconds.

    Raises
    ------
    MeasurementError
        As in `compare`, or if no benchmark was measured in every process.
    """
    found: list[dict[str, float]] = []
    common: set[str] = set()
    for number in range(processes):
        found.append(comparison.medians("n", number, "base", only))
        common = set(found[0]).intersection(*found)
        if not common:
            raise MeasurementError(_nothing(number, only))
    medians = {name: float(np.median([one[name] for one in found])) for name in sorted(common)}
    return Profile.of(found, comparison.facts), medians
