"""Which devices are visible, without a driver or with one that misbehaves; no GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cuassay.devices.cuda.driver import visible

UUIDS = ("GPU-aa11", "GPU-ab22", "GPU-cc33", "MIG-dd44")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("1x,2", [1, 2]),
        ("+1", [1]),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("NoDevFiles", []),
        ("0,junk,1", [0]),
        ("0,1,0", []),
        ("GPU-aa", [0]),
        ("GPU-cc33,GPU-aa11", [2, 0]),
        ("GPU-a", []),
        ("GPU-cc,2", []),
        ("GPU-zz,0", []),
        ("MIG-dd44", [3]),
        ("gpu-aa11", []),
    ],
    ids=repr,
)
def test_the_mask_is_read_as_the_driver_reads_it(text, expected) -> None:
    assert visible.parse(text, UUIDS) == expected


@pytest.mark.parametrize("mask", ["", "-1", "NoDevFiles", "-1,0"])
def test_a_mask_that_hides_everything_starts_no_process(mask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    monkeypatch.setattr(subprocess, "run", None)

    found = visible.probe()

    assert found.devices == ()
    assert found.reason == f"CUDA_VISIBLE_DEVICES={mask!r} hides every device"


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(visible, "_nvml_count", lambda: None)
    visible._probe.cache_clear()
    yield
    visible._probe.cache_clear()


def test_a_driver_that_hangs_is_given_up(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "_CHILD", "import time; time.sleep(60)")
    monkeypatch.setenv("CUASSAY_PROBE_SECONDS", "0.2")

    assert "did not answer within 0.2 s" in visible.probe().reason


def test_a_driver_that_crashes_is_reported(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "_CHILD", "import os; os._exit(3)")

    assert visible.probe().reason == "the process that asked the CUDA driver ended with status 3"


def test_the_devices_keep_the_drivers_order(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = '{"devices": [{"name": "B", "uuid": "2"}, {"name": "A", "uuid": "1"}], "version": 13000, "reason": ""}'
    monkeypatch.setattr(visible, "_CHILD", f"print('''{answer}''')")

    assert [device.name for device in visible.probe().devices] == ["B", "A"]


def test_the_driver_is_asked_once(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "_CHILD", 'print(\'{"devices": [], "reason": "first"}\')')
    visible.probe()
    monkeypatch.setattr(visible, "_CHILD", 'print(\'{"devices": [], "reason": "second"}\')')

    assert visible.probe().reason == "first"


def test_asking_initialises_no_driver_in_this_process() -> None:
    code = (
        "import cuassay.cuda as c; c.is_available(); c.device_count(); "
        "from cuassay.devices.cuda.driver import forks; print(forks.driver_is_up())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "False"
