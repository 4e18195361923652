"""The state of a card as NVML tells it: clocks, power, temperature, what holds the clocks down, who else is there.

The driver's own library is asked through ctypes: `libnvidia-ml.so.1` comes with every driver, so that no package is
needed. Function names and codes: NVML API reference, docs.nvidia.com/deploy/nvml-api.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

__all__ = ["REASONS", "conditions", "reasons_of"]

#: Bits of `nvmlDeviceGetCurrentClocksThrottleReasons`; idle (bit 0) is not a reason of a slow sample.
REASONS: Mapping[int, str] = {
    0x2: "applications clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}

_SUCCESS, _INSUFFICIENT_SIZE = 0, 7

_SM, _MEMORY = 1, 2


def reasons_of(bits: int) -> str:
    """The reasons in words, ``none`` where nothing holds the clocks down."""
    return ", ".join(name for bit, name in REASONS.items() if bits & bit) or "none"


def conditions(uuid: str) -> dict[str, object]:
    """The state of the card `uuid` now, by the columns of a ``condition`` row; what cannot be asked is left out.

    Where NVML is not there, only `reason` says why.
    """
    try:
        library = _library()
    except OSError as error:
        return {"reason": f"NVML is not there: {error}"}
    handle = ctypes.c_void_p()
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    status = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    if status != _SUCCESS:
        return {"reason": f"NVML does not know {name}: status {status}"}
    asked = {name: ask(library, handle) for name, ask in _QUESTIONS.items()}
    return {name: value for name, value in asked.items() if value is not None}


@cache
def _library() -> Any:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    status = library.nvmlInit_v2()
    if status != _SUCCESS:
        raise OSError(f"nvmlInit gave status {status}")
    return library


def _number(function: str, *arguments: int, kind: Any = ctypes.c_uint) -> Callable[[Any, Any], int | None]:
    """Asks `function` for one number; None where the card does not tell it."""

    def ask(library: Any, handle: Any) -> int | None:
        value = kind()
        status = getattr(library, function)(handle, *arguments, ctypes.byref(value))
        return int(value.value) if status == _SUCCESS else None

    return ask


def _power(library: Any, handle: Any) -> float | None:
    milliwatts = _number("nvmlDeviceGetPowerUsage")(library, handle)
    return None if milliwatts is None else milliwatts / 1000


def _throttle(library: Any, handle: Any) -> str | None:
    bits = _number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)(library, handle)
    return None if bits is None else reasons_of(bits)


def _ecc(library: Any, handle: Any) -> bool | None:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    status = library.nvmlDeviceGetEccMode(handle, ctypes.byref(current), ctypes.byref(pending))
    return bool(current.value) if status == _SUCCESS else None


def _processes(library: Any, handle: Any) -> int | None:
    """How many processes compute on the card, this one with them."""
    count = ctypes.c_uint(0)
    status = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    return int(count.value) if status in (_SUCCESS, _INSUFFICIENT_SIZE) else None


_QUESTIONS: Mapping[str, Callable[[Any, Any], object]] = {
    "sm_clock": _number("nvmlDeviceGetClockInfo", _SM),
    "memory_clock": _number("nvmlDeviceGetClockInfo", _MEMORY),
    "power": _power,
    "temperature": _number("nvmlDeviceGetTemperature", 0),
    "throttle": _throttle,
    "ecc": _ecc,
    "processes": _processes,
}
