"""A fleet of two workers on this machine: one record of all, whatever becomes of the workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="distributed is not installed; install it with: pip install 'cuassay[fleet]'")

from cuassay.errors import StateError
from cuassay.fleet import clusters
from cuassay.fleet.code import FOLDER, digest_of
from cuassay.fleet.driver import Job
from cuassay.fleet.run import Asked, run_fleet
from cuassay.results.record import new_run_id

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the worker of a test in /proc")

Row = dict[str, Any]

KINDS = ("cpu", "sim")

#: What a test file begins with: the process of its worker, above pytest and its isolated process.
WORKER = """
import os, signal, time
from pathlib import Path
import psutil
import pytest

def first_time(name):
    seen = Path(__file__).with_name(f"seen-{name}-{time.monotonic_ns()}")
    seen.touch()
    return len(list(seen.parent.glob(f"seen-{name}-*"))) == 1

def end_worker():
    time.sleep(0.3)  # the row that it has begun is sent meanwhile
    os.kill(psutil.Process().parents()[1].pid, signal.SIGKILL)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the workers."""
    here = Path.cwd()
    found = tmp_path_factory.mktemp("project")
    (found / "pytest.ini").write_text("[pytest]\n")
    os.chdir(found)
    yield found
    os.chdir(here)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with clusters.local_cluster(KINDS, 2) as found:
        yield found


def make(folder: Path, name: str, text: str) -> str:
    (folder / name).mkdir()
    (folder / name / f"test_{name}.py").write_text(text)
    return name


def run(client: Any, tests: str, out: Path, kinds: Sequence[str] = ("cpu",), **changed: Any) -> tuple[int, list[Row]]:
    job = Job(
        run=new_run_id(),
        code=FOLDER,
        digest=changed.pop("digest", digest_of(FOLDER)),
        wait_s=changed.pop("wait_s", 30.0),
    )
    status = run_fleet(client, job, Asked(tests=(tests,), kinds=tuple(kinds), **changed), out)
    return status, rows(out)


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def outcomes(found: Sequence[Row]) -> dict[str, str]:
    tests = [row for row in found if row["record"] == "test"]
    counts = Counter(row["nodeid"] for row in tests)
    assert set(counts.values()) == {1}
    return {row["nodeid"].rpartition("::")[2]: row["outcome"] for row in tests}


def test_the_record_is_that_of_one_session_but_for_times_and_places(client: Any, folder: Path, tmp_path: Path) -> None:
    tests = make(folder, "whole", """
        import pytest
        from cuassay.testing import assert_close, dtypes, exclusive, ops

        @ops("add", "mul")
        @dtypes("float32")
        def test_values(device, dtype, op): assert op.name == "add"

        @pytest.mark.parametrize("number", range(8))
        def test_plain(number): assert number != 3

        @pytest.mark.skip(reason="not today")
        def test_skipped(): pass

        @pytest.mark.xfail(reason="known")
        def test_known(): assert False

        @exclusive
        def test_alone(): pass

        def test_crashes(): import os; os._exit(3)
        """.replace("\n        ", "\n"))  # fmt: skip
    local = tmp_path / "local.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--cuassay-isolate", tests]
    devices = [f"--cuassay-device={kind}" for kind in KINDS]
    subprocess.run([*command, *devices, f"--cuassay-record={local}"], check=False, stdout=subprocess.DEVNULL)

    status, found = run(client, tests, tmp_path / "fleet.jsonl", KINDS, shards=1)

    loaded = client.run(lambda: [name for name in sys.modules if "test_whole" in name or name == "pytest"])

    assert status == 1
    assert sorted(map(lasting, told(found)), key=str) == sorted(map(lasting, told(rows(local))), key=str)
    assert {row["worker"] for row in told(found)} <= {"local-0", "local-1"}
    assert set(map(tuple, loaded.values())) == {()}  # a worker of dask never loads what it tests


def told(found: Sequence[Row]) -> list[Row]:
    return [row for row in found if row["record"] == "test"]


def lasting(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("run", "duration", "worker")}


def test_losses_of_workers_and_machines_are_made_up_for_and_failures_are_not(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    tests = make(folder, "losses", WORKER + """
def test_deadly(): end_worker()

def test_killed():
    if first_time("killed"):
        end_worker()

def test_machine():
    worker = psutil.Process().parents()[1].pid
    Path(__file__).with_name(f"worker-{worker}").touch()
    if len(list(Path(__file__).parent.glob("worker-*"))) == 1:
        raise RuntimeError("CUDA error: the GPU is lost")

def test_own():
    first_time("own")
    assert False
""")  # fmt: skip

    status, found = run(client, tests, tmp_path / "rows.jsonl", shards=4)

    expected = {"test_deadly": "error", "test_killed": "passed", "test_machine": "passed", "test_own": "failed"}
    assert (status, outcomes(found)) == (1, expected)
    assert [row["reason"] for row in told(found) if row["outcome"] == "error"] == ["2 workers were lost while it ran"]
    assert len(list((folder / "losses").glob("seen-own-*"))) == 1


def test_a_lagging_shard_is_repeated_and_the_first_to_end_counts(client: Any, folder: Path, tmp_path: Path) -> None:
    tests = make(
        folder,
        "lagging",
        WORKER
        + """
@pytest.mark.parametrize("number", range(2))
def test_it(number):
    if number == 0 and first_time("lagging"):
        time.sleep(60)
""",
    )

    status, found = run(client, tests, tmp_path / "rows.jsonl", shards=2)

    assert (status, outcomes(found)) == (0, {f"test_it[{number}]": "passed" for number in range(2)})
    assert max(row["duration"] for row in told(found)) < 30


def test_a_worker_whose_device_is_not_well_fails_no_test(client: Any, folder: Path, tmp_path: Path) -> None:
    tests = make(
        folder, "unwell", "import pytest\n@pytest.mark.parametrize('n', range(2))\ndef test_it(device, n): pass\n"
    )
    addresses = {told["name"]: address for address, told in client.scheduler_info()["workers"].items()}

    def set_fault(reason: str | None) -> None:
        from cuassay.devices import backend

        backend("sim").machine.fault = reason

    client.run(set_fault, "an illegal address was read", workers=[addresses["local-0"]])
    try:
        status, found = run(client, tests, tmp_path / "rows.jsonl", ("sim",), shards=2)
    finally:
        client.run(set_fault, None, workers=[addresses["local-0"]])

    assert status == 0
    assert {row["worker"] for row in told(found)} == {"local-1"}
    assert len(outcomes(found)) == 2


def test_workers_with_other_code_refuse(client: Any, folder: Path, tmp_path: Path) -> None:
    tests = make(folder, "other_code", "def test_it(): pass\n")

    with pytest.raises(StateError, match="the run asks for 000000000000; install the same code"):
        run(client, tests, tmp_path / "rows.jsonl", digest="0" * 64, wait_s=0.1)


def test_a_collection_that_fails_is_shown(client: Any, folder: Path, tmp_path: Path) -> None:
    tests = make(folder, "broken", "import not_there\n")

    with pytest.raises(StateError, match=r"(?s)ended with status 2:.*not_there"):
        run(client, tests, tmp_path / "rows.jsonl")
