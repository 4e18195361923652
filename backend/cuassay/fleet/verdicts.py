"""``cuassay fleet judge``: candidates divided among workers, and one list of verdicts.

A shard is one candidate, so that a lost worker costs only the candidate that it judged. That one is judged again
elsewhere, and is undecided after the second loss. A worker receives the names of its files, and a verdict counts only
if it is on the files that this machine has.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuassay.errors import JudgingError, StateError
from cuassay.fleet.book import Attempt, Book, Shard
from cuassay.fleet.driver import Driver, Job
from cuassay.fleet.task import ROWS
from cuassay.judging.plan import digest_of
from cuassay.judging.referee import JudgeOptions
from cuassay.judging.reply import escaped, escaped_path
from cuassay.judging.verdict import Verdict

__all__ = ["LOST", "AskedVerdicts", "FleetVerdict", "judge_on_fleet"]

#: The failed check of a candidate whose judge ended before the verdict.
LOST = "judge lost"

_JUDGED = "cuassay.fleet.judged"

#: What a verdict is expected to take, as a multiple of the time limit of its calls. An idle worker repeats one that
#: takes much longer.
_TIMES_THE_LIMIT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedVerdicts:
    """What the command line asks for.

    Attributes
    ----------
    spec : str
        The declaration, as ``SPEC.py::NAME``.
    candidates : tuple of Path
        Files, at the same paths on this machine and on each worker.
    options : JudgeOptions
        How they are judged; the device is the first of its kind in each worker.
    nonces : tuple of int or None
        One for each candidate; None: the worker draws one after the candidate was loaded.
    """

    spec: str
    candidates: tuple[Path, ...]
    options: JudgeOptions
    nonces: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """A verdict and the worker that gave it; None if none did."""

    verdict: Verdict
    worker: str | None


def judge_on_fleet(
    client: Any,
    job: Job,
    asked: AskedVerdicts,
    tell_weak: Callable[[str, Sequence[str]], None],
    tell: Callable[[Verdict], None],
) -> list[FleetVerdict]:
    """Judge on the workers of a cluster; gives one verdict for each candidate, in order.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster.
    job : Job
        The run, and the code that workers must have.
    asked : AskedVerdicts
        What to judge.
    tell_weak : callable
        Called with the declaration's name and the stock mutants that it lets pass.
    tell : callable
        Called for each verdict, in order, as soon as it and all before it are ready.

    Raises
    ------
    StateError
        No worker could load the declaration, or the worker has another version of its file.
    """
    driver = Driver(client, job)
    kind = asked.options.device.kind
    try:
        (declared,) = driver.collect(kind, _words(asked), f"loading {asked.spec}")
        file = Path(asked.spec.partition("::")[0])
        if declared["digest"] != (here := hashlib.sha256(file.read_bytes()).hexdigest()[:16]):
            raise StateError(
                f"{file} has digest {declared['digest']} on a worker, and {here} here; copy the file there"
            )
        tell_weak(declared["declaration"], declared["weak"])
        batch = _Batch(asked, declared, tell)
        limit_s = _TIMES_THE_LIMIT * asked.options.seconds
        now = time.monotonic()
        book = Book(
            [Shard((str(at),), limit_s, kind, ready_s=now) for at in range(len(asked.candidates))], driver.numbers
        )
        driver.each(book, batch.arguments, batch.end, lose=batch.lose, alone=asked.options.times)
    finally:
        driver.close()
    for name, why in book.given_up.items():
        batch.give_up(int(name), why)
    return [batch.found[at] for at in range(len(asked.candidates))]


def _words(asked: AskedVerdicts, candidate: Path | None = None, nonce: int | None = None) -> tuple[str, ...]:
    return (
        _JUDGED,
        asked.spec,
        f"--options={json.dumps(asked.options.told())}",
        f"--out={ROWS}",
        *([] if candidate is None else [f"--candidate={candidate}"]),
        *([] if nonce is None else [f"--nonce={nonce:x}"]),
    )


@dataclass
class _Batch:
    """The verdicts so far; the one test of a shard is the place of its candidate."""

    asked: AskedVerdicts
    declared: Mapping[str, Any]
    tell: Callable[[Verdict], None]
    found: dict[int, FleetVerdict] = field(default_factory=dict)
    lost_by: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    told: int = 0

    def __post_init__(self) -> None:
        self.digests = [digest_of(one, self.asked.options.tier) for one in self.asked.candidates]

    def arguments(self, shard: Shard) -> tuple[str, ...]:
        at = int(shard.tests[0])
        return _words(self.asked, self.asked.candidates[at], self.asked.nonces[at])

    def lose(self, attempt: Attempt) -> None:
        self.lost_by[int(attempt.shard.tests[0])].append(attempt.worker)

    def end(self, attempt: Attempt, worker: str, rows: list[dict[str, Any]], status: int, tail: str) -> None:
        at = int(attempt.shard.tests[0])
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            last = next(iter(tail.splitlines()[-1:]), "it printed nothing")
            self._add(
                at, self._undecided(at, f"its judge on {worker} {how}: {last}", LOST if status < 0 else ""), worker
            )
        else:
            self._add(at, self._checked(at, worker, rows), worker)

    def _checked(self, at: int, worker: str, rows: Sequence[Mapping[str, Any]]) -> Verdict:
        """The verdict that a worker gave, if it is on the files of this machine."""
        try:
            (verdict,) = map(Verdict.from_json, rows)
        except (ValueError, JudgingError) as error:
            return self._undecided(at, f"{worker} gave no verdict that can be read: {error}")
        for what, there, here in (
            (self.asked.candidates[at], verdict.candidate_digest, self.digests[at]),
            (self.asked.spec, verdict.declaration_digest, self.declared["digest"]),
        ):
            if there != here:
                return self._undecided(at, f"{worker} has another {what}: digest {there}, and {here} here")
        return verdict

    def give_up(self, at: int, why: str) -> None:
        if lost_by := self.lost_by[at]:
            why = f"{len(lost_by)} workers were lost while they judged it: {', '.join(lost_by)}"
        self._add(at, self._undecided(at, why, LOST if lost_by else ""), None)

    def _undecided(self, at: int, why: str, check: str = "") -> Verdict:
        """No calls are known, so the nonce is only for a repetition."""
        asked, path = self.asked, self.asked.candidates[at]
        given = asked.nonces[at]
        nonce = f"{secrets.randbits(64) if given is None else given:x}"
        file, shown = asked.spec.partition("::")[0], escaped_path(path)
        words = ["cuassay", "judge", f"{file}::{self.declared['name']}", shown, *asked.options.words()]
        return Verdict(
            verdict="undecided", reason=escaped(why), candidate=escaped(path.name), path=shown,
            declaration=self.declared["declaration"], device=str(asked.options.device), tier=asked.options.tier,
            nonce=nonce, is_nonce_given=given is not None, failing_check=check,
            reproduce=shlex.join([*words, "--nonce", nonce]), weak=tuple(self.declared["weak"]),
            declaration_digest=self.declared["digest"], candidate_digest=self.digests[at], options=asked.options.told(),
        )  # fmt: skip

    def _add(self, at: int, verdict: Verdict, worker: str | None) -> None:
        self.found[at] = FleetVerdict(verdict, worker)
        while self.told in self.found:
            self.tell(self.found[self.told].verdict)
            self.told += 1
