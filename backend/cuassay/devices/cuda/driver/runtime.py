"""CUDA devices: whether there are any, what they are, which one is current.

Counting devices does not initialise CUDA in this process (see `visible`). Properties need the driver to be initialised,
but no context: they come from ``cuDevice*`` calls, so no primary context is made on a device that nobody requested.
After a fork every call that would use the driver raises `ForkError`.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from cuassay.core import syncdebug
from cuassay.devices.cuda.driver import forks, visible
from cuassay.devices.cuda.driver.check import check, error_of, guarded, is_sticky
from cuassay.errors import DeviceError, DeviceLostError

__all__ = [
    "Properties",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "driver_version",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_initialized",
    "mem_get_info",
    "poisoned",
    "set_device",
    "synchronize",
    "why_unavailable",
]


@dataclass
class _State:
    initialized: bool = False


_state = _State()
_lock = threading.RLock()


# ------------------------------------------------------------------------------------------------ is anything there


def why_unavailable() -> str | None:
    """Return why no CUDA device can be used, or None; uses no driver in this process."""
    return visible.probe().reason or None


def is_available() -> bool:
    """Whether at least one CUDA device can be used; uses no driver in this process, so it is safe before a fork."""
    return why_unavailable() is None


def device_count() -> int:
    """Return the number of visible CUDA devices; uses no driver in this process, so it is safe before a fork.

    Once the driver is initialised here, the count is fixed, and changes of the environment have no effect.
    """
    return _counted() if is_initialized() else len(visible.probe().devices)


@cache
def _counted() -> int:
    from cuda.bindings import driver

    return int(check(driver.cuDeviceGetCount(), "counting CUDA devices"))


def init() -> None:
    """Initialise the driver, before it is used; no context is made.

    Raises
    ------
    ForkError
        In a child forked after the parent initialised it.
    DeviceError
        If there is no device.
    LibraryNotFoundError
        If there is no driver.
    """
    if forks.is_child():
        raise forks.error()
    if _state.initialized:
        return
    with _lock, guarded("libcuda"):
        from cuda.bindings import driver

        if forks.is_refused():  # the parent used CUDA before `forks` was there to see it
            raise forks.error()
        check(driver.cuInit(0), "initialising the CUDA driver")
        _state.initialized = True


def is_initialized() -> bool:
    """Whether `init` was called in this process."""
    return _state.initialized and not forks.is_child()


def driver_version() -> str:
    """Return the newest CUDA version that the driver supports, such as ``13.0``; empty if there is no driver."""
    version = visible.probe().version
    return f"{version // 1000}.{version % 1000 // 10}" if version else ""


# ------------------------------------------------------------------------------------------------ what it is


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a device, with torch's names. Memory and caches in bytes, rates in kHz, bus width in bits."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    is_integrated: bool
    is_multi_gpu_board: bool
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int
    uuid: uuid.UUID

    @property
    def bandwidth(self) -> float:
        """The peak rate of the memory in bytes per second: two transfers per clock."""
        return 2e3 * self.memory_clock_rate * self.memory_bus_width / 8


#: Maps each field to the driver's attribute.
_ATTRIBUTES = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "warp_size": "WARP_SIZE",
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "regs_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_memory_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "L2_cache_size": "L2_CACHE_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "is_integrated": "INTEGRATED",
    "is_multi_gpu_board": "MULTI_GPU_BOARD",
    "pci_bus_id": "PCI_BUS_ID",
    "pci_device_id": "PCI_DEVICE_ID",
    "pci_domain_id": "PCI_DOMAIN_ID",
}


def get_device_properties(index: int | None = None) -> Properties:
    """Return the properties of device `index` (None: the current one); makes no context.

    Raises
    ------
    DeviceError
        If there is no such device.
    """
    return _properties(_index(index))


@cache
def _properties(index: int) -> Properties:
    from cuda.bindings import driver

    handle, doing = _handle(index), f"asking cuda:{index} for its properties"
    attributes = driver.CUdevice_attribute
    numbers: dict[str, Any] = {
        field: check(driver.cuDeviceGetAttribute(getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), handle), doing)
        for field, name in _ATTRIBUTES.items()
    }
    for flag in ("is_integrated", "is_multi_gpu_board"):
        numbers[flag] = bool(numbers[flag])
    name = check(driver.cuDeviceGetName(256, handle), doing).split(b"\0")[0].decode()
    ask_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)  # the first version gives a MIG's GPU
    identifier = uuid.UUID(bytes=bytes(check(ask_uuid(handle), doing).bytes))
    return Properties(
        name=name, total_memory=int(check(driver.cuDeviceTotalMem(handle), doing)), uuid=identifier, **numbers
    )


def get_device_name(index: int | None = None) -> str:
    """Return the name of device `index`, such as ``NVIDIA H200``."""
    return get_device_properties(index).name


def get_device_capability(index: int | None = None) -> tuple[int, int]:
    """Return the compute capability of device `index`: (major, minor)."""
    properties = get_device_properties(index)
    return properties.major, properties.minor


def can_device_access_peer(index: int, peer: int) -> bool:
    """Whether device `index` can read and write the memory of device `peer` directly; makes no context."""
    from cuda.bindings import driver

    asked = driver.cuDeviceCanAccessPeer(_handle(index), _handle(peer))
    return bool(check(asked, f"asking whether cuda:{index} can access cuda:{peer}"))


def _handle(index: int) -> Any:
    init()
    from cuda.bindings import driver

    count = _counted()
    if not 0 <= index < count:
        mask = os.environ.get("CUDA_VISIBLE_DEVICES")
        shown = "unset" if mask is None else repr(mask)
        raise DeviceError(
            f"cuda:{index} does not exist; {count} CUDA device{'s are' if count != 1 else ' is'} visible "
            f"(CUDA_VISIBLE_DEVICES {shown}); give an index below {count}"
        )
    return check(driver.cuDeviceGet(index), f"opening cuda:{index}")


# ------------------------------------------------------------------------------------------------ which is current


def _index(index: int | None) -> int:
    return current_device() if index is None else int(index)


def current_device() -> int:
    """Return the index of this thread's current device; makes no context."""
    init()
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def set_device(index: int) -> None:
    """Make device `index` current for this thread, and make its primary context; a negative index has no effect.

    Raises
    ------
    DeviceError
        If there is no such device.
    """
    if index < 0:
        return
    _handle(index)
    import cupy

    cupy.cuda.runtime.setDevice(index)


