"""Which worker runs which shard next, and what becomes of a shard whose worker was lost: decisions alone, no cluster.

`driver` tells it what happened on a real cluster, and `simulation` what happened on one that is made up. The rules:

- A shard that has not begun goes to the next idle worker of its kind; after a loss to another one, if there is another.
- A worker that is lost fails no test: all tests of its shard run again elsewhere. Only a test that was under way at two
  losses is given up, and the others go on without it.
- A test that the machine failed (a lost GPU, say) runs again elsewhere once. A test that failed runs once.
- When no shard waits, an idle worker repeats the one that lags most, if it is expected to end it sooner. The first
  attempt to end counts, and the others are stopped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import count

from cuassay.fleet.cutting import START_SECONDS

__all__ = ["MOST_LOSSES", "SUSPECT_LOSSES", "Attempt", "Book", "Shard"]

#: Losses of a worker with the same test under way, after which the test is given up.
SUSPECT_LOSSES = 2

#: Losses of one shard, after which what is left of it is given up: something ends its workers before any test begins.
MOST_LOSSES = 6

#: How many times as long as expected a shard may take while none has ended: nobody knows how fast this fleet is.
_UNTRIED_PACE = 4.0

#: A lost shard that is long waits again in this many pieces, so that several workers make up for the loss.
_PIECES = 4


@dataclass(slots=True, eq=False)
class Shard:
    """Tests that one process runs.

    Attributes
    ----------
    tests : sequence of str
        Their names.
    seconds : float
        How long they are expected to last.
    kind : str
        The kind of device that they need.
    is_second : bool
        The machine failed these tests once already.
    avoids : set of str
        Workers that lost it.
    losses : int
        How many attempts were lost.
    ready_s : float
        When it began to wait for a worker.
    """

    tests: Sequence[str]
    seconds: float
    kind: str = "cpu"
    is_second: bool = False
    avoids: set[str] = field(default_factory=set)
    losses: int = 0
    ready_s: float = 0.0


def _piece(shard: Shard, begin: int, end: int) -> Shard:
    share = (end - begin) / len(shard.tests)
    return replace(shard, tests=shard.tests[begin:end], seconds=shard.seconds * share, avoids=set(shard.avoids))


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of a worker to run a shard.

    Attributes
    ----------
    waited_s : float
        How long the shard had been ready; nothing for a repetition of one that lags.
    done_s : float
        How long its finished tests were expected to last.
    """

    number: int
    shard: Shard
    worker: str
    started: float
    waited_s: float = 0.0
    under_way: str = ""
    done_s: float = 0.0

    def elapsed_s(self, now: float) -> float:
        """How long its tests have run."""
        return max(now - self.started - START_SECONDS, 0.0)

    def left_s(self, now: float, usual: float) -> float:
        """How long it still lasts: at its pace so far, and not faster than the `usual` pace."""
        pace = self.elapsed_s(now) / max(self.done_s or self.shard.seconds, 1e-9)
        return max(self.shard.seconds - self.done_s, 0.0) * max(pace, usual)


