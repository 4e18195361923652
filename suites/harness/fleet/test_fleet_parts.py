"""The parts of a fleet that need no cluster: rows that arrive, digests, offers, what the command refuses."""

from __future__ import annotations

import importlib
import json
import logging
import queue
import sys
import time
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay.cli import main
from cuassay.errors import ArgumentError, CapabilityError, DeviceError
from cuassay.fleet import preloaded, shard, template
from cuassay.fleet.book import Book, Shard
from cuassay.fleet.clusters import local_cluster, require_dask
from cuassay.fleet.code import FOLDER, digest_of, of_folder, of_wheel
from cuassay.fleet.driver import Driver, Job
from cuassay.fleet.durations import recorded_durations
from cuassay.fleet.merging import Arrived, Merged, is_failed_by_machine, measured
from cuassay.fleet.places import local_offers, offers
from cuassay.fleet.workers import Workers
from cuassay.results.part import Part
from cuassay.results.record import Recorder


def line(nodeid: str, outcome: str = "passed") -> str:
    return json.dumps({"record": "test", "schema": 1, "run": "fleet", "nodeid": nodeid, "outcome": outcome})


def test_lines_that_come_twice_or_late_are_kept_once_and_in_order() -> None:
    arrived = Arrived()
    arrived.add(1, [line("b")])
    assert not arrived.is_whole(2)
    arrived.add(0, [line("a"), line("b")])

    assert arrived.is_whole(2)
    assert not arrived.is_whole(3)
    assert [row["nodeid"] for row in arrived.rows()] == ["a", "b"]


def merged_rows(path: Path, write: Any) -> list[dict[str, Any]]:
    with Recorder(path, run="one") as recorder:
        write(Merged(Part(recorder, "cuassay fleet")))
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_a_test_has_one_row_however_often_it_is_written(tmp_path: Path) -> None:
    def write(merged: Merged) -> None:
        merged.write([json.loads(line("a"))], "w1", ["a"])
        merged.write([json.loads(line("a", "failed"))], "w2", ["a"])
        merged.write_missing("a", "lost")
        merged.write_missing("b", "lost\nwith more")

    found = merged_rows(tmp_path / "rows.jsonl", write)

    assert [(row["nodeid"], row["outcome"], row.get("worker")) for row in found] == [
        ("a", "passed", "w1"), ("b", "error", None),
    ]  # fmt: skip
    assert (found[1]["reason"], found[0]["run"]) == ("lost", "one")


def test_rows_of_tests_outside_of_the_shard_and_of_those_that_run_again_are_left_out(tmp_path: Path) -> None:
    rows = [json.loads(line(name)) for name in ("a", "b", "other")]

    found = merged_rows(tmp_path / "rows.jsonl", lambda merged: merged.write(rows, "w1", ["a", "b"], without=["b"]))

    assert [row["nodeid"] for row in found] == ["a"]


def test_each_worker_describes_its_device_once(tmp_path: Path) -> None:
    device = {"record": "device", "schema": 1, "run": "fleet", "device": "sim:0", "present": True}

    def write(merged: Merged) -> None:
        for worker in ("w1", "w2", "w1"):
            merged.write([device], worker, [])

    assert [row["worker"] for row in merged_rows(tmp_path / "rows.jsonl", write)] == ["w1", "w2"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("device", "sim:1"), ("limit", "launch"), ("dtype", "float16"), ("how", "a sum")],
    ids=["device", "limit", "dtype", "how"],
)
def test_limits_that_differ_in_a_column_are_all_recorded(tmp_path: Path, column: str, value: str) -> None:
    limit = {
        "record": "limit", "schema": 1, "run": "fleet", "device": "sim:0", "limit": "compute", "value": 1e12,
        "unit": "FLOP/s", "dtype": "float32", "how": "a product",
    }  # fmt: skip
    rows = [limit, {**limit, column: value}]

    found = merged_rows(tmp_path / "rows.jsonl", lambda merged: merged.write([*rows, *rows], "w1", []))

    assert [row[column] for row in found] == [limit[column], value]


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        ("error", "failed by the machine: the GPU is lost", True),
        ("error", "crashed: signal 11", False),
        ("failed", "failed by the machine", False),
    ],
)
def test_only_the_machines_failures_count_as_such(outcome: str, reason: str, expected: bool) -> None:
    assert is_failed_by_machine({"outcome": outcome, "reason": reason}) is expected


def test_an_installed_wheel_has_the_digest_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["lib/__init__.py,sha256=abc,3", "lib-1.dist-info/METADATA,sha256=def,9", "lib-1.dist-info/RECORD,,"]
    wheel = tmp_path / "lib-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("lib-1.dist-info/RECORD", "\n".join(lines))
    installed = tmp_path / "site" / "lib-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lib\nVersion: 1\n")
    extra = [
        "../../bin/lib,sha256=123,4",
        "lib/__pycache__/__init__.cpython-311.pyc,,",
        "lib-1.dist-info/INSTALLER,sha256=4,4",
    ]
    (installed / "RECORD").write_text("\n".join([*reversed(lines), *extra]))
    monkeypatch.syspath_prepend(tmp_path / "site")

    assert of_wheel(wheel) == ("lib", digest_of("lib"))


