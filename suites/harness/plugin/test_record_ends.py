"""A session that dies, or cannot record, is never taken for one that passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from json_rows import rows_of

from cuassay_reports.analysis import load
from cuassay_reports.command import run as report

RECORD = ("--device", "cpu", "--cuassay-record", "rows.jsonl")

DEATHS = {
    "exit": "os._exit(0)",
    "kill": "os.kill(os.getpid(), 9)",
    "segfault": "faulthandler._sigsegv()",
}
DYING = """
    import faulthandler, os
    def test_before(): pass
    def test_fatal(): {death}
    def test_after(): pass
"""
#: A limit of 2 KiB imitates a full disk: the run's row alone takes most of it.
SMALL_DISK = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    def pytest_runtestloop(session):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))
"""


def first_line(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    status = report([path])
    return status, capsys.readouterr().out.partition("\n")[0]


@pytest.mark.parametrize("death", DEATHS)
def test_a_session_that_dies_in_a_test_is_found_by_the_report(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], death: str
) -> None:
    pytester.makepyfile(test_it=DYING.format(death=DEATHS[death]))

    pytester.runpytest_subprocess(*RECORD, "-p", "no:faulthandler")

    path = pytester.path / "rows.jsonl"
    told = "The run is incomplete: process 'tests' did not finish; 1 of 3 planned tests have an outcome"
    assert first_line(path, capsys) == (1, told)
    (begun,) = load(path).begun.values()
    assert begun == (("tests", "test_it.py::test_fatal"),)


@pytest.mark.parametrize("death", ["exit", "kill"])
def test_a_worker_that_dies_fails_its_test_and_the_others_are_run(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], death: str
) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(test_it=DYING.format(death=DEATHS[death]))

    result = pytester.runpytest_subprocess(*RECORD, "-n2")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = {row["nodeid"].partition("::")[2]: row["outcome"] for row in rows_of("rows.jsonl", "test")}
    assert outcomes == {"test_before": "passed", "test_fatal": "error", "test_after": "passed"}
    assert [row["tests"] for row in rows_of("rows.jsonl", "plan")][-1] == 3
    assert first_line(pytester.path / "rows.jsonl", capsys) == (0, "1 test failed")


def test_a_session_that_is_left_by_pytest_exit_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        def test_one(): pytest.exit("enough", returncode=0)
        def test_two(): pass
    """)

    result = pytester.runpytest_subprocess(*RECORD)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [row["reason"] for row in rows_of("rows.jsonl", "end")] == ["ended after 1 of 2 tests"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["-x"], "stopping after 1 failures"), (["-x", "-n1"], "stopping after 1 failures")],
    ids=["alone", "xdist"],
)
def test_a_session_that_stops_at_a_failure_says_so(pytester: pytest.Pytester, options: list[str], reason: str) -> None:
    pytester.makepyfile("def test_one(): assert False\ndef test_two(): pass\ndef test_three(): pass")

    pytester.runpytest_subprocess(*RECORD, *options)

    (end,) = rows_of("rows.jsonl", "end")
    assert reason in end["reason"]


def test_a_module_that_cannot_be_collected_makes_the_run_incomplete(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(test_good="def test_one(): pass", test_broken="import nothing_of_this_name")

    pytester.runpytest_subprocess(*RECORD, "--continue-on-collection-errors")

    status, told = first_line(pytester.path / "rows.jsonl", capsys)
    assert (status, told) == (1, "The run is incomplete: tests: 1 not collected: test_broken.py")


def test_listing_the_tests_plans_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass")

    pytester.runpytest_subprocess(*RECORD, "--collect-only")

    assert rows_of("rows.jsonl", "plan") == rows_of(pytester.path / "rows.jsonl", "end") == []


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "xdist"])
def test_a_lone_surrogate_in_a_message_is_escaped_and_stops_nothing(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(r"""
        import pytest
        def test_before(): pass
        def test_fault(device): raise ValueError('bad \udcff text \x00 <script>')
        @pytest.mark.skip(reason='bad \ud800 reason')
        def test_skipped(): pass
        def test_after(): pass
    """)

    command = [sys.executable, "-m", "pytest", *RECORD, *workers, "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, check=False)  # pytester cannot read what pytest prints of it

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    found = {row["nodeid"].partition("::")[2]: row for row in rows_of("rows.jsonl", "test")}
    assert [row["outcome"] for row in found.values()] == ["passed", "failed", "skipped", "passed"]
    assert "bad \\udcff text \x00 <script>" in found["test_fault[cpu:0]"]["reason"]
    assert found["test_skipped"]["reason"] == "bad \\ud800 reason"
    assert load(pytester.path / "rows.jsonl").rejected == ()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the size of files that a write meets")
def test_a_full_disk_stops_no_test_and_fails_the_session(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makeconftest(SMALL_DISK)
    pytester.makepyfile("import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_it(n): pass")

    result = pytester.runpytest_subprocess(*RECORD, "-p", "no:cacheprovider")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=40)
    result.stdout.re_match_lines([r"ERROR cuassay: \d+ rows were not recorded: .*rows.jsonl cannot be written: .*"])
    status, told = first_line(pytester.path / "rows.jsonl", capsys)
    assert (status, told.startswith("The run is incomplete: ")) == (1, True)


def test_a_record_that_is_deleted_under_way_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        def test_one(): os.remove("rows.jsonl")
        def test_two(): pass
    """)

    result = pytester.runpytest_subprocess(*RECORD)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["ERROR cuassay: 4 rows were not recorded: rows.jsonl was deleted while *"])


def test_a_record_that_is_cut_under_way_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_one(): open("rows.jsonl", "w").close()
        def test_two(): pass
    """)

    result = pytester.runpytest_subprocess(*RECORD)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR cuassay: 1 row was not recorded: rows.jsonl was cut from * to 0 bytes *"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.parametrize("seconds", ["0", "200"])
def test_a_fork_of_a_session_records_nothing_and_ends(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", seconds)  # the guard's thread exists in the parent only
    pytester.makepyfile("""
        import os
        def test_one():
            child = os.fork()
            if child:
                os.waitpid(child, 0)
        def test_two(): pass
    """)

    pytester.runpytest_subprocess(*RECORD, "-W", "ignore", timeout=100)

    assert len(rows_of("rows.jsonl", "test")) == 2
    assert len(rows_of("rows.jsonl", "end")) == 1
