"""What ``cuassay ab`` and ``cuassay aa`` do: fresh processes of two sides by turns, until the gate has decided.

Each process measures every benchmark that is still open, so that hundreds cost a few starts. The order is A B B A, on
one device. Every finished process is a file of the state folder; an interrupted comparison goes on with the next one.
What the figures mean is decided in `gate`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.benchmarking import gate, settling
from cuassay.benchmarking.arms import Arm
from cuassay.benchmarking.ledger import read
from cuassay.benchmarking.noise import Noise, Profile
from cuassay.benchmarking.sample import benchmark_name
from cuassay.errors import MeasurementError, ResultError
from cuassay_reports.facts import difference
from cuassay_reports.intervals import net

__all__ = ["Comparison", "Outcome", "Side", "Verdict", "compare", "modes_of", "profile"]

#: Benchmarks that go on being measured beside the last open ones, so that the common shift is still known.
ANCHORS = gate.FEWEST_FOR_SHIFT

_LOG_TAIL = 2000


@dataclass(frozen=True)
class Verdict:
    """What became of one benchmark.

    Attributes
    ----------
    word : str
        ``faster``, ``slower``, ``same`` or ``ambiguous``.
    effect : float
        Head over base, less 1, without the common shift.
    smallest : float
        The smallest change that the pairs would have shown in nine of ten cases.
    pairs : int
        Of processes, the confirming ones with them.
    noise : float or None
        The standard deviation of a process' median, by the profile.
    promise : float
        The slow-down that is promised to be found at that noise; infinite where it is only reported.
    why : str
        In words.
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
        """Whether it may fail a build."""
        return math.isfinite(self.promise)


@dataclass(frozen=True)
class Outcome:
    """A whole comparison.

    Attributes
    ----------
    shift : float
        What all benchmarks have in common, head over base, less 1; it was taken off.
    missing : sequence of str
        Benchmarks that only one side measured.
    starts : int
        Processes.
    """

    base: str
    head: str
    verdicts: Sequence[Verdict]
    shift: float
    missing: Sequence[str]
    starts: int
    seconds: float
    facts: Mapping[str, Any]

    def of(self, word: gate.Word) -> list[Verdict]:
        """The verdicts that are `word`."""
        return [one for one in self.verdicts if one.word == word]

    def columns(self) -> dict[str, Any]:
        """As plain data; what is infinite is None."""
        plain = {**asdict(self), "verdicts": [asdict(one) for one in self.verdicts]}
        for one in plain["verdicts"]:
            one["promise"] = one["promise"] if math.isfinite(one["promise"]) else None
        return plain


@dataclass(frozen=True)
class Side:
    """An arm and what its processes are told besides, such as what is planted for a test of the gate."""

    arm: Arm
    extra: Sequence[str] = ()


