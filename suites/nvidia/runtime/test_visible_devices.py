"""Which devices are visible, without a driver or with one that misbehaves; no GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from cuassay.devices.cuda.driver import visible
from cuassay.devices.cuda.driver.visible import Found

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
def test_the_mask_is_read_as_the_driver_reads_it(text: str | None, expected: list[Any]) -> None:
    assert visible.parse(text, UUIDS) == expected


@pytest.mark.parametrize("mask", ["", "-1", "NoDevFiles", "-1,0"])
def test_a_mask_that_hides_everything_starts_no_process(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    monkeypatch.setattr(subprocess, "run", None)

    found = visible.probe()

    assert found.devices == ()
    assert found.reason == f"CUDA_VISIBLE_DEVICES={mask!r} hides every device"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(visible, "_nvml_count", lambda: None)
    visible._probe.cache_clear()
    yield
    visible._probe.cache_clear()


def test_a_driver_that_hangs_is_given_up(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "_CHILD", "import time; time.sleep(60)")
    monkeypatch.setenv("CUASSAY_PROBE_SECONDS", "0.2")

    assert "did not answer within 0.2 s" in visible.probe().reason


def test_a_driver_that_crashes_is_reported(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "_CHILD", "import os; os._exit(3)")

    assert visible.probe().reason == "the process that asked the CUDA driver ended with status 3"


def test_the_devices_keep_the_drivers_order(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = '{"devices": [{"name": "B", "uuid": "2"}, {"name": "A", "uuid": "1"}], "version": 13000, "reason": ""}'
    monkeypatch.setattr(visible, "_CHILD", f"print('''{answer}''')")

    assert [device.name for device in visible.probe().devices] == ["B", "A"]


def test_the_driver_is_asked_once(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
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


WHOLE = visible.Found("NVIDIA H200", "5a1b0000-0000-0000-0000-000000000001")
SLICE = visible.Found("NVIDIA H200 MIG 1g.18gb", "5a1b0000-0000-0000-0000-000000000002")
SHARED = visible.Found("NVIDIA H200", "5a1b0000-0000-0000-0000-000000000003", mps=True)


@pytest.mark.parametrize(
    ("found", "word", "sharing"),
    [
        (WHOLE, "GPU-5a1b0000-0000-0000-0000-000000000001", {}),
        (SLICE, "MIG-5a1b0000-0000-0000-0000-000000000002", {"mig": "1g.18gb"}),
        (SHARED, "GPU-5a1b0000-0000-0000-0000-000000000003", {"mps": "on"}),
    ],
    ids=["whole", "mig", "mps"],
)
def test_a_device_says_how_it_is_selected_and_shared(
    found: Found, word: str, sharing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)

    assert (found.word, found.sharing()) == (word, sharing)


def test_the_part_of_the_threads_that_mps_gives_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")

    assert SHARED.sharing() == {"mps": "on, 25 % of the threads"}


def test_the_words_of_a_masked_process_select_the_same_devices(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = '{"devices": [{"name": "A", "uuid": "2", "mps": false}, {"name": "A MIG 1g", "uuid": "1"}], "reason": ""}'
    monkeypatch.setattr(visible, "_CHILD", f"print('''{answer.replace('false', 'true')}''')")

    variable, words = visible.visibility()

    assert (variable, words) == ("CUDA_VISIBLE_DEVICES", ["GPU-2", "MIG-1"])
    assert [visible.sharing(index) for index in range(3)] == [{"mps": "on"}, {"mig": "1g"}, {}]
