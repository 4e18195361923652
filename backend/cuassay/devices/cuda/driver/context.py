"""What a stream's or an event's call needs around it: the right device current, and a refusal in words.

Handles of streams and events carry their device with them; only address 0, the default stream, means that of the
device that is current.
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

#: ``cudaErrorNotReady``: what a query answers while work is under way.
NOT_READY = 600

#: Addresses of default streams: the legacy one by two names, each thread's own.
_DEFAULTS = (0, 1, 2)

_device = cupy.cuda.runtime.getDevice


def at(index: int) -> AbstractContextManager[Any]:
    """Make device `index` current where it is not; a negative index means the current one."""
    if index < 0 or _device() == index:
        return nullcontext()
    device: AbstractContextManager[Any] = cupy.cuda.Device(index)
    return device


def index_of(device: int | str | Device | None) -> int:
    """The index of `device`: an index, ``"cuda:1"``, a `Device`; None is the current one.

    Raises
    ------
    DeviceError
        If it is of another kind.
    """
    if device is None:
        return int(_device())
    return index_on("cuda", device)


def device_of_stream(address: int, stream: Any = None) -> int | None:
    """The device of the stream at `address`, by `stream`, its object, if that tells; None where nothing does.

    So it is with one device, of a default stream's address, within a capture of the stream, which the driver's answer
    would break, and before CUDA 12.8.
    """
    known = getattr(stream, "device_id", None)  # of CuPy's default stream -1
    if isinstance(known, int) and known >= 0:
        return known
    from cuda.bindings import runtime as cudart

    ask = getattr(cudart, "cudaStreamGetDevice", None)
    if runtime.device_count() == 1 or address in _DEFAULTS or ask is None or capture_status(address) != "none":
        return None
    with relaxed():  # another thread may be capturing
        return int(check(ask(address), f"asking for the device of the stream at {address:#x}"))


def refusal(status: int, doing: str) -> Exception:
    """The exception for a runtime call's `status`: in a forked child, that it is one."""
    from cuda.bindings import runtime as cudart

    return forks.error() if forks.is_child() else error_of(cudart.cudaError_t(status), doing)


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """CuPy's errors inside the block become ours, which say what to do."""
    try:
        yield
    except CUDARuntimeError as error:
        raise refusal(error.status, doing) from error


def refused_in_child(names: dict[str, Any], *calls: str) -> None:
    """From a fork on, these `calls` of a module's `names` raise in the child, where the parent's handles mean nothing.

    Left alone, a query there would answer "done".
    """

    def replace() -> None:
        if forks.is_child():
            names.update(dict.fromkeys(calls, _refuse))

    os.register_at_fork(after_in_child=replace)


def _refuse(*_: Any) -> NoReturn:
    raise forks.error()


refused_in_child(globals(), "_device")
