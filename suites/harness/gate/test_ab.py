"""``cuassay ab`` and ``aa``: two sides by turns in fresh processes, verdicts, exit codes, and going on after a stop."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay.benchmarking.ab import changes, modes_of
from cuassay.benchmarking.arms import RECORD, arm
from cuassay.benchmarking.comparison import Comparison, Side
from cuassay.benchmarking.noise import Profile
from cuassay.cli import main, parser
from cuassay.errors import ArgumentError, ResultError

#: A benchmark's process as anybody may write one: rows of a scattered time, of a device that the arguments name.
WORKLOAD = """
import json, os, random, sys
record, slow, scatter, uuid, log = sys.argv[1:]
started = os.path.getsize(log) if os.path.exists(log) else 0
slow, random = json.loads(slow), random.Random(f"{slow} {scatter} {started}")  # the same numbers in every run
row = {"schema": 1, "run": "r", "device": "cuda:0"}
facts = {"kind": "cuda", "name": "NVIDIA H200", "driver": "580.1", "uuid": uuid}
rows = [{"record": "device", **row, "present": True, "fingerprint": facts}]
for case in "abcdefghijkl":
    time = 1e-4 * slow.get(case, 1.0) * slow.get("all", 1.0) * random.gauss(1.0, float(scatter))
    told = {"benchmark": "work", "case": case, "implementation": "cuassay", "clock": "device", "n": 10}
    rows.append({"record": "time", **row, **told, "median": time})
