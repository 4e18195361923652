"""Failures of the machine, told from failures of a test: a lost GPU, a driver that is not there, a neighbour's memory.

A library often wraps such an error in one of its own, so that the whole chain of an exception is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuassay.core.device import Device

__all__ = ["FAILED_BY_THE_MACHINE", "LOST_GPU", "chain", "infrastructure_failure"]

#: How the reason of a test begins that such a failure ended.
FAILED_BY_THE_MACHINE = "failed by the machine"

#: The cause after which a device is not used again, if there is another.
LOST_GPU = "the GPU is lost"

#: What is wrong to what CUDA, CuPy, torch and NVML say of it. An error that a test's own kernel can cause is not here.
CAUSES = {
    LOST_GPU: (r"ECC_?UNCORRECTABLE|uncorrectable ECC|NVLINK_?UNCORRECTABLE|GPU is lost|fallen off the bus|\bXid\b"),
    "another process holds the GPU": r"DEVICE_UNAVAILABLE|DevicesUnavailable|CUDA-capable device\(s\) is/are busy",
    "no driver": (
        r"CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|no CUDA-capable device|INSUFFICIENT_DRIVER|InsufficientDriver"
        r"|driver version is insufficient|DRIVER_MISMATCH|DriverMismatch|Driver/library version mismatch"
        r"|SYSTEM_NOT_READY|SystemNotReady|libcuda\.so\S*: cannot open"
    ),
}
_CAUSES = {cause: re.compile(pattern) for cause, pattern in CAUSES.items()}

#: Share of a device's memory that others must hold, so that running out of it is not the test's fault.
_NEIGHBOURS_SHARE = 0.1


def infrastructure_failure(error: BaseException, device: Device | None = None) -> str | None:
    """What of the machine made a test fail with `error`, or None where the test itself may be at fault.

    Parameters
    ----------
    error : BaseException
        It, its causes and contexts, and the members of groups are looked at; the words of an assertion are not.
    device : Device, optional
        The one that ran out of memory, should `error` say so.
    """
    for found in chain(error):
        if isinstance(found, AssertionError):
            continue
        text = f"{type(found).__name__}: {found}"
        for cause, pattern in _CAUSES.items():
            if pattern.search(text):
                return f"{cause}: {text.partition(chr(10))[0]}"
        if isinstance(found, MemoryError) and device is not None and (held := _held_by_others(device)):
            return f"other processes hold {held:.0%} of the memory of {device}"
    return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """`error` and all that led to it, each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        members = found.exceptions if isinstance(found, BaseExceptionGroup) else ()
        waiting += [one for one in (*members, found.__cause__, found.__context__) if one is not None]


def _held_by_others(device: Device) -> float:
    """The share of the device's memory that is neither free nor this process's; 0 where it is small or unknown."""
    from cuassay.devices import backend

    owner = backend(device.kind)
    in_use = getattr(owner, "memory_in_use", None)
    if in_use is None:
        return 0.0
    free, total = owner.memory_info(device.index)
    share = (total - free - in_use(device.index)) / total
    return share if share > _NEIGHBOURS_SHARE else 0.0
