"""Under xdist: equal ids, and one accelerator in one worker."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("xdist")

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