open(log, "a").write(slow.get("name", "?"))
if slow.get("dies"): sys.exit("out of memory")
open(record, "w").write("".join(json.dumps(one) + "\\n" for one in rows))
"""

Command = Callable[..., str]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    (tmp_path / "work.py").write_text(WORKLOAD)

    def make(name: str, scatter: float = 0.001, uuid: str = "GPU-1", **slow: Any) -> str:
        told = json.dumps({"name": name, **slow}, separators=(",", ":"))
        log = tmp_path / "log"
        return f"{sys.executable} {tmp_path}/work.py {{record}} '{told}' {scatter} {uuid} {log}"

    return make


def ab(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["ab", *arguments, "--json", str(tmp_path / "out.json")])
    return status, json.loads((tmp_path / "out.json").read_text())


def words(outcome: dict[str, Any]) -> dict[str, str]:
    return {one["name"].removeprefix("work "): one["word"] for one in outcome["verdicts"]}


def test_a_slower_benchmark_fails_the_build_and_no_other_is_accused(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    status, outcome = ab(tmp_path, command("A"), command("B", c=1.05, d=0.9), "--fail-on", "slower")

    found = words(outcome)
    assert status == 1
    assert (found.pop("c"), found.pop("d")) == ("slower", "faster")
    assert set(found.values()) == {"same"}
    assert "1 slower, 1 faster, 0 ambiguous, 10 same" in capsys.readouterr().out


@pytest.mark.parametrize(("change", "scatter", "fresh", "starts"), [(1.08, 0.0005, 8, 24), (1.03, 0.01, 14, 64)])
def test_a_clear_change_is_confirmed_by_few_fresh_pairs(
    tmp_path: Path, command: Command, change: float, scatter: float, fresh: int, starts: int
) -> None:
    _, outcome = ab(tmp_path, command("A", scatter), command("B", scatter, c=change))

    (found,) = (one for one in outcome["verdicts"] if one["name"] == "work c")
    assert (found["word"], outcome["starts"]) == ("slower", starts)
    assert f"confirmed by {fresh} fresh pairs" in found["why"]


def test_nothing_fails_without_being_asked_to(tmp_path: Path, command: Command) -> None:
    assert ab(tmp_path, command("A"), command("B", c=1.05))[0] == 0


def test_equal_sides_are_the_same_and_say_what_would_have_been_seen(tmp_path: Path, command: Command) -> None:
    status, outcome = ab(tmp_path, command("A"), command("B"), "--fail-on", "slower")

    assert status == 0
    assert set(words(outcome).values()) == {"same"}
    assert all(0.01 <= one["smallest"] < 0.05 for one in outcome["verdicts"])
    assert outcome["starts"] <= 20


def test_what_all_benchmarks_have_in_common_is_reported_and_accuses_none(tmp_path: Path, command: Command) -> None:
    _, outcome = ab(tmp_path, command("A"), command("B", all=1.08))

    assert set(words(outcome).values()) == {"same"}
    assert outcome["shift"] == pytest.approx(0.08, abs=0.005)


def test_noise_makes_ambiguous_and_never_red(tmp_path: Path, command: Command) -> None:
    status, outcome = ab(tmp_path, command("A", 0.1), command("B", 0.1), "--fail-on", "slower")

    assert status == 0
    assert "ambiguous" in words(outcome).values()
    assert "slower" not in words(outcome).values()


def test_the_sides_take_turns_in_abba_order(tmp_path: Path, command: Command) -> None:
    ab(tmp_path, command("A"), command("B"))

    assert (tmp_path / "log").read_text()[:8] == "ABBAABBA"


def test_modules_are_compiled_once_where_python_must_not_write_beside_the_code(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work.py"
    (tmp_path / "imported.py").write_text("")
    work.write_text("import imported" + work.read_text())
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)

    ab(tmp_path, command("A"), command("B"), "--state", str(tmp_path / "state"))

    assert len([*(tmp_path / "state" / "pycache").rglob("imported.*.pyc")]) == 1
    assert not [*tmp_path.glob("__pycache__/*")]


def test_an_interrupted_comparison_goes_on_where_it_stopped(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    sides = command("A"), command("B")
    assert ab(tmp_path, *sides, "--state", str(state))[0] == 0
    started = (tmp_path / "log").read_text()
    (state / "p03-base.jsonl").unlink()

    assert ab(tmp_path, *sides, "--state", str(state))[0] == 0
    assert (tmp_path / "log").read_text() == started + "A"
    assert main(["ab", command("A"), command("other"), "--state", str(state)]) == 2
    assert "holds another comparison" in capsys.readouterr().err


def test_a_folder_is_not_continued_with_other_arguments_of_a_side(tmp_path: Path) -> None:
    sides(tmp_path, base=[], head=["--spin", f"{ADD}=1e-6"])
    sides(tmp_path, base=[], head=["--spin", f"{ADD}=1e-6"])

    with pytest.raises(ResultError, match="holds another comparison"):
        sides(tmp_path, base=[], head=["--spin", f"{ADD}=2e-6"])


@pytest.mark.parametrize(
    ("head", "said"),
    [
        pytest.param({"dies": 1}, "out of memory", id="process-dies"),
        pytest.param({"uuid": "GPU-2"}, "measured on another device", id="another-card"),
    ],
)
def test_a_failure_of_the_infrastructure_is_status_two(
    command: Command, capsys: pytest.CaptureFixture[str], head: dict[str, Any], said: str
) -> None:
    assert main(["ab", command("A"), command("B", **head), "--fail-on", "slower"]) == 2
    assert said in capsys.readouterr().err


def test_a_profile_says_the_noise_and_ab_promises_by_it(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = tmp_path / "noise.json"
    assert main(["aa", command("A", 0.0005), "--processes", "12", "--out", str(noise)]) == 0
    noises = Profile.load(noise).noises

    assert len(noises) == 12
    assert all(0.0002 < one.noise < 0.0012 for one in noises.values())

    sides = command("A", 0.0005), command("B", 0.0005, e=1.006)
    status, outcome = ab(tmp_path, *sides, "--profile", str(noise), "--fail-on", "slower")
    assert (status, words(outcome)["e"]) == (1, "slower")
    assert {one["promise"] for one in outcome["verdicts"]} == {0.005}
    assert "gate at 0.5%" in capsys.readouterr().out


def test_a_pattern_that_matches_nothing_ends_the_profile_after_one_process(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = tmp_path / "noise.json"

    assert main(["aa", command("A"), "--only", "nope", "--out", str(noise)]) == 2

    assert "no measured benchmark matches --only nope; correct the pattern" in capsys.readouterr().err
    assert (tmp_path / "log").read_text() == "A"
    assert not noise.exists()


def test_too_few_processes_for_a_profile_are_refused(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["aa", command("A"), "--processes", "1"]) == 2

    assert "--processes is 1; noise is measured by 3 or more" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_an_earlier_outcome_is_replaced(tmp_path: Path, command: Command) -> None:
    noise, noises, outcome = (str(tmp_path / name) for name in ("noise.json", "noises.json", "out.json"))
    main(["aa", command("A"), "--processes", "3", "--out", noise, "--json", noises])
    ab(tmp_path, command("A"), command("B"))

    parser().parse_args(["aa", "--out", noise, "--json", noises])
    parser().parse_args(["ab", "A", "B", "--json", outcome])

    with pytest.raises(SystemExit):
        parser().parse_args(["aa", "--out", outcome])


def test_what_is_too_noisy_to_promise_anything_is_reported_and_fails_nothing(tmp_path: Path, command: Command) -> None:
    noise = tmp_path / "noise.json"
    main(["aa", command("A", 0.1), "--processes", "12", "--out", str(noise)])
    sides = command("A", 0.1), command("B", 0.1, e=2.0)

    status, outcome = ab(tmp_path, *sides, "--profile", str(noise), "--fail-on", "slower")

    assert (status, words(outcome)["e"]) == (0, "slower")


@pytest.mark.parametrize("command", [["ab", "main", "HEAD"], ["bisect", "add", "--good", "main"]], ids=["ab", "bisect"])
@pytest.mark.parametrize(("file", "said"), [("missing/out.json", "cannot be written"), (".", "is a folder")])
def test_an_outcome_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], file: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json", str(tmp_path / file)])

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--run", "pytest speed.py --device sim --cuassay-record {record}", "--device", "cuda:0"],
            "inside the command",
        ),
        (["--run", "pytest speed.py"], "add --cuassay-record {record}"),
    ],
    ids=["device", "record"],
)
def test_a_command_that_cannot_be_measured_is_rejected_before_it_is_started(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ab", "HEAD", "HEAD", *words]) == 2

    assert said in capsys.readouterr().err


def test_a_profile_of_another_kind_of_machine_is_refused() -> None:
    profile = Profile({"name": "NVIDIA H100"}, {})

    with pytest.raises(ResultError, match="name NVIDIA H100 -> NVIDIA H200"):
        profile.require({"name": "NVIDIA H200"}, Path("noise.json"))


def test_noise_that_a_process_has_in_all_benchmarks_is_not_of_any_one() -> None:
    processes = [{str(name): (1 + number % 2) * 1.0 for name in range(10)} for number in range(6)]

    assert max(one.noise for one in Profile.of(processes, {}).noises.values()) < 1e-4


def test_a_commit_is_checked_out_next_to_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)

    made = arm("HEAD", tmp_path / "state", ["-m", "work"], "base")

    assert len(made.identity) == 40
    assert (made.command[0], made.command[1:]) == (sys.executable, ["-m", "work"])
    assert made.folder == tmp_path / "state" / "base" / made.identity[:12]  # Python looks for modules there first
    assert f"state/base/{made.identity[:12]}" in made.environment["PYTHONPATH"]
    assert (tmp_path / "state" / "base" / made.identity[:12] / ".git").exists()


@pytest.fixture
def repository(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits of a program that writes rows; the test runs in their repository."""
    where = tmp_path / "repository"
    where.mkdir()
    monkeypatch.chdir(where)
    told = shlex.split(command("A"))
    for number in range(2):
        (where / "work.py").write_text(f"import sys\nsys.argv[2:] = {told[3:]!r}\n{WORKLOAD}# {number}\n")
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", str(number)]):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
    return where


