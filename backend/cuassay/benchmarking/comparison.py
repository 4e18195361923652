"""The processes of ``cuassay ab`` and ``cuassay aa``, which start in turn and each leave a file in the state folder.

An interrupted comparison continues with the first process that has no file. `gate` decides what the figures mean, and
`ab` decides how many processes are needed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cuassay.benchmarking.arms import Arm
from cuassay.benchmarking.ledger import read
from cuassay.benchmarking.sample import benchmark_name, is_wanted
from cuassay.errors import MeasurementError, ResultError
from cuassay.observe.comparison import Figures
from cuassay.results.compiled import keeping_compiled
from cuassay_reports.facts import difference
from cuassay_reports.intervals import net

__all__ = ["Comparison", "Side", "progress"]

#: How many characters of a failed process' output an error message repeats.
_LOG_TAIL = 2000

#: The names of the stages in progress lines.
_STAGES = {"p": "pair", "c": "confirming pair", "n": "process", "s": "process"}


@dataclass(frozen=True)
class Side:
    """An arm, and further arguments of its processes, such as slow-downs that a test of the gate injects."""

    arm: Arm
    extra: Sequence[str] = ()


@dataclass
class Comparison:
    """The processes of a comparison, as files of one folder.

    Parameters
    ----------
    sides : mapping
        ``base`` and ``head``. A noise profile has only ``base``.
    folder : path
        The folder that keeps the rows of finished processes.
    selects : bool
        Whether the command accepts ``--only NAME``. Other commands measure everything, and unwanted rows are ignored.
    seeded : bool
        Whether each process gets a different seed, for simulated noise.
    told : callable
        Called with a progress line for each finished process.
    timeout_s : float
        The longest time in seconds that a process may take.
    starts : int
        The number of processes so far.
    facts : mapping
        The fingerprint of the device, from the first process.
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

    def medians(self, stage: str, number: int, side: str, only: Sequence[str] = ()) -> dict[str, float]:
        """Return the medians of one process by benchmark. The process is started only if its file does not exist."""
        path = self.folder / f"{stage}{number:02d}-{side}.jsonl"
        if not path.exists():
            self._start(path, side, only)
        self.starts += 1
        rows = read([path])
        self._require_one_machine(rows, path)
        times = [net(row) for row in rows if row["record"] == "time"]
        found = {benchmark_name(row): row["median"] for row in times if row["median"] > 0}
        return {name: median for name, median in found.items() if is_wanted(name, only)}

    def figures(self, side: str, only: Sequence[str]) -> dict[str, Figures]:
        """Return the profile totals of one call of each of these benchmarks on one side.

        The result is empty if the side cannot be profiled. It never raises for that, so that the verdicts are not lost.
        """
        path = self.folder / f"t00-{side}.json"
        if not path.exists():
            told = path.with_suffix(".told").absolute()
            words = [*self._command(path.with_suffix(".unfinished").absolute(), side, only), "--timeline", str(told)]
            try:
                status = self._run(words, side).returncode
            except MeasurementError:
                return {}
            if status or not told.exists():
                return {}
            told.rename(path)
        return {name: Figures.of(one) for name, one in json.loads(path.read_text(encoding="utf-8")).items()}

    def _command(self, record: Path, side: str, only: Sequence[str]) -> list[str]:
        words = [*self.sides[side].arm.words(record), *self.sides[side].extra]
        return words + ([word for name in only for word in ("--only", name)] if self.selects else [])

    def _run(self, words: Sequence[str], side: str) -> subprocess.CompletedProcess[str]:
        arm = self.sides[side].arm
        try:
            environment = keeping_compiled({**os.environ, **arm.environment}, self.folder)
            return subprocess.run(
                words, capture_output=True, text=True, env=environment, timeout=self.timeout_s,
                check=False, cwd=arm.folder,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasurementError(
                f"a process of {side} ({arm.name}) did not run: {error}; look at {words[:4]}"
            ) from error

    def _start(self, path: Path, side: str, only: Sequence[str]) -> None:
        arm, unfinished = self.sides[side].arm, path.with_suffix(".unfinished").absolute()
        unfinished.unlink(missing_ok=True)
        words = self._command(unfinished, side, only) + (["--seed", str(_seed(path.stem))] if self.seeded else [])
        if not self.starts:
            self.told(f"{_words(path.stem)}: started; each process that finishes is one line")
        begun = time.monotonic()
        done = self._run(words, side)
        if done.returncode or not unfinished.exists():
            path.with_suffix(".log").write_text(done.stdout + done.stderr, encoding="utf-8")
            raise MeasurementError(
                f"a process of {side} ({arm.name}) ended with status {done.returncode} and "
                f"{'its rows' if unfinished.exists() else 'no rows'}; its end was:\n"
                f"{(done.stdout + done.stderr)[-_LOG_TAIL:]}\n"
                "if --state DIR was given, the same command goes on where this stopped"
            )
        unfinished.rename(path)
        self.told(f"{_words(path.stem)}: {time.monotonic() - begun:.1f} s")

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

    def pair(self, stage: str, number: int, only: Sequence[str] = ()) -> dict[str, tuple[float, float]]:
        """Return the medians of base and head in pair `number`. Odd pairs begin with head, which gives A B B A."""
        order = ("base", "head") if number % 2 == 0 else ("head", "base")
        found = {side: self.medians(stage, number, side, only) for side in order}
        base, head = found["base"], found["head"]
        return {name: (base[name], head[name]) for name in base.keys() & head.keys()}

    @cached_property
    def missing(self) -> list[str]:
        """The benchmarks that only one side measured in the first pair."""
        base, head = (set(self.medians("p", 0, side)) for side in ("base", "head"))
        self.starts -= 2
        return [*(f"{name} (gone)" for name in sorted(base - head)), *(f"{name} (new)" for name in sorted(head - base))]


def _words(stem: str) -> str:
    """Describe the process of a file such as ``c03-head``."""
    found = re.fullmatch(r"([a-z]+)(\d+)-(\w+)", stem)
    if found is None or found[1] not in _STAGES:
        return stem
    return f"{_STAGES[found[1]]} {int(found[2]) + 1}, {found[3]}"


def _seed(text: str) -> int:
    return zlib.crc32(text.encode())


def progress(line: str) -> None:
    """Print a line of progress to standard error."""
    sys.stderr.write(f"cuassay: {line}\n")
