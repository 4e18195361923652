"""``cuassay fleet ab``: a comparison divided among workers by its benchmarks, and one list of verdicts.

A worker measures both halves of its benchmarks' pairs, so that no figure of one machine is compared with one of
another. Each share has its own common shift, and its part of the chance of a false alarm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import Outcome, Verdict
from cuassay.benchmarking.sample import is_wanted
from cuassay.errors import StateError
from cuassay.fleet.book import Book, Shard
from cuassay.fleet.driver import Driver, Job
from cuassay.fleet.task import ROWS, TESTS

__all__ = ["AskedComparison", "Share", "compare_on_fleet"]

#: Processes of each side that a benchmark takes at least, for how long a share is expected to last.
_PROCESSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedComparison:
    """What the command line asks for; `only` are patterns of benchmarks, and `profile` is a file of the workers."""

    base: str
    head: str
    kind: str
    only: tuple[str, ...] = ()
    limit: int | None = None
    seconds: float = 0.1
    budget: float = gate.BUDGET
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker found: its own comparison."""

    worker: str
    outcome: Outcome


def compare_on_fleet(client: Any, job: Job, asked: AskedComparison) -> tuple[Outcome, list[Share]]:
    """Compare on the workers of a cluster; gives the whole comparison and the shares that it was made of.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster.
    job : Job
        The run, and the code that workers must have.
    asked : AskedComparison
        What to compare.

    Raises
    ------
    StateError
        No benchmark was found, or a share failed.
    """
    driver = Driver(client, job)
    began = time.monotonic()
    try:
        names = _names(driver, asked)
        shards = _shards(names, max(1, len(driver.workers.seats([asked.kind]))), asked)

        def arguments(shard: Shard) -> tuple[str, ...]:
            return _arguments(asked, len(shard.tests) / len(names))

        found = driver.gather(Book(shards, driver.numbers), arguments, "the comparison", alone=True)
    finally:
        driver.close()
    shares = [Share(worker, _outcome(row)) for worker, row in found]
    return _whole(asked, shares, time.monotonic() - began), shares


def _names(driver: Driver, asked: AskedComparison) -> list[str]:
    """The benchmarks, as the code that the workers have declares them."""
    words = ("cuassay.benchmarking.sample", f"--device={asked.kind}", f"--list={ROWS}")
    found = [row["nodeid"] for row in driver.collect(asked.kind, words)]
    wanted = [name for name in found if is_wanted(name, asked.only)][: asked.limit]
    if not wanted:
        raise StateError(f"no benchmark on {asked.kind} is named {' or '.join(asked.only)}; look at --only")
    return wanted


def _shards(names: Sequence[str], number: int, asked: AskedComparison) -> list[Shard]:
    """One for each device; neighbours, which are cases of one operation, go to different ones."""
    parts = [tuple(names[at::number]) for at in range(number)]
    now, each = time.monotonic(), 2 * _PROCESSES * asked.seconds
    return [Shard(part, each * len(part), asked.kind, ready_s=now) for part in parts if part]


def _arguments(asked: AskedComparison, share: float) -> tuple[str, ...]:
    return (
        "cuassay.fleet.halves",
        asked.base,
        asked.head,
        f"--device={asked.kind}",
        f"--only-in={TESTS}",
        f"--out={ROWS}",
        f"--seconds={asked.seconds}",
        f"--budget={asked.budget * share}",
        *([f"--profile={asked.profile}"] if asked.profile else []),
    )


def _outcome(columns: Mapping[str, Any]) -> Outcome:
    values = {name: value for name, value in columns.items() if name != "record"}
    verdicts = [
        Verdict(**{**one, "promise": math.inf if one["promise"] is None else one["promise"]})
        for one in columns["verdicts"]
    ]
    return Outcome(**{**values, "verdicts": verdicts})


def _whole(asked: AskedComparison, shares: Sequence[Share], seconds: float) -> Outcome:
    """All shares as one; each has had its common shift taken off already."""
    outcomes = [share.outcome for share in shares]
    verdicts = sorted((one for outcome in outcomes for one in outcome.verdicts), key=lambda one: one.name)
    missing = list(dict.fromkeys(name for outcome in outcomes for name in outcome.missing))
    starts = sum(outcome.starts for outcome in outcomes)
    return Outcome(asked.base, asked.head, verdicts, 0.0, 0.0, missing, starts, seconds, {})
