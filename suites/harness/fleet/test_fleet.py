"""A fleet of two workers on this machine: one record of all, whatever becomes of the workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

pytest.importorskip("distributed", reason="distributed is not installed; install it with: pip install distributed")

from distributed import WorkerPlugin

from cuassay.errors import StateError
from cuassay.fleet import clusters, forks
from cuassay.fleet import run as fleet_run
from cuassay.fleet.code import FOLDER, digest_of
from cuassay.fleet.comparing import AskedComparison, compare_on_fleet
from cuassay.fleet.driver import Job
from cuassay.fleet.run import Asked, run_fleet
from cuassay.results.record import new_run_id

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the worker of a test in /proc")

Row = dict[str, Any]

KINDS = ("cpu", "sim")

#: What a test file begins with; the plugin `Names` of each worker sets the variable WORKER.
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
    os.kill(int(os.environ["WORKER"]), signal.SIGKILL)
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
def client(folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    class Names(WorkerPlugin):  # a local class, which dask sends with its code
        def setup(self, worker: object) -> None:
            os.environ["WORKER"] = str(os.getpid())

    is_forked = getattr(request, "param", True) and forks.start()  # as the command does
    with clusters.local_cluster(KINDS, 2, is_forked=is_forked) as found:
        found.register_plugin(Names())
        yield found


def test_a_scheduler_that_does_not_answer_is_an_error_after_the_given_time() -> None:
    with pytest.raises(StateError, match=r"no scheduler answers at tcp://127.0.0.1:9: .* after 0.5 s"):
        clusters.connected("tcp://127.0.0.1:9", seconds=0.5).__enter__()


def make(folder: Path, name: str, text: str) -> str:
    rmtree(folder / name, ignore_errors=True)
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
    shards = [row for row in found if row["record"] == "shard" and row["how"] == "ended"]
    assert sum(row["tests"] for row in shards) == len(told(found))
    assert min(row["waited"] for row in shards) >= 0
    assert set(map(tuple, loaded.values())) == {()}  # a worker of dask never loads what it tests


def told(found: Sequence[Row]) -> list[Row]:
    return [row for row in found if row["record"] == "test"]


def lasting(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("run", "duration", "worker")}


@pytest.mark.parametrize("client", [True, False], ids=["forked", "spawned"], indirect=True)
def test_losses_of_workers_and_machines_are_made_up_for_and_failures_are_not(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    tests = make(folder, "losses", WORKER + """
def test_deadly(): end_worker()

def test_killed():
    if first_time("killed"):
        end_worker()

def test_loses_warm():
    if first_time("warm"):
        os.kill(psutil.Process().parents()[1].pid, signal.SIGKILL)
        time.sleep(60)

def test_machine():
    Path(__file__).with_name(f"worker-{os.environ['WORKER']}").touch()
    if len(list(Path(__file__).parent.glob("worker-*"))) == 1:
        raise RuntimeError("CUDA error: the GPU is lost")

def test_own():
    first_time("own")
    assert False
""")  # fmt: skip

    status, found = run(client, tests, tmp_path / "rows.jsonl", shards=4)

    expected = {
        "test_deadly": "error",
        "test_killed": "passed",
        "test_loses_warm": "passed",
        "test_machine": "passed",
        "test_own": "failed",
    }
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
    client.wait_for_workers(2, timeout=60)  # a worker that an earlier test has killed may not be back
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


def test_benchmarks_hold_the_device_alone_and_bring_their_timings(client: Any, folder: Path, tmp_path: Path) -> None:
    tests = make(
        folder,
        "measured",
        WORKER
        + """
@pytest.mark.parametrize("number", range(2))
def test_measured(device_benchmark, device, number):
    began = time.monotonic()
    device_benchmark(lambda: time.sleep(0.01), device, queued=False)
    Path(__file__).with_name(f"{number}.times").write_text(f"{began} {time.monotonic()}")

