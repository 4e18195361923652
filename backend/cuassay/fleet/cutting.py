"""How the tests of a run are cut into shards: large ones first, small ones last.

The sizes follow factoring (Hummel, Schonberg and Flynn, "Factoring", CACM 35(8), 1992): each round hands out a share of
what is left, one shard for each worker. Few shards pay the start of a process, and the last ones are short, so that all
workers end at about the same time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["FLOOR_SECONDS", "MOST_TESTS", "START_SECONDS", "UNKNOWN_SECONDS", "cut", "expected_seconds"]

#: What a shard costs in addition to its tests: the start of an interpreter, of pytest, and the collection of its files.
START_SECONDS = 1.0

#: What is left is divided by rounds until the shards of a round would be shorter than this.
FLOOR_SECONDS = 6.0

#: What each round hands out of what is left, and how the last rounds divide the rest. In the simulation of 10^6 tests
#: on 1,000 workers, 0.3 and 0.5 end later, and so do three last rounds.
_ROUND_SHARE = 0.4
_LAST_ROUNDS = (0.6, 0.4)

#: Tests of one shard: a lost worker costs their rows, and a scheduler holds their names.
MOST_TESTS = 5_000

#: How long a test is taken to last where no record tells the duration of any.
UNKNOWN_SECONDS = 0.05


def expected_seconds(names: Iterable[str], recorded: Mapping[str, float]) -> list[float]:
    """How long each test is expected to last: as recorded, or as the median of those that are recorded."""
    usual = statistics.median(recorded.values()) if recorded else UNKNOWN_SECONDS
    return [recorded.get(name, usual) for name in names]


def cut(
    seconds: Sequence[float], workers: int, *, shards: int | None = None, floor: float = FLOOR_SECONDS
) -> list[list[int]]:
    """Cut tests into shards, in the order in which they are to be handed out.

    Tests that alone last longer than `floor` come first, the longest before all. The others keep their order,
    so that the tests of one file, and the fixtures that they share, mostly stay together.

    Parameters
    ----------
    seconds : sequence of float
        How long each test is expected to last.
    workers : int
        Workers that run them at the same time.
    shards : int, optional
        Cut into about this many shards of the same length, instead of by factoring.
    floor : float
        Seconds; a test that alone lasts longer comes first.

    Returns
    -------
    list of list of int
        The indices of each shard's tests. Each test is in one shard, and no shard is empty.
    """
    long = sorted((at for at, length in enumerate(seconds) if length > floor), key=lambda at: -seconds[at])
    queue = [*long, *(at for at, length in enumerate(seconds) if length <= floor)]
    targets = _equal(sum(seconds), shards) if shards else _factored(sum(seconds), workers, floor)
    return list(_filled(queue, seconds, targets))


def _equal(total: float, shards: int) -> Iterator[float]:
    while True:
        yield total / shards


def _factored(total: float, workers: int, floor: float) -> Iterator[float]:
    """The length of each shard: by rounds of one for each worker."""
    left = total
    while (length := left * _ROUND_SHARE / workers) > floor:
        yield from [length] * workers
        left -= length * workers
    for share in _LAST_ROUNDS:
        yield from [left * share / workers] * workers
    while True:  # what rounding left over
        yield left * _LAST_ROUNDS[-1] / workers


def _filled(queue: Sequence[int], seconds: Sequence[float], targets: Iterator[float]) -> Iterator[list[int]]:
    shard: list[int] = []
    owed = next(targets)  # what this shard may hold, with what the last one took too little or too much
    for at in queue:
        if shard and (owed < seconds[at] / 2 or len(shard) == MOST_TESTS):
            yield shard
            shard = []
            owed += next(targets)
        shard.append(at)
        owed -= seconds[at]
    if shard:
        yield shard
