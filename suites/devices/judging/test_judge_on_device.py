"""Verdicts on every kind of device: candidates that know nothing of the kind that they run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from referees import DATA, Referees, declared_name

from cuassay import Device

HONEST = ["plain", "workspace_kept", "float64_inside", "split_k", "affine", "argmax"]
CHEATS = ["T6_replay_by_shape", "T14_no_time", "C7_inputs_changed", "C12_first_calls", "C18_special_values", "X5_exit"]


@pytest.fixture
def referees(device: Device) -> Iterator[Referees]:
    made = Referees(str(device), times=False)
    yield made
    made.close()


def judged(referees: Referees, path: Path) -> str:
    verdict = referees.of(declared_name(path)).judge(path, nonce=20_261_125)
    if verdict.verdict == "undecided" and any(state != "on" for state in verdict.jail.values()):
        pytest.skip(f"the jail is not whole here: {verdict.jail}")
    return verdict.verdict


def test_honest_candidates_are_called_correct(device: Device, referees: Referees) -> None:
    verdicts = {name: judged(referees, DATA / "honest" / f"{name}.py") for name in HONEST}

    assert verdicts == dict.fromkeys(HONEST, "correct")


def test_cheats_are_not(device: Device, referees: Referees) -> None:
    verdicts = {name: judged(referees, DATA / "cheats" / f"{name}.py") for name in CHEATS}

    assert set(verdicts.values()) <= {"wrong", "refused"}
