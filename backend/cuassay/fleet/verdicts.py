"""``cuassay fleet judge``: candidates divided among workers, and one list of verdicts.

A worker judges the candidates of a shard one after the other. If it is lost, they are judged again elsewhere, and one
that was under way at two losses is undecided. A worker receives the names of its files, and a verdict counts only if it
is on the files that this machine has.
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

from cuassay.errors import StateError
from cuassay.fleet.book import Attempt, Book, Shard
from cuassay.fleet.cutting import cut
from cuassay.fleet.driver import Driver, Job
from cuassay.fleet.places import KIND, MODEL
from cuassay.fleet.task import ROWS, TESTS
from cuassay.judging.plan import digest_of
from cuassay.judging.referee import JudgeOptions
from cuassay.judging.reply import escaped, escaped_path
from cuassay.judging.verdict import Verdict

__all__ = ["LOST", "AskedVerdicts", "FleetVerdict", "judge_on_fleet", "models"]

#: The failed check of a candidate whose judge ended before the verdict.
LOST = "judge lost"

_JUDGED = "cuassay.fleet.judged"

#: What a verdict usually takes, with and without times, seconds: shards are cut by it.
_USUAL_SECONDS = {True: 10.0, False: 1.0}

#: What a verdict takes at most, as a multiple of the time limit of its calls. An idle worker repeats a shard that takes
#: longer than that for each of its candidates.
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
        at_once = (driver.workers.seats if asked.options.times else driver.workers.names)([kind])
        book = Book(batch.shards(max(1, len(at_once))), driver.numbers)
        words = _words(asked, f"--candidates={TESTS}")
        driver.each(book, lambda _: words, batch.end, lose=batch.lose, alone=asked.options.times)
    finally:
        driver.close()
    for name, why in book.given_up.items():
        batch.give_up(name, why)
    return [batch.found[at] for at in range(len(asked.candidates))]


def models(client: Any, kind: str) -> list[str]:
    """The models of the devices of a `kind` that the workers announce: times of different ones are not comparable."""
    resources = [told["resources"] for told in client.scheduler_info(n_workers=-1)["workers"].values()]
    of_kind = [names for names in resources if f"{KIND}{kind}" in names]
    return sorted({name.removeprefix(MODEL) for names in of_kind for name in names if name.startswith(MODEL)})


def _words(asked: AskedVerdicts, *more: str) -> tuple[str, ...]:
    return _JUDGED, asked.spec, f"--options={json.dumps(asked.options.told())}", f"--out={ROWS}", *more


@dataclass
class _Batch:
    """The verdicts so far. A candidate's name in a shard is a line of JSON: its place, its path and its nonce."""

    asked: AskedVerdicts
    declared: Mapping[str, Any]
    tell: Callable[[Verdict], None]
    found: dict[int, FleetVerdict] = field(default_factory=dict)
    lost_by: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    told: int = 0

    def __post_init__(self) -> None:
        asked = self.asked
        self.digests = [digest_of(one, asked.options.tier) for one in asked.candidates]
        self.names = [
            json.dumps([at, str(path), None if nonce is None else f"{nonce:x}"])
            for at, (path, nonce) in enumerate(zip(asked.candidates, asked.nonces, strict=True))
        ]
        self.seconds = _TIMES_THE_LIMIT * asked.options.seconds

    def shards(self, workers: int) -> list[Shard]:
        now, kind = time.monotonic(), self.asked.options.device.kind
        parts = cut([_USUAL_SECONDS[self.asked.options.times]] * len(self.names), workers)
        return [
            Shard(tuple(self.names[at] for at in part), self.seconds * len(part), kind, ready_s=now) for part in parts
        ]

    def lose(self, attempt: Attempt) -> None:
        tests = attempt.shard.tests
        self.lost_by[attempt.under_way or (tests[0] if len(tests) == 1 else "")].append(attempt.worker)

    def end(
        self, attempt: Attempt, worker: str, rows: list[dict[str, Any]], status: int, tail: str
    ) -> Mapping[str, float]:
        """Take the verdicts of a shard; those that are missing are to come from another worker once."""
        given = {row["nodeid"]: row for row in rows if row["record"] != "begin"}
        begun = [row["nodeid"] for row in rows if row["record"] == "begin"]
        again = {}
        for name in attempt.shard.tests:
            if name in given:
                self._add(name, self._checked(name, worker, given[name]), worker)
            elif status < 0 and [name] == begun[-1:]:
                why = f"its judge on {worker} was ended by signal {-status} while it ran"
                self._add(name, self._undecided(name, why, LOST), worker)
            elif attempt.shard.is_second:
                last = next(iter(tail.splitlines()[-1:]), "it printed nothing")
                why = f"its judge on {worker} ended with status {status}: {last}"
                self._add(name, self._undecided(name, why), worker)
            else:
                again[name] = self.seconds
        return again

    def _checked(self, name: str, worker: str, row: Mapping[str, Any]) -> Verdict:
        """The verdict that a worker gave, if it is on the files of this machine."""
        if row["record"] == "failed":
            return self._undecided(name, f"{worker} could not judge it: {row['why']}")
        verdict, at = Verdict.from_json(row), _place(name)
        for what, there, here in (
            (self.asked.candidates[at], verdict.candidate_digest, self.digests[at]),
            (self.asked.spec, verdict.declaration_digest, self.declared["digest"]),
        ):
            if there != here:
                return self._undecided(name, f"{worker} has another {what}: digest {there}, and {here} here")
        return verdict

    def give_up(self, name: str, why: str) -> None:
        if lost_by := self.lost_by[name]:
            why = f"{len(lost_by)} workers were lost while they judged it: {', '.join(lost_by)}"
        self._add(name, self._undecided(name, why, LOST if lost_by else ""), None)

    def _undecided(self, name: str, why: str, check: str = "") -> Verdict:
        """A verdict of which no call is known: its nonce is only for a repetition."""
        at = _place(name)
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

    def _add(self, name: str, verdict: Verdict, worker: str | None) -> None:
        self.found[_place(name)] = FleetVerdict(verdict, worker)
        while self.told in self.found:
            self.tell(self.found[self.told].verdict)
            self.told += 1


def _place(name: str) -> int:
    return int(json.loads(name)[0])