def worktrees() -> list[str]:
    return subprocess.run(["git", "worktree", "list"], check=True, capture_output=True, text=True).stdout.splitlines()


def test_no_checkout_of_a_comparison_stays_behind(repository: Path) -> None:
    assert main(["ab", "HEAD~1", "HEAD", "--run", "python work.py {record}"]) == 0

    assert len(worktrees()) == 1


@pytest.mark.parametrize("head", ["HEAD", "nowhere"])
def test_no_checkout_of_a_failed_comparison_stays_behind(repository: Path, head: str) -> None:
    assert main(["ab", "HEAD~1", head, "--run", "python missing.py {record}"]) == 2

    assert len(worktrees()) == 1


def test_uncommitted_changes_are_told_where_both_sides_are_commits(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "work.py").write_text("raise SystemExit(1)")

    assert main(["ab", "HEAD~1", "HEAD", "--run", "python work.py {record}"]) == 0

    assert "uncommitted changes; only commits are measured" in capsys.readouterr().err


def test_uncommitted_changes_are_not_told_where_a_side_is_a_folder(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "work.py").write_text("raise SystemExit(1)")

    main(["ab", "HEAD", ".", "--run", "python work.py {record}"])

    assert "uncommitted" not in capsys.readouterr().err


def test_a_folder_is_imported_from_and_an_interpreter_is_started(tmp_path: Path) -> None:
    (tmp_path / "tree" / "src").mkdir(parents=True)

    folder, python = (arm(name, tmp_path, ["x.py"], "base") for name in (str(tmp_path / "tree"), sys.executable))

    assert folder.environment["PYTHONPATH"].startswith(f"{tmp_path}/tree/src:{tmp_path}/tree")
    assert (python.command, python.environment) == ([sys.executable, "x.py"], {})


