"""Two runs of one device: whether their timings may be compared, how certain that is, and what is subtracted first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from cuassay_reports.facts import difference, soft_difference
from cuassay_reports.intervals import UNKNOWN, Shift, is_cold_sample, shift
from cuassay_reports.load import Results, Row, records
from cuassay_reports.verdicts import THRESHOLDS, Thresholds, Verdict, judge, judge_weakly

__all__ = ["Pair", "Pairs"]

_MACHINE = ("uuid", "cpu", "cores", "memory")
"""The soft facts that identify a machine; a difference in them weakens a verdict. Other soft facts are only named."""

_ASKED = ["benchmark", "dtype", "case", "cache", "mode", "unit", "groups", "implementation", "clock", "ours", "median"]


@dataclass(frozen=True)
class Pair:
    """The differences between two runs of one device.

    Attributes
    ----------
    soft : sequence of str
        Descriptions of the soft facts that differ.
    shift : Shift or None
        By how much cold samples of the newer run took longer; None if unknown.
    thresholds : Thresholds
        The differences that count.
    """

    soft: tuple[str, ...]
    shift: Shift | None
    thresholds: Thresholds = THRESHOLDS

    @property
    def is_weak(self) -> bool:
        """Whether the runs were on different machines."""
        return any(change.partition(" ")[0] in _MACHINE for change in self.soft)

    def judge(self, old: Row, new: Row) -> tuple[Verdict, float]:
        """Return the verdict on two rows of the runs, and the seconds that were subtracted from the newer one."""
        is_cold = is_cold_sample(new)
        moved = self.shift if is_cold and self.is_weak and not _both_net(old, new) else None
        if moved is None:
            unknown = UNKNOWN if is_cold and not _both_net(old, new) else 0.0
            verdict = (
                judge_weakly(old, new, unknown, self.thresholds) if self.is_weak else judge(old, new, self.thresholds)
            )
            return self._with_reasons(verdict), 0.0
        verdict = judge_weakly(_moved(old, moved.seconds), new, moved.uncertain_s, self.thresholds)
        return self._with_reasons(verdict, str(moved)), moved.seconds

    def _with_reasons(self, verdict: Verdict, *more: str) -> Verdict:
        return Verdict(verdict.word, "; ".join([verdict.reason, *self.soft, *more]))


class Pairs:
    """All pairs of runs of `results`, computed on demand."""

    def __init__(self, results: Results, thresholds: Thresholds = THRESHOLDS) -> None:
        self._results = results
        self._thresholds = thresholds
        self.pair = cache(self._pair)
        self.may_compare = cache(self._may_compare)

    def facts(self, run: str, device: str) -> Mapping[str, object]:
        """Return the fingerprint of `device` in `run`; empty if none was recorded."""
        return self._facts.get((run, device), {})

    def _may_compare(self, old: str, new: str, device: str) -> bool:
        before, after = self.facts(old, device), self.facts(new, device)
        return bool(before and after) and not difference(before, after)

    def _pair(self, old: str, new: str, device: str) -> Pair:
        before, after = self._rows(old, device), self._rows(new, device)
        soft = soft_difference(self.facts(old, device), self.facts(new, device))
        return Pair(tuple(soft), shift(before, after), self._thresholds)

    def _rows(self, run: str, device: str) -> list[Row]:
        """Return the timings of `device` in `run`, with the columns for estimating a shift."""
        times = self._results.times
        start, stop = np.searchsorted(times["order"].to_numpy(), [self._orders[run], self._orders[run] + 1])
        part = times[[*_ASKED, "device"]].iloc[start:stop]
        return records(part[(part["device"] == device) & (part["groups"] == "")])

    @cached_property
    def _facts(self) -> dict[tuple[str, str], Mapping[str, object]]:
        devices = self._results.devices
        columns = zip(devices["run"], devices["device"], devices["fingerprint"], strict=True)
        return {(run, device): facts for run, device, facts in columns if isinstance(facts, Mapping)}

    @cached_property
    def _orders(self) -> dict[str, int]:
        times = self._results.times.drop_duplicates("order")
        return dict(zip(times["run"], times["order"], strict=True))


def _both_net(old: Row, new: Row) -> bool:
    return bool(old["raw"] != old["median"] and new["raw"] != new["median"])


def _moved(row: Row, seconds: float) -> Row:
    return {**row, **{name: row[name] + seconds for name in ("median", "q25", "q75")}}
