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

#: 300 tests, of which some die as DEATHS says: a number and a way of dying each.
THREE_HUNDRED = """
    import os
    import deaths
    import pytest
    from cuassay.devices import backend

    DEATHS = dict(zip(*[iter(os.environ["DEATHS"].split())] * 2))

    @pytest.mark.parametrize("n", range(300))
    def test_it(device, n):
        backend("sim").empty((3,), "float32", 0)
        if str(n) in DEATHS:
            getattr(deaths, DEATHS[str(n)])(device)
"""

#: What is said of each way of dying.
TOLD = {
    "sticky": "device lost: sim:0: an illegal address was read; the other tests run in a fresh process",
    "sticky_seen_late": "device lost: sim:0: an illegal address was read; the other tests run in a fresh process",
    "segfault": "crashed: its process was killed by SIGSEGV",
    "killed": "crashed: its process was killed by SIGKILL",
    "left": "crashed: its process ended with status 0",
    "hang": "timed out: it ran longer than the 2 s of CUASSAY_HANG_SECONDS",
}

FEW = """
    import os, pytest

    @pytest.mark.parametrize("n", range(4))
    def test_it(n):
        if n == 1:
            os._exit(0)

    def test_bad(): assert False
    def test_other(): pass
"""


@pytest.fixture(autouse=True)
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of its own: this test may run in a worker of xdist; without other plugins, each of which takes time."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "cuassay.testing.plugin")
    pytester.makepyfile(deaths=DEATHS)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other plugins, such as xdist."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_PLUGINS")


@pytest.mark.parametrize(
    ("way", "deaths"),
    [
        ("--cuassay-isolate", "0 sticky 1 segfault 149 hang 150 killed 298 left 299 sticky_seen_late"),
        ("--cuassay-isolate", "0 killed 150 sticky_seen_late 298 sticky 299 segfault"),
        ("-n1", "0 sticky 150 segfault 299 sticky_seen_late"),
        ("-n1", "0 segfault 299 sticky"),
    ],
    ids=["six", "four", "xdist three", "xdist two"],
)
def test_of_three_hundred_those_that_die_are_lost_and_named_once(
    request: pytest.FixtureRequest,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    deaths: str,
) -> None:
    if way == "-n1":
        request.getfixturevalue("plugins")
    monkeypatch.setenv("DEATHS", deaths)
    monkeypatch.setenv("CUASSAY_HANG_SECONDS", "2")
    pytester.makepyfile(test_many=THREE_HUNDRED)
    numbers, ways = deaths.split()[::2], deaths.split()[1::2]

    result = pytester.runpytest_subprocess("--device=sim", way)

    result.assert_outcomes(passed=300 - len(numbers), failed=len(numbers))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    named = [line for line in result.outlines if line.startswith(("FAILED", "CRASHED", "TIMED OUT"))]
    assert sorted(next(word for word in line.split() if "::" in word) for line in named) == sorted(
        f"test_many.py::test_it[sim:0-{n}]" for n in numbers
    )
    told = [line for line in result.outlines if line in TOLD.values()]
    assert sorted(told) == sorted(TOLD[one] for one in ways if way != "-n1" or one != "segfault")  # xdist's own words


@pytest.mark.parametrize("way", ["--cuassay-isolate", "-n1"])
@pytest.mark.usefixtures("plugins")
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
        (["-x"], {"passed": 1, "failed": 1}),
        (["--maxfail=2"], {"passed": 3, "failed": 2}),
        (["-k", "1 or 2"], {"passed": 1, "failed": 1, "deselected": 4}),
        (["-p", "no:cacheprovider", "-q"], {"passed": 4, "failed": 2}),
        (["-s", "-v"], {"passed": 4, "failed": 2}),
    ],
    ids=["-x", "--maxfail", "-k", "-q", "-sv"],
)
def test_options_of_pytest_keep_their_meaning(
    pytester: pytest.Pytester, words: list[str], outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(FEW)

    result = pytester.runpytest_subprocess("--cuassay-isolate", *words)

    result.assert_outcomes(**outcomes)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_files_have_each_test_once_and_lf_runs_the_lost_ones(pytester: pytest.Pytester) -> None:
    from cuassay_reports.endings import endings

    pytester.makepyfile(FEW)

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--junitxml=found.xml", "--cuassay-record=rows.jsonl")
    again = pytester.runpytest_subprocess("--cuassay-isolate", "--lf")

    result.assert_outcomes(passed=4, failed=2)
    again.assert_outcomes(failed=2)
    cases = ET.parse(pytester.path / "found.xml").getroot().findall(".//testcase")  # noqa: S314  ours
    assert len({case.get("name") for case in cases}) == len(cases) == 6
    assert sum(case.find("failure") is not None for case in cases) == 2
    rows = [json.loads(line) for line in (pytester.path / "rows.jsonl").read_text().splitlines()]
    tests = {row["nodeid"].partition("::")[2]: row for row in rows if row["record"] == "test"}
    assert len(tests) == 6
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


def test_a_test_that_its_device_failed_runs_again_on_another(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "3")
    pytester.makepyfile("""
        from cuassay.devices import backend

        def test_it(device):
            uuid = backend("sim").identity(device.index)["uuid"]
            with open("uuids", "a") as file:
                file.write(f"{uuid} ")
            if uuid == "SIM-0":
                raise RuntimeError("Xid 79: the GPU has fallen off the bus")
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--device=sim")

    result.assert_outcomes(passed=1)
    assert (pytester.path / "uuids").read_text() == "SIM-0 SIM-1 "


def test_after_two_devices_that_failed_the_third_is_used(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "3")
    pytester.makepyfile("""
        import pytest
        from cuassay.devices import backend

        @pytest.mark.parametrize("n", range(2))
        def test_it(device, n):
            uuid = backend("sim").identity(device.index)["uuid"]
            with open("uuids", "a") as file:
                file.write(f"{n}:{uuid} ")
            if uuid == f"SIM-{n}":
                raise RuntimeError("Xid 79: the GPU has fallen off the bus")
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--device=sim")

    result.assert_outcomes(passed=2)
    assert (pytester.path / "uuids").read_text() == "0:SIM-0 1:SIM-1 0:SIM-2 1:SIM-2 "


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
def test_a_worker_that_vanishes_is_never_a_success(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, conftest: str, told: str
) -> None:
    monkeypatch.setenv("CUASSAY_START_WORKERS", "1")
    pytester.makeconftest(f"import os\n{conftest}")
    pytester.makepyfile("def test_good(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([told])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("os.register_at_fork(after_in_child=lambda: os._exit(0))", "*before their first test*"),
        ("def test_other(): atexit.register(ctypes.string_at, 0)", "ERROR a worker ended after its last test*SIGSEGV"),
    ],
    ids=["at its start", "after its end"],
)
def test_a_fork_that_vanishes_is_never_a_success(pytester: pytest.Pytester, text: str, told: str) -> None:
    pytester.makepyfile(f"import atexit, ctypes, os\n{text}\ndef test_good(): pass")

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


@pytest.mark.usefixtures("ctrl_c_raises")
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


@pytest.mark.usefixtures("plugins")
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
@pytest.mark.usefixtures("plugins")
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