@pytest.mark.parametrize(
    ("name", "said"),
    [("neither-this-nor-that", "neither a commit"), ("python work.py", "does not say where its rows go")],
)
def test_what_is_no_side_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        arm(name, tmp_path, [], "base")


def test_a_side_does_not_import_from_the_folder_that_the_command_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, value in ((tmp_path / "tree", "of the side"), (tmp_path, "of the user")):
        (folder / "mine").mkdir(parents=True)
        (folder / "mine" / "__init__.py").write_text(f"NAME = {value!r}")
    monkeypatch.chdir(tmp_path)

    made = arm("tree", tmp_path, ["-c", "import mine; print(mine.NAME)"], "base")
    done = subprocess.run(
        made.command, env={**os.environ, **made.environment}, capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("of the side")


def test_sources_without_our_benchmarks_are_rejected_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "tree" / "src").mkdir(parents=True)

    with pytest.raises(ArgumentError, match=r"'.*tree' does not contain cuassay\.benchmarking\.sample.*give --run"):
        arm(str(tmp_path / "tree"), tmp_path, ["-m", "cuassay.benchmarking.sample"], "base")


def test_the_summary_names_benchmarks_processes_and_seconds(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    ab(tmp_path, command("base"), command("head"))

    shown = capsys.readouterr()
    assert re.search(r": 12 benchmarks, \d+ processes, \d+ s$", shown.out, re.MULTILINE)
    assert shown.err.startswith("cuassay: pair 1, base: started; ")
    assert re.search(r"^cuassay: pair 1, head: \d", shown.err, re.MULTILINE)


def test_two_modes_are_told() -> None:
    assert modes_of([0.0, 0.001, 0.041, 0.0005, 0.04, 0.0402]) == "two modes 4.07% apart, 3 of 6 in the upper"
    assert modes_of([0.0, 0.01, 0.02, 0.03, 0.04, 0.05]) == ""
    assert modes_of([0.0, 0.0, 0.0, 0.0, 0.0, 0.5]) == ""  # one that was disturbed


def test_a_planted_slow_down_of_a_declared_operation_is_found_on_sim(tmp_path: Path) -> None:
    child = f"{sys.executable} -m cuassay.benchmarking.sample --device sim --record {{record}} --only 'add float*'"
    child += " --scatter 0.0005 --spin 'add float32 1x128x768="

    status, outcome = ab(tmp_path, f"{child}0'", f"{child}5e-7'", "--fail-on", "slower")

    assert (status, words(outcome)["add float32 1x128x768"]) == (1, "slower")
    assert outcome["verdicts"][0]["effect"] == pytest.approx(5e-7 / 8.3e-6, rel=0.3)


# ------------------------------------------------------------------------------------------------ what changed

ADD = "add float32 1x128x768"
SAMPLE = ["-m", "cuassay.benchmarking.sample", "--device", "sim", "--record", RECORD]


def sides(tmp_path: Path, **extra: list[str]) -> Comparison:
    made = {side: Side(arm(sys.executable, tmp_path, SAMPLE, side), words) for side, words in extra.items()}
    return Comparison(made, tmp_path)


def test_a_launch_that_only_head_has_is_found_by_the_timelines_of_one_call(tmp_path: Path) -> None:
    comparison = sides(tmp_path, base=[], head=["--spin", f"{ADD}=1e-6"])

    (told,) = changes(comparison, [ADD])[ADD]

    assert re.match(r"added: spin in no op: 0 -> 1 launches, [\d.]+ us at ", told)


def test_a_side_that_records_no_timelines_tells_nothing(tmp_path: Path) -> None:
    assert sides(tmp_path, base=["--unknown"]).figures("base", [ADD]) == {}


def test_what_changed_is_printed_below_the_slower_benchmark(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuassay.benchmarking.ab.changes", lambda comparison, slower: {slower[0]: ["added: a copy"]})

    _, outcome = ab(tmp_path, command("A"), command("B", c=1.05))

    shown = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    place = shown.index(["added:", "a"])
    assert shown[place - 1][0] == "slower"
    assert outcome["changes"] == {"work c": ["added: a copy"]}
