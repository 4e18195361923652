"""``cuassay fleet run``: collect the tests on a worker, hand out their shards, and write one record of what comes back.

dask carries the messages, knows which workers live, and restarts them; what each worker does next is decided by `Book`.
This file turns the events of a cluster into calls of the book, and its answers into tasks.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from cuassay.benchmarking.run import progress_line
from cuassay.errors import StateError
from cuassay.fleet import shard
from cuassay.fleet.book import MOST_LOSSES, Attempt, Book, Shard
from cuassay.fleet.merging import Arrived, Merged, is_failed_by_machine, measured
from cuassay.fleet.messages import flush_seconds
from cuassay.fleet.task import Task
from cuassay.fleet.workers import Place, Workers

__all__ = ["Driver", "Job"]

#: How long shards wait while no worker of their kind is there, and for the return of one that was lost.
WAIT_SECONDS = 60.0

#: A worker whose device was not well this often gets no more shards.
_MOST_REFUSALS = 3

_POLL_SECONDS = 0.5
_LINE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all tasks of a run share."""

    run: str
    code: str
    digest: str
    wait_s: float = WAIT_SECONDS


@dataclass
class _Live:
    """The state of one use of the book."""

    book: Book
    arguments: Callable[[Shard], tuple[str, ...]]
    expected: Mapping[str, float]
    on_end: Callable[[Attempt, str, list[dict[str, Any]], int, str], Mapping[str, float]]
    tell_shard: Callable[[Attempt, str, float], object] = lambda attempt, how, seconds: None
    alone: bool = False
    arrived: dict[int, Arrived] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    why_refused: str = ""
    without_worker_since: float | None = None