def test_a_digest_of_a_folder_follows_its_code_and_not_its_results(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("a = 1\n")
    first = of_folder(tmp_path)
    (tmp_path / "results.jsonl").write_text("{}\n")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "made.py").write_text("")
    assert of_folder(tmp_path) == first

    (tmp_path / "test_a.py").write_text("a = 2\n")

    assert of_folder(tmp_path) != first


def test_what_has_no_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no-such-distribution is not installed here"):
        digest_of("no-such-distribution")
    with pytest.raises(ArgumentError, match="is not a wheel"):
        of_wheel(tmp_path / "missing.whl")


def test_local_workers_share_devices_in_turn() -> None:
    found = local_offers(["cpu", "sim"], 3)

    assert [offer.name for offer in found] == ["local-0", "local-1", "local-2"]
    assert [offer.environment["CUASSAY_SIM_VISIBLE_DEVICES"] for offer in found] == ["SIM-0", "SIM-1", "SIM-0"]
    assert {"kind-cpu", "kind-sim"} <= set(found[0].resources)
    assert found[0].resources["memory-sim"] > 0


def test_a_machine_offers_a_worker_for_each_device() -> None:
    found = offers(["sim"])

    assert len({offer.name for offer in found}) == len(found) == 2
    assert "kind-cpu" not in found[0].resources


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DeviceError, match="no_such_kind"):
        offers(["no_such_kind"])


def test_durations_are_read_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"record":"test","nodeid":"a","duration":2.5}\n{"record":"run"}\n')

    assert recorded_durations([tmp_path]) == {"a": 2.5}
    with pytest.raises(ArgumentError, match="durations cannot be read"):
        recorded_durations([tmp_path / "missing.jsonl"])


def test_without_dask_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(CapabilityError, match=r"pip install distributed"):
        require_dask()


@pytest.mark.parametrize("words", [["--local", "0"], ["--local", "2", "--shards", "0"]])
def test_numbers_below_one_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")

    assert main(["fleet", "run", *words]) == 2
    assert "give 1 or more" in capsys.readouterr().err


def test_the_working_folder_is_the_default_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert digest_of(FOLDER) == of_folder(tmp_path)


def test_certificate_and_key_of_the_command_are_those_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra fleet is not installed")
    found: list[Any] = []
    monkeypatch.setattr("cuassay.fleet.clusters.work", lambda address, kinds, security: found.append(security))
    words = ["--tls-ca-file", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]

    assert main(["fleet", "worker", "--scheduler", "tls://gpu-0:8786", "--device", "cpu", *words]) == 0

    (security,) = found
    assert security.require_encryption
    assert security.tls_ca_file == "ca.pem"
    for role in ("client", "worker"):
        files = [getattr(security, f"tls_{role}_{what}") for what in ("cert", "key")]
        assert files == ["cert.pem", "key.pem"]


def worker(name: str, host: str, *resources: str) -> dict[str, Any]:
    return {"name": name, "host": host, "resources": dict.fromkeys(resources, 1.0)}


class Cluster:
    """The workers of a cluster, as dask's client tells of them."""

    def __init__(self, *workers: dict[str, Any]) -> None:
        self.workers = {told["name"]: told for told in workers}

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": self.workers}

    def subscribe_topic(self, topic: str, function: Any) -> None:
        if topic == "all":
            self.tell = function

    def submit(self, *args: Any, **options: Any) -> Pending:
        return Pending()


class Pending:
    """A task that does not end."""

    def add_done_callback(self, function: Any) -> None: ...

    def release(self) -> None: ...


@pytest.mark.parametrize(
    ("first", "second", "is_taken"),
    [
        (("a", "kind-cuda", "uuid-1"), ("a", "kind-cuda", "uuid-1"), True),
        (("a", "kind-cuda", "uuid-1"), ("a", "kind-cuda", "uuid-2"), False),
        (("a", "kind-cuda"), ("a", "kind-cuda"), False),
        (("a", "kind-sim"), ("a", "kind-cpu"), True),
        (("a", "kind-sim", "uuid-1"), ("b", "kind-sim", "uuid-1"), False),
        (("a", "kind-cuda", "kind-cpu", "uuid-1"), ("a", "kind-sim"), True),
    ],
    ids=["one GPU", "two GPUs", "unnamed GPUs", "one host", "two hosts", "a GPU and its host"],
)
def test_workers_that_share_a_device_disturb_one_another(
    first: tuple[str, ...], second: tuple[str, ...], is_taken: bool
) -> None:
    workers = Workers(Cluster(worker("one", *first), worker("two", *second)), queue.Queue())
    one, two = sorted(workers.idle(), key=lambda place: place.name)

    workers.start(one, "cuda", 1, print, {"run": "r"})

    assert workers.is_taken(two) == is_taken
    workers.finished(1)
    assert not workers.is_taken(two)


