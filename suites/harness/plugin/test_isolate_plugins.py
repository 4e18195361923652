"""Isolated tests with other plugins: those that follow workers of xdist, that measure, repeat and end tests."""

from __future__ import annotations

import os

import pytest

#: Test files of which test_dies takes its process with it.
DYING = """
    import os, measured

    def test_before(): measured.early()
    def test_dies(): os.kill(os.getpid(), 9)
    def test_after(): measured.late()
"""

MEASURED = """
    def early():
        return 1

    def late():
        return 2
"""

#: What plugins for xdist do: tell each worker something, and read what it leaves.
FOLLOWING = """
    import pytest

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(node):
        node.workerinput["told"] = f"told {node.workerinput['workercount']}"

    def pytest_configure(config):
        if hasattr(config, "workerinput"):
            config.workeroutput["answer"] = config.workerinput["told"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(node, error):
        print("down:", error, getattr(node, "workeroutput", None))
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of its own: this test may run in a worker of xdist."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)


def only(monkeypatch: pytest.MonkeyPatch, *plugins: str) -> None:
    """Load these plugins with ours: each that is not needed takes time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", ",".join(["cuassay.testing.plugin", *plugins]))


@pytest.mark.parametrize("plugins", [(), ("xdist.plugin",)], ids=["alone", "with xdist"])
def test_hooks_for_workers_of_xdist_are_called(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plugins: tuple[str, ...]
) -> None:
    only(monkeypatch, *plugins)
    pytester.makeconftest(FOLLOWING)
    pytester.makepyfile(DYING, measured=MEASURED)

    result = pytester.runpytest_subprocess("--cuassay-isolate", "-s", "-q")

    result.assert_outcomes(passed=2, failed=1)
    down = sorted(line[line.index("down:") :] for line in result.outlines if "down:" in line)
    assert down == ["down: None {'answer': 'told 1'}", "down: it came to no end None"]


def test_what_nobody_told_a_worker_is_an_error_that_says_what_to_do(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch)
    monkeypatch.setenv("CUASSAY_START_WORKERS", "1")
    pytester.makeconftest("def pytest_configure(config): hasattr(config, 'workerinput') and config.workerinput['port']")
    pytester.makepyfile("def test_it(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stderr.fnmatch_lines(["ERROR: *reads workerinput[[]'port'], which *; install pytest-xdist, *"])


def test_fixtures_of_xdist_see_one_run_that_is_not_spread(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "xdist.plugin")
    pytester.makepyfile("""
        import os, pathlib
        def test_first(worker_id, testrun_uid):
            assert worker_id == "master"
            pathlib.Path("uid").write_text(testrun_uid)
        def test_dies(): os._exit(1)
        def test_last(testrun_uid): assert pathlib.Path("uid").read_text() == testrun_uid
    """)

    pytester.runpytest_subprocess("--cuassay-isolate").assert_outcomes(passed=2, failed=1)


def test_coverage_of_a_killed_worker_is_kept_up_to_the_test_that_was_lost(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytest_cov")
    only(monkeypatch, "pytest_cov.plugin")
    pytester.makepyfile(DYING, measured=MEASURED)

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--cov=measured", "--cov-report=term-missing")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["measured.py * 4 * 0 * 100%*"])


@pytest.mark.parametrize("way", ["--cuassay-isolate", "-n1", "-v"])
def test_a_test_that_runs_again_after_it_lost_its_device_is_not_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    only(monkeypatch, *(["xdist.plugin"] if way == "-n1" else []))
    pytester.makeconftest("""
        import pytest
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures does
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if any(report.failed for report in reports):
                item._initrequest()
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            return True
    """)
    pytester.makepyfile("""
        from cuassay.devices import backend

        def test_bad(device):
            backend("sim").inject_fault("an illegal address was read")
            backend("sim").empty((3,), "float32", 0)
    """)

    result = pytester.runpytest_subprocess("--device=sim", way)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "skipped" not in result.parseoutcomes()
    result.stdout.fnmatch_lines(["sim:0: device lost after *::test_bad?sim:0?: it ran again, which needs a fresh *"])


@pytest.mark.parametrize(("method", "outcome"), [("signal", "FAILED"), ("thread", "TIMED OUT")])
def test_a_limit_of_pytest_timeout_names_the_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, method: str, outcome: str
) -> None:
    pytest.importorskip("pytest_timeout")
    only(monkeypatch, "pytest_timeout")
    pytester.makepyfile("import time\ndef test_slow(): time.sleep(60)\ndef test_next(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--timeout=1", f"--timeout-method={method}")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f"{outcome} *::test_slow*"])
    result.stdout.fnmatch_lines(["*def test_slow*"])  # its stack, of which pytest's part is left out
    result.stdout.no_fnmatch_line("*hookexec*")


def test_a_failed_part_of_a_test_is_shown_as_without_isolation(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch)
    pytester.makepyfile("""
        import unittest
        class TestParts(unittest.TestCase):
            def test_it(self):
                for k in range(3):
                    with self.subTest(k=k):
                        self.assertLess(k, 2)
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["E*AssertionError: 2 not less than 2"])
    result.stdout.no_fnmatch_line("*reprcrash*")


def test_a_plugin_may_replace_the_reporter(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    pytester.makeconftest("""
        import pytest

        class Reporter(pytest.TerminalReporter):
            def pytest_runtest_logreport(self, report):
                super().pytest_runtest_logreport(report)
                self.write_line(f"{report.when} of {report.nodeid}")

        @pytest.hookimpl(trylast=True)
        def pytest_configure(config):  # as pytest-pretty does
            config.pluginmanager.unregister(config.pluginmanager.get_plugin("terminalreporter"))
            config.pluginmanager.register(Reporter(config), "terminalreporter")
    """)
    pytester.makepyfile(test_it="def test_one(): print('of the test')")

    result = pytester.runpytest_subprocess("--cuassay-isolate", "-s")

    result.assert_outcomes(passed=1)
    assert result.stdout.str().count("call of test_it.py::test_one") == 1
    assert "of the test" in result.stdout.str()


#: Each process that collects leaves a file of its own.
COUNTED = """
    import os, pathlib
    def pytest_configure(config):
        hasattr(config, "workerinput") and pathlib.Path(f"worker-{os.getpid()}").touch()
"""


@pytest.mark.parametrize(("dying", "started"), [((), 1), ((1,), 3), ((1, 3), 4)], ids=["none", "one", "two"])
def test_a_worker_is_ready_before_the_next_loss_but_not_before_the_first(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, dying: tuple[int, ...], started: int
) -> None:
    only(monkeypatch)
    monkeypatch.setenv("CUASSAY_START_WORKERS", "1")
    pytester.makeconftest(COUNTED)
    pytester.makepyfile(f"""
        import os, pathlib, pytest, time
        DYING = {dying}
        @pytest.mark.parametrize("n", range(6))
        def test_it(n):
            if n in DYING:
                os._exit(1)
            while n > 1 and len(list(pathlib.Path().glob("worker-*"))) < len([m for m in DYING if m < n]) + 2:
                if not DYING:
                    break
                time.sleep(0.01)
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(passed=6 - len(dying), failed=len(dying))
    pids = [int(path.name.partition("-")[2]) for path in pytester.path.glob("worker-*")]
    assert len(pids) == started
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110  none is left behind
