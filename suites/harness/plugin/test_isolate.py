"""Tests that take their process with them: each is lost alone and named once, in every way in."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

#: Ways in which a test's process ends, or its device, or its time.
DEATHS = """
    import ctypes, os, signal
    from cuassay.devices import backend

    def sticky(device):
        backend("sim").inject_fault("an illegal address was read")
        backend("sim").empty((3,), "float32", 0)

    def sticky_seen_late(device):
        backend("sim").inject_fault("an illegal address was read")

    def segfault(device): ctypes.string_at(0)
    def killed(device): os.kill(os.getpid(), signal.SIGKILL)
    def left(device): os._exit(0)
    def hang(device): ctypes.PyDLL(None).sleep(60)  # a PyDLL holds the interpreter's lock
"""

#: 300 tests, of which three die of what DEATH says.
THREE_HUNDRED = """
    import os
    import deaths
    import pytest
    from cuassay.devices import backend

    @pytest.mark.parametrize("n", range(300))
    def test_it(device, n):
        backend("sim").empty((3,), "float32", 0)
        if n in (0, 150, 299):
            getattr(deaths, os.environ["DEATH"])(device)
"""

FEW = """
    import os, pytest

    @pytest.mark.parametrize("n", range(6))
    def test_it(n):
        if n in (1, 4):
            os._exit(0)

    def test_other(): assert False
