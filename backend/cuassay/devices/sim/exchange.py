"""How arrays of a simulated device reach other devices, the host, and libraries of the array API standard."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from cuassay.core.device import Device
from cuassay.devices.sim import calls, creation
from cuassay.devices.sim.stream import as_stream
from cuassay.errors import ArgumentError, DeviceError
from cuassay.ops import registry

if TYPE_CHECKING:
    from cuassay.devices.sim.device_array import DeviceArray

__all__ = ["EXTENSION", "capsule", "namespace_of", "to_device"]

#: DLPack's ``kDLExtDev``, and its ``kDLCPU`` with the host's index.
EXTENSION = 12
_HOST = (1, 0)

#: The editions of the array API standard whose names NumPy 2.1 has.
_EDITIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def namespace_of(array: DeviceArray, api_version: str | None) -> Any:
    """Return the namespace of `array`'s device, which must follow the edition `api_version`."""
    found = array.owner.namespace
    followed = [one for one in _EDITIONS if one <= found.__array_api_version__]
    if api_version is not None and api_version not in followed:
        raise ArgumentError(
            f"{array.device} follows the array API standard of {', '.join(followed)}; got {api_version!r}; ask for one"
        )
    return found


def to_device(array: DeviceArray, device: Any, stream: Any) -> Any:
    """Return `array` on `device`; see `SimArray.to_device`."""
    target = Device(device)
    with nullcontext() if stream is None else as_stream(stream):
        if target == array.device:
            return array
        if target == Device("cpu"):
            return array.get()
        if target.kind != "sim":
            raise DeviceError(
                f"to_device moves between simulated devices and the host; got {device!r}; "
                f"use cuassay.ops.copy(array, device={str(target)!r})"
            )
        made = creation.Creation(creation.home_of(target, array.owner)).empty(array.shape, array.dtype)
        return registry.op("copy")(array, out=made)


def capsule(array: DeviceArray, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """Return the DLPack capsule of a copy on the host; see `SimArray.__dlpack__`."""
    if stream is not None:
        raise BufferError(f"{array!r} takes no stream=; got {stream!r}; a copy for the host is waited for")
    if dl_device != _HOST or copy is False:
        raise BufferError(
            f"{array!r} does not show its memory to other libraries: their accesses would not be seen; give "
            f"dl_device={_HOST} for a copy on the host, as numpy.from_dlpack(array, device='cpu') does"
        )
    host = calls.to_host(array, "__dlpack__").copy(order="K")
    return host.__dlpack__(max_version=max_version)
