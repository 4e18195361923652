"""Honest candidates are called correct: library calls, workspaces, joined streams, graphs, chunks, threads, ops."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from referees import DATA, Referees, candidates, declared_name

from cuassay.judging.verdict import Verdict


@pytest.fixture(scope="module")
def referees() -> Iterator[Referees]:
    made = Referees()
    yield made
    made.close()


@pytest.fixture(scope="module")
def checking() -> Iterator[Referees]:
    made = Referees(times=False)
    yield made
    made.close()


@pytest.mark.parametrize("candidate", candidates("honest"), ids=lambda one: one.stem)
def test_an_honest_candidate_is_called_correct(referees: Referees, candidate: Path) -> None:
    verdict = referees.of(declared_name(candidate)).judge(candidate, nonce=20_261_125)

    if verdict.verdict == "undecided" and any(state != "on" for state in verdict.jail.values()):
        pytest.skip(f"the jail is not whole here: {verdict.jail}")
    assert verdict.verdict == "correct", verdict
    assert verdict.probes["values"]
    assert verdict.probes["hidden shapes"]
    assert verdict.calls > verdict.timed_calls == verdict.verified_calls > 0


#: Some of the others; ``ci/judge.py`` judges all of them, under many nonces.
SAMPLE = candidates("right")[::7]


@pytest.mark.parametrize("candidate", SAMPLE, ids=lambda one: one.stem)
def test_an_honest_candidate_is_called_correct_where_no_time_is_taken(checking: Referees, candidate: Path) -> None:
    verdict = checking.of(declared_name(candidate)).judge(candidate, nonce=20_261_125)

    if verdict.verdict == "undecided" and any(state != "on" for state in verdict.jail.values()):
        pytest.skip(f"the jail is not whole here: {verdict.jail}")
    assert verdict.verdict == "correct", verdict


def test_there_are_as_many_honest_candidates_as_the_judge_was_tried_with() -> None:
    assert len(candidates("honest")) + len(candidates("right")) >= 60


def test_the_judge_never_holds_code_of_a_candidate(referees: Referees) -> None:
    path = DATA / "honest" / "workspace_kept.py"

    referees.of("rms_norm").judge(path)

    names = [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(path)]
    functions = [one for one in gc.get_objects() if isinstance(one, types.FunctionType)]
    assert "candidate" not in sys.modules
    assert names == []
    assert [one for one in functions if one.__code__.co_filename.endswith(path.name)] == []


@pytest.mark.parametrize("name", ["plain", "mean_of_two_halves"])
def test_one_nonce_gives_one_verdict(referees: Referees, name: str) -> None:
    candidate = DATA / "honest" / f"{name}.py"
    referee = referees.of(declared_name(candidate))

    first, second = (referee.judge(candidate, nonce=20_261_125) for _ in range(2))

    assert first.same_finding(second)
    assert isinstance(first, Verdict)
    assert first.nonce == f"{20_261_125:x}"


def test_a_wrong_candidate_fails_again_on_the_same_sample_under_its_nonce(referees: Referees) -> None:
    candidate = DATA / "cheats" / "T7_warm_up.py"
    first = referees.of("rms_norm").judge(candidate, nonce=7)

    again = referees.of("rms_norm").judge(candidate, nonce=int(first.nonce, 16))

    assert again.same_finding(first)
    assert again.worst == first.worst
