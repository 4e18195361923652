"""One run on a fleet, from its command line to its record: what is collected, cut, run and told."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuassay.core.device import HOST_KINDS
from cuassay.errors import StateError
from cuassay.fleet.book import Book, Shard
from cuassay.fleet.cutting import cut, expected_seconds
from cuassay.fleet.driver import Driver, Job
from cuassay.fleet.merging import Merged
from cuassay.fleet.task import ROWS, TESTS
from cuassay.results.part import Part
from cuassay.results.record import Recorder, begin

__all__ = ["Asked", "run_fleet"]

#: The name of the one part of a record.
_PART = "cuassay fleet"

_PYTEST = ("pytest", "-p", "no:cacheprovider", "-p", "cuassay.testing.listing", "-q")

_MEASURE = "cuassay.benchmarking.measure"

_WELL = frozenset({"passed", "skipped", "xfailed", "measured"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for.

    Attributes
    ----------
    tests : tuple of str
        Files, folders and ids, as pytest takes them.
    options : tuple of str
        More words for pytest, such as ``-m`` and an expression.
    kinds : tuple of str
        The kinds of devices; none: what the workers have, accelerators first.
    durations : mapping
        Test to its duration in an earlier run, seconds.
    shards : int or None
        About how many; None: few, long ones first.
    benchmarks : bool
        Measure the benchmarks among the tests, or cuassay's own operations if no tests are named.
    command : str
        The command, for the record.
    """

    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    durations: Mapping[str, float] = field(default_factory=dict)
    shards: int | None = None
    benchmarks: bool = False
    command: str = "cuassay fleet run"

    @property
    def measures(self) -> bool:
        """Whether cuassay's own operations are measured, and no test runs."""
        return self.benchmarks and not self.tests


@dataclass(frozen=True, slots=True)
class _Listed:
    """The tests that one kind of device collected, and the root of their session."""

    kind: str
    head: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def run_fleet(client: Any, job: Job, asked: Asked, out: Path) -> int:
    """Run the tests on the workers of a cluster; gives the exit status: 0 if all went well.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster.
    job : Job
        The run, and the code that workers must have.
    asked : Asked
        What to run.
    out : path
        The record; rows are appended.

    Raises
    ------
    StateError
        No test was found, or no worker could collect.
    """
    driver = Driver(client, job)
    try:
        listed = _collected(driver, asked)
        with Recorder(out, run=job.run) as recorder:
            begin(recorder, asked.command)
            part = Part(recorder, _PART)
            merged = Merged(part)
            if asked.measures:
                part.plan(times=sum(row["cases"] for one in listed for row in one.rows))
            else:
                part.plan(tests=sum(len(one.rows) for one in listed))
            _run(driver, asked, listed, merged)
            part.end("; ".join(dict.fromkeys(merged.reasons)) or None)
    finally:
        driver.close()
    return _tell(merged, part, out)


def _collected(driver: Driver, asked: Asked) -> list[_Listed]:
    """The tests of each kind; one that several kinds collect belongs to the first."""
    kinds = asked.kinds or _default_kinds(driver.workers.kinds)
    listed, seen = [], set[str]()
    for kind in kinds:
        if asked.measures:
            listed.append(_Listed(kind, {}, driver.collect(kind, [_MEASURE, f"--device={kind}", f"--list={ROWS}"])))
            continue
        words = [*_PYTEST, f"--cuassay-list={ROWS}", f"--cuassay-device={kind}", *asked.options, *asked.tests]
        head, *rows = driver.collect(kind, words)
        rows = [row for row in rows if not asked.benchmarks or row.get("benchmark")]
        own = [row for row in rows if row["nodeid"] not in seen]
        seen |= {row["nodeid"] for row in own}
        listed.append(_Listed(kind, head, own))
    if not any(one.rows for one in listed):
        what = "benchmark" if asked.benchmarks else "test"
        raise StateError(f"no {what} was found in {' '.join(asked.tests) or 'the folder of the workers'}; name others")
    return listed


def _default_kinds(found: Iterable[str]) -> tuple[str, ...]:
    accelerators = sorted(kind for kind in found if kind not in HOST_KINDS)
    return tuple(accelerators) or ("cpu",)


def _run(driver: Driver, asked: Asked, listed: Sequence[_Listed], merged: Merged) -> None:
    """Run what workers may share a device for at the same time, then what runs alone; benchmarks each hold a device."""
    files = {row["nodeid"]: row.get("file") for one in listed for row in one.rows}
    heads = {one.kind: one.head for one in listed}
    names = list(files)
    told = {row["nodeid"]: row["seconds"] for one in listed for row in one.rows if "seconds" in row}
    expected = dict(zip(names, expected_seconds(names, {**told, **asked.durations}), strict=True))

    def arguments(shard: Shard) -> tuple[str, ...]:
        return _arguments(asked, heads[shard.kind], shard, files)

    for alone in (False, True):
        shards = [shard for one in listed for shard in _shards(driver, asked, one, expected, alone=alone)]
        book = Book(shards, driver.numbers)
        driver.run(book, merged, expected, arguments, alone=alone or asked.benchmarks, measures=asked.measures)


def _shards(
    driver: Driver, asked: Asked, listed: _Listed, expected: Mapping[str, float], *, alone: bool
) -> Iterable[Shard]:
    names = [row["nodeid"] for row in listed.rows if row.get("alone", False) == alone]
    seconds = [expected[name] for name in names]
    at_once = driver.workers.seats if asked.benchmarks else driver.workers.names
    workers = max(1, len(at_once([listed.kind])))
    parts = ([list(range(len(names)))] if names else []) if alone else cut(seconds, workers, shards=asked.shards)
    for part in parts:
        lasts = sum(seconds[at] for at in part)
        yield Shard(tuple(names[at] for at in part), lasts, listed.kind, ready_s=time.monotonic())


def _arguments(asked: Asked, head: Mapping[str, Any], shard: Shard, files: Mapping[str, str | None]) -> tuple[str, ...]:
    """What a worker gives ``python -m``: only the files of the shard, where all lie in the project."""
    if asked.measures:
        return (
            _MEASURE,
            f"--device={shard.kind}",
            f"--only-in={TESTS}",
            f"--record={ROWS}",
            "--run=fleet",
        )
    own = list(dict.fromkeys(files[test] for test in shard.tests))
    where = asked.tests if None in own else tuple(str(file) for file in own)
    options = tuple(word for word in asked.options if word != "--pyargs" or None in own)
    return (
        *_PYTEST,
        f"--rootdir={head['rootdir']}",
        f"-c={head['inifile'] or os.devnull}",
        "--benchmark-only" if asked.benchmarks else "--cuassay-isolate",
        f"--cuassay-device={shard.kind}",
        f"--cuassay-only={TESTS}",
        f"--cuassay-record={ROWS}",
        "--cuassay-run=fleet",
        *options,
        *where,
    )


def _tell(merged: Merged, part: Part, out: Path) -> int:
    counts = Counter(merged.outcomes.values())
    print(f"tests: {', '.join(f'{number:,} {what}' for what, number in sorted(counts.items()))}")
    if merged.timings:
        print(f"timings: {merged.timings:,}")
    for reason in merged.reasons:
        print(reason)
    if part.lost:
        print(part.told())
    print(f"results: {out}; to read them: cuassay report {shlex.quote(str(out))}")
    return int(bool(set(counts) - _WELL or merged.reasons or part.lost))
