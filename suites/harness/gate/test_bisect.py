"""``cuassay bisect``: the search over commits, and the command on a repository with a planted slow commit."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay.benchmarking.ab import Verdict
from cuassay.benchmarking.bisect import Found, search
from cuassay.cli import main

# ------------------------------------------------------------------------------------------------ the search


def verdict(effect: float, *, resolution: float = 0.004) -> Verdict:
    """What the gate says of a change: ambiguous around its resolution."""
    changed: Any = "slower" if effect > 0 else "faster"
    word: Any = "same" if abs(effect) < resolution / 2 else changed if abs(effect) >= resolution else "ambiguous"
    return Verdict("work", word, effect, resolution, 10, None, 0.02, "by the test")


def searched(times: list[float], broken: tuple[int, ...] = (), hidden: tuple[int, ...] = ()) -> Found:
    """Search commits named by their place; the comparison of a `hidden` one is always ambiguous."""

    def compare(base: str, head: str) -> Verdict:
        if int(head) in hidden and int(head) != len(times) - 1:
            return verdict(0.003)
        return verdict(times[int(head)] / times[int(base)] - 1)

    return search([str(n) for n in range(len(times))], compare, lambda c: "broken" if int(c) in broken else None)


@pytest.mark.parametrize("slow", range(1, 12))
def test_a_step_is_named_wherever_it_is(slow: int) -> None:
    found = searched([1.0] * slow + [1.05] * (12 - slow))

    assert found.commits == [str(slow)]
    assert found.step.verdict.effect == pytest.approx(0.05)


def test_twelve_commits_take_few_comparisons() -> None:
    assert len(searched([1.0] * 7 + [1.05] * 5).steps) <= 5


def test_of_two_steps_the_larger_is_named() -> None:
    assert searched([1.0, 1.0, 1.01, 1.01, 1.01, 1.06, 1.06, 1.06]).commits == ["5"]


def test_a_step_below_an_earlier_gain_is_named() -> None:
    assert searched([1.0, 0.9, 0.9, 0.9, 0.9, 1.1, 1.1]).commits == ["5"]


@pytest.mark.parametrize("reason", ["broken", "hidden"])
def test_commits_that_tell_nothing_widen_the_answer_to_what_is_certain(reason: str) -> None:
    found = searched([1.0, 1.0, 1.0, 1.05, 1.05, 1.05], **{reason: (2, 3)})

    assert found.commits == ["2", "3", "4"]
    assert found.step.verdict.word == "slower"
    assert set(found.skipped) | set(found.ambiguous) <= {"2", "3"}


def test_a_skipped_commit_elsewhere_does_not_matter() -> None:
    assert searched([1.0] * 5 + [1.05] * 3, broken=(3, 6)).commits == ["5"]


def test_a_creep_of_steps_that_cannot_be_told_apart_is_a_range() -> None:
    found = searched([1.003**n for n in range(9)])

    assert len(found.commits) > 1
    assert found.is_slower


def test_without_a_slow_down_nothing_is_searched() -> None:
    found = searched([1.0] * 6)

    assert (found.is_slower, len(found.steps)) == (False, 1)


# ------------------------------------------------------------------------------------------------ the command

#: What a commit's benchmark prints: a modelled time with a scatter that depends on the process alone.
BENCH = """
import json, random, sys
import toy
record = sys.argv[1]
row = {"schema": 1, "run": "r", "device": "cuda:0"}
facts = {"kind": "cuda", "name": "NVIDIA H200", "driver": "580.1", "uuid": "GPU-1"}
rows = [{"record": "device", **row, "present": True, "fingerprint": facts}]
told = {"implementation": "cuassay", "clock": "device", "n": 10}
for name, cost in toy.COSTS.items():
    time = 1e-4 * cost * random.Random(record[-20:]).gauss(1.0, 0.0005)
    rows.append({"record": "time", **row, **told, "benchmark": name, "case": "", "median": time})
