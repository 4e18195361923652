"""The operations of kind `cuda` that launch kernels of ours, as operations of kind `host`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial, wraps
from types import ModuleType
from typing import Any

import cupy
import numpy as np
from cuassay_toy import ToyArray
from kernel_emulator import launches
from kernel_emulator.memory import allocate, as_cupy, as_numpy, guarded

from cuassay import jit
from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda import BACKEND as CUDA
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.launch import launch
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops import (
    bodies,
    body_reductions,
    comparison,
    elementwise,
    indexing,
    joining,
    loss_scale,
    multi_tensor,
    normalization,
    optim,
    padding,
    random,
    reduction,
    tables,
)
from cuassay.ops import compositions, registry

__all__ = ["register"]

assert CUDA.kind == "cuda"  # its import has registered the operations

#: Modules whose operations launch kernels of ours, and do hardly anything else on the device.
_SERVED = (
    bodies,
    body_reductions,
    comparison,
    elementwise,
    indexing,
    joining,
    loss_scale,
    multi_tensor,
    normalization,
    optim,
    padding,
    random,
    reduction,
)

#: Operations and kinds of dtypes that need more than our kernels: a kernel of CuPy for `sum`, `amax` for `foreach_max`.
_LEFT_OUT = {("sum", "c"), ("foreach_max", "f"), ("foreach_max", "V")}

#: The card that launches are planned for: of compute capability 9.0, with few multiprocessors.
_CARD = {
    "name": "host",
    "major": 9,
    "multi_processor_count": 4,
    "warp_size": 32,
    "max_threads_per_block": 1024,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65_536,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_block_optin": 163 << 10,
    "shared_memory_per_multiprocessor": 164 << 10,
    "L2_cache_size": 1 << 20,
}


class _Stream:
    """The only stream: a launch is done when it returns."""

    ptr = 0
    device_id = 0

    def is_capturing(self) -> bool:
        return False


class _Event:
    """An event of the only stream."""

    handle = 0

    def admit(self, index: int) -> None:
        """Nothing to wait for."""


class _Cupy:
    """CuPy, with NumPy's functions in place of those that allocate, copy or launch a kernel of CuPy."""

    def __getattr__(self, name: str) -> Any:
        return getattr(cupy, name)

    @staticmethod
    def empty(shape: Any, dtype: Any = float) -> Any:
        return as_cupy(guarded((shape,) if isinstance(shape, int) else tuple(shape), as_dtype(dtype)))

    @classmethod
    def empty_like(cls, a: Any) -> Any:
        return cls.empty(a.shape, a.dtype)

    @staticmethod
    def full(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
        return as_cupy(np.full(shape, value, dtype))

    @staticmethod
    def ascontiguousarray(a: Any) -> Any:
        return a if a.flags.c_contiguous else as_cupy(np.ascontiguousarray(as_numpy(a)))

    @staticmethod
    def copyto(to: Any, source: Any) -> None:
        as_numpy(to)[...] = as_numpy(source)

    @staticmethod
    def exp(a: Any, out: Any) -> None:
        np.exp(as_numpy(a), out=as_numpy(out))


class _Compositions:
    """Compositions of operations, which CUDA's operations call, on arrays of this kind."""

    def __getattr__(self, name: str) -> Any:
        composition = getattr(compositions, name)
        return lambda a, **named: as_cupy(composition(ToyArray(as_numpy(a), 0), **named).host)


def register() -> None:
    """Let CUDA's operations run on the host in this process, and register them for kind `host`."""
    launches.install()
    _replace_driver()
    for op in registry.ops():
        for dtype in op.schema.dtypes:
            found = registry.find(op, "cuda", as_dtype(dtype))
            if _module(found) in _SERVED and (op.name, as_dtype(dtype).kind) not in _LEFT_OUT:
                registry.implement(op.name, kind="host", dtypes=[dtype])(_on_toy_arrays(found))
    jit.provide("host", lambda found: _on_toy_arrays(bodies.implementation(found)))
    jit.provide_reductions("host", lambda found: _on_toy_arrays(body_reductions.BodyReduction(found)))


def _replace_driver() -> None:
    """Answer what the operations ask of the driver and of CuPy."""
    known = {field.name: "" if field.type == "str" else 0 for field in fields(runtime.Properties)}
    card = runtime.Properties(**{**known, **_CARD})
    runtime.get_device_properties = lambda device=0: card  # type: ignore[assignment]
    launch.architecture = lambda major, minor: "host"
    launch._is_single = lambda: True
    launch._current_stream = lambda: _Stream
    cupy.cuda.set_allocator(allocate)
    for module in (*_SERVED, alignment, tables):
        module.cupy = _Cupy()  # type: ignore[attr-defined]
    normalization.compositions = _Compositions()  # type: ignore[assignment]
    tables._empty = lambda shape, dtype: as_cupy(np.empty(shape, dtype))
    tables._upload = lambda host: as_cupy(host.copy())
    tables._record = lambda *arguments: None
    tables.Event, tables._current_stream = _Event, _Stream  # type: ignore[misc,assignment]


def _module(implementation: Any) -> ModuleType | None:
    """Where an implementation, a function or an object that is called, is defined."""
    implementation = implementation.func if isinstance(implementation, partial) else implementation
    named = implementation if hasattr(implementation, "__module__") else type(implementation)
    return sys.modules.get(named.__module__)


def _on_toy_arrays(implementation: Any) -> Callable[..., Any]:
    @wraps(implementation, updated=())
    def run(*operands: Any, **rest: Any) -> Any:
        return implementation(*map(_given, operands), **{name: _given(value) for name, value in rest.items()})

    return run


def _given(value: Any) -> Any:
    """CuPy arrays in place of toy arrays, also in a list."""
    if isinstance(value, ToyArray):
        return as_cupy(value.host)
    if isinstance(value, list | tuple) and value and isinstance(value[0], ToyArray):
        return [_given(one) for one in value]
    return value
