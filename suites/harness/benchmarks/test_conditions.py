"""What a device was like while it was measured: NVML's answers, and when they are asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay import devices
from cuassay.benchmarking import conditions as watching
from cuassay.benchmarking.conditions import EVERY_SECONDS, Watch
from cuassay.devices.cuda.driver import nvml

ANSWERS: dict[str, Any] = {
    "uuids": (b"GPU-bea700dc",),
    "nvmlDeviceGetHandleByUUID": 7,
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetPowerUsage": 412_500,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
}


class Library:
    """Answers as NVML does, through the last argument, by names of functions; a status other than 0 is an `int`."""

    def __init__(self, lacks: tuple[str, ...] = (), **answers: Any) -> None:
        self.answers = {**ANSWERS, **answers}
        self.lacks = lacks

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name == "nvmlDeviceGetComputeRunningProcesses_v3":
                arguments[1]._obj.value = 2
                return 7  # an array of none is too small for two
            if name == "nvmlDeviceGetTemperatureV":
                arguments[-1]._obj.temperature = 62
                return 0
            if name == "nvmlDeviceGetHandleByUUID" and arguments[0] not in self.answers["uuids"]:
                return 6
            if name not in self.answers:
                return 3
            arguments[-1]._obj.value = self.answers[name]
            return 0

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts a library in the place of NVML."""

    def put(*lacks: str, **answers: Any) -> None:
        nvml._handle.cache_clear()
        monkeypatch.setattr(nvml, "_library", lambda: Library(lacks, **answers))

    yield put
    nvml._handle.cache_clear()


def test_the_state_of_a_gpu_is_told_in_units(library: Callable[..., None]) -> None:
    library()

    assert nvml.conditions("bea700dc") == {
        "sm_clock": 1980,
        "memory_clock": 1980,
        "power": 412.5,
        "temperature": 62,
        "throttle": "power cap, thermal (software)",
        "processes": 2,  # and no ecc, which this GPU does not report
    }


def test_functions_that_a_driver_lacks_are_replaced_by_older_ones(library: Callable[..., None]) -> None:
    library("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetEccMode")

    found = nvml.conditions("bea700dc")

    assert (found["throttle"], found["temperature"]) == ("power cap", 61)


def test_a_newer_function_is_asked_first(library: Callable[..., None]) -> None:
    library("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature")  # CUDA 14.0 removes these

    assert nvml.conditions("bea700dc").keys() >= {"throttle", "temperature"}


def test_the_state_of_a_mig_instance_is_that_of_its_gpu(library: Callable[..., None]) -> None:
    library(uuids=(b"MIG-bea700dc",), nvmlDeviceGetDeviceHandleFromMigDeviceHandle=99)

    assert nvml.conditions("bea700dc")["sm_clock"] == 1980
    assert nvml._handle("bea700dc").value == 99


def test_a_gpu_that_nvml_does_not_know_has_a_reason(library: Callable[..., None]) -> None:
    library(uuids=())

    assert nvml.conditions("bea700dc") == {"reason": "NVML does not know bea700dc: status 6"}
    assert (nvml.is_throttled("bea700dc"), nvml.clock_policy("bea700dc")) == (None, None)


def test_without_nvml_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError("cannot open shared object file")

    nvml._library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", absent)

    assert nvml.conditions("bea700dc") == {"reason": "NVML is not available: cannot open shared object file"}


@pytest.mark.parametrize(("bits", "words"), [(0, "none"), (1, "none"), (0x40, "thermal (hardware)")])
def test_an_idle_clock_is_not_throttled(bits: int, words: str) -> None:
    assert nvml.reasons_of(bits) == words


@pytest.mark.parametrize(("bits", "held"), [(0, False), (0x1, False), (0x2, False), (0x4, True), (0x42, True)])
def test_a_setting_of_the_operator_is_not_throttling(bits: int, held: bool, library: Callable[..., None]) -> None:
    library(nvmlDeviceGetCurrentClocksEventReasons=bits)

    assert nvml.is_throttled("bea700dc") is held


@pytest.mark.parametrize(
    ("answers", "policy"),
    [
        ({}, None),
        ({"nvmlDeviceGetMaxClockInfo": 1980}, "boost to 1980 MHz"),
        (
            {"nvmlDeviceGetMaxClockInfo": 1980, "nvmlDeviceGetEnforcedPowerLimit": 700_000},
            "boost to 1980 MHz within 700 W",
        ),
        (
            {
                "nvmlDeviceGetMaxClockInfo": 1980,
                "nvmlDeviceGetApplicationsClock": 1500,
                "nvmlDeviceGetDefaultApplicationsClock": 1980,
            },
            "applications clock of 1500 MHz",
        ),
        (
            {
                "nvmlDeviceGetMaxClockInfo": 1980,
                "nvmlDeviceGetApplicationsClock": 1830,
                "nvmlDeviceGetDefaultApplicationsClock": 1830,
            },
            "boost to 1980 MHz",
        ),
    ],
    ids=["unknown", "boost", "power-limit", "applications-clock", "default-applications-clock"],
)
def test_the_clock_policy(answers: dict[str, int], policy: str | None, library: Callable[..., None]) -> None:
    library(**answers)

    assert nvml.clock_policy("bea700dc") == policy


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


def test_a_dead_device_is_not_asked_for_its_empty_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(devices.backend("sim")), "health", lambda self, index: "its context is dead")
    rows: list[tuple[str, Any]] = []

    Watch(lambda record, **columns: rows.append((record, columns))).look("sim")

    assert rows == [("condition", {"device": "sim:0", "when": "before", "reason": "its context is dead"})]
