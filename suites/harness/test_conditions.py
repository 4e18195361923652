"""What a device was like while it was measured: NVML's answers, and when they are asked for."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay import devices
from cuassay.benchmarking import conditions as watching
from cuassay.benchmarking.conditions import EVERY_SECONDS, Watch
from cuassay.devices.cuda.driver import nvml

ANSWERS = {
    "nvmlDeviceGetHandleByUUID": 7,
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetPowerUsage": 412_500,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x24,
}


class Library:
    """Answers as NVML does, through the last argument; functions that it lacks give status 3, not supported."""

    def __init__(self, **answers: int) -> None:
        self.answers = {**ANSWERS, **answers}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == "nvmlDeviceGetComputeRunningProcesses_v3":
                arguments[1]._obj.value = 2
                return 7  # an array of none is too small for two
            if name not in self.answers:
                return 3
            arguments[-1]._obj.value = self.answers[name]
            return 0

        return call


def test_the_state_of_a_card_is_told_in_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_library", Library)

    assert nvml.conditions("bea700dc") == {
        "sm_clock": 1980,
        "memory_clock": 1980,
        "power": 412.5,
        "temperature": 61,
        "throttle": "power cap, thermal (software)",
        "processes": 2,  # and no ecc, which this card does not tell
    }


def test_without_nvml_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError("cannot open shared object file")

    nvml._library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", absent)

    assert nvml.conditions("bea700dc") == {"reason": "NVML is not there: cannot open shared object file"}


@pytest.mark.parametrize(("bits", "words"), [(0, "none"), (1, "none"), (0x40, "thermal (hardware)")])
def test_an_idle_clock_is_not_throttled(bits: int, words: str) -> None:
    assert nvml.reasons_of(bits) == words


def test_a_device_is_looked_at_before_now_and_then_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(type(devices.backend("sim")), "conditions", lambda self, index: {"power": 1.0}, raising=False)
    rows: list[tuple[str, Any]] = []
    watch = Watch(lambda record, **columns: rows.append((record, columns.get("when") or columns["limit"])))

    for seconds in (0.0, 1.0, EVERY_SECONDS, 1.0):
        now += seconds
        watch.look("sim")
    watch.close()
    watch.close()

    before, during, after = (("condition", when) for when in ("before", "during", "after"))
    assert rows == [before, ("limit", "empty"), during, after, ("limit", "empty")]
