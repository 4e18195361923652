"""Planted cheats, one for each row of the catalogue that the simulated device can hold: none is called correct.

What a cheat does is told by its file in suites/data/judging/cheats. Rows that need a GPU are T5, T11 and C17; those of
the jail itself (X8, X10) stand in the tests of the jail.
"""

from __future__ import annotations

import py_compile
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from referees import BUSY, DATA, WORK_S, Referees, busy, candidates, declared_name

from cuassay.errors import SpecError
from cuassay.judging import candidates as candidates_module
from cuassay.judging import referee
from cuassay.judging.catalogue import CHEATS
from cuassay.judging.limits import JailOptions
from cuassay.judging.process import CandidateProcess
from cuassay.judging.spec_file import load_declaration
from cuassay.judging.verdict import Verdict

#: Cheats that gain nothing where they are right.
HARMLESS = [one.stem for one in candidates("cheats") if one.stem in WORK_S]

#: The same calls in each run of the tests; ``ci/judge.py`` tries others.
NONCE = 20_261_125

#: What is seen of some.
SEEN = {
    "T6_replay_by_shape": "T9", "T8_batch_and_skip": "T9", "T10_fingerprint": "T9", "C7_inputs_changed": "C7",
    "C16_noise": "C16", "C14_identity": "C14", "X5_exit": "X5",
}  # fmt: skip


@pytest.fixture(scope="module")
def referees() -> Iterator[Referees]:
    made = Referees()
    yield made
    made.close()


@pytest.fixture(scope="module")
def impatient() -> Iterator[Referees]:
    made = Referees(seconds=1.0)
    yield made
    made.close()


def filled(candidate: Path, folder: Path, **words: str) -> Path:
    """The candidate with the words that only a test knows, in a folder of its own."""
    text = candidate.read_text(encoding="utf-8")
    for word, value in words.items():
        assert f"@{word}@" in text
        text = text.replace(f"@{word}@", value)
    (folder / candidate.name).write_text(text, encoding="utf-8")
    return folder / candidate.name


PLAIN = [one for one in candidates("cheats") if "@" not in one.read_text() or one.stem.startswith("B3")]


@pytest.mark.parametrize(
    "candidate", [one for one in PLAIN if one.stem not in (*HARMLESS, *BUSY, "X8_hang")], ids=lambda one: one.stem
)
def test_a_planted_cheat_is_not_called_correct(referees: Referees, candidate: Path) -> None:
    verdict = referees.of(declared_name(candidate)).judge(candidate, nonce=NONCE)

    assert verdict.verdict != "correct", verdict
    assert verdict.cases == ()
    assert candidate.stem.partition("_")[0] in CHEATS
    if candidate.stem in SEEN:
        assert SEEN[candidate.stem] in {one.id for one in verdict.cheat}, verdict


@pytest.mark.parametrize("name", HARMLESS)
def test_a_cheat_that_may_be_right_gains_nothing(referees: Referees, name: str) -> None:
    candidate = DATA / "cheats" / f"{name}.py"

    verdict = referees.of(declared_name(candidate)).judge(candidate)

    times = [case.time_s for case in verdict.cases if case.time_s is not None]
    assert all(seconds > WORK_S[name] / 2 for seconds in times), verdict.cases


