"""Verdicts on candidates that take the machine: each is given, the next one is not affected, no process is left."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from referees import DATA, Referees, candidates

#: Seconds that a candidate may take.
SECONDS = 2.0


pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="candidates are judged on Linux")


@pytest.fixture(scope="module")
def referees() -> Iterator[Referees]:
    made = Referees(times=False, seconds=SECONDS)
    yield made
    made.close()


def left(process: int) -> list[int]:
    """Processes that `process` has started and that do not end within some seconds."""
    found = []
    for one in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(one)
            found += [] if select.select([handle], [], [], 10)[0] else [one]
            os.close(handle)
    return found


@pytest.mark.parametrize("candidate", candidates("hostile"), ids=lambda one: one.stem)
def test_a_candidate_that_takes_the_machine_gets_its_verdict(referees: Referees, candidate: Path) -> None:
    verdict = referees.of("rms_norm").judge(candidate)

    assert verdict.verdict in ("wrong", "refused"), verdict
    assert left(referees.zygote("rms_norm")) == []


def test_the_next_candidate_is_not_affected() -> None:
    referees = Referees(times=False)
    referees.of("rms_norm").judge(DATA / "hostile" / "daemon.py")
    referees.of("rms_norm").judge(DATA / "hostile" / "crash.py")

    verdict = referees.of("rms_norm").judge(DATA / "honest" / "plain.py")

    referees.close()
    assert verdict.verdict == "correct" or any(state != "on" for state in verdict.jail.values()), verdict
