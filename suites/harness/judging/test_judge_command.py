"""``cuassay judge``: statuses, files, replays, and how a command line that is asked wrongly is answered."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from referees import DATA

from cuassay.cli import main, parser
from cuassay.judging.catalogue import CHEATS
from cuassay.judging.json_schema import verdicts_schema
from cuassay.judging.plan import digest_of
from cuassay.judging.process import CandidateProcess
from cuassay.judging.verdict import CaseTime, read_verdicts
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
    assert f"correct  {HONEST}: all checks passed, no cheat was found" in printed
    assert f"reproduce: cuassay judge {SPEC} {WRONG} --device sim:0 --no-times --allow-unjailed --nonce" in printed
    assert re.search(r"\n  check: [a-z ]+ on .* in float32\b", printed)
    assert [one.verdict for one in read_verdicts(verdicts)] == ["correct", "wrong"]
    assert [one.dtype for one in read_verdicts(verdicts)] == ["", "float32"]
    assert list(load(rows).verdicts["verdict"]) == ["correct", "wrong"]
    assert load(rows).verdicts["dtype"].iloc[1] == "float32"
    parser().parse_args(["judge", SPEC, str(HONEST), "--json", str(verdicts), "--record", str(rows)])  # again


def test_a_candidate_of_two_results_is_told_that_one_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text("def run(xp, a):\n    return a, a\n")

    assert judge(SPEC, candidate, "--no-times") == 1
    assert "output cannot be compared: it gave 2 outputs, and the declaration compares one" in capsys.readouterr().out


def test_the_line_to_reproduce_gives_the_verdict_again_from_the_same_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("specs", "a", "b"):
        (tmp_path / folder).mkdir()
    shutil.copy(DATA / "spec.py", tmp_path / "specs")
    for folder in "ab":
        shutil.copy(WRONG, tmp_path / folder / "candidate.py")
    monkeypatch.chdir(tmp_path)

    judge("specs/spec.py::rms_norm", "a/candidate.py", "b/candidate.py", "--no-times")
    first, second = (one for one in capsys.readouterr().out.splitlines() if "reproduce: " in one)
    words = shlex.split(second.partition("reproduce: ")[2])
    status = main(words[1:])

    assert status == 1
    assert "specs/spec.py::rms_norm a/candidate.py" in first
    printed = capsys.readouterr().out
    assert "wrong  b/candidate.py: " in printed
    assert second in printed


def test_the_catalogue_of_cheats_is_listed_without_a_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["judge", "--cheats"])

    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert [line.split()[0] for line in lines[1:]] == list(CHEATS)


def test_the_schema_is_printed_without_a_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["judge", "--schema"])

    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == verdicts_schema()


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kernel.cu", "kernel.cu is CUDA C++; give --tier kernel --device cuda:0"),
        ("kernel.cuh", "kernel.cuh is CUDA C++; give --tier kernel --device cuda:0"),
        ("kernel.ptx", "kernel.ptx is PTX; give CUDA C++, by --tier kernel --device cuda:0"),
    ],
)
def test_a_kernel_is_not_taken_for_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    candidate = tmp_path / name
    candidate.write_text("__global__ void scale() {}")

    assert judge(SPEC, candidate) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_declaration_that_works_in_place_is_refused_before_a_candidate_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(
        "from cuassay.testing import OpSpec\n"
        "in_place = {'inputs_unchanged': 'in place', 'aliasing': 'in place', 'deterministic': 'in place'}\n"
        "spec = OpSpec(fn=lambda xp, a: a, reference=lambda a: a, name='scale_', without=in_place)\n"
    )

    assert judge(spec, HONEST) == 2
    captured = capsys.readouterr()
    assert "scale_ works in place" in captured.err
    assert "declare a form that returns a new array" in captured.err
    assert captured.out == ""


def test_a_time_that_is_withheld_says_why() -> None:
    case = CaseTime(
        label="8", dtype="float32", time_s=None, q25=None, q75=None, n=3, error_s=1.0, withheld="too few calls"
    )

    assert case.told() == "8 float32: no time is given: too few calls"


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


def test_the_digest_by_which_a_replay_finds_a_kernel_is_that_of_its_verdict(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("__global__ void scale() {}")
    (tmp_path / "launch.json").write_text("{}")

    source = CandidateProcess(kernel, device="sim", tier="kernel").source

    assert digest_of(kernel, "kernel") == hashlib.sha256(source).hexdigest()[:16]
    assert digest_of(kernel, "kernel") != digest_of(kernel, "program")