def test_plain(): assert False
""",
    )

    status, found = run(client, tests, tmp_path / "rows.jsonl", ("sim",), shards=2, benchmarks=True)
    assert (status, set(outcomes(found).values())) == (0, {"passed"})
    (_, first_end), (second_begin, _) = sorted(
        tuple(map(float, path.read_text().split())) for path in (folder / tests).glob("*.times")
    )
    assert sorted(row["case"] for row in found if row["record"] == "time") == ["0", "1"]
    assert first_end <= second_begin


def test_own_operations_are_measured_by_the_workers(
    client: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    collect = fleet_run._collected

    def few(driver: Any, asked: Asked) -> Any:
        (whole,) = collect(driver, asked)
        return [replace(whole, rows=whole.rows[:2])]

    monkeypatch.setattr(fleet_run, "_collected", few)
    job = Job(run=new_run_id(), code=FOLDER, digest=digest_of(FOLDER), wait_s=30.0)

    status = run_fleet(client, job, Asked(tests=(), kinds=("sim",), benchmarks=True, shards=2), tmp_path / "rows.jsonl")
    found = rows(tmp_path / "rows.jsonl")

    begun = {row["nodeid"] for row in found if row["record"] == "begin"}
    times = [row for row in found if row["record"] == "time"]
    (plan,) = (row["times"] for row in found if row["record"] == "plan")
    assert (status, len(begun), len(times)) == (0, 2, plan)
    assert {f"{row['benchmark']} {row['dtype']} on sim:0" for row in times} == begun
    assert {row["worker"] for row in times} == {row["worker"] for row in found if row["record"] == "device"}
    assert f"to read them: cuassay report {tmp_path / 'rows.jsonl'}\n" in capsys.readouterr().out


#: A side of a comparison: as many benchmarks as are asked for, and a note of who asked.
SIDE = """
import json, os, sys
from pathlib import Path

record, median, *words = sys.argv[1:]
names = [words[at + 1] for at, word in enumerate(words) if word == "--only"]
head = {"schema": 1, "run": "side"}
rows = [{"record": "device", "device": "sim:0", "present": True, "fingerprint": {"name": "one"}}]
for name in names:
    op, dtype, case = name.split(" ", 2)
    told = {"benchmark": op, "dtype": dtype, "case": case, "device": "sim:0", "clock": "device", "n": 9}
    rows.append({"record": "time", **told, "implementation": "cuassay", "median": float(median)})
with open(record, "w") as file:
    file.writelines(json.dumps({**head, **row}) + chr(10) for row in rows)
for name in names:
    with open(Path(__file__).with_name(f"{name.replace(' ', '_')}.halves"), "a") as file:
        file.write(f"{median} {os.getppid()}" + chr(10))
"""


def test_both_halves_of_a_comparison_are_measured_by_one_worker(client: Any, folder: Path) -> None:
    (folder / "sides").mkdir()
    (folder / "sides" / "side.py").write_text(SIDE)
    base, head = (f"{sys.executable} {folder}/sides/side.py {{record}} {median}" for median in (1e-3, 1.2e-3))
    job = Job(run=new_run_id(), code=FOLDER, digest=digest_of(FOLDER), wait_s=30.0)

    asked = AskedComparison(base=base, head=head, kind="sim", only=("add *", "mul *"))
    outcome, shares = compare_on_fleet(client, job, asked)

    notes = [path.read_text().splitlines() for path in (folder / "sides").glob("*.halves")]
    sides = [{tuple(line.split()) for line in lines} for lines in notes]
    assert len(notes) == len(outcome.verdicts) == sum(len(share.outcome.verdicts) for share in shares)
    assert {one.name.split()[0] for one in outcome.verdicts} == {"add", "mul"}
    assert all({median for median, _ in one} == {"0.001", "0.0012"} for one in sides)
    assert all(len({parent for _, parent in one}) == 1 for one in sides)