def test_a_lost_worker_may_come_back_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cluster = Cluster(worker("one", "a", "kind-cuda"), worker("two", "b", "kind-cuda"))
    workers = Workers(cluster, queue.Queue())

    def change(action: str) -> None:
        cluster.tell((0.0, {"action": action, "worker": "two"}))
        workers.update()

    change("remove-worker")
    assert workers.names(["cuda"]) == {"one"}
    assert workers.names(["cpu"], lost_within_s=30.0) == set()
    assert workers.names(["cuda"], lost_within_s=30.0) == {"one", "two"}
    now[0] += 31.0
    assert workers.names(["cuda"], lost_within_s=30.0) == {"one"}
    now[0] -= 31.0
    workers.leave_out("two")
    assert workers.names(["cuda"], lost_within_s=30.0) == {"one"}


def test_a_worker_that_is_there_again_counts_as_lost_no_more() -> None:
    cluster = Cluster(worker("one", "a", "kind-cuda"))
    workers = Workers(cluster, queue.Queue())
    for action in ("remove-worker", "add-worker"):
        cluster.tell((0.0, {"action": action, "worker": "one"}))
        workers.update()

    assert (workers.names(["cuda"]), workers._lost) == ({"one"}, {})


def test_the_wait_for_a_worker_begins_again_after_one_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    one = worker("one", "a", "kind-cuda")
    cluster = Cluster()
    driver = Driver(cluster, Job(run="r", code=FOLDER, digest="0", wait_s=30.0))
    book = Book([Shard(("t",), 1.0, "cuda")])
    seen: list[tuple[float, bool]] = []
    events, changes = driver._events, iter([(1020.0, {"one": one}), (1100.0, {}), (1120.0, {}), (1131.0, {})])

    def event(timeout: float) -> tuple[str, Any]:
        if not events.empty():
            return events.get_nowait()
        seen.append((now[0], bool(book.given_up)))
        now[0], cluster.workers = next(changes)
        cluster.tell((0.0, {"action": "add-worker" if cluster.workers else "remove-worker", "worker": "one"}))
        return "tick", None

    monkeypatch.setattr(driver, "_events", SimpleNamespace(get=event))
    driver.each(book, lambda shard: (), lambda *_: {})

    assert seen == [(1000.0, False), (1020.0, False), (1100.0, False), (1120.0, False)]
    assert book.given_up == {"t": "no worker with a device of kind cuda was there for 30 s; worker one was lost"}


def test_a_benchmark_counts_as_measured_when_its_process_went_on_after_it() -> None:
    rows = [{"record": "begin", "nodeid": name} for name in ("a", "b")]

    assert measured(rows, is_whole=True) == ["a", "b"]
    assert measured(rows, is_whole=False) == ["a"]


def test_a_shard_keeps_compiled_modules_and_is_no_worker_of_xdist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)

    found = shard._environment(tmp_path)

    assert found["PYTHONPYCACHEPREFIX"] == str(tmp_path / "pycache")
    assert not {"PYTHONDONTWRITEBYTECODE", "PYTEST_XDIST_WORKER"} & found.keys()


@pytest.mark.skipif(sys.platform != "linux", reason="workers of dask are started as they are on Linux")
def test_a_cluster_starts_on_a_slow_disk_where_warnings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    core = pytest.importorskip("distributed.core", reason="distributed is not installed")
    fast = core.WorkSpace

    def slow(folder: str) -> Any:
        time.sleep(1.1)  # dask warns after a second
        return fast(folder)

    monkeypatch.setattr(core, "WorkSpace", slow)
    warnings.simplefilter("error")  # pytest takes it back after the test
    with local_cluster(["cpu"], 1) as client:
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        pytest.param("closing", "Failed to communicate with scheduler during heartbeat.", False, id="closing"),
        pytest.param("running", "Failed to communicate with scheduler during heartbeat.", True, id="running"),
        pytest.param("closing", "Failed to start worker", True, id="another message"),
    ],
)
def test_a_worker_that_closes_tells_nothing_of_its_heartbeat(
    monkeypatch: pytest.MonkeyPatch, status: str, message: str, expected: bool
) -> None:
    logger = logging.getLogger("distributed.worker")
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(shard, "can_warm", lambda words: False)
    shard.dask_setup(SimpleNamespace(status=SimpleNamespace(name=status)))

    record = logger.makeRecord(logger.name, logging.ERROR, __file__, 1, message, (), None)

    assert bool(logger.filter(record)) is expected


def test_only_a_fork_server_prepares_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_started", [])

    importlib.reload(preloaded)

    assert (preloaded.is_fork_server(), template._started) == (False, [])