class Driver:
    """Hands out shards on the cluster of a dask client.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster.
    job : Job
        What runs.

    Attributes
    ----------
    numbers : iterator of int
        Of the attempts of all books.
    """

    def __init__(self, client: Any, job: Job) -> None:
        self._client = client
        self._job = job
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._workers = Workers(client, self._events)
        self.numbers = count(1)
        client.subscribe_topic(f"cuassay-{job.run}", lambda event: self._events.put(("task", event[1])))

    def __repr__(self) -> str:
        return f"Driver(run {self._job.run}, {self._workers!r})"

    @property
    def workers(self) -> Workers:
        """The workers that live."""
        return self._workers

    def close(self) -> None:
        """Listen no more."""
        self._client.unsubscribe_topic(f"cuassay-{self._job.run}")
        self._workers.close()

    def collect(self, kind: str, arguments: Sequence[str], what: str = "the collection") -> list[dict[str, Any]]:
        """The rows of a list that one worker makes; `what` it is, for errors.

        Raises
        ------
        StateError
            No worker could.
        """
        shard = Shard((f"{what} on {kind}",), 1.0, kind, ready_s=time.monotonic())
        book = Book([shard], self.numbers, suspect_losses=MOST_LOSSES)
        return [row for _, row in self.gather(book, lambda _: tuple(arguments), what)]

    def gather(
        self, book: Book, arguments: Callable[[Shard], tuple[str, ...]], what: str, *, alone: bool = False
    ) -> list[tuple[str, dict[str, Any]]]:
        """The rows of all shards, each with its worker; `what` they are, for errors.

        Raises
        ------
        StateError
            A shard failed, or had no worker.
        """
        found: list[tuple[str, dict[str, Any]]] = []
        failed = []

        def end(attempt: Attempt, worker: str, rows: list[dict[str, Any]], status: int, tail: str) -> dict[str, float]:
            found.extend((worker, row) for row in rows)
            if status:
                failed.append(f"{what} on {worker} ended with status {status}:\n{tail}")
            return {}

        self.each(book, arguments, end, alone=alone)
        if book.given_up or failed:
            raise StateError("\n".join([*dict.fromkeys(book.given_up.values()), *failed]))
        return found

    def each(
        self,
        book: Book,
        arguments: Callable[[Shard], tuple[str, ...]],
        end: Callable[[Attempt, str, list[dict[str, Any]], int, str], Mapping[str, float]],
        *,
        lose: Callable[[Attempt], None] = lambda attempt: None,
        alone: bool = False,
    ) -> None:
        """Run all shards of `book`; what it gives up is in its `given_up`.

        Parameters
        ----------
        book : Book
            The shards.
        arguments : callable
            A shard to what a worker gives ``python -m``.
        end : callable
            Called for each shard that ended, with the attempt that counts, its worker, the rows, the exit status and
            the last lines of the output. Gives the tests that run again elsewhere once, and how long they last.
        lose : callable
            Called for each attempt that was lost.
        alone : bool
            As in `run`.
        """

        def tell(attempt: Attempt, how: str, seconds: float) -> None:
            if how == "lost":
                lose(attempt)

        self._work(_Live(book, arguments, {}, end, tell, alone), lambda: None)

    def run(
        self,
        book: Book,
        merged: Merged,
        expected: Mapping[str, float],
        arguments: Callable[[Shard], tuple[str, ...]],
        *,
        alone: bool = False,
        measures: bool = False,
    ) -> None:
        """Run all shards of `book`, and write their rows.

        Parameters
        ----------
        book : Book
            The shards.
        merged : Merged
            Takes the rows.
        expected : mapping
            Test to how long it is expected to last, seconds.
        arguments : callable
            A shard to what a worker gives ``python -m``.
        alone : bool
            A shard begins only where no other one runs on its device, or on its host if that computes.
        measures : bool
            What the shards name are benchmarks, which have timings and no outcome.
        """
        began, shown = time.monotonic(), [0.0]

        def end(attempt: Attempt, worker: str, rows: list[dict[str, Any]], status: int, tail: str) -> dict[str, float]:
            again = [] if attempt.shard.is_second else _failed_by_machine(rows)
            merged.write(rows, worker, attempt.shard.tests, without=again)
            if measures:
                merged.count_measured(measured(rows, is_whole=status == 0))
            why = f"its shard on {worker} ended with status {status} before this test had an outcome"
            for test in attempt.shard.tests:
                if test not in again:
                    merged.write_missing(test, f"{why}\n{tail}" if tail else why)
            return {test: expected.get(test, 0.0) for test in again}

        def tell() -> None:
            elapsed = time.monotonic() - began
            if elapsed - shown[0] >= _LINE_SECONDS:
                shown[0] = elapsed
                print(progress_line("tests", len(merged.outcomes), len(expected), elapsed), flush=True)

        self._work(_Live(book, arguments, expected, end, merged.write_shard, alone), tell)
        for test, why in book.given_up.items():
            merged.write_missing(test, why)

    def _work(self, live: _Live, tell: Callable[[], None]) -> None:
        while not live.book.is_done:
            self._workers.update()
            self._hand_out(live)
            self._check_waiting(live)
            try:
                event = self._events.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                event = ("tick", None)
            self._handle(live, *event)
            tell()

    def _hand_out(self, live: _Live) -> None:
        """Give each idle worker its next shard."""
        for place in self._workers.idle():
            if live.alone and self._workers.is_taken(place):
                continue
            others = self._workers.names(place.kinds, lost_within_s=self._job.wait_s)
            attempt = live.book.next(place.name, place.kinds, time.monotonic(), others)
            if attempt is not None:
                self._send(live, attempt, place)

    def _send(self, live: _Live, attempt: Attempt, place: Place) -> None:
        live.arrived[attempt.number] = Arrived()
        task = Task(
            run=self._job.run,
            attempt=attempt.number,
            digest=self._job.digest,
            code=self._job.code,
            arguments=live.arguments(attempt.shard),
            tests=tuple(attempt.shard.tests),
            kinds=(attempt.shard.kind,),
            flush_s=flush_seconds(self._workers.number),
        )
        self._workers.start(place, attempt.shard.kind, attempt.number, shard.run_shard, task.words())

    def _check_waiting(self, live: _Live) -> None:
        """Give up what waits for a worker that does not come."""
        if live.book.running or self._workers.names(live.book.kinds_waiting):
            live.without_worker_since = None
            return
        now = time.monotonic()
        live.without_worker_since = since = live.without_worker_since or now
        if now - since > self._job.wait_s:
            kinds = ", ".join(sorted(live.book.kinds_waiting))
            why = f"no worker with a device of kind {kinds} was there for {self._job.wait_s:g} s"
            live.book.abandon(f"{why}; {live.why_refused}" if live.why_refused else why)

    def _handle(self, live: _Live, what: str, told: Any) -> None:
        if what == "lost":  # its worker has gone, or could not even begin it
            number, why = told
            self._workers.finished(number)
            if (attempt := live.book.attempt(number)) is not None:
                live.why_refused = why
                _lose(live, attempt)
        elif what == "freed":
            self._workers.finished(told)
        elif what == "task":
            self._handle_task(live, told)

    def _handle_task(self, live: _Live, told: dict[str, Any]) -> None:
        attempt = live.book.attempt(told["attempt"])
        if attempt is None:
            return  # it was stopped, or taken for lost: another attempt counts
        if told["event"] == "rows":
            for row in live.arrived[attempt.number].add(told["first"], told["lines"]):
                _note(live, attempt, row)
        elif told["event"] == "refused":
            self._refuse(live, attempt, told["why"])
        else:
            self._end(live, attempt, told)

    def _refuse(self, live: _Live, attempt: Attempt, why: str) -> None:
        live.why_refused = f"{attempt.worker}: {why}"
        live.refusals[attempt.worker] = refusals = live.refusals.get(attempt.worker, 0) + 1
        if refusals == 1:
            print(f"worker {live.why_refused}", flush=True)
        _tell_shard(live, attempt, "refused")
        live.book.refused(attempt, time.monotonic())
        if refusals >= _MOST_REFUSALS:
            self._workers.leave_out(attempt.worker)

    def _end(self, live: _Live, attempt: Attempt, told: dict[str, Any]) -> None:
        arrived = live.arrived.pop(attempt.number)
        if not arrived.is_whole(told["lines"]):
            _lose(live, attempt)  # rows were lost on the way
            return
        _tell_shard(live, attempt, "ended")
        again = live.on_end(attempt, attempt.worker, arrived.rows(), told["status"], told["tail"])
        for loser in live.book.ended(attempt, again, time.monotonic()):
            _tell_shard(live, loser, "stopped")
            live.arrived.pop(loser.number, None)
            self._workers.stop(loser.number, self._job.run)


def _tell_shard(live: _Live, attempt: Attempt, how: str) -> None:
    live.tell_shard(attempt, how, time.monotonic() - attempt.started)


def _lose(live: _Live, attempt: Attempt) -> None:
    _tell_shard(live, attempt, "lost")  # before the book takes tests out of the shard
    live.book.lost(attempt, time.monotonic())


def _note(live: _Live, attempt: Attempt, row: Mapping[str, Any]) -> None:
    """Tell the book how far an attempt is."""
    if row.get("record") == "begin":
        live.book.saw(attempt, begun=row["nodeid"])
    elif row.get("record") == "test":
        live.book.saw(attempt, done_s=live.expected.get(row["nodeid"], 0.0))


def _failed_by_machine(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["nodeid"] for row in rows if row["record"] == "test" and is_failed_by_machine(row)]
