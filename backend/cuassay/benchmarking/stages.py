"""The pairs of one stage of a comparison, and the common shift that is taken off each of them.

The first pairs measure every benchmark; their common shift is that of the benchmarks that did not change (see
`gate.common_shift`). Later pairs measure the open benchmarks and some *anchors*, which were found to be the same. Among
the open ones most may have changed, so the shift of such a pair is the median of its anchors alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.benchmarking import gate
from cuassay.benchmarking.comparison import Comparison
from cuassay.benchmarking.noise import Noise, Profile
from cuassay.errors import MeasurementError

__all__ = ["ANCHORS", "Stage"]

#: Unchanged benchmarks that later pairs measure with the open ones. Their median adds 5 % to the error of a pair.
ANCHORS = 15


class Stage:
    """The pairs of one stage: the deciding ones, or the confirming ones.

    Attributes
    ----------
    shifts : list of float
        The common shift of each pair, a log-ratio.
    pairs : dict
        By benchmark, its log-ratios without the common shift, one for each pair that measured it.
    open : list of str
        Benchmarks that every pair has measured, and that no look has decided.
    """

    def __init__(self, comparison: Comparison, name: str, profile: Profile) -> None:
        self._comparison, self._name, self._profile = comparison, name, profile
        self._ratios: list[dict[str, float]] = []
        self.pairs: dict[str, list[float]] = {}
        self.shifts: list[float] = []
        self.open: list[str] = []

    @property
    def done(self) -> int:
        """Number of pairs."""
        return len(self._ratios)

    def add(self, only: Sequence[str], anchors: Sequence[str] = ()) -> None:
        """Measure one more pair.

        Parameters
        ----------
        only : sequence of str
            Patterns of the benchmarks; all of them if it is empty.
        anchors : sequence of str
            Benchmarks whose median is the common shift; without any, the shift is estimated from all.
        """
        found = self._comparison.pair(self._name, self.done, list(dict.fromkeys([*only, *anchors])))
        if not found:
            raise MeasurementError("no benchmark was measured by both sides; look at --only and at the commands")
        if not self._ratios:
            self.open = sorted(found)
        self._ratios.append(found)
        told = [found[name] for name in anchors if name in found]
        self.shifts = [*self.shifts, statistics.median(told)] if told else self._joint_shifts()
        self._take_shifts_off()
        self.open = [name for name in self.open if len(self.pairs[name]) == self.done]

    def _joint_shifts(self) -> list[float]:
        names = [name for name in self._ratios[0] if all(name in pair for pair in self._ratios)]
        table = [[pair[name] for pair in self._ratios] for name in names]
        return [float(one) for one in gate.common_shift(np.array(table).reshape(len(names), self.done))]

    def _take_shifts_off(self) -> None:
        self.pairs = {}
        for pair, shift in zip(self._ratios, self.shifts, strict=True):
            for name, ratio in pair.items():
                self.pairs.setdefault(name, []).append(ratio - shift)

    def anchors(self, found: Mapping[str, int]) -> list[str]:
        """The quietest benchmarks that were found to be the same, then undecided ones; none for a small suite."""
        if len(self.pairs) < gate.FEWEST_FOR_SHIFT:
            return []
        unchanged = [name for name in self.pairs if found.get(name, 2) in (0, 2)]
        ordered = sorted(unchanged, key=lambda name: (found.get(name, 2), float(np.std(self.pairs[name]))))
        return ordered[:ANCHORS]

    def look(self) -> dict[str, int]:
        """What the open benchmarks were found to be; undecided ones stay open for as many pairs as their class has."""
        sides = gate.look(*self._arrays(self.open))
        found = {name: int(side) for name, side in zip(self.open, sides, strict=True) if side != 2}
        self.open = [name for name in self.open if name not in found and self.noise_class(name).pairs > self.done]
        return found

    def confirm(self, suspects: Mapping[str, int], level: float) -> dict[str, bool]:
        """Which suspects are confirmed; a suspect that some pair did not measure is not."""
        names = [name for name in suspects if len(self.pairs.get(name, ())) == self.done]
        if not names:
            return {}
        sides = np.array([suspects[name] for name in names], dtype=np.int8)
        kept = gate.confirmed(sides, *self._arrays(names), level)
        return {name: bool(one) for name, one in zip(names, kept, strict=True)}

    def _arrays(self, names: Sequence[str]) -> tuple[Any, Any, Any, Any]:
        noises = [self.noise(name) for name in names]
        return (
            np.array([self.pairs[name] for name in names]),
            np.array([0.0 if one is None else one.noise for one in noises]),
            np.array([0.0 if one is None else one.degrees for one in noises]),
            np.array([self.noise_class(name).floor for name in names]),
        )

    def noise(self, name: str) -> Noise | None:
        """The benchmark's noise by the profile; None if the profile lacks it."""
        return self._profile.noises.get(name)

    def noise_class(self, name: str) -> gate.NoiseClass:
        """The benchmark's noise class."""
        noise = self.noise(name)
        return gate.class_of(None if noise is None else noise.noise)
