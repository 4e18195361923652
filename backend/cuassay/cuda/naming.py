"""How a device is named in the face, and the index that a name means; importing this touches no driver."""

from __future__ import annotations

from cuassay.core.device import Device, index_on

__all__ = ["DeviceLike", "index_of"]

#: An index, ``"cuda:1"``, a `Device`; None is the current one.
DeviceLike = int | str | Device | None


def index_of(device: DeviceLike) -> int:
    """The index that `device` names; whether it exists is asked by whoever uses it.

    Raises
    ------
    DeviceError
        If it names a device of another kind, or none.
    """
    if device is None:
        from cuassay.devices.cuda.driver import runtime

        return runtime.current_device()
    return index_on("cuda", device)
