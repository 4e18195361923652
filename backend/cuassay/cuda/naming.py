"""How `cuassay.cuda` names devices, and the index that a name means; importing this touches no driver."""

from __future__ import annotations

from cuassay.core.device import Device, index_on

__all__ = ["DeviceLike", "index_of"]

#: An index, ``"cuda:1"``, a `Device`, or None for the current device.
DeviceLike = int | str | Device | None


def index_of(device: DeviceLike) -> int:
    """Return the index that `device` names; callers check that it exists.

    Raises
    ------
    DeviceError
        If it names a device of another kind, or does not name a device.
    """
    if device is None:
        from cuassay.devices.cuda.driver import runtime

        return runtime.current_device()
    return index_on("cuda", device)