@dataclass
class Comparison:
    """The processes of a comparison, as files of one folder.

    Parameters
    ----------
    sides : mapping
        ``base`` and ``head``; of a profile only ``base``.
    folder : path
        Keeps finished processes.
    selects : bool
        The command takes ``--only NAME``; a foreign command measures everything each time.
    seeded : bool
        Tell each process a seed of its own, for simulated noise.
    """

    sides: Mapping[str, Side]
    folder: Path
    selects: bool = True
    seeded: bool = False
    told: Callable[[str], object] = lambda line: None
    timeout_s: float = 600.0
    starts: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        plan = {name: [side.arm.identity, *side.arm.command, *side.extra] for name, side in self.sides.items()}
        plan |= {"host": [platform.node()]}
        file = self.folder / "plan.json"
        if file.exists() and json.loads(file.read_text()) != plan:
            raise ResultError(
                f"{self.folder} holds another comparison, or one of another machine: {file.read_text()}; name another "
                "folder with --state, or remove it"
            )
        file.write_text(json.dumps(plan))

    def medians(self, stage: str, number: int, side: str, only: Iterable[str] = ()) -> dict[str, float]:
        """The medians of one process, by benchmark; it is started unless its file is there."""
        path = self.folder / f"{stage}{number:02d}-{side}.jsonl"
        if not path.exists():
            self._start(path, side, only)
        self.starts += 1
        rows = read([path])
        self._require_one_machine(rows, path)
        times = [net(row) for row in rows if row["record"] == "time"]
        return {benchmark_name(row): row["median"] for row in times if row["median"] > 0}

    def _start(self, path: Path, side: str, only: Iterable[str]) -> None:
        arm, unfinished = self.sides[side].arm, path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        words = [*arm.words(unfinished), *self.sides[side].extra]
        words += [word for name in only for word in ("--only", name)] if self.selects else []
        words += ["--seed", str(_seed(path.stem))] if self.seeded else []
        begun = time.monotonic()
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, env={**os.environ, **arm.environment}, timeout=self.timeout_s,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasurementError(
                f"a process of {side} ({arm.name}) did not run: {error}; look at {words[:4]}"
            ) from error
        if done.returncode or not unfinished.exists():
            raise MeasurementError(
                f"a process of {side} ({arm.name}) ended with status {done.returncode} and "
                f"{'its rows' if unfinished.exists() else 'no rows'}; its end was:\n"
                f"{(done.stdout + done.stderr)[-_LOG_TAIL:]}\nstart again to go on where this stopped"
            )
        unfinished.rename(path)
        self.told(f"{path.stem}: {time.monotonic() - begun:.1f} s")

    def _require_one_machine(self, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
        for row in rows:
            if row["record"] == "device" and row.get("present"):
                facts = row.get("fingerprint", {})
                changed = difference(self.facts, facts)
                if self.facts and (changed or self.facts.get("uuid") != facts.get("uuid")):
                    raise MeasurementError(
                        f"{path.name} was measured on another device: {facts.get('uuid')}, not {self.facts.get('uuid')}"
                        "; both sides of a comparison stay on one: choose it with --device"
                    )
                self.facts = facts

    def pair(self, stage: str, number: int, only: Iterable[str] = ()) -> dict[str, float]:
        """Log-ratios of pair `number`, head over base; odd pairs begin with head: A B B A."""
        order = ("base", "head") if number % 2 == 0 else ("head", "base")
        found = {side: self.medians(stage, number, side, only) for side in order}
        base, head = found["base"], found["head"]
        return {name: math.log(head[name] / base[name]) for name in base.keys() & head.keys()}

    @cached_property
    def missing(self) -> list[str]:
        """Benchmarks that only one side measured in the first pair."""
        base, head = (set(self.medians("p", 0, side)) for side in ("base", "head"))
        self.starts -= 2
        return [*(f"{name} (gone)" for name in sorted(base - head)), *(f"{name} (new)" for name in sorted(head - base))]


def compare(
    comparison: Comparison, profile: Profile | None = None, *, budget: float = gate.BUDGET, only: Sequence[str] = ()
) -> Outcome:
    """Take two sides through the gate.

    Parameters
    ----------
    profile : Profile, optional
        Of this runner; without one the variance of the pairs stands alone, and the promise is 2 %.
    budget : float
        Chance of any false alarm in the whole comparison.
    only : sequence of str
        Patterns of benchmarks; all where there is none.

    Raises
    ------
    MeasurementError
        A process failed, or ran on another device; nothing was measured by both sides.
    """
    begun = time.monotonic()
    stage = _Stage(comparison, "p", profile or Profile())
    found: dict[str, int] = {}
    for count in gate.LOOKS:
        while stage.done < count:
            stage.add([*stage.open, *stage.anchors(found)] if stage.done else only)
        found |= stage.look()
        if not stage.open:
            break
    suspects = {name: side for name, side in found.items() if side}
    confirming = _Stage(comparison, "c", profile or Profile())
    while suspects and confirming.done < gate.CONFIRMING_PAIRS:
        confirming.add([*suspects, *stage.anchors(found)])
    kept = confirming.confirm(suspects, gate.confirmation_level(len(stage.pairs), budget)) if suspects else {}
    verdicts = [_verdict(name, stage, confirming, found.get(name), kept.get(name)) for name in sorted(stage.pairs)]
    shift = math.expm1(float(np.mean(stage.shifts)))
    seconds = time.monotonic() - begun
    base, head = (comparison.sides[side].arm.name for side in ("base", "head"))
    return Outcome(base, head, verdicts, shift, comparison.missing, comparison.starts, seconds, comparison.facts)


class _Stage:
    """Pairs of one stage: the deciding ones, or the confirming ones."""

    def __init__(self, comparison: Comparison, name: str, profile: Profile) -> None:
        self._comparison, self._name, self._profile = comparison, name, profile
        self.pairs: dict[str, list[float]] = {}
        self.shifts: list[float] = []
        self.open: list[str] = []

    @property
    def done(self) -> int:
        return len(self.shifts)

    def add(self, only: Sequence[str]) -> None:
        """One more pair, without what all its benchmarks have in common."""
        found = self._comparison.pair(self._name, self.done, only)
        if not found:
            raise MeasurementError("no benchmark was measured by both sides; look at --only and at the commands")
        shift = float(gate.common_shift(np.array([list(found.values())]).T)[0])
        if not self.done:
            self.open = sorted(found)
        self.shifts.append(shift)
        for name, ratio in found.items():
            self.pairs.setdefault(name, []).append(ratio - shift)
        self.open = [name for name in self.open if len(self.pairs[name]) == self.done]

    def anchors(self, found: Mapping[str, int]) -> list[str]:
        """The quietest benchmarks that were found to be the same: with the open ones they tell the common shift."""
        settled = [name for name, side in found.items() if side == 0]
        return sorted(settled, key=lambda name: float(np.std(self.pairs[name])))[:ANCHORS]

    def look(self) -> dict[str, int]:
        """What the open benchmarks were found to be; those undecided stay open."""
        sides = gate.look(*self._arrays(self.open))
        found = {name: int(side) for name, side in zip(self.open, sides, strict=True) if side != 2}
        self.open = [name for name in self.open if name not in found]
        return found

    def confirm(self, suspects: Mapping[str, int], level: float) -> dict[str, bool]:
        """Which suspects are confirmed; one that was not measured in each pair is not."""
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
        return self._profile.noises.get(name)

    def noise_class(self, name: str) -> gate.NoiseClass:
        noise = self.noise(name)
        return gate.class_of(None if noise is None else noise.noise)


def _verdict(name: str, stage: _Stage, confirming: _Stage, side: int | None, kept: bool | None) -> Verdict:
    noise, kind = stage.noise(name), stage.noise_class(name)
    own, again = np.array(stage.pairs[name]), np.array(confirming.pairs.get(name, []))
    decisive = again if side and len(again) else own
    effect = math.expm1(float(decisive.mean()))
    known = (0.0, 0.0) if noise is None else (noise.noise, noise.degrees)
    smallest = gate.smallest_effect(own, *known, kind.floor) if len(own) > 1 else math.inf
    word, why = _word(side, kept, effect, smallest, len(own))
    told = modes_of(list(own))
    pairs = len(own) + (len(again) if side else 0)
    return Verdict(
        name, word, effect, smallest, pairs, None if noise is None else noise.noise, kind.promise,
        f"{why}; {told}" if told else why,
    )  # fmt: skip


def _word(side: int | None, kept: bool | None, effect: float, smallest: float, pairs: int) -> tuple[gate.Word, str]:
    if side == 0:
        return "same", f"a change of {smallest:.2%} would have been seen"
    if side is None:
        return "ambiguous", f"undecided after {pairs} pairs"
    if not kept:
        return "ambiguous", f"accused by {pairs} pairs, not confirmed by {gate.CONFIRMING_PAIRS} fresh ones"
    return ("slower" if side > 0 else "faster"), f"{effect:+.2%}, confirmed by {gate.CONFIRMING_PAIRS} fresh pairs"


def modes_of(values: Sequence[float]) -> str:
    """Say of log-ratios that they fall into two groups far apart, where they do; else nothing."""
    found = settling.modes_of(values)
    if found is None:
        return ""
    low, high = found
    upper = sum(value > (low + high) / 2 for value in values)
    return f"two modes {math.expm1(high - low):.2%} apart, {upper} of {len(values)} in the upper"


def profile(comparison: Comparison, processes: int, only: Sequence[str] = ()) -> tuple[Profile, dict[str, float]]:
    """Measure the noise of a runner: fresh processes of one side; gives the profile and the median of each benchmark.

    Raises
    ------
    MeasurementError
        As `compare`; or no benchmark was in every process.
    """
    found = [comparison.medians("n", number, "base", only) for number in range(processes)]
    common = set.intersection(*(set(one) for one in found))
    if not common:
        raise MeasurementError("no benchmark was measured in every process; look at --only and at the command")
    medians = {name: float(np.median([one[name] for one in found])) for name in sorted(common)}
    return Profile.of(found, comparison.facts), medians


def _seed(text: str) -> int:
    return zlib.crc32(text.encode())


def progress(line: str) -> None:
    """Show a line while it runs."""
    sys.stderr.write(f"cuassay: {line}\n")
