"""The pairs of one stage of a comparison, and the common shift that is subtracted from each of them.

The first pairs measure every benchmark. Later pairs measure the open benchmarks and some *anchors*, which did not
change. The common shift of all pairs is estimated again after each pair (see `shifts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.benchmarking import gate
from cuassay.benchmarking.comparison import Comparison
from cuassay.benchmarking.noise import Noise, Profile
from cuassay.benchmarking.shifts import FEWEST_FOR_SHIFT, Shift, common_shift
from cuassay.errors import MeasurementError

__all__ = ["ANCHORS", "Stage"]

#: How many unchanged benchmarks later pairs measure with the open ones.
ANCHORS = 16


class Stage:
    """The pairs of the deciding or of the confirming stage.

    Attributes
    ----------
    shift : Shift
        The common shift of each pair.
    pairs : dict
        From a benchmark to its log-ratios without the common shift, one for each pair that measured it.
    open : list of str
        The benchmarks that every pair has measured and that no look has decided.
    """

    def __init__(self, comparison: Comparison, name: str, profile: Profile) -> None:
        self._comparison, self._name, self._profile = comparison, name, profile
        self._medians: list[Mapping[str, tuple[float, float]]] = []
        self._names: list[str] = []
        self.shift: Shift
        self.pairs: dict[str, list[float]] = {}
        self.open: list[str] = []

    @property
    def done(self) -> int:
        """The number of pairs so far."""
        return len(self._medians)

    def add(self, only: Sequence[str], anchors: Sequence[str] = (), *, unchanged: bool = False) -> None:
        """Measure one more pair.

        Parameters
        ----------
        only : sequence of str
            Patterns of benchmark names; empty means all benchmarks.
        anchors : sequence of str
            Further benchmarks, for the common shift.
        unchanged : bool
            Whether the anchors are the unchanged benchmarks. Otherwise these are searched for among all.

        Raises
        ------
        MeasurementError
            If no benchmark was measured by both sides.
        """
        found = self._comparison.pair(self._name, self.done, list(dict.fromkeys([*only, *anchors])))
        if not self._medians:
            self._names = self.open = sorted(found)
        if not found.keys() & set(self._names):
            raise MeasurementError("no benchmark was measured by both sides; look at --only and at the commands")
        self._medians.append(found)
        self._take_shift_off(anchors if unchanged else None)
        self.open = [name for name in self.open if len(self.pairs[name]) == self.done]

    def _take_shift_off(self, unchanged: Sequence[str] | None) -> None:
        missing = (np.nan, np.nan)
        logs = np.log([[one.get(name, missing) for one in self._medians] for name in self._names])
        ratios = logs[:, :, 1] - logs[:, :, 0]
        seconds = np.exp(np.nanmean(logs, axis=(1, 2)))
        known = None if unchanged is None else np.array([name in unchanged for name in self._names])
        self.shift = common_shift(ratios, seconds, self._noise_of_ratios(), known)
        rest = ratios - self.shift.offsets
        self.pairs = {name: row[np.isfinite(row)].tolist() for name, row in zip(self._names, rest, strict=True)}

    def _noise_of_ratios(self) -> Any:
        known = [self.noise(name) for name in self._names]
        return 2**0.5 * np.array([np.nan if one is None else one.noise for one in known])

    def anchors(self, found: Mapping[str, int]) -> list[str]:
        """Return benchmarks that did not change, with the least noise among long and short calls.

        Long calls determine the share of the common shift, because their relative noise is small. Short calls determine
        its seconds. The result is empty for a small suite.
        """
        if len(self._names) < FEWEST_FOR_SHIFT:
            return []
        agree = dict(zip(self._names, self.shift.unchanged, strict=True))
        unchanged = [name for name in self._names if not found.get(name, 0) and agree[name]]
        share = {name: float(np.std(self.pairs[name])) for name in unchanged}
        seconds = {name: share[name] * self._medians[0][name][0] for name in unchanged}
        by_share, by_seconds = sorted(unchanged, key=share.__getitem__), sorted(unchanged, key=seconds.__getitem__)
        taken = [name for both in zip(by_share, by_seconds, strict=True) for name in both]
        return list(dict.fromkeys(taken))[:ANCHORS]

    def look(self) -> dict[str, int]:
        """Decide the open benchmarks. Undecided ones stay open until the number of pairs of their class is reached."""
        sides = gate.look(*self._arrays(self.open))
        found = {name: int(side) for name, side in zip(self.open, sides, strict=True) if side != 2}
        self.open = [name for name in self.open if name not in found and self.noise_class(name).pairs > self.done]
        return found

    def confirm(self, suspects: Mapping[str, int], level: float) -> list[str]:
        """Return the suspects that the pairs so far confirm, at a `level` for all looks together.

        Suspects that some pair did not measure are skipped.
        """
        names = [name for name in suspects if len(self.pairs.get(name, ())) == self.done]
        if not names:
            return []
        sides = np.array([suspects[name] for name in names], dtype=np.int8)
        levels = np.array([gate.level_at(level, self.done, self.noise_class(name).confirming) for name in names])
        kept = gate.confirmed(sides, *self._arrays(names), levels)
        return [name for name, one in zip(names, kept, strict=True) if one]

    def _arrays(self, names: Sequence[str]) -> tuple[Any, Any, Any, Any]:
        noises = [self.noise(name) for name in names]
        return (
            np.array([self.pairs[name] for name in names]),
            np.array([0.0 if one is None else one.noise for one in noises]),
            np.array([0.0 if one is None else one.degrees for one in noises]),
            np.array([self.noise_class(name).floor for name in names]),
        )

    def noise(self, name: str) -> Noise | None:
        """Return the benchmark's noise in the profile, or None if the profile lacks it."""
        return self._profile.noises.get(name)

    def noise_class(self, name: str) -> gate.NoiseClass:
        """Return the benchmark's noise class."""
        noise = self.noise(name)
        return gate.class_of(None if noise is None else noise.noise)
