"""Tell failures of the machine from failures of a test: a lost GPU, a missing driver, memory held by other processes.

Libraries often wrap such an error in their own, so the whole chain of an exception is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuassay.core.device import Device

__all__ = ["FAILED_BY_THE_MACHINE", "LOST_GPU", "chain", "infrastructure_failure"]

#: The start of the reason of a test that such a failure ended.
FAILED_BY_THE_MACHINE = "failed by the machine"

#: The cause after which a device is avoided, if there is another.
LOST_GPU = "the GPU is lost"

#: Cause to a pattern for the messages of CUDA, CuPy, torch and NVML. Errors that a kernel can cause are left out.
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

#: If other processes hold more than this fraction of the memory, running out of it is not the test's fault.
_NEIGHBOURS_SHARE = 0.1


def infrastructure_failure(error: BaseException, device: Device | None = None) -> str | None:
    """The failure of the machine that caused `error`, or None if the test itself may be at fault.

    Parameters
    ----------
    error : BaseException
        Its causes, contexts and group members are searched as well; assertion messages are ignored.
    device : Device, optional
        The device that ran out of memory, if `error` is a `MemoryError`.
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
    """`error` and all exceptions that led to it, each once."""
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
    """The fraction of the device's memory that other processes hold; 0 if it is small or unknown."""
    from cuassay.devices import backend

    owner = backend(device.kind)
    in_use = getattr(owner, "memory_in_use", None)
    if in_use is None:
        return 0.0
    free, total = owner.memory_info(device.index)
    share = (total - free - in_use(device.index)) / total
    return share if share > _NEIGHBOURS_SHARE else 0.0
