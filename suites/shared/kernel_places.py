"""Arrays for kernels of ours, on a GPU or in the host's memory, for tests that launch them by name."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from cuassay import Device, from_host, to_host

__all__ = ["KINDS", "Place"]

#: The kind `host` is on the path in `ci/run cupy` only.
KINDS = ("cuda", "host") if find_spec("cuassay_host") else ("cuda",)


class Place:
    """Puts arrays on a GPU, or between guards in the host's memory for kernels that run there."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __call__(self, host: Any) -> Any:
        """Copy `host` there."""
        if self.device.kind == "cuda":
            return from_host(host, self.device)
        from kernel_emulator import memory

        room = memory.guarded(host.shape, host.dtype)
        room[...] = host
        return memory.as_cupy(room)

    def back(self, array: Any) -> Any:
        """Copy `array` to NumPy."""
        if self.device.kind == "cuda":
            return to_host(array)
        from kernel_emulator import memory

        return memory.as_numpy(array)