class Book:
    """The shards that wait and the attempts that run.

    Parameters
    ----------
    shards : iterable of Shard
        In the order in which they are handed out.
    numbers : iterator of int, optional
        Of the attempts; books that share it have none in common.
    suspect_losses : int
        Losses with the same test under way, after which it is given up.

    Attributes
    ----------
    given_up : dict
        Test to the reason: they have no outcome of their own.
    """

    def __init__(
        self, shards: Iterable[Shard], numbers: Iterator[int] | None = None, suspect_losses: int = SUSPECT_LOSSES
    ) -> None:
        self._waiting = deque(shards)
        self._running: dict[int, Attempt] = {}
        self._of_shard: dict[Shard, list[Attempt]] = {}
        self._suspect_losses = suspect_losses
        self._suspected: Counter[str] = Counter()
        self._numbers = count(1) if numbers is None else numbers
        self._took_s = self._expected_s = 0.0  # of the attempts that ended
        self.given_up: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Book({len(self._waiting)} shards wait, {len(self._running)} attempts run)"

    @property
    def is_done(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._waiting and not self._running

    @property
    def waiting_number(self) -> int:
        """How many shards wait."""
        return len(self._waiting)

    @property
    def kinds_waiting(self) -> frozenset[str]:
        """The kinds of device that the waiting shards need."""
        return frozenset(shard.kind for shard in self._waiting)

    @property
    def running(self) -> Sequence[Attempt]:
        """The attempts that run."""
        return tuple(self._running.values())

    def is_repeated(self, attempt: Attempt) -> bool:
        """Whether another attempt at the same shard runs."""
        return len(self._of_shard[attempt.shard]) > 1

    def attempt(self, number: int) -> Attempt | None:
        """The attempt of that number, while it runs."""
        return self._running.get(number)

    def next(
        self, worker: str, kinds: Iterable[str], now: float, alive: AbstractSet[str] = frozenset()
    ) -> Attempt | None:
        """What an idle worker does now, or None.

        Parameters
        ----------
        worker : str
            Its name.
        kinds : iterable of str
            The kinds of its devices.
        now : float
            The time, in seconds.
        alive : set of str
            The workers of these kinds: what all of them have lost, anyone may repeat.
        """
        kinds = frozenset(kinds)
        for at, shard in enumerate(self._waiting):
            if shard.kind in kinds and (worker not in shard.avoids or alive <= shard.avoids):
                del self._waiting[at]
                return self._begin(shard, worker, now, max(now - shard.ready_s, 0.0))
        lagging = None if self._waiting else self._most_lagging(worker, kinds, now)
        return None if lagging is None else self._begin(lagging.shard, worker, now, 0.0)

    def _begin(self, shard: Shard, worker: str, now: float, waited_s: float) -> Attempt:
        attempt = Attempt(next(self._numbers), shard, worker, now, waited_s)
        self._running[attempt.number] = attempt
        self._of_shard.setdefault(shard, []).append(attempt)
        return attempt

    def _most_lagging(self, worker: str, kinds: frozenset[str], now: float) -> Attempt | None:
        found, most, usual = None, 0.0, self._usual_pace
        for attempt in self._running.values():
            gain = attempt.left_s(now, usual) - attempt.shard.seconds * usual - START_SECONDS
            is_free = len(self._of_shard[attempt.shard]) == 1 and worker not in attempt.shard.avoids
            if gain > most and is_free and attempt.shard.kind in kinds and attempt.worker != worker:
                found, most = attempt, gain
        return found

    @property
    def _usual_pace(self) -> float:
        """How many times as long tests take here as expected; at least once, so that few are repeated for nothing."""
        return max(self._took_s / self._expected_s, 1.0) if self._expected_s else _UNTRIED_PACE

    def saw(self, attempt: Attempt, *, begun: str = "", done_s: float = 0.0) -> None:
        """An attempt has begun a test, or finished one that was expected to last `done_s`."""
        attempt.under_way = begun
        attempt.done_s += done_s

    def ended(
        self, attempt: Attempt, failed_by_machine: Mapping[str, float] | None = None, now: float | None = None
    ) -> list[Attempt]:
        """An attempt came to its end: its rows count, and the attempts that are given back are to be stopped.

        Parameters
        ----------
        attempt : Attempt
            The first of its shard.
        failed_by_machine : mapping, optional
            Tests that run again elsewhere, and how long they last. Their rows do not count, unless `is_second`.
        now : float, optional
            The time, in seconds: how long attempts take tells which ones lag.
        """
        if now is not None:
            self._took_s += attempt.elapsed_s(now)
            self._expected_s += attempt.shard.seconds
        losers = [other for other in self._of_shard.pop(attempt.shard) if other is not attempt]
        for one in (attempt, *losers):
            del self._running[one.number]
        if failed_by_machine and not attempt.shard.is_second:
            tests, seconds = tuple(failed_by_machine), sum(failed_by_machine.values())
            self._waiting.appendleft(
                Shard(
                    tests,
                    seconds,
                    attempt.shard.kind,
                    is_second=True,
                    avoids={attempt.worker},
                    ready_s=attempt.started if now is None else now,
                )
            )
        return losers

    def refused(self, attempt: Attempt, now: float | None = None) -> None:
        """A worker did not begin a shard, because its device is not well: the shard waits again, without a loss."""
        self._drop(attempt, now)
        attempt.shard.avoids.add(attempt.worker)
        self._wait_again(attempt.shard)

    def lost(self, attempt: Attempt, now: float | None = None) -> None:
        """An attempt was lost with its worker, `now` or as it began: its rows do not count."""
        self._drop(attempt, now)
        shard = attempt.shard
        shard.losses += 1
        shard.avoids.add(attempt.worker)
        if attempt.under_way or len(shard.tests) == 1:
            self._suspect(attempt, attempt.under_way or shard.tests[0])
        if shard.losses >= MOST_LOSSES and not self._of_shard[shard]:  # another attempt may still run all of it
            self._give_up(shard.tests, f"{shard.losses} workers were lost with its shard")
            shard.tests = ()
        self._wait_again(shard)

    def _drop(self, attempt: Attempt, now: float | None) -> None:
        attempt.shard.ready_s = attempt.started if now is None else now
        del self._running[attempt.number]
        self._of_shard[attempt.shard].remove(attempt)

    def _suspect(self, attempt: Attempt, test: str) -> None:
        shard = attempt.shard
        self._suspected[test] += 1
        if self._suspected[test] >= self._suspect_losses and test in shard.tests and not self._of_shard[shard]:
            self._give_up([test], f"{self._suspect_losses} workers were lost while it ran")
            shard.seconds *= 1 - 1 / len(shard.tests)
            shard.tests = tuple(other for other in shard.tests if other != test)

    def _wait_again(self, shard: Shard) -> None:
        if self._of_shard[shard]:
            return  # the other attempt goes on
        del self._of_shard[shard]
        is_worth_it = shard.losses and shard.seconds > _PIECES * START_SECONDS
        is_suspect = shard.losses > SUSPECT_LOSSES  # the test that ends its workers is found in a smaller piece
        pieces = min(_PIECES if is_worth_it or is_suspect else 1, len(shard.tests))
        for at in reversed(range(pieces)):
            ends = (len(shard.tests) * at // pieces, len(shard.tests) * (at + 1) // pieces)
            self._waiting.appendleft(_piece(shard, *ends))

    def _give_up(self, tests: Iterable[str], why: str) -> None:
        self.given_up |= dict.fromkeys(tests, why)

    def abandon(self, why: str) -> None:
        """Give up what waits: there is no worker for it, and none has come."""
        for shard in self._waiting:
            self._give_up(shard.tests, why)
        self._waiting.clear()
