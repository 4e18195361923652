"""What calls on streams and events need: the right device must be current, and errors must be explained.

Handles of streams and events imply their device; only address 0, the default stream, means the current device's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

import cupy

from cuassay.core.device import Device, index_on
from cuassay.devices.cuda.driver import forks, runtime
from cuassay.devices.cuda.driver.check import check, error_of
from cuassay.devices.cuda.driver.graph_driver import capture_status, relaxed

__all__ = [
    "NOT_READY",
    "CUDARuntimeError",
    "at",
    "device_of_stream",
    "explained",
    "index_of",
    "refusal",
    "refused_in_child",
]

CUDARuntimeError: Any = cupy.cuda.runtime.CUDARuntimeError

#: ``cudaErrorNotReady``: the status of a query while work is running.
NOT_READY = 600

#: Addresses of default streams: the legacy one by two names, and each thread's own.
_DEFAULTS = (0, 1, 2)

_device = cupy.cuda.runtime.getDevice


def at(index: int) -> AbstractContextManager[Any]:
    """Make device `index` current if it is not; a negative index means the current one."""
    if index < 0 or _device() == index:
        return nullcontext()
    device: AbstractContextManager[Any] = cupy.cuda.Device(index)
    return device


def index_of(device: int | str | Device | None) -> int:
    """Return the index of `device`: an index, ``"cuda:1"`` or a `Device`; None is the current one.

    Raises
    ------
    DeviceError
        If the device is of another kind.
    """
    if device is None:
        return int(_device())
    return index_on("cuda", device)


def device_of_stream(address: int, stream: Any = None) -> int | None:
    """Return the device of the stream at `address`, using its object `stream` if that tells it; None if unknown.

    The device is unknown if there is only one, for the address of a default stream, during a capture of the stream
    (which a query would break), and before CUDA 12.8.
    would break, and before CUDA 12.8.
    """
    known = getattr(stream, "device_id", None)  # CuPy's default stream has -1
    if isinstance(known, int) and known >= 0:
        return known
    from cuda.bindings import runtime as cudart

    ask = getattr(cudart, "cudaStreamGetDevice", None)
    if runtime.device_count() == 1 or address in _DEFAULTS or ask is None or capture_status(address) != "none":
        return None
    with relaxed():  # another thread may be capturing
        return int(check(ask(address), f"asking for the device of the stream at {address:#x}"))


def refusal(status: int, doing: str) -> Exception:
    """Return the exception for a runtime call's `status`; in a forked child, the error that explains the fork."""
    from cuda.bindings import runtime as cudart

    return forks.error() if forks.is_child() else error_of(cudart.cudaError_t(status), doing)


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Convert CuPy's errors inside the block to cuassay's, which say what to do."""
    try:
        yield
    except CUDARuntimeError as error:
        raise refusal(error.status, doing) from error


def refused_in_child(names: dict[str, Any], *calls: str) -> None:
    """Make these `calls` of a module's `names` raise in forked children, where the parent's handles are meaningless.

    Otherwise a query there would report that the work is done.
    """

    def replace() -> None:
        if forks.is_child():
            names.update(dict.fromkeys(calls, _refuse))

    os.register_at_fork(after_in_child=replace)


def _refuse(*_: Any) -> NoReturn:
    raise forks.error()


refused_in_child(globals(), "_device")