"""


@pytest.fixture(autouse=True)
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of its own: this test may run in a worker of xdist."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    pytester.makepyfile(deaths=DEATHS)


@pytest.mark.parametrize(
    ("way", "death"),
    [
        *(
            ("--cuassay-isolate", death)
            for death in ("sticky", "sticky_seen_late", "segfault", "killed", "left", "hang")
        ),
        *(("-n1", death) for death in ("sticky", "sticky_seen_late", "segfault")),
    ],
)
def test_three_of_three_hundred_are_lost_and_each_is_named_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, way: str, death: str
) -> None:
    monkeypatch.setenv("DEATH", death)
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "2")
    pytester.makepyfile(test_many=THREE_HUNDRED)

    result = pytester.runpytest_subprocess("--device=sim", way, "-p", "no:benchmark")

    result.assert_outcomes(passed=297, failed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    named = [line for line in result.outlines if line.startswith(("FAILED", "CRASHED", "TIMED OUT"))]
    assert sorted(next(word for word in line.split() if "::" in word) for line in named) == [
        f"test_many.py::test_it[sim:0-{n}]" for n in (0, 150, 299)
    ]


@pytest.mark.parametrize(
    ("death", "told"),
    [
        ("sticky", "device lost: sim:0: an illegal address was read; the other tests run in a fresh process"),
        ("segfault", "crashed: its process was killed by SIGSEGV"),
        ("left", "crashed: its process ended with status 0"),
        ("hang", "timed out: it ran longer than the 2 s of CUASSAY_HANG_SECONDS"),
    ],
)
def test_a_lost_test_says_how_it_ended(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, death: str, told: str
) -> None:
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "2")
    pytester.makepyfile(f"import deaths\ndef test_bad(device): deaths.{death}(device)\ndef test_good(device): pass")

    result = pytester.runpytest_subprocess("--device=sim", "--cuassay-isolate")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([told])


@pytest.mark.parametrize("way", ["--cuassay-isolate", "-n1"])
def test_a_lost_test_says_what_it_launched_last(pytester: pytest.Pytester, way: str) -> None:
    pytester.makepyfile(
        """
        import deaths
        from cuassay import ops

        def test_good(device, xp):
            xp.sqrt(xp.ones(3))

        def test_bad(device, xp):
            a = xp.ones((2, 3), "float32")
            ops.add(a, a)
            xp.exp(a)
            deaths.DEATH(device)
    """.replace("DEATH", "sticky" if way == "-n1" else "killed")
    )

    result = pytester.runpytest_subprocess("--device=sim", way)

    result.assert_outcomes(passed=1, failed=1)
    ones, add, exp = (f"at test_a_lost_test_says_what_it_launched_last.py:{line}" for line in (8, 9, 10))
    result.stdout.fnmatch_lines(
        [
            "*cuassay: last calls and launches*",  # of this test: those of the one before are forgotten
            f"ones on sim:0, {ones}",
            f"add((2, 3) float32, (2, 3) float32), {add}",
            f"add on sim:0, {add}",
            f"exp on sim:0, {exp}",
        ],
        consecutive=True,
    )


def test_a_stack_shows_the_tests_frames_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import deaths\ndef test_bad(): deaths.segfault(None)")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.stdout.fnmatch_lines(['  File "*deaths.py", line * in segfault', '  File "*", line 2 in test_bad'])
    result.stdout.no_fnmatch_line("*pytest_pyfunc_call*")


@pytest.mark.parametrize(
    ("words", "outcomes"),
    [
        ([], {"passed": 4, "failed": 3}),
        (["-x"], {"passed": 1, "failed": 1}),
        (["--maxfail=2"], {"passed": 3, "failed": 2}),
        (["-k", "2 or 4"], {"passed": 1, "failed": 1, "deselected": 5}),
        (["-p", "no:cacheprovider", "-q"], {"passed": 4, "failed": 3}),
        (["-s", "-v"], {"passed": 4, "failed": 3}),
    ],
    ids=["plain", "-x", "--maxfail", "-k", "-q", "-sv"],
)
def test_options_of_pytest_keep_their_meaning(
    pytester: pytest.Pytester, words: list[str], outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(FEW)

    result = pytester.runpytest_subprocess("--cuassay-isolate", *words)

    result.assert_outcomes(**outcomes)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_junit_file_has_each_test_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FEW)

    pytester.runpytest_subprocess("--cuassay-isolate", "--junitxml=found.xml")

    cases = ET.parse(pytester.path / "found.xml").getroot().findall(".//testcase")  # noqa: S314  ours
    assert len({case.get("name") for case in cases}) == len(cases) == 7
    assert sum(case.find("failure") is not None for case in cases) == 3


def test_the_lost_tests_run_again_under_lf(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FEW)
    pytester.runpytest_subprocess("--cuassay-isolate")

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--lf")

    result.assert_outcomes(failed=3)


def test_a_record_has_each_test_and_says_that_the_run_is_whole(pytester: pytest.Pytester) -> None:
    from cuassay_reports.endings import endings

    pytester.makepyfile(FEW)

    pytester.runpytest_subprocess("--cuassay-isolate", "--cuassay-record=rows.jsonl")

    rows = [json.loads(line) for line in (pytester.path / "rows.jsonl").read_text().splitlines()]
    tests = {row["nodeid"].partition("::")[2]: row for row in rows if row["record"] == "test"}
    assert len(tests) == 7
    assert tests["test_it[1]"]["outcome"] == "error"
    assert tests["test_it[1]"]["reason"] == "crashed: its process ended with status 0"
    assert [ending.why for ending in endings(rows).values()] == [""]


def test_fixtures_of_a_lost_device_are_undone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import deaths, pathlib, pytest

        @pytest.fixture(scope="session")
        def server():
            yield
            pathlib.Path("undone").touch()

        @pytest.fixture
        def array(device):
            yield
            raise ValueError("cannot free")

        def test_bad(device, server, array): deaths.sticky(device)
        def test_good(device): pass
    """)

    result = pytester.runpytest_subprocess("--device=sim", "--cuassay-isolate")

    result.assert_outcomes(passed=1, failed=1)
    assert (pytester.path / "undone").exists()


INFRASTRUCTURE = """
    import pathlib, pytest

    def test_first(request):
        with pathlib.Path("runs").open("a") as file:
            file.write("x")
        if len(pathlib.Path("runs").read_text()) <= {bad}:
            try:
                raise RuntimeError("{text}")
            except RuntimeError as error:
                raise ValueError("the model cannot be loaded") from error

    def test_second(): pass
"""