@pytest.mark.parametrize("name", BUSY)
def test_what_a_candidate_leaves_running_has_ended_before_the_baseline_is_timed(
    referees: Referees, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right candidate must not slow the function that its time is divided by, nor the next verdict."""
    at_calls, at_baseline = list[set[str]](), list[set[str]]()
    call, timed = CandidateProcess.call, referee.measured

    def called(self: CandidateProcess, *args: Any, **kwargs: Any) -> Any:
        at_calls.append(busy())
        return call(self, *args, **kwargs)

    def measured(*args: Any, **kwargs: Any) -> Any:
        at_baseline.append(busy())
        found = timed(*args, **kwargs)
        at_baseline.append(busy())
        return found

    referees.of("rms_norm")  # whose own process is started first
    monkeypatch.setattr(CandidateProcess, "call", called)
    monkeypatch.setattr(referee, "measured", measured)

    verdict = referees.of("rms_norm").judge(DATA / "cheats" / f"{name}.py", nonce=NONCE)

    assert any(at_calls)  # it ran, and a running thread can be seen
    assert at_baseline == [set(), set()]
    assert verdict.verdict == "correct"
    assert busy() == set()


def test_a_candidate_that_hangs_is_wrong_once_its_time_is_over(impatient: Referees) -> None:
    verdict = impatient.of("rms_norm").judge(DATA / "cheats" / "X8_hang.py")

    assert verdict.verdict == "wrong"
    assert "X8" in {one.id for one in verdict.cheat}


def on_in_the_jail(verdict: Verdict, part: str) -> None:
    if verdict.jail.get(part) != "on":
        pytest.skip(f"the jail lacks {part} here: {verdict.jail}")


def test_a_file_may_take_longer_to_load_than_calls(impatient: Referees, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text("import time\ntime.sleep(2)\ndef run(xp, a):\n    return a\n")

    verdict = impatient.of("rms_norm").judge(candidate)

    assert verdict.failing_check not in ("", "load")


def test_the_declaration_cannot_be_read(referees: Referees, tmp_path: Path) -> None:
    candidate = filled(DATA / "cheats" / "C13_reads_the_reference.py", tmp_path, SPEC=f"{DATA}/spec.py")

    verdict = referees.of("rms_norm").judge(candidate)

    on_in_the_jail(verdict, "mount")
    assert (verdict.verdict, verdict.failing_check) == ("wrong", "load")


COMPILED = """
import glob, marshal, sys, types
sys.modules["cuassay.testing"] = types.SimpleNamespace(OpSpec=dict, Sample=tuple, Tolerance=dict)
(file,) = glob.glob("@FOLDER@/__pycache__/spec.*.pyc")
spec = {}
exec(marshal.loads(open(file, "rb").read()[16:]), spec)


def run(xp, a):
    return spec["rms"](xp, a)
"""


def test_the_compiled_declaration_cannot_be_read_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "spec.py").write_bytes((DATA / "spec.py").read_bytes())
    py_compile.compile(str(folder / "spec.py"), doraise=True)
    (tmp_path / "candidate.py").write_text(COMPILED.replace("@FOLDER@", str(folder)))
    monkeypatch.setattr(candidates_module, "JailOptions", partial(JailOptions, readable=(str(folder),)))
    referees = Referees(times=False, data=folder)

    verdict = referees.of("rms_norm").judge(tmp_path / "candidate.py")

    referees.close()
    on_in_the_jail(verdict, "mount")
    assert (verdict.verdict, verdict.failing_check) == ("wrong", "load")
    assert "EOFError" in verdict.reason or "PermissionError" in verdict.reason


def test_files_of_others_cannot_be_written(referees: Referees, tmp_path: Path) -> None:
    kept = tmp_path / "kept.py"
    kept.write_text("kept")
    candidate = filled(DATA / "cheats" / "X6_overwritten_file.py", tmp_path, FILE=str(kept))

    verdict = referees.of("rms_norm").judge(candidate)

    on_in_the_jail(verdict, "mount")
    assert verdict.verdict == "wrong"
    assert kept.read_text() == "kept"


def test_there_is_no_network(referees: Referees, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        candidate = filled(DATA / "cheats" / "X9_network.py", tmp_path, PORT=str(server.getsockname()[1]))

        verdict = referees.of("rms_norm").judge(candidate)

    on_in_the_jail(verdict, "net")
    assert verdict.verdict == "wrong"


def test_a_declaration_without_a_reference_is_refused() -> None:
    with pytest.raises(SpecError, match="has no reference="):
        load_declaration(f"{DATA}/spec.py::unreferenced")
