"""The least a device kind outside cuassay must be: its arrays hold NumPy's, its ops are one boxed fallback to the cpu.

Next to this file is the metadata of a distribution, whose entry point makes the kind known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from cuassay.core.capability import Answer, present
from cuassay.core.device import Device
from cuassay.devices.cpu.runtime import CpuBackend
from cuassay.ops import Op, registry
from cuassay.ops.dispatch import redispatch

__all__ = ["BACKEND", "ToyArray", "ToyBackend", "boxed"]


class ToyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of kind toy: everything it can do, NumPy does with the array it holds."""

    __array_priority__ = 100

    def __init__(self, host: np.ndarray[Any, Any], index: int) -> None:
        self.host, self.index = host, index

    def __repr__(self) -> str:
        return f"ToyArray({self.host!r}, toy:{self.index})"

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
        raise TypeError("an array of kind toy is on a device; use cuassay.to_host")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _wrap(getattr(ufunc, method)(*_unwrap(inputs), **_unwrap(kwargs)), self.index)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _wrap(function(*_unwrap(args), **_unwrap(kwargs)), self.index)

    def __getattr__(self, name: str) -> Any:
        return _lift(getattr(self.host, name), self.index)

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self.host[_unwrap(key)], self.index)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[_unwrap(key)] = _unwrap(value)

    def __len__(self) -> int:
        return len(self.host)

    def __float__(self) -> float:
        return float(self.host)

    def __bool__(self) -> bool:
        return bool(self.host)


class ToyNamespace:
    """NumPy's names over toy arrays."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        return ToyModule(found, self._index) if name in ("linalg", "fft") else _lift(found, self._index)


class ToyModule:
    """A module of NumPy's, lifted alike."""

    def __init__(self, module: Any, index: int) -> None:
        self._module, self._index = module, index

    def __getattr__(self, name: str) -> Any:
        return _lift(getattr(self._module, name), self._index)


class ToyBackend(CpuBackend):
    """The kind `toy`: the cpu's streams and capabilities, arrays of its own."""

    kind = "toy"

    def __init__(self) -> None:
        super().__init__()
        self.illness: str | None = None
        self.current = 0

    def count(self) -> int:
        return int(os.environ.get("TOY_DEVICES", "1"))

    def probe(self, index: int, name: str) -> Answer:
        return present(self.count()) if name == "count" else super().probe(index, name)

    def identity(self, index: int) -> Mapping[str, str]:
        return {"name": "toy", "uuid": f"toy-{index}"}

    def health(self, index: int) -> str | None:
        return self.illness

    @contextmanager
    def activate(self, index: int) -> Iterator[None]:
        former, self.current = self.current, index
        yield
        self.current = former

    def is_current(self, index: int) -> bool:
        return index == self.current

    def owns(self, array_type: type) -> bool:
        return issubclass(array_type, ToyArray)

    def device_of(self, array: ToyArray) -> Device:
        return Device("toy", array.index)

    def namespace(self, index: int) -> ToyNamespace:
        return ToyNamespace(index)

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int) -> Any:
        return ToyArray(super().empty(shape, dtype, index), index)

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> Any:
        return ToyArray(super().from_host(array, index), index)

    def to_host(self, array: ToyArray) -> np.ndarray[Any, Any]:
        return super().to_host(array.host)

    def overlap(self, a: ToyArray, b: ToyArray) -> str:
        return super().overlap(a.host, b.host)


def boxed(op: Op, bound: dict[str, Any], dtype: np.dtype[Any], out: Any) -> None:
    """Compute `op` on the cpu, for a toy array."""
    redispatch(op, "cpu", _unwrap(bound), dtype, _unwrap(out))


def _unwrap(value: Any) -> Any:
    if isinstance(value, ToyArray):
        return value.host
    if isinstance(value, (tuple, list)):
        found = map(_unwrap, value)
        return list(found) if isinstance(value, list) else tuple(found)  # also for a named tuple of outputs
    return {name: _unwrap(item) for name, item in value.items()} if isinstance(value, dict) else value


def _wrap(value: Any, index: int) -> Any:
    if isinstance(value, np.ndarray):
        return ToyArray(value, index)
    if isinstance(value, np.generic):
        return ToyArray(np.asarray(value), index)
    return tuple(_wrap(item, index) for item in value) if type(value) is tuple and not _is_plain(value) else value


def _is_plain(value: tuple[Any, ...]) -> bool:
    return all(isinstance(item, int) for item in value)  # a shape or strides


def _lift(found: Any, index: int) -> Any:
    if not callable(found) or isinstance(found, type):
        return _wrap(found, index)
    return lambda *args, **kwargs: _wrap(found(*_unwrap(args), **_unwrap(kwargs)), index)


BACKEND = ToyBackend()
registry.register_fallback("toy", boxed, like="cpu")
