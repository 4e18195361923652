"""The state of a GPU as NVML reports it: clocks, power, temperature, what limits the clocks, and other processes.

The driver's own library is called through ctypes: `libnvidia-ml.so.1` comes with every driver, so no package is needed.
A fact is omitted if the driver lacks its function or the GPU does not support it. Function names and codes: NVML API
reference, docs.nvidia.com/deploy/nvml-api. CUDA 13.0 deprecated some functions, and CUDA 14.0 removes them; if there is
a newer function, it is called first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

__all__ = ["REASONS", "clock_policy", "conditions", "driver_release", "is_throttled", "reasons_of"]

#: Bits of `nvmlDeviceGetCurrentClocksEventReasons`; idle (bit 0) does not explain a slow sample.
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

#: The reasons that depend on the load; the others are settings of the operator.
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80

_SUCCESS, _INSUFFICIENT_SIZE = 0, 7

_SM, _MEMORY = 1, 2

Question = Callable[[Any, Any], Any]


class _AbsentError(Exception):
    """NVML is not available; the message says why."""


def reasons_of(bits: int) -> str:
    """Describe the reasons in words, or return ``none`` if nothing limits the clocks."""
    return ", ".join(name for bit, name in REASONS.items() if bits & bit) or "none"


@cache
def driver_release() -> str:
    """Return the driver's own version, such as ``'580.159.04'``; empty if NVML does not report it."""
    from cuda.bindings import nvml

    try:
        nvml.init_v2()
        return str(nvml.system_get_driver_version())
    except Exception as error:  # its errors derive from Exception itself
        if type(error).__module__.startswith("cuda."):
            return ""
        raise


def conditions(uuid: str) -> dict[str, object]:
    """Return the current state of the GPU `uuid`, by the columns of a ``condition`` row; unknown facts are omitted.

    If NVML is not available, the only entry is `reason`, which says why.
    """
    try:
        library, handle = _library(), _handle(uuid)
    except _AbsentError as absent:
        return {"reason": str(absent)}
    asked = {name: ask(library, handle) for name, ask in _QUESTIONS.items()}
    known = {name: value for name, value in asked.items() if value is not None}
    return known or {"reason": f"NVML reports nothing of {uuid}; look at nvidia-smi"}


def is_throttled(uuid: str) -> bool | None:
    """Whether power or temperature currently limits the clocks of the GPU `uuid`; None if unknown."""
    try:
        bits = _reasons(_library(), _handle(uuid))
    except _AbsentError:
        return None
    return None if bits is None else bool(bits & THROTTLING)


def clock_policy(uuid: str) -> str | None:
    """Describe what the clocks may do, such as ``boost to 1980 MHz within 700 W``; None if unknown.

    NVML has no query for clocks that ``nvidia-smi --lock-gpu-clocks`` locked.
    """
    try:
        library, handle = _library(), _handle(uuid)
    except _AbsentError:
        return None
    most = _number("nvmlDeviceGetMaxClockInfo", _SM)(library, handle)
    chosen = _number("nvmlDeviceGetApplicationsClock", _SM)(library, handle)
    default = _number("nvmlDeviceGetDefaultApplicationsClock", _SM)(library, handle)
    watts = _watts("nvmlDeviceGetEnforcedPowerLimit")(library, handle)
    if most is None:
        return None
    is_chosen = chosen is not None and default is not None and chosen != default
    clocks = f"applications clock of {chosen} MHz" if is_chosen else f"boost to {most} MHz"
    return clocks if watts is None else f"{clocks} within {watts:g} W"


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise _AbsentError(f"NVML is not available: {error}") from error
    status = library.nvmlInit_v2()
    if status != _SUCCESS:
        raise _AbsentError(f"NVML cannot be used: nvmlInit gave {_said(library, status)}")
    return library


@cache
def _handle(uuid: str) -> Any:
    """Return the handle of a GPU; for a MIG instance, which has no clocks, the handle of its GPU."""
    library, handle, status = _library(), ctypes.c_void_p(), _SUCCESS
    for name in (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}"):
        status = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        if status == _SUCCESS:
            return _of_gpu(library, handle)
    raise _AbsentError(f"NVML does not know {uuid}: {_said(library, status)}")


def _of_gpu(library: Any, handle: ctypes.c_void_p) -> ctypes.c_void_p:
    parent = ctypes.c_void_p()
    status = _call(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle, ctypes.byref(parent))
    return parent if status == _SUCCESS and parent.value else handle


def _said(library: Any, status: int) -> str:
    """Describe a status in NVML's words."""
    try:
        library.nvmlErrorString.restype = ctypes.c_char_p
        return f"status {status} ({library.nvmlErrorString(status).decode()})"
    except (AttributeError, TypeError):
        return f"status {status}"


def _call(library: Any, function: str, *arguments: Any) -> int | None:
    """Return the status of `function`, or None if this driver's library lacks it."""
    try:
        found = getattr(library, function)
    except AttributeError:
        return None
    return int(found(*arguments))


def _number(function: str, *arguments: int, kind: Any = ctypes.c_uint) -> Question:
    """Return a query that calls `function` for one number.

    It returns None if the driver or the GPU does not support it.
    """

    def ask(library: Any, handle: Any) -> int | None:
        value = kind()
        status = _call(library, function, handle, *arguments, ctypes.byref(value))
        return int(value.value) if status == _SUCCESS else None

    return ask


def _watts(function: str) -> Question:
    def ask(library: Any, handle: Any) -> float | None:
        milliwatts = _number(function)(library, handle)
        return None if milliwatts is None else milliwatts / 1000

    return ask


def _reasons(library: Any, handle: Any) -> int | None:
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        bits: int | None = _number(function, kind=ctypes.c_ulonglong)(library, handle)
        if bits is not None:
            return bits
    return None


def _throttle(library: Any, handle: Any) -> str | None:
    bits = _reasons(library, handle)
    return None if bits is None else reasons_of(bits)


class _Temperature(ctypes.Structure):
    """``nvmlTemperature_v1_t``; sensor 0 is the GPU's."""

    _fields_ = (("version", ctypes.c_uint), ("sensor", ctypes.c_int), ("temperature", ctypes.c_int))


def _temperature(library: Any, handle: Any) -> int | None:
    asked = _Temperature(version=ctypes.sizeof(_Temperature) | 1 << 24, sensor=0)
    if _call(library, "nvmlDeviceGetTemperatureV", handle, ctypes.byref(asked)) == _SUCCESS:
        return int(asked.temperature)
    found: int | None = _number("nvmlDeviceGetTemperature", 0)(library, handle)
    return found


def _ecc(library: Any, handle: Any) -> bool | None:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    status = _call(library, "nvmlDeviceGetEccMode", handle, ctypes.byref(current), ctypes.byref(pending))
    return bool(current.value) if status == _SUCCESS else None


def _processes(library: Any, handle: Any) -> int | None:
    """Count the processes that compute on the GPU, including this one. Without a buffer NVML only counts them."""
    count = ctypes.c_uint(0)
    status = _call(library, "nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), None)
    return int(count.value) if status in (_SUCCESS, _INSUFFICIENT_SIZE) else None


_QUESTIONS: Mapping[str, Question] = {
    "sm_clock": _number("nvmlDeviceGetClockInfo", _SM),
    "memory_clock": _number("nvmlDeviceGetClockInfo", _MEMORY),
    "power": _watts("nvmlDeviceGetPowerUsage"),
    "temperature": _temperature,
    "throttle": _throttle,
    "ecc": _ecc,
    "processes": _processes,
}
