"""Launches of kernels on the host, in place of the driver's."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from cuassay.devices.cuda.launch import block, launch, userkernel
from cuassay.devices.cuda.ops import bodies, body_reductions
from cuassay.errors import CuassayError
from kernel_emulator.compiler import library, runtime
from kernel_emulator.memory import GUARD, places, written_next_to

__all__ = ["KernelFaultError", "install"]


class KernelFaultError(CuassayError):
    """A launch that would hang on a GPU, or whose effect is undefined there."""


@dataclass(frozen=True)
class _Compiled:
    """The text of a kernel: it is compiled when it is loaded, with its template arguments."""

    text: str


def _uncompiled(text: str, **options: Any) -> _Compiled:
    return _Compiled(text)


class _Loaded:
    """A kernel that runs on the host, in place of `launch.Loaded`."""

    def __init__(self, compiled: _Compiled, name: str, *, is_tabled: bool = False) -> None:
        of_kernel = library(compiled.text, name)
        of_kernel.host_sizes.restype = ctypes.POINTER(ctypes.c_int)
        of_kernel.host_launch.restype = ctypes.c_char_p
        self.sizes = tuple(of_kernel.host_sizes()[: of_kernel.host_count()])
        self.idle: dict[tuple[type, ...], list[Any]] = {}
        self._word = ctypes.c_uint64()
        self.handle = ctypes.addressof(self._word)
        _kernels[self.handle] = name, of_kernel.host_launch

    def allow_shared(self, nbytes: int, device: int) -> None:
        """Nothing to ask for: `cuda.h` has as much shared memory as any card."""


#: By handle: the name of a kernel, and what runs it.
_kernels: dict[int, tuple[str, Any]] = {}


def _launch(config: Any, handle: Any, arguments: Any, extra: None) -> int:
    """What ``cuLaunchKernelEx`` does; the status is always success.

    Raises
    ------
    KernelFaultError
        If the kernel did what is undefined on a GPU.
    """
    name, run = _kernels[ctypes.addressof(handle._obj)]
    runtime().host_arrays(*places(), ctypes.c_size_t(GUARD))
    fault = run(config, arguments)
    if fault:
        raise KernelFaultError(f"{name}: {fault.decode()}")
    if written_next_to():
        raise KernelFaultError(f"{name} has written outside of its arrays")
    return 0


def install() -> None:
    """Let `cuassay.devices.cuda.launch` compile, load and launch on the host, in this process from now on."""
    launch.Loaded = _Loaded  # type: ignore[assignment,misc]
    for module in (launch, userkernel, bodies, body_reductions):
        module.compile_source = _uncompiled  # type: ignore[attr-defined]
    block._driver_launch = lambda: _launch
