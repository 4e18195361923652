"""The device kind `host`: the operations of kind `cuda` with their kernels and launches, on the host, without a GPU.

Its arrays are those of kind `toy`. An operation gets CuPy arrays on the same memory and launches its kernels as on a
GPU; `kernel_emulator` compiles and runs them. Operations that call a library, or a kernel of CuPy, run on the cpu.
It needs CuPy, g++ and the headers of the CUDA toolkit.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from cuassay_toy import ToyArray, ToyBackend, boxed

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.ops import registry

__all__ = ["BACKEND", "HostBackend"]


class HostBackend(ToyBackend):
    """The kind `host`: NumPy's functions over toy arrays, and the operations of kind `cuda`."""

    kind = "host"

    def why_absent(self) -> str | None:
        if find_spec("cupy") is None:
            return "CuPy is not installed"
        from kernel_emulator.compiler import why_absent

        return why_absent()

    def count(self) -> int:
        return 1 if self.why_absent() is None else 0

    def identity(self, index: int) -> Mapping[str, str]:
        return {"name": "CUDA kernels on the host", "uuid": "host-0"}

    def device_of(self, array: ToyArray) -> Device:
        return Device("host", 0)

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
        return ToyArray(guarded(shape, as_dtype(dtype)), index)

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> Any:
        strides = np.empty_like(array, order="K").strides
        copy = guarded(array.shape, array.dtype, strides)
        copy[...] = array
        return ToyArray(copy, index)


BACKEND = HostBackend()
registry.register_fallback("host", boxed, like="cpu")

if BACKEND.why_absent() is None:
    from kernel_emulator.memory import guarded

    from cuassay_host import operations

    operations.register()
