"""Isolated workers that are forked: each has what was collected once, and when they are sessions of their own."""

from __future__ import annotations

import os
import sys

import pytest
from installed import install_with_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of its own, with our plugin alone: each that is not needed takes time."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "cuassay.testing.plugin")


def test_forks_have_what_was_collected_once_and_are_each_as_it_was_then(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import os, pathlib
        def pytest_runtest_logreport(report):
            if report.when == "call":
                with pathlib.Path("told").open("a") as file:
                    file.write(f"{os.getpid()}\\n")
        def pytest_sessionfinish(): pathlib.Path(f"finished-{os.getpid()}").touch()
    """)
    pytester.makepyfile("""
        import os, pathlib, pytest, sys
        pathlib.Path(f"imported-{os.getpid()}").touch()
        SEEN = []

        @pytest.fixture(scope="session", autouse=True)
        def server():
            yield
            pathlib.Path(f"undone-{os.getpid()}").touch()

        @pytest.mark.parametrize("n", range(5))
        def test_it(n, capfd, request):
            assert hasattr(request.config, "workerinput")
            SEEN.append(n)
            print(n)
            assert capfd.readouterr().out == f"{n}\\n"
            if n == 1:
                os._exit(1)
            assert SEEN == ([0] if n == 0 else list(range(2, n + 1)))
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(passed=4, failed=1)
    (imported,) = (int(path.name.partition("-")[2]) for path in pytester.path.glob("imported-*"))
    assert set((pytester.path / "told").read_text().split()) == {str(imported)}  # no plugin is told twice
    assert [path.name for path in pytester.path.glob("finished-*")] == [f"finished-{imported}"]
    (undone,) = (int(path.name.partition("-")[2]) for path in pytester.path.glob("undone-*"))
    assert undone != imported
    assert not os.path.exists(f"/proc/{undone}")  # noqa: PTH110  it does not outlive the session


def test_what_was_printed_before_the_fork_is_printed_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    pytester.makeconftest("""
        import pytest
        @pytest.hookimpl(wrapper=True)
        def pytest_runtestloop():
            print("the loop starts", end=" ")
            return (yield)
    """)
    pytester.makepyfile("def test_good(): print('in the test', end=' ')")

    result = pytester.runpytest_subprocess("--cuassay-isolate", "-s")

    text = result.stdout.str()
    assert text.count("the loop starts") == text.count("in the test") == 1


def test_output_of_a_lost_test_is_not_taken_for_that_of_the_next(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        def test_dies(): os.write(1, b"of the one before"); os._exit(1)
        def test_bad(): print("in the test"); assert 0
        def test_good(): print("unseen")
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert text.count("\nin the test") == 1
    assert "unseen" not in text
    assert "\nof the one before" not in text


@pytest.mark.parametrize(
    ("conftest", "why"),
    [
        ("import threading as t; t.Thread(target=t.Event().wait, daemon=True, name='beat').start()", "*: beat"),
        ("from cuassay.testing import forking; forking.driver_is_up = lambda: True", "*has initialised CUDA"),
        ("import sys, types; sys.modules['jax'] = types.ModuleType('jax')", "jax is imported, *"),
        ("import os; os.environ['CUASSAY_START_WORKERS'] = '1'", "CUASSAY_START_WORKERS is set"),
    ],
    ids=["a thread", "CUDA", "jax", "the setting"],
)
def test_where_a_fork_is_not_safe_each_worker_collects_and_the_session_says_why(
    pytester: pytest.Pytester, conftest: str, why: str
) -> None:
    pytester.makeconftest(f"{conftest}\nimport os, pathlib\npathlib.Path(f'imported-{{os.getpid()}}').touch()")
    pytester.makepyfile("import os\ndef test_dies(): os._exit(1)\ndef test_good(): pass")

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f"cuassay: each worker collects for itself: {why}"])
    assert len(list(pytester.path.glob("imported-*"))) == 3


def test_what_comes_up_while_tests_are_collected_is_seen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os, threading
        threading.Thread(target=threading.Event().wait, daemon=True, name="late").start()
        def test_dies(): os._exit(1)
        def test_good(): pass
    """)

    result = pytester.runpytest_subprocess("--cuassay-isolate")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*collects for itself: a thread runs in the process that collects: late"])


def test_the_record_of_a_forked_session_describes_its_devices_without_the_controller(pytester: pytest.Pytester) -> None:
    import json

    pytester.makeconftest("""
        import os
        from cuassay.testing import device_facts
        describe = device_facts.device_columns
        device_facts.device_columns = lambda device: {**describe(device), "fingerprint": {"name": os.getpid()}}
    """)
    pytester.makepyfile("import os\ndef test_it(device): print(os.getpid())\ndef test_dies(): os._exit(1)")

    result = pytester.runpytest_subprocess("--cuassay-isolate", "--device=cpu,sim", "--cuassay-record=rows.jsonl", "-s")

    rows = [json.loads(line) for line in (pytester.path / "rows.jsonl").read_text().splitlines()]
    described = [row for row in rows if row["record"] == "device"]
    assert [row["device"] for row in described] == ["cpu:0", "sim:0"]
    assert all(str(row["fingerprint"]["name"]) in result.stdout.str() for row in described)


def test_a_worker_of_its_own_starts_although_warnings_are_errors(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_with_files(pytester.path, monkeypatch)
    monkeypatch.delenv("PYTEST_PLUGINS")
    monkeypatch.setenv("CUASSAY_START_WORKERS", "1")
    pytester.makeini("[pytest]\nfilterwarnings = error")
    pytester.makepyfile("def test_good(): pass")

    pytester.runpytest_subprocess("--cuassay-isolate").assert_outcomes(passed=1)