open(record, "w").write("".join(json.dumps(one) + "\\n" for one in rows))
"""

Commit = Callable[[str], str]


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commit:
    """Commits a new ``toy.py`` to a repository that the test runs in; gives the commit."""
    where = tmp_path / "repository"
    where.mkdir()
    monkeypatch.chdir(where)

    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (where / "bench.py").write_text(BENCH)

    def made(source: str) -> str:
        (where / "toy.py").write_text(source)
        git("add", ".")
        git("commit", "-q", "--allow-empty", "-m", f"toy: {source}")
        return git("rev-parse", "HEAD")

    return made


def bisect(*arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["bisect", *arguments, "--run", "python bench.py {record}", "--json", "out.json"])
    return status, json.loads(Path("out.json").read_text()) if Path("out.json").exists() else {}


def test_the_planted_commit_is_named_and_others_are_skipped_with_their_reason(
    commit: Commit, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = "COSTS = {'a': 1.0, 'b': 1.0}", "COSTS = {'a': 1.2, 'b': 1.0}"
    good = commit(fast)
    commit(fast)
    without = commit("COSTS = {'b': 1.0}")
    broken = commit("COSTS = {'a': 1.0")
    planted = commit(slow)
    commit(slow)

    status, told = bisect("a", "--good", good)

    said = capsys.readouterr().out
    assert status == 1
    assert told["a"]["step"]["head"] == planted
    assert told["a"]["step"]["verdict"]["effect"] == pytest.approx(0.2, abs=0.01)
    assert told["a"]["skipped"] == {
        without: "it has no benchmark 'a'", broken: "SyntaxError: '{' was never closed"
    }  # fmt: skip
    assert "one or more of 3 commits made a slower (2 of them could not be measured or decided)" in said


def test_an_adjacent_commit_is_named_alone_with_effect_and_confidence(
    commit: Commit, capsys: pytest.CaptureFixture[str]
) -> None:
    good = commit("COSTS = {'a': 1.0}")
    planted = commit("COSTS = {'a': 1.2}")
    commit("COSTS = {'a': 1.2}  # and more")

    assert bisect("a", "--good", good)[0] == 1
    said = capsys.readouterr().out
    assert f"{planted[:10]} made a slower: +2" in said
    assert "at a confidence of 99" in said


def test_a_range_that_is_not_slower_accuses_nobody(commit: Commit, capsys: pytest.CaptureFixture[str]) -> None:
    good = commit("COSTS = {'a': 1.0}")
    commit("COSTS = {'a': 1.0}  # a comment")

    status, told = bisect("a", "--good", good)

    assert (status, told["a"]["slower"]) == (0, False)
    assert "not searched" in capsys.readouterr().out


def test_an_interrupted_search_goes_on_where_it_stopped(commit: Commit, tmp_path: Path) -> None:
    good = commit("COSTS = {'a': 1.0}")
    planted = commit("COSTS = {'a': 1.2}")
    state = tmp_path / "state"
    arguments = ("a", "--good", good, "--state", str(state))
    assert bisect(*arguments)[0] == 1
    kept = {file: file.stat().st_mtime_ns for file in state.rglob("*.jsonl")}
    next(file for file in kept if file.name == "p03-base.jsonl").unlink()

    assert bisect(*arguments)[1]["a"]["step"]["head"] == planted
    assert sum(file.stat().st_mtime_ns != before for file, before in kept.items()) == 1


def test_a_commit_that_does_not_build_is_skipped(commit: Commit) -> None:
    good = commit("COSTS = {'a': 1.0}")
    broken = commit("COSTS = {'a': 1.0}; raise SystemExit('no compiler')")
    planted = commit("COSTS = {'a': 1.2}")

    status, told = bisect("a", "--good", good, "--build", f"{sys.executable} toy.py")

    assert status == 1
    assert told["a"]["skipped"] == {broken: f"{broken[:10]} does not build: no compiler"}
    assert told["a"]["commits"] == [broken, planted]


def test_only_the_benchmark_that_is_searched_is_compared(commit: Commit, tmp_path: Path) -> None:
    good = commit("COSTS = {'a': 1.0, 'b': 1.0}")
    commit("COSTS = {'a': 1.0, 'b': 1.2}")

    assert bisect("a", "--good", good, "--state", str(tmp_path / "state"))[0] == 0
    assert not [*(tmp_path / "state").rglob("c*.jsonl")]  # confirming pairs, which b would have needed


def test_a_kept_search_builds_again_with_another_command(commit: Commit, tmp_path: Path) -> None:
    good = commit("COSTS = {'a': 1.0}")
    commit("COSTS = {'a': 1.0}  # a comment")
    arguments = ("a", "--good", good, "--state", str(tmp_path / "state"))

    for name in ("first", "second", "second"):
        assert bisect(*arguments, "--build", f"{sys.executable} -c \"open('{name}', 'a').write('.')\"")[0] == 0

    (tree,) = (tmp_path / "state" / "trees").glob(f"{good[:12]}/")
    assert [(tree / name).read_text() for name in ("first", "second")] == [".", "."]


def test_uncommitted_changes_are_told_and_not_measured(commit: Commit, capsys: pytest.CaptureFixture[str]) -> None:
    good = commit("COSTS = {'a': 1.0}")
    commit("COSTS = {'a': 1.0}  # a comment")
    Path("toy.py").write_text("COSTS = {'a': 1.2}")

    assert bisect("a", "--good", good)[0] == 0
    assert "only commits are measured" in capsys.readouterr().err


def test_a_benchmark_is_found_by_its_name_without_the_case(commit: Commit, capsys: pytest.CaptureFixture[str]) -> None:
    good = commit("COSTS = {'rms_norm float32 8': 1.0, 'other': 1.0}")
    planted = commit("COSTS = {'rms_norm float32 8': 1.2, 'other': 1.0}")

    status, told = bisect("rms_norm", "--good", good)

    assert (status, told["rms_norm float32 8"]["step"]["head"]) == (1, planted)
    assert f"{planted[:10]} made rms_norm float32 8 slower" in capsys.readouterr().out


def test_a_whole_name_is_preferred_to_names_that_begin_with_it(commit: Commit) -> None:
    good = commit("COSTS = {'a': 1.0, 'a float32': 1.0}")
    commit("COSTS = {'a float32': 1.0}")
    commit("COSTS = {'a': 1.2, 'a float32': 1.0}")

    status, told = bisect("a", "--good", good)

    assert (status, list(told)) == (1, ["a"])
    assert [*told["a"]["skipped"].values()] == ["it has no benchmark 'a'"]


def test_no_checkout_stays_behind(commit: Commit) -> None:
    good = commit("COSTS = {'a': 1.0}")
    commit("COSTS = {'a': 1.2}")
    bisect("a", "--good", good)

    listed = subprocess.run(["git", "worktree", "list"], check=True, capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["a"], "--good is missing", id="no-good"),
        pytest.param(["a", "--good", "nowhere"], "'nowhere' is not a commit", id="unknown-commit"),
        pytest.param(["a", "--good", "HEAD"], "there is no commit between", id="empty-range"),
        pytest.param(["a", "--good", "HEAD", "--bad", "HEAD~1"], "is not an ancestor of", id="wrong-order"),
        pytest.param(["nothing", "--good", "HEAD~1"], ", which has a, b; correct the name", id="no-benchmark"),
        pytest.param(["?", "--good", "HEAD~1"], "matches 2 benchmarks: a, b", id="two-benchmarks"),
        pytest.param(["new", "--good", "HEAD~1"], "correct the name, or give commits that have it", id="not-there-yet"),
        pytest.param(["a", "--good", "HEAD~1", "--build", "'x"], "cannot be split into words", id="open-quote"),
        pytest.param(["a", "--good", "HEAD~1", "--build", "no-such-compiler"], "does not build", id="no-compiler"),
    ],
)
def test_what_cannot_be_searched_is_status_two(
    commit: Commit, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    commit("COSTS = {'a': 1.0, 'b': 1.0}")
    commit("COSTS = {'a': 1.2, 'b': 1.0, 'new': 1.0}")

    assert bisect(*arguments)[0] == 2
    assert said in capsys.readouterr().err


def test_a_machine_that_fails_is_status_two_and_skips_no_commit(
    commit: Commit, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    guard = f"import os\nif os.path.exists({str(gone)!r}): raise SystemExit('no CUDA-capable device')\n"
    good = commit(f"{guard}COSTS = {{'a': 1.0}}")
    commit(f"open({str(gone)!r}, 'w')\nraise SystemExit('lost')")
    commit(f"{guard}COSTS = {{'a': 1.2}}")

    assert bisect("a", "--good", good)[0] == 2
    assert "no CUDA-capable device" in capsys.readouterr().err


def test_suspects_of_a_report_are_searched(commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = commit("COSTS = {'a': 1.0, 'b': 1.0}"), commit("COSTS = {'a': 1.2, 'b': 1.3}")
    suspects = json.dumps({"base": good, "head": bad, "device": "cuda:0", "benchmarks": ["a", "b"]})
    monkeypatch.setattr("sys.stdin", io.StringIO(suspects))

    status, told = bisect("-")

    assert status == 1
    assert {name: one["step"]["head"] for name, one in told.items()} == {"a": bad, "b": bad}
