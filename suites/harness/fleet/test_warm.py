"""A warm process runs each shard in a fork that is like a new process, and its worker sees how each one ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import install_with_files

from cuassay.fleet import template
from cuassay.fleet.warm import Warm, can_warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a fork use all libraries")

#: Says what it was given and what is imported, then does what its first argument names.
SHARD = """
import os, signal, sys, threading, time
print("process", os.getpid(), flush=True)
print("words", sys.argv[1:], "variable", os.environ.get("GIVEN"), "marked", hasattr(os, "marked"), flush=True)
print("imported", sorted({"pytest", "test_shard", "xdist"} & sys.modules.keys()), threading.active_count(), flush=True)
os.marked = True
{"end": lambda: sys.exit(3), "wait": lambda: time.sleep(600), "crash": os.abort,
 "kill": lambda: os.kill(os.getppid(), signal.SIGKILL)}[sys.argv[1]]()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("shards")
    (found / "test_shard.py").write_text(SHARD)
    return found


@pytest.fixture
def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[template.Template]:
    """A template, and the variables that a worker has."""
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    for name, value in {**template.DEFAULTS, **template.HASH_SEED}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(template, "_started", [])
    template.start()
    (found,) = template._started
    yield found
    found.close()


@pytest.fixture(params=["a child", "forked"])
def warm(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    if request.param == "forked":
        request.getfixturevalue("started")
    process = Warm()
    assert process.is_child == (request.param == "a child")
    yield process
    process.close()


def ran(warm: Warm, log: Path, *words: str, **variables: str) -> list[str]:
    warm.run(("test_shard", *words), log, {**os.environ, **variables})
    warm.wait()
    return log.read_text().splitlines()[1:]


def test_each_shard_runs_in_a_process_that_no_other_has_changed(warm: Warm, tmp_path: Path) -> None:
    first = ran(warm, tmp_path / "first", "end", GIVEN="1")
    status = warm.returncode
    second = ran(warm, tmp_path / "second", "crash", GIVEN="2")

    assert first == ["words ['end'] variable 1 marked False", "imported ['pytest'] 1"]
    assert second[:2] == ["words ['crash'] variable 2 marked False", "imported ['pytest'] 1"]
    assert (status, warm.returncode, warm.is_well) == (3, -signal.SIGABRT, True)


def test_a_shard_gets_variables_that_are_longer_than_a_message(warm: Warm, tmp_path: Path) -> None:
    long = {f"LONG_{number}": "x" * 100_000 for number in range(4)}

    told = ran(warm, tmp_path / "log", "end", GIVEN="1", **long)

    assert told[0] == "words ['end'] variable 1 marked False"


def test_a_shard_starts_although_warnings_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_good.py").write_text("def test_good(): pass\n")
    install_with_files(tmp_path, monkeypatch)

    warm = Warm()
    warm.run(("pytest", "-W", "error", str(tmp_path / "test_good.py")), tmp_path / "log", os.environ)
    status = warm.wait()
    warm.close()

    assert status == 0, (tmp_path / "log").read_text()


def begun(warm: Warm, log: Path) -> None:
    warm.run(("test_shard", "wait"), log, os.environ)
    while not log.exists() or "imported" not in log.read_text():
        assert warm.poll(10) is None


def test_a_shard_that_is_stopped_ends_with_its_warm_process(warm: Warm, tmp_path: Path) -> None:
    begun(warm, tmp_path / "log")

    warm.kill()

    assert (warm.wait(), warm.is_well) == (-signal.SIGKILL, False)


def test_a_warm_process_that_ends_before_its_shard_is_lost(warm: Warm, tmp_path: Path) -> None:
    warm.run(("test_shard", "kill"), tmp_path / "log", os.environ)

    assert (warm.wait(), warm.is_lost, warm.is_well) == (-signal.SIGKILL, True, False)


def test_a_shard_ends_with_its_worker(warm: Warm, tmp_path: Path) -> None:
    begun(warm, tmp_path / "log")
    shard = int((tmp_path / "log").read_text().split("process")[1].split()[0])

    warm.close()  # the kernel closes the socket of a worker that is killed

    assert (warm.is_well, _has_ended(shard)) == (False, True)


def _has_ended(process: int) -> bool:
    """Whether a process, which need not be a child, ends within some seconds; a zombie has ended."""
    for _ in range(1000):
        try:
            if ") Z " in Path(f"/proc/{process}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_template_of_other_variables_or_of_another_folder_forks_nothing(
    started: template.Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert template.request(theirs)
        with monkeypatch.context() as changed:
            changed.setenv("PYTHONHASHSEED", "1")
            assert not template.request(theirs)
        monkeypatch.chdir(tmp_path)
        assert not template.request(theirs)


def test_without_its_template_a_worker_starts_a_warm_process_of_its_own(
    started: template.Template, tmp_path: Path
) -> None:
    started.close()

    process = Warm()
    try:
        assert process.is_child
        assert ran(process, tmp_path / "log", "end")[1] == "imported ['pytest'] 1"
    finally:
        process.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["pytest", "-q"], True, id="tests"),
        pytest.param(["pytest", "--benchmark-only"], False, id="benchmarks"),
        pytest.param(["cuassay.benchmarking.measure"], False, id="another module"),
    ],
)
def test_only_tests_run_in_a_fork(words: list[str], expected: bool) -> None:
    assert can_warm(words) is expected


def test_processes_that_coverage_measures_are_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_START", "coverage.toml")
    assert not can_warm(["pytest"])
