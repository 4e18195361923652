"""After a session that was killed: its record says what ran, and the next session runs the rest."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

TESTS = """
    import os, time
    import pytest

    @pytest.mark.parametrize("n", range(9))
    def test_it(n):
        with open("ran", "a") as file:
            file.write(f"{n}\\n")
        time.sleep(0.1)  # messages of a worker may gather for 10 ms
        if n == 4 and "KILLED" in os.environ:
            os.kill(int(os.environ["KILLED"]) or os.getppid(), 9)
            os.kill(os.getpid(), 9)
"""

#: The process that reports tells the tests its id.
CONFTEST = """
    import os

    def pytest_configure(config):
        if os.environ.get("KILLED") == "?":
            os.environ["KILLED"] = str(os.getpid())
"""

WAYS = [[], ["--cuassay-isolate"], ["-n2"]]


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    pytester.makepyfile(TESTS)
    pytester.makeconftest(CONFTEST)


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)


def ran(pytester: pytest.Pytester) -> Counter[str]:
    return Counter((pytester.path / "ran").read_text().split())


@pytest.mark.parametrize("way", WAYS, ids=["plain", "isolate", "xdist"])
def test_what_did_not_run_is_listed_and_runs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, way: list[str]
) -> None:
    monkeypatch.setenv("KILLED", "?")
    killed = run(pytester, "--cuassay-record=r.jsonl", *way)
    monkeypatch.delenv("KILLED")
    before = ran(pytester)

    listed = run(pytester, "--cuassay-resume=r.jsonl", "--collect-only", "-q")
    resumed = run(pytester, "--cuassay-resume=r.jsonl", "--cuassay-record=r.jsonl", *way)

    assert killed.ret == -signal.SIGKILL
    left = [line for line in listed.outlines if "::" in line]
    assert "test_what_did_not_run_is_listed_and_runs.py::test_it[4]" in left
    assert 5 <= len(left) < 9 or way == ["-n2"]
    assert resumed.ret == 0
    assert set(ran(pytester)) == {str(n) for n in range(9)}
    assert (ran(pytester) - before).total() == len(left)


def test_when_all_have_an_outcome_nothing_is_left_to_run(pytester: pytest.Pytester) -> None:
    run(pytester, "--cuassay-record=r.jsonl")

    result = run(pytester, "--cuassay-resume=r.jsonl")

    assert result.ret == 0
    result.assert_outcomes(deselected=9)


def test_of_two_tests_with_one_id_the_one_that_did_not_run_is_left(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")
    run(pytester, "--cuassay-record=r.jsonl")
    pytester.makeconftest("""
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            items.append(pytest.Function.from_parent(items[0].parent, name=items[0].name))
    """)

    result = run(pytester, "--cuassay-resume=r.jsonl")

    result.assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize("text", [None, '{"not": "a record"}\n'], ids=["absent", "other"])
def test_what_is_not_a_record_is_refused(pytester: pytest.Pytester, text: str | None) -> None:
    if text is not None:
        Path(pytester.path / "r.jsonl").write_text(text)

    result = run(pytester, "--cuassay-resume=r.jsonl")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    what = "does not exist" if text is None else "is not a record: *"
    result.stderr.fnmatch_lines([f"*--cuassay-resume r.jsonl {what}; name a file that --cuassay-record wrote"])
