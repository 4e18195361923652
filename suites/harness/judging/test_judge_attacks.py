"""Attacks on the referee itself: the public ones of another harness, and those of somebody who knows this code.

``suites/data/judging/public`` holds one candidate for each of the 20 attacks that pygpubench tries on itself, written
for our interface: on its clock, on its keys, its pipes, its expected outputs. ``inside`` holds candidates that know
the judge's source. Those that need several candidates or a large source stand in the tests of the part they attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from referees import DATA, DRIFTING, NOT_STOPPED, WORK_S, Referees, candidates, declared_name

#: The same calls in each run of the tests; ``ci/judge.py`` tries others.
NONCE = 20_261_125

#: Attacks on a clock, which give right results.
ON_THE_CLOCK = [one.stem for one in candidates("public") if one.stem in WORK_S]


@pytest.fixture(scope="module")
def referees() -> Iterator[Referees]:
    made = Referees(times=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def timing() -> Iterator[Referees]:
    made = Referees()
    yield made
    made.close()


def attacks(folder: str, *but: str) -> list[Path]:
    return [one for one in candidates(folder) if one.stem not in but]


@pytest.mark.parametrize("candidate", attacks("public", *ON_THE_CLOCK), ids=lambda one: one.stem)
def test_a_public_attack_does_not_pass(referees: Referees, candidate: Path) -> None:
    verdict = referees.of(declared_name(candidate)).judge(candidate, nonce=NONCE)

    assert verdict.verdict in ("wrong", "refused"), verdict


@pytest.mark.parametrize("name", ON_THE_CLOCK)
def test_an_attack_on_the_clock_gains_nothing(timing: Referees, name: str) -> None:
    verdict = timing.of("rms_norm").judge(DATA / "public" / f"{name}.py", nonce=NONCE)

    times = [case.time_s for case in verdict.cases if case.time_s is not None]
    assert all(seconds > WORK_S[name] / 2 for seconds in times), verdict.cases


#: Attacks that are about time, or need a referee of their own.
OF_TIME = (*DRIFTING, "forged_device_time", "too_slow_to_be_wrong")


@pytest.mark.parametrize("candidate", attacks("inside", *NOT_STOPPED, *OF_TIME), ids=lambda one: one.stem)
def test_an_attack_by_somebody_who_knows_the_code_does_not_pass(referees: Referees, candidate: Path) -> None:
    verdict = referees.of(declared_name(candidate)).judge(candidate, nonce=NONCE)

    assert verdict.verdict in ("wrong", "refused"), verdict


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xfail(reason=why, strict=True)) for name, why in NOT_STOPPED.items()]
)
def test_what_is_said_not_to_be_defended(referees: Referees, name: str) -> None:
    verdict = referees.of("rms_norm").judge(DATA / "inside" / f"{name}.py", nonce=NONCE)

    assert verdict.verdict != "correct"


@pytest.mark.parametrize("name", DRIFTING)
def test_a_time_that_depends_on_the_number_of_calls_is_withheld(timing: Referees, name: str) -> None:
    reasons = []
    for _ in range(3):  # on a busy host the scatter may hide the change: then the time is withheld for its error
        (case,) = timing.of("rms_norm").judge(DATA / "inside" / f"{name}.py", nonce=NONCE).cases
        assert case.time_s is None
        reasons.append(case.withheld)
        if "it drifts: its later calls take" in reasons[-1]:
            return

    pytest.fail(f"no verdict tells of the change: {reasons}")


def test_a_time_that_a_candidate_writes_into_its_reply_is_refused(timing: Referees) -> None:
    verdict = timing.of("rms_norm").judge(DATA / "inside" / "forged_device_time.py", nonce=NONCE)

    assert verdict.verdict == "refused"
    assert [(one.id, one.certainty) for one in verdict.cheat if one.id == "X3"] == [("X3", "proven")]


def test_who_takes_too_long_to_be_found_wrong_is_told_apart_from_who_could_not_be_judged() -> None:
    referees = Referees(times=False, seconds=0.6)

    verdict = referees.of("rms_norm").judge(DATA / "inside" / "too_slow_to_be_wrong.py", nonce=NONCE)

    referees.close()
    assert verdict.verdict in ("wrong", "undecided")
    assert verdict.failing_check
