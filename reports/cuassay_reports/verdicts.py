"""The meaning of a difference of two medians, faster, slower, same or ambiguous, and the thresholds.

Two runs of an unchanged program differ: slightly on one machine, and more on another GPU of the same model in another
host. A verdict from two runs is therefore a hint, and a verdict of the paired gate is proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = ["THRESHOLDS", "Thresholds", "Verdict", "Word", "judge", "judge_weakly", "relative_change"]

Word = Literal["faster", "slower", "same", "ambiguous"]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The thresholds beyond which a difference between two medians counts; all but `samples` are fractions."""

    floor: float
    weak: float
    noisy: float
    samples: int


THRESHOLDS = Thresholds(
    floor=0.02,  # the drift of an unchanged program between two runs on one machine with free clocks
    weak=0.05,   # the same for two GPUs of a model: unchanged peers on H200s differed by up to 5.3 % in 3,444 pairs
    noisy=0.10,  # a larger spread hides changes that matter, so the verdict is not "same"
    samples=5,   # quartiles of fewer samples mean little
)  # fmt: skip
"""The thresholds that `changes` uses."""


@dataclass(frozen=True)
class Verdict:
    """A verdict, or "" if nothing could be compared, and its reason in words."""

    word: Word | Literal[""]
    reason: str


def judge(old: Mapping[str, Any], new: Mapping[str, Any], thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """Compare two measurements of the same thing.

    Parameters
    ----------
    old, new : mapping
        ``median``, ``q25``, ``q75`` (NaN if unknown), ``n`` and ``better`` of a row of times.
    """
    change = relative_change(old["median"], new["median"])
    spread = max(_spread(old), _spread(new))
    if not math.isfinite(change):
        return Verdict("ambiguous", f"a median of {old['median']:g} has no relative change")
    if math.isnan(spread) or min(old["n"], new["n"]) < thresholds.samples:
        return _without_spread(change, thresholds)
    if abs(change) < max(thresholds.floor, spread):
        return _small(change, spread, thresholds)
    if old["q25"] <= new["q75"] and new["q25"] <= old["q75"]:
        return Verdict("ambiguous", f"{change:+.1%}, but the middle halves of the samples overlap")
    worse = (change > 0) == (new["better"] == "less")
    return Verdict("slower" if worse else "faster", f"{change:+.1%}, beyond the spread of {spread:.1%}")


def judge_weakly(
    old: Mapping[str, Any], new: Mapping[str, Any], unknown_s: float = 0.0, thresholds: Thresholds = THRESHOLDS
) -> Verdict:
    """Compare two measurements from different machines of the same kind.

    Parameters
    ----------
    old, new : mapping
        As in `judge`, and also ``clock`` and ``launches``.
    unknown_s : float
        Seconds by which any call may differ between the machines.
    """
    verdict = judge(old, new, thresholds)
    if verdict.word not in ("faster", "slower"):
        return verdict
    change = relative_change(old["median"], new["median"])
    if new["clock"] == "host" or new["launches"] == "live":
        return Verdict("ambiguous", f"{change:+.1%}, but it contains the host's own time, and the hosts differ")
    if abs(change) < thresholds.weak:
        return Verdict(
            "ambiguous", f"{change:+.1%}, but two machines of this kind differ by up to {thresholds.weak:.0%}"
        )
    if abs(new["median"] - old["median"]) < unknown_s:
        return Verdict("ambiguous", f"{change:+.1%}, but empty intervals differ by up to {unknown_s * 1e6:.1f} µs")
    return replace(verdict, reason=f"{verdict.reason} and the {thresholds.weak:.0%} of two machines")


def _small(change: float, spread: float, thresholds: Thresholds) -> Verdict:
    if spread > thresholds.noisy:
        return Verdict("ambiguous", f"{change:+.1%}, but the spread of {spread:.0%} could hide more")
    if abs(change) < thresholds.floor:
        return Verdict("same", f"{change:+.1%}, under the floor of {thresholds.floor:.0%}")
    return Verdict("same", f"{change:+.1%}, within the spread of {spread:.1%}")


def _without_spread(change: float, thresholds: Thresholds) -> Verdict:
    if abs(change) < thresholds.floor:
        return Verdict(
            "same", f"{change:+.1%}, under the floor of {thresholds.floor:.0%}; too few samples for a spread"
        )
    return Verdict("ambiguous", f"{change:+.1%}, from fewer than {thresholds.samples} samples or without quartiles")


def relative_change(old: float, new: float) -> float:
    """Return new over old, minus 1; NaN if old is 0."""
    return new / old - 1 if old else math.nan


def _spread(row: Mapping[str, Any]) -> float:
    """Return the distance of the quartiles over the median, NaN if unknown."""
    return float((row["q75"] - row["q25"]) / row["median"]) if row["median"] else math.nan
