"""Kill workers of a local fleet at random moments, and check that its record lost no row and has none twice.

``python ci/kills_fleet.py --kills 100 --shards 200 --seed 1`` runs tests of 50 ms on four workers, kills one of them
(SIGKILL to the dask process that holds a shard) after a random number of rows, and continues until all shards have
ended. If a run ends before the last kill, another run follows. The exit status is 1 if a row is lost or duplicated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuassay.fleet import clusters, forks, shard
from cuassay.fleet.code import FOLDER, digest_of
from cuassay.fleet.driver import Job
from cuassay.fleet.run import Asked, run_fleet
from cuassay.results.record import new_run_id

__all__ = ["main"]

_TESTS = """
import time
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_sleeps(number): time.sleep(0.05)
"""

#: Seconds between two kills: a shard of five tests, its start and the restart of a worker take a few seconds.
_BETWEEN_S = (0.5, 2.5)


def _holder() -> int:
    """Return a worker's process id if it holds a shard, else 0, so that a worker that just started is not killed."""
    return os.getpid() if shard.is_busy() else 0


class Killer(threading.Thread):
    """Kills a worker from time to time, until `end` is called."""

    def __init__(self, client: Any, record: Path, kills: int, dice: random.Random) -> None:
        super().__init__(daemon=True, name="killer")
        self._client = client
        self._record = record
        self._left = kills
        self._dice = dice
        self._ended = threading.Event()
        self.kills = 0

    def run(self) -> None:
        """Kill one worker after the other, after the tests are collected."""
        while not self._record.exists() and not self._ended.wait(0.1):
            pass
        while self.kills < self._left and not self._ended.wait(self._dice.uniform(*_BETWEEN_S)):
            try:
                holders = self._client.run(_holder, on_error="ignore").values()
            except (AttributeError, OSError, RuntimeError):  # a worker ended meanwhile
                continue
            processes = [process for process in holders if process]
            if processes:
                self._kill(self._dice.choice(processes))

    def _kill(self, process: int) -> None:
        try:
            os.kill(process, signal.SIGKILL)
            self.kills += 1
        except ProcessLookupError:
            return

    def end(self) -> None:
        """Stop killing."""
        self._ended.set()
        self.join(30)


def trial(folder: Path, asked: argparse.Namespace, kills: int, dice: random.Random) -> tuple[int, list[str], str]:
    """Run once; return the number of kills, the faults of the record, and a line of the table."""
    tests = asked.shards * 5
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_sleeping.py").write_text(_TESTS.format(number=tests))
    os.chdir(folder)
    began = time.monotonic()
    with clusters.local_cluster(["cpu"], asked.workers, is_forked=forks.start()) as client:
        killer = Killer(client, folder / "rows.jsonl", kills, dice)
        killer.start()
        job = Job(run=new_run_id(), code=FOLDER, digest=digest_of(FOLDER))
        run_fleet(client, job, Asked(tests=("test_sleeping.py",), shards=asked.shards), folder / "rows.jsonl")
        killer.end()
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    counts = Counter(row["nodeid"] for row in rows if row["record"] == "test")
    outcomes = Counter(row["outcome"] for row in rows if row["record"] == "test")
    names = [f"test_sleeping.py::test_sleeps[{number}]" for number in range(tests)]
    lost = [name for name in names if not counts[name]]
    twice = [name for name, count in counts.items() if count > 1]
    counted = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    line = f"{killer.kills} kills, {tests} tests: {counted}; {len(lost)} lost, {len(twice)} twice"
    line += f"; {time.monotonic() - began:.0f} s"
    return killer.kills, [*lost, *twice], line


def main(argv: Sequence[str] | None = None) -> int:
    """Run until all kills were made; return the exit status."""
    parser = argparse.ArgumentParser(prog="python ci/kills_fleet.py", description="Kill workers of a fleet.")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="default: %(default)s")
    parser.add_argument("--shards", type=int, default=200, metavar="N", help="of five tests (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: %(default)s)")
    asked = parser.parse_args(argv)
    dice, left, faults = random.Random(asked.seed), asked.kills, list[str]()  # noqa: S311  moments
    while left > 0:
        with tempfile.TemporaryDirectory(prefix="kills-fleet-") as folder:
            killed, found, line = trial(Path(folder), asked, left, dice)
            os.chdir("/")
        print(line, flush=True)
        left -= killed
        faults += found
        if not killed:
            break
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return int(bool(faults or left > 0))


if __name__ == "__main__":
    raise SystemExit(main())
