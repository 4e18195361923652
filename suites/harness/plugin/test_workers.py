"""Under xdist: equal ids, and one accelerator in one worker."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")

from cuassay import Device
from cuassay.testing.options import split_list
from cuassay.testing.presence import Presence, parse_selector
from cuassay.testing.workers import DeviceScheduling, Workers

SPREAD = """
    import pytest
    @pytest.mark.parametrize("n", range(6))
    def test_where(device, n, worker_id):
        print("ran", device, "in", worker_id)
"""


def workers_by_device(result: pytest.RunResult) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for device, worker in re.findall(r"ran (\S+) in (\S+)", result.stdout.str()):
        found.setdefault(device, set()).add(worker)
    return found


@pytest.mark.parametrize("mode", ["load", "loadfile", "worksteal"])
def test_an_accelerators_tests_stay_in_one_worker(
    pytester: pytest.Pytester, toy_kind: object, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("TOY_DEVICES", "2")
    pytester.makepyfile(SPREAD)

    result = pytester.runpytest_subprocess("-n2", f"--dist={mode}", "--device", "toy:*", "-rP")

    result.assert_outcomes(passed=12)
    workers = workers_by_device(result)
    assert {device: len(names) for device, names in workers.items()} == {"toy:0": 1, "toy:1": 1}


def test_tests_of_the_cpu_spread_over_the_workers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SPREAD)

    result = pytester.runpytest_subprocess("-n2", "--device", "cpu", "-rP")

    result.assert_outcomes(passed=6)
    assert workers_by_device(result) == {"cpu:0": {"gw0", "gw1"}}


def test_workers_are_told_the_devices_and_do_not_ask(
    pytester: pytest.Pytester, toy_kind: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_DEVICES", "2")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # this test may itself run in a worker
    pytester.makeconftest("""
        import os
        if "PYTEST_XDIST_WORKER" in os.environ:
            os.environ["TOY_DEVICES"] = "1"
    """)
    pytester.makepyfile("def test_one(device): pass")

    result = pytester.runpytest_subprocess("-n1", "--device", "toy:*", "-v")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_one?toy:1?*", "*toy:1 does not exist; 1 toy devices are here*"]
    )


def config_of(dist: str) -> Any:
    return SimpleNamespace(getvalue=lambda name: ["popen"], getoption=lambda name: dist)


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("d/f.py::t[toy:1-float32]", "toy:1"),
        ("d/f.py::C::t[float32-toy:1]", "toy:1"),
        ("d/f.py::t[toy:12]", "d/f.py"),
        ("d/f.py::t[cpu:0]", "d/f.py"),
    ],
)
def test_a_device_is_known_by_its_whole_name(nodeid: str, scope: str) -> None:
    scheduling = DeviceScheduling(config_of("loadfile"), None, ["toy:1", "toy:2"])

    assert scheduling._split_scope(nodeid) == scope


def test_a_worker_that_was_never_added_collects_for_nobody() -> None:
    """xdist shuts a replacement down before it is ready if all tests are done; then a second worker may die."""
    scheduling = DeviceScheduling(config_of("load"), None, ["toy:1"])
    added, shut_down = object(), object()
    scheduling.add_node(added)

    scheduling.add_node_collection(shut_down, ["f.py::t"])
    scheduling.add_node_collection(added, ["f.py::t"])

    assert scheduling.registered_collections == {added: ["f.py::t"]}


@pytest.mark.parametrize(("devices", "is_ours"), [(("cpu", "sim"), False), (("cpu", "toy"), True)], ids=str)
def test_host_kinds_leave_the_scheduler_to_xdist(devices: tuple[str, ...], is_ours: bool) -> None:
    presence: Any = SimpleNamespace(devices=tuple(map(Device, devices)))

    found = Workers(presence).pytest_xdist_make_scheduler(config_of("load"), None)

    assert (found is not None) is is_ours


def test_a_worker_knows_why_a_kind_is_absent() -> None:
    told = {"wanted": ["cpu"], "devices": ["cpu:0"], "counts": {"cpu": 1, "toy": 0}, "reasons": {"toy": "unplugged"}}

    assert Presence.from_controller(told).absent == {"toy": "unplugged"}


def test_devices_are_chosen_by_name_and_each_once() -> None:
    assert split_list(["cpu, sim", "cpu"]) == ("cpu", "sim")
    assert [parse_selector("all").matches(Device(name)) for name in ("cpu:0", "sim:0", "sim:1")] == [True, True, False]


def test_the_head_says_how_a_device_is_shared(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from cuassay.devices import backend

        backend("sim").sharing = lambda index: {"mig": "1g.18gb", "mps": "on"} if index else {}
    """)
    pytester.makepyfile("def test_one(device): pass")

    result = pytester.runpytest_subprocess("--device", "sim:*")

    lines = [line for line in result.outlines if line.startswith("cuassay: sim")]
    assert lines == ["cuassay: sim:1: MIG 1g.18gb, MPS on"]
