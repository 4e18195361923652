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

from cuassay.core.device import Device
from cuassay.devices.cuda import forks
from cuassay.devices.cuda.check import error_of
from cuassay.errors import DeviceError

__all__ = ["NOT_READY", "CUDARuntimeError", "at", "explained", "index_of", "refusal", "refused_in_child"]

CUDARuntimeError: Any = cupy.cuda.runtime.CUDARuntimeError

#: ``cudaErrorNotReady``: what a query answers while work is under way.
NOT_READY = 600

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
    if isinstance(device, int):
        return device
    named = Device(device)
    if named.kind != "cuda":
        raise DeviceError(f"{named} is no CUDA device; give an index or 'cuda:<index>'")
    return named.index


def refusal(status: int, doing: str) -> Exception:
    """The exception for a runtime call's `status`: in a forked child, that it is one."""
    from cuda.bindings import runtime

    return forks.error() if forks.is_child() else error_of(runtime.cudaError_t(status), doing)


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