@contextmanager
def device(index: int) -> Iterator[None]:
    """Make device `index` current for this thread inside the block; a negative index has no effect."""
    before = current_device()
    if index == before or index < 0:
        yield
        return
    set_device(index)
    try:
        yield
    finally:
        set_device(before)


def synchronize(index: int | None = None) -> None:
    """Block the host until all work submitted to device `index` is done.

    Raises
    ------
    DeviceLostError
        If the context is found dead.
    SynchronizationError
        If the sync debug mode forbids it.
    """
    from cuda.bindings import runtime

    syncdebug.waits("synchronize")
    with device(_index(index)):
        check(runtime.cudaDeviceSynchronize(), f"waiting for cuda:{_index(index)}")


def mem_get_info(index: int | None = None) -> tuple[int, int]:
    """Return the free and the total memory of device `index` in bytes; makes its context."""
    from cuda.bindings import runtime

    with device(_index(index)):
        free, total = check(runtime.cudaMemGetInfo(), f"asking cuda:{_index(index)} for its free memory")
    return int(free), int(total)


def poisoned(index: int) -> str | None:
    """Return why nothing can run on device `index` in this process any more, or None; makes no context.

    This waits for the device, because a fault shows only after the kernel has run.
    """
    if not is_initialized() and not _is_initialized_by_others():
        return None
    try:
        return _probed(index)
    except DeviceLostError as error:
        return str(error)


def _is_initialized_by_others() -> bool:
    """Whether a library of this process, such as CuPy or torch, has initialised the driver."""
    if sys.modules.keys().isdisjoint(("cupy", "jax", "numba.cuda", "torch")) or forks.is_child():
        return False
    from cuda.bindings import driver

    return int(driver.cuDeviceGetCount()[0]) == 0  # before cuInit this call fails


def _probed(index: int) -> str | None:
    from cuda.bindings import driver

    handle = _handle(index)
    _, active = check(driver.cuDevicePrimaryCtxGetState(handle), f"asking for the context of cuda:{index}")
    if not active:
        return None
    with _primary(handle) as failed:
        status = failed or driver.cuCtxSynchronize()[0]
    return str(error_of(status, f"probing cuda:{index}")) if status and is_sticky(status.name) else None


@contextmanager
def _primary(handle: Any) -> Iterator[Any]:
    """Make the device's primary context current inside the block; yield the status if that fails."""
    from cuda.bindings import driver

    status, context = driver.cuDevicePrimaryCtxRetain(handle)
    if status:
        yield status
        return
    try:
        (status,) = driver.cuCtxPushCurrent(context)
        yield status or None
        if not status:
            driver.cuCtxPopCurrent()
    finally:
        driver.cuDevicePrimaryCtxRelease(handle)
