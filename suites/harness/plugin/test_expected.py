"""Skips that fail a session where the user asks for it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cuassay.testing.expected import ran_in

SKIPS = """
    import os, pytest

    def test_everywhere(device): pass

    def test_not_on_sim(device):
        if device.kind == "sim":
            pytest.skip("not on sim")

    @pytest.mark.skipif("AWAY" in os.environ, reason="not now")
    def test_sometimes(): pass
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cuassay-skip-budget=1"], ["ERROR 2 tests were skipped, and 1 may be; see them with -rs"]),
        (["--cuassay-skip-budget=sim=0"], ["ERROR 1 test was skipped on sim, and 0 may be*"]),
        (["--cuassay-skip-budget=sim:0=0"], ["ERROR 1 test was skipped on sim:0, and 0 may be*"]),
        (["--cuassay-fail-nowhere"], ["ERROR ran nowhere (1):", "  *::test_sometimes: not now"]),
    ],
    ids=["all", "kind", "device", "nowhere"],
)
@pytest.mark.parametrize("way", [[], ["--cuassay-isolate"]], ids=["plain", "isolated"])
def test_too_many_skips_fail_the_session(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, words: list[str], told: list[str], way: list[str]
) -> None:
    monkeypatch.setenv("AWAY", "1")
    pytester.makepyfile(SKIPS)

    result = pytester.runpytest_subprocess("--device=cpu,sim", *words, *way)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines(told)


def test_skips_within_their_budget_fail_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SKIPS)

    result = pytester.runpytest_subprocess(
        "--device=cpu,sim", "--cuassay-skip-budget=1", "--cuassay-skip-budget=cpu=0", "--cuassay-fail-nowhere"
    )

    assert result.ret == pytest.ExitCode.OK


def test_a_test_that_ran_in_the_baseline_must_not_be_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(SKIPS)
    pytester.runpytest_subprocess("--device=cpu,sim", "--cuassay-record=before.jsonl")
    same = pytester.runpytest_subprocess("--device=cpu,sim", "--cuassay-skip-baseline=before.jsonl")
    monkeypatch.setenv("AWAY", "1")

    result = pytester.runpytest_subprocess("--device=cpu,sim", "--cuassay-skip-baseline=before.jsonl")

    assert same.ret == pytest.ExitCode.OK
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR 1 test was skipped that ran in the baseline:", "  *::test_sometimes: not now"])


def test_a_baseline_may_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "before.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"record": "test", "nodeid": "a", "outcome": "passed"}\n'))
    assert ran_in(file) == {"a"}

    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(pytest.UsageError, match="not a whole gzip file"):
        ran_in(file)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--cuassay-skip-budget=few", "*takes N or DEVICE=N; got 'few'*"),
        ("--cuassay-skip-baseline=nowhere.jsonl", "*nowhere.jsonl does not exist*"),
        ("--cuassay-skip-baseline=empty.jsonl", "*no test ran in it*"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(pytester: pytest.Pytester, word: str, told: str) -> None:
    (pytester.path / "empty.jsonl").touch()

    result = pytester.runpytest_subprocess(word)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told])
