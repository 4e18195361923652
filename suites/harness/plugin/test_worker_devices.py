"""Under xdist: a device for each worker, memory reserved where they share, and what becomes of a device that fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuassay.testing.pool import DevicePool

pytest.importorskip("xdist")

#: Each test writes its worker and the UUID of its device; some also what they hold.
SPREAD = """
    import os, time
    import pytest
    from cuassay.devices import backend
    from cuassay.testing import exclusive, requires

    def note(device, word=""):
        uuid = backend("sim").identity(device.index)["uuid"]
        with open("notes", "a") as file:
            file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {uuid} {word}\\n")

    @pytest.mark.parametrize("n", range(12))
    def test_where(device, n):
        assert backend("sim").count() == 1
        note(device)
        time.sleep(0.02)

    @pytest.mark.parametrize("n", range(4))
    def test_plain(n): time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def four_devices(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "4")
    monkeypatch.setenv("CUASSAY_SIM_MEMORY", "1GiB")
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "CUASSAY_RESERVATIONS"):
        monkeypatch.delenv(name, raising=False)  # this test may itself run in a worker


def run(pytester: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest_subprocess("--device=sim", "-p", "no:cacheprovider", *words)


def notes(pytester: pytest.Pytester) -> list[list[str]]:
    return [line.split() for line in (pytester.path / "notes").read_text().splitlines()]


def devices_by_worker(pytester: pytest.Pytester) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for worker, uuid, *_ in notes(pytester):
        found.setdefault(worker, set()).add(uuid)
    return found


def test_each_worker_owns_a_device_by_its_uuid(pytester: pytest.Pytester) -> None:
    result = run(pytester, SPREAD, "-n4", "--cuassay-workers=own")

    result.assert_outcomes(passed=16)
    found = devices_by_worker(pytester)
    assert {worker: len(uuids) for worker, uuids in found.items()} == dict.fromkeys(["gw0", "gw1", "gw2", "gw3"], 1)
    assert set.union(*found.values()) == {"SIM-0", "SIM-1", "SIM-2", "SIM-3"}
    result.stdout.fnmatch_lines(["cuassay: each worker has one of SIM-0, SIM-1, SIM-2, SIM-3 as sim:0"])


def test_the_mask_of_the_caller_is_honoured_and_other_workers_have_no_device(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_VISIBLE_DEVICES", "SIM-7,SIM-2")

    result = run(pytester, SPREAD, "-n4", "--cuassay-workers=own")

    result.assert_outcomes(passed=16)
    assert devices_by_worker(pytester) == {"gw0": {"SIM-7"}, "gw1": {"SIM-2"}}


def test_a_worker_has_its_device_before_a_conftest_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import os
        if "PYTEST_XDIST_WORKER" in os.environ:
            SEEN = os.environ["CUASSAY_SIM_VISIBLE_DEVICES"]
            assert SEEN.startswith("SIM-") and "," not in SEEN
    """)

    run(pytester, SPREAD, "-n4", "--cuassay-workers=own").assert_outcomes(passed=16)


@pytest.mark.parametrize("dist", ["loadfile", "loadscope", "worksteal"])
def test_every_way_to_distribute_runs_each_test_once(pytester: pytest.Pytester, dist: str) -> None:
    result = run(pytester, SPREAD, "-n4", f"--dist={dist}", "--cuassay-workers=own")

    result.assert_outcomes(passed=16)
    assert len(notes(pytester)) == 12


RESERVING = (
    SPREAD.partition("@pytest.mark")[0]
    + """
    @requires("memory>=300MiB")
    @pytest.mark.parametrize("n", range(8))
    def test_large(device, n):
        note(device, 300)
        time.sleep(0.1)
        note(device, -300)

    @exclusive
    @pytest.mark.parametrize("n", range(2))
    def test_alone(device, n):
        note(device, 1024)
        time.sleep(0.1)
        note(device, -1024)
"""
)


def most_at_once(pytester: pytest.Pytester) -> dict[str, int]:
    """The most MiB that tests held of each device at one time."""
    held: dict[str, int] = {}
    most: dict[str, int] = {}
    for _, uuid, word in notes(pytester):
        held[uuid] = held.get(uuid, 0) + int(word)
        most[uuid] = max(most.get(uuid, 0), held[uuid])
    return most


@pytest.mark.parametrize("devices", [1, 2])
def test_workers_that_share_a_device_reserve_what_tests_declare(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", str(devices))

    result = run(pytester, RESERVING, "-n4", "--cuassay-workers=share")

    result.assert_outcomes(passed=10)
    assert len({worker for worker, *_ in notes(pytester)}) > devices
    assert max(most_at_once(pytester).values()) <= 1024


def test_a_killed_worker_is_replaced_and_its_reservation_is_free(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "1")
    text = RESERVING.replace("300MiB", "1GiB").replace("note(device, -300)", "if n == 0: os.kill(os.getpid(), 9)")

    result = run(pytester, text, "-n4", "--cuassay-workers=share")

    result.assert_outcomes(passed=9, failed=1)
    assert len({worker for worker, *_ in notes(pytester)}) >= 2


def test_a_killed_worker_gives_its_device_to_the_next(pytester: pytest.Pytester) -> None:
    text = SPREAD.replace("time.sleep(0.02)", "if n == 3: os.kill(os.getpid(), 9)", 1)

    result = run(pytester, text, "-n2", "--cuassay-workers=own", "-k", "where")

    result.assert_outcomes(passed=11, failed=1)
    assert all(len(uuids) == 1 for uuids in devices_by_worker(pytester).values())


#: A device that fails each of its tests, by its UUID.
BROKEN = SPREAD.replace(
    "time.sleep(0.02)",
    'if backend("sim").identity(0)["uuid"] == "SIM-1": raise RuntimeError("WORDS")\n        time.sleep(0.05)',
    1,
)


@pytest.mark.parametrize("words", ["GPU is lost", "CUDA_ERROR_DEVICE_UNAVAILABLE"])
def test_a_test_that_its_device_failed_runs_again_on_another(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "2")

    result = run(pytester, BROKEN.replace("WORDS", words), "-n2", "--cuassay-workers=own")

    if words == "GPU is lost":
        result.assert_outcomes(passed=16)
    uuids = [uuid for _, uuid, *_ in notes(pytester)]
    assert uuids.count("SIM-0") == 12
    if words == "GPU is lost":  # it is not given to another worker
        assert uuids.count("SIM-1") == 1
    result.stdout.fnmatch_lines(["failed by the machine, and run again in a fresh process (*):", "  *test_where*"])


#: Of two tests the one on SIM-1 fails; the other one ends when the worker that replaces the first has collected.
LAST = (
    SPREAD.partition("@pytest.mark")[0]
    + """
    @pytest.mark.parametrize("n", range(2))
    def test_last(device, n):
        note(device)
        if backend("sim").identity(0)["uuid"] == "SIM-1":
            raise RuntimeError("CUDA_ERROR_DEVICE_UNAVAILABLE")
        until = time.monotonic() + 60
        while not os.path.exists("gw2") and time.monotonic() < until:
            time.sleep(0.01)
"""
)


@pytest.mark.parametrize("mode", ["own", "share"])
def test_the_last_test_runs_again_on_another_device_though_its_worker_was_about_to_end(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "2")
    pytester.makeconftest("""
        import os
        def pytest_collection_finish(): open(os.environ.get("PYTEST_XDIST_WORKER", "controller"), "w").close()
    """)

    result = run(pytester, LAST, "-n2", f"--cuassay-workers={mode}")

    result.assert_outcomes(passed=2)
    assert sorted(uuid for _, uuid, *_ in notes(pytester)) == ["SIM-0", "SIM-0", "SIM-1"]


INFRASTRUCTURE = """
    import pathlib
    import pytest

    @pytest.mark.parametrize("n", range(6))
    def test_it(DEVICE n):
        runs = pathlib.Path(f"runs-{n}")
        runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
        if n == 1 and runs.read_text() == "x" or n == 2:
            raise RuntimeError("Xid 79: the GPU has fallen off the bus")
        assert n != 3
"""


@pytest.mark.parametrize(("device", "dist"), [("", "load"), ("device,", "load"), ("device,", "worksteal")])
def test_only_failures_of_the_machine_run_again_and_once(pytester: pytest.Pytester, device: str, dist: str) -> None:
    result = run(pytester, INFRASTRUCTURE.replace("DEVICE", device), "-n2", f"--dist={dist}")

    result.assert_outcomes(passed=4, failed=2)
    assert [len(Path(pytester.path / f"runs-{n}").read_text()) for n in range(6)] == [1, 2, 2, 1, 1, 1]
    again = [line for line in result.outlines if re.fullmatch(r"  test_only.*: the GPU is lost: .*", line)]
    assert len(again) == 2


def test_an_accelerators_test_runs_again_too(
    pytester: pytest.Pytester, toy_kind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(INFRASTRUCTURE.replace("DEVICE", "device,"))

    result = pytester.runpytest_subprocess("--device=toy", "-n2")

    result.assert_outcomes(passed=4, failed=2)
    assert [len(Path(pytester.path / f"runs-{n}").read_text()) for n in range(6)] == [1, 2, 2, 1, 1, 1]


def test_without_replacement_a_failure_of_the_machine_is_reported_at_once(pytester: pytest.Pytester) -> None:
    result = run(pytester, INFRASTRUCTURE.replace("DEVICE", ""), "-n2", "--max-worker-restart=0")

    result.assert_outcomes(passed=3, failed=3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device=sim:1"], "*--cuassay-workers own gives each worker one device*; sim:1 is chosen; choose a kind*"),
        (["--device=cpu"], "*--cuassay-workers own gives devices to workers; none of cpu:0 can be given; *"),
    ],
    ids=["index", "cpu"],
)
def test_devices_that_cannot_be_given_are_refused(pytester: pytest.Pytester, words: list[str], told: str) -> None:
    pytester.makepyfile("def test_one(device): pass")

    result = pytester.runpytest_subprocess("-n2", "--cuassay-workers=own", *words)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told])


def test_a_lost_device_is_given_again_only_if_no_other_is_left() -> None:
    pool = DevicePool("sim", "MASK", ["a", "b"], shares=False)
    assert [pool.take(worker) for worker in ("gw0", "gw1", "gw2")] == ["a", "b", None]

    pool.fail("gw0", is_lost=True)
    pool.give_back("gw0")

    assert pool.take("gw3") is None
    pool.fail("gw1", is_lost=True)
    pool.give_back("gw1")
    assert pool.take("gw4") in ("a", "b")


def test_workers_share_evenly() -> None:
    pool = DevicePool("sim", "MASK", ["a", "b"], shares=True)

    assert [pool.take(f"gw{number}") for number in range(5)] == ["a", "b", "a", "b", "a"]


def test_a_device_that_failed_a_test_which_waits_is_given_last() -> None:
    pool = DevicePool("sim", "MASK", ["a", "b"], shares=False)

    assert pool.take("gw0", avoid={"a"}) == "b"
    assert (pool.has_other("b"), pool.is_other_free("b"), pool.is_other_free("a")) == (True, True, False)
    assert pool.take("gw1", avoid={"a"}) == "a"
    pool.fail("gw1", is_lost=True)
    assert not pool.has_other("b")
