"""``cuassay judge``: statuses, files, replays, and how a command line that is asked wrongly is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from referees import DATA

from cuassay.cli import main
from cuassay.judging.verdict import read_verdicts
from cuassay_reports.load import load

SPEC = f"{DATA}/spec.py::rms_norm"
HONEST, CHEAT = DATA / "honest" / "plain.py", DATA / "cheats" / "T9_cache_by_identity.py"
WRONG = DATA / "cheats" / "T14_no_time.py"


def judge(*words: object) -> int:
    return main(["judge", *map(str, words), "--allow-unjailed"])


def test_a_verdict_is_printed_written_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts, rows = tmp_path / "verdicts.json", tmp_path / "rows.jsonl"

    status = judge(SPEC, HONEST, WRONG, "--json", verdicts, "--record", rows, "--no-times", "--jobs", 2)

    printed = capsys.readouterr().out
    assert status == 1
    assert "correct  plain.py: all checks passed, no cheat was found" in printed
    assert "reproduce: cuassay judge spec.py::rms_norm T14_no_time.py" in printed
    assert [one.verdict for one in read_verdicts(verdicts)] == ["correct", "wrong"]
    assert list(load(rows).verdicts["verdict"]) == ["correct", "wrong"]


def test_a_replay_gives_the_same_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    judge(SPEC, WRONG, "--json", first)

    status = judge(SPEC, WRONG, "--replay", first, "--json", second)

    assert status == 1
    assert "replay: the same verdict" in capsys.readouterr().out
    assert read_verdicts(first)[0].same_finding(read_verdicts(second)[0])


def test_a_replay_tells_where_the_verdict_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdicts.json"
    judge(SPEC, WRONG, "--json", path, "--no-times")
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([{**rows[0], "verdict": "correct", "reason": "it was bribed"}]))

    judge(SPEC, WRONG, "--replay", path)

    assert "replay: it was correct: it was bribed" in capsys.readouterr().out


def test_a_weak_declaration_decides_nothing_unless_that_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    words = (f"{DATA}/spec.py::constant", DATA / "cheats" / "C8_constant.py", "--no-times")

    assert judge(*words) == 3
    assert "constant is a weak declaration" in capsys.readouterr().err
    assert judge(*words, "--allow-weak") == 0


def test_a_policy_refuses_library_calls() -> None:
    words = (f"{DATA}/spec.py::product", DATA / "honest" / "split_k.py", "--no-times")

    assert judge(*words, "--policy", "library=refuse") == 1
    assert judge(*words, "--policy", "library=allow") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([SPEC, "nowhere.py"], "nowhere.py is not a file"),
        ([f"{DATA}/spec.py::rms_nrm", HONEST], "did you mean 'rms_norm'"),
        ([SPEC, HONEST, "--replay", HONEST], "holds no verdicts"),
        ([SPEC, HONEST, "--policy", "libary=allow"], "did you mean 'library'"),
        ([SPEC, HONEST, "--nonce", "xyz"], "hexadecimal"),
        ([SPEC, HONEST, "--jobs", "0"], "above 0"),
        ([SPEC, HONEST, "--device", "sim:7"], "sim:7"),
        ([SPEC, HONEST, "--tier", "kernel", "--device", "sim"], "give --device cuda:0"),
    ],
)
def test_what_is_asked_wrongly_is_answered(
    words: list[object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(*words) == 2
    assert message in capsys.readouterr().err


def test_a_misspelt_tier_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        judge(SPEC, HONEST, "--tier", "kernal")

    assert ended.value.code == 2
    assert "kernel" in capsys.readouterr().err


def test_a_verdict_of_another_file_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdicts.json"
    judge(SPEC, WRONG, "--json", path, "--no-times")

    assert judge(SPEC, HONEST, "--replay", path) == 2
    assert "holds no verdict on" in capsys.readouterr().err
