"""A fleet that is made up, in virtual time: how long a million tests take, and what its scheduler carries.

The shards are cut by `cutting` and handed out by `Book`, as those of a real fleet are, so that the policy itself is
tried. Workers are lost at random moments and others join for them, some are slow, and tests last longer or shorter than
recorded. ``python -m cuassay.fleet.simulation FILE...`` draws the durations from result files and prints the figures.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuassay.errors import StateError
from cuassay.fleet.book import Attempt, Book, Shard
from cuassay.fleet.cutting import START_SECONDS, cut
from cuassay.fleet.durations import recorded_durations
from cuassay.fleet.messages import flush_seconds

__all__ = ["Fleet", "Outcome", "main", "simulate"]

#: Messages of one attempt in addition to its rows: the task to the scheduler and to the worker, its end and release.
_MESSAGES_AN_ATTEMPT = 6

#: Bytes of the row that begins a test and of the one with its outcome: 400 in a record of 94 tests, and the worker.
_BYTES_A_TEST = 420


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is made up.

    Attributes
    ----------
    workers : int
        How many there are.
    lost : float
        Share of the attempts that are lost with their worker, at a random moment.
    failed_by_machine : float
        Share of the attempts in which the machine fails one test.
    slow : float
        Share of the workers that are slow.
    slowness : float
        How many times as long tests take there.
    restart_s : float
        How long it takes until another worker replaces a lost one, seconds.
    scatter : float
        Standard deviation of the logarithm of a duration over the recorded one.
    """

    workers: int = 1_000
    lost: float = 0.01
    failed_by_machine: float = 0.01
    slow: float = 0.0
    slowness: float = 3.0
    restart_s: float = 10.0
    scatter: float = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; times in virtual seconds.

    Attributes
    ----------
    makespan_s : float
        When the last test had ended.
    bound_s : float
        No schedule is faster: one start of a process, and all tests spread evenly, or the longest one.
    shards, attempts, lost, repeated : int
        Shards that were cut, attempts that were begun, lost, and begun while another one ran.
    messages : int
        What the scheduler received and sent.
    nbytes : int
        Size of the record.
    missing, twice : int
        Tests without a row, and with two.
    """

    makespan_s: float
    bound_s: float
    shards: int
    attempts: int
    lost: int
    repeated: int
    messages: int
    nbytes: int
    missing: int
    twice: int

    @property
    def stretch(self) -> float:
        """The makespan over its bound."""
        return self.makespan_s / self.bound_s


@dataclass
class _State:
    """One simulated run."""

    fleet: Fleet
    book: Book
    lengths: dict[str, float]
    recorded: dict[str, float]
    dice: random.Random
    flush_s: float
    now: float = 0.0
    ends: list[tuple[float, int, str]] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    slow: set[str] = field(default_factory=set)
    lasts: dict[int, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    repeated: int = 0
    losses: int = 0
    messages: int = 0


def simulate(seconds: Sequence[float], fleet: Fleet, seed: int = 1) -> Outcome:
    """Run tests that were recorded to last `seconds` on a fleet; the same seed gives the same outcome."""
    dice = random.Random(seed)  # noqa: S311  a simulation
    names = [str(at) for at in range(len(seconds))]
    lengths = [length * dice.lognormvariate(0, fleet.scatter) for length in seconds]
    shards = [
        Shard(tuple(names[at] for at in part), sum(seconds[at] for at in part)) for part in cut(seconds, fleet.workers)
    ]
    state = _State(
        fleet=fleet,
        book=Book(shards),
        lengths=dict(zip(names, lengths, strict=True)),
        recorded=dict(zip(names, seconds, strict=True)),
        dice=dice,
        flush_s=flush_seconds(fleet.workers),
    )
    for number in range(fleet.workers):
        state.slow |= {f"w{number}"} if dice.random() < fleet.slow else set()
        state.idle.append(f"w{number}")
    _hand_out(state)
    while not state.book.is_done:
        _step(state)
    for test in state.book.given_up:  # `driver` writes a row with the reason
        state.rows[test] = state.rows.get(test, 0) + 1
    return Outcome(
        makespan_s=state.now,
        bound_s=START_SECONDS + max(sum(lengths) / fleet.workers, *lengths),
        shards=len(shards),
        attempts=state.attempts,
        lost=state.losses,
        repeated=state.repeated,
        messages=state.messages,
        nbytes=len(names) * _BYTES_A_TEST,
        missing=sum(name not in state.rows for name in names),
        twice=sum(count > 1 for count in state.rows.values()),
    )


def _begin(state: _State, worker: str) -> bool:
    """Give a worker what it does next; False if there is nothing."""
    attempt = state.book.next(worker, ["cpu"], state.now)
    if attempt is None:
        return False
    state.attempts += 1
    state.repeated += state.book.is_repeated(attempt)
    lasts = START_SECONDS + sum(state.lengths[test] for test in attempt.shard.tests)
    lasts *= state.fleet.slowness if worker in state.slow else 1.0
    state.lasts[attempt.number] = lasts
    is_lost = state.dice.random() < state.fleet.lost
    ends = state.now + (lasts * state.dice.random() if is_lost else lasts)
    heapq.heappush(state.ends, (ends, attempt.number, "lost" if is_lost else "ended"))
    return True


def _tell_progress(state: _State) -> None:
    """What the rows of running attempts have told of them until now; asked when lagging ones are looked for."""
    for attempt in state.book.running:
        done = min(1.0, max(0.0, state.now - attempt.started - START_SECONDS) / state.lasts[attempt.number])
        state.book.saw(attempt, done_s=done * attempt.shard.seconds - attempt.done_s)


def _hand_out(state: _State) -> None:
    """Give the idle workers what they do next, until there is nothing left to do."""
    if state.idle and not state.book.waiting_number:
        _tell_progress(state)
    while state.idle and _begin(state, state.idle[-1]):
        state.idle.pop()


def _step(state: _State) -> None:
    """The next end, loss or new worker."""
    if not state.ends:
        raise StateError(f"nothing runs, and work is left: {state.book!r}; this is a fault of the policy")
    state.now, number, what = heapq.heappop(state.ends)
    if what == "joined":
        state.idle.append(f"r{number}")
    elif (attempt := state.book.attempt(number)) is not None:  # else it was stopped
        state.messages += _MESSAGES_AN_ATTEMPT + int((state.now - attempt.started) / state.flush_s) + 1
        if what == "lost":
            _lose(state, attempt)
        else:
            state.idle += [attempt.worker, *(loser.worker for loser in _end(state, attempt))]
    _hand_out(state)


def _lose(state: _State, attempt: Attempt) -> None:
    state.losses += 1
    state.book.lost(attempt, state.now)
    heapq.heappush(state.ends, (state.now + state.fleet.restart_s, attempt.number, "joined"))


def _end(state: _State, attempt: Attempt) -> list[Attempt]:
    failed = {}
    if state.dice.random() < state.fleet.failed_by_machine and not attempt.shard.is_second:
        test = state.dice.choice(attempt.shard.tests)
        failed = {test: state.recorded[test]}
    for test in attempt.shard.tests:
        if test not in failed:
            state.rows[test] = state.rows.get(test, 0) + 1
    return state.book.ended(attempt, failed, state.now)


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate as the command line asks, and print the figures; gives the exit status."""
    asked = _parser().parse_args(argv)
    fleet = Fleet(workers=asked.workers, lost=asked.lost, slow=asked.slow)
    dice = random.Random(asked.seed)  # noqa: S311  a simulation
    recorded = sorted(recorded_durations(asked.results).values())
    if not recorded:
        _parser().error(f"no test in {', '.join(map(str, asked.results))} has a duration; name files with test rows")
    began = time.perf_counter()
    found = simulate(dice.choices(recorded, k=asked.tests), fleet, asked.seed)
    print(
        f"{asked.tests:,} tests of {len(recorded):,} recorded durations on {asked.workers:,} workers: "
        f"{found.makespan_s:,.1f} s, {found.stretch:.3f} times the bound of {found.bound_s:,.1f} s\n"
        f"{found.shards:,} shards in {found.attempts:,} attempts: {found.lost:,} lost, {found.repeated:,} repeated\n"
        f"{found.messages:,} messages of the scheduler, {found.messages / found.makespan_s:,.0f} a second\n"
        f"record: {found.nbytes / 1e6:,.0f} MB; {found.missing:,} tests without a row, {found.twice:,} with two\n"
        f"simulated in {time.perf_counter() - began:.1f} s"
    )
    return int(bool(found.missing or found.twice))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cuassay.fleet.simulation", description="Simulate a fleet.")
    parser.add_argument("results", nargs="+", type=Path, metavar="FILE|DIR", help="result files, or folders of them")
    parser.add_argument("--tests", type=int, default=1_000_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=1_000, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--lost", type=float, default=0.01, help="share of attempts that are lost (default: %(default)s)"
    )
    parser.add_argument("--slow", type=float, default=0.0, help="share of workers that take three times as long")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