@pytest.mark.parametrize(
    ("bad", "text", "runs", "outcomes"),
    [
        (1, "CUDA_ERROR_ECC_UNCORRECTABLE", 2, {"passed": 2}),
        (9, "cudaErrorInsufficientDriver: driver version is insufficient", 2, {"passed": 1, "failed": 1}),
        (1, "CUDA_ERROR_ILLEGAL_ADDRESS", 1, {"passed": 1, "failed": 1}),
    ],
    ids=["once", "for good", "not the machine's"],
)
def test_only_failures_of_the_machine_run_again_and_once(
    pytester: pytest.Pytester, bad: int, text: str, runs: int, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(INFRASTRUCTURE.format(bad=bad, text=text))

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(**outcomes)
    assert (pytester.path / "runs").read_text() == "x" * runs
    assert ("failed by the machine" in result.stdout.str()) is (runs == 2)


@pytest.mark.parametrize(
    ("conftest", "told"),
    [
        ("def pytest_configure(config): hasattr(config, 'workerinput') and os._exit(0)", "*before their first test*"),
        (
            "def pytest_sessionfinish(session): hasattr(session.config, 'workerinput') and os._exit(0)",
            "ERROR *between*",
        ),
        (
            (
                "import atexit, ctypes\n"
                "def pytest_configure(config): hasattr(config, 'workerinput') and atexit.register(ctypes.string_at, 0)"
            ),
            "ERROR a worker ended after its last test: killed by SIGSEGV",
        ),
    ],
    ids=["at its start", "at its end", "after its end"],
)
def test_a_worker_that_vanishes_is_never_a_success(pytester: pytest.Pytester, conftest: str, told: str) -> None:
    pytester.makeconftest(f"import os\n{conftest}")
    pytester.makepyfile("def test_good(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([told])


def test_a_failure_to_collect_ends_as_without_isolation(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="import nothing_of_this_name", test_b="def test_good(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_exit_in_a_test_ends_the_session_with_its_status(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('enough', 7)\ndef test_c(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    assert result.ret == 7
    result.stdout.fnmatch_lines(["*enough*"])


def test_warnings_of_tests_are_shown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import warnings\ndef test_a(): warnings.warn('mind the step', DeprecationWarning)")

    result = pytester.runpytest_subprocess("--cuassay-isolate", "-Wdefault")

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*DeprecationWarning: mind the step"])


def test_ctrl_c_ends_the_worker_and_undoes_its_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os, pathlib, pytest, signal, time

        @pytest.fixture
        def server():
            yield
            pathlib.Path("undone").touch()

        def test_a(server):
            os.kill(int(os.environ["CONTROLLER"]), signal.SIGINT)
            time.sleep(30)
    """)
    pytester.makeconftest("""
        import os
        def pytest_configure(config):
            if not hasattr(config, "workerinput"):
                os.environ["CONTROLLER"] = str(os.getpid())
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert (pytester.path / "undone").exists()


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--pdb", "*--pdb needs the tests in this process; leave out --cuassay-isolate"),
        ("--benchmark-only", "*isolated tests measure none; leave out --cuassay-isolate"),
    ],
)
def test_what_needs_the_tests_in_this_process_is_refused(pytester: pytest.Pytester, word: str, told: str) -> None:
    result = pytester.runpytest_subprocess("--cuassay-isolate", word)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told])


def test_collecting_alone_starts_no_worker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pathlib, os\npathlib.Path(f'seen-{os.getpid()}').touch()")
    pytester.makepyfile("def test_a(): pass")

    pytester.runpytest_subprocess("--cuassay-isolate", "--collect-only")

    assert len(list(pytester.path.glob("seen-*"))) == 1


@pytest.mark.parametrize("dist", ["load", "loadfile"])
def test_an_accelerators_crashed_test_is_not_given_to_the_next_worker(
    pytester: pytest.Pytester, toy_kind: Path, dist: str
) -> None:
    pytester.makepyfile("""
        import os, pytest
        @pytest.mark.parametrize("n", range(20))
        def test_it(device, n):
            if n in (3, 10):
                os._exit(1)
    """)

    result = pytester.runpytest_subprocess("-n1", f"--dist={dist}", "--device=toy")

    result.assert_outcomes(passed=18, failed=2)


def test_a_fault_of_sim_lasts_until_a_fresh_machine() -> None:
    from cuassay.devices import backend
    from cuassay.errors import DeviceLostError

    with backend("sim").simulated() as sim:
        sim.inject_fault("an assert failed")
        with pytest.raises(DeviceLostError, match="an assert failed"):
            sim.empty((3,), "float32", 0)
        assert sim.health(0) == "an assert failed"
    assert backend("sim").health(0) is None
