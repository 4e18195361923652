"""What a simulated device reports to libraries written for the Python array API standard.

See https://data-apis.org/array-api/latest/API_specification/inspection.html. The answers follow the device's profile: a
dtype that it cannot store is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.devices.sim.creation import default_dtype, home_of
from cuassay.devices.sim.device import SimDevice
from cuassay.errors import ArgumentError

__all__ = ["Inspection"]

_SIGNED, _UNSIGNED = ([f"{sign}int{bits}" for bits in (8, 16, 32, 64)] for sign in ("", "u"))
_REAL, _COMPLEX = ["float32", "float64"], ["complex64", "complex128"]

#: The standard's kinds of dtypes.
_KINDS: dict[str, list[str]] = {
    "bool": ["bool"],
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}


class Inspection:
    """``xp.__array_namespace_info__()``."""

    def __init__(self, sim_device: SimDevice) -> None:
        self._sim_device = sim_device

    def __repr__(self) -> str:
        return f"Inspection({self._sim_device.device})"

    def capabilities(self) -> dict[str, Any]:
        """Return what is supported: masks as indices, and shapes that depend on values; the host waits for both."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Return the device where the namespace makes arrays."""
        return self._sim_device.device

    def devices(self) -> list[Device]:
        """Return every device of the machine."""
        return [one.device for one in self._sim_device.machine.devices]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the default dtypes of creation functions; float32 and complex64 if a device has no wider ones."""
        home = home_of(device, self._sim_device)
        return {
            "real floating": default_dtype(np.dtype(np.float64), home),
            "complex floating": default_dtype(np.dtype(np.complex128), home),
            "integral": np.dtype(np.int64),
            "indexing": np.dtype(np.intp),
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """Return the standard's dtypes that the device stores, of one kind, several kinds, or all (None)."""
        machine = home_of(device, self._sim_device).machine
        return {name: np.dtype(name) for name in _names(kind) if machine.answer(f"storage:{name}")}


def _names(kind: str | tuple[str, ...] | None) -> Iterator[str]:
    if kind is None:
        kind = ("bool", "numeric")
    if isinstance(kind, tuple):
        yield from dict.fromkeys(name for one in kind for name in _names(one))
    elif kind in _KINDS:
        yield from _KINDS[kind]
    else:
        raise ArgumentError(f"{kind!r} is not a kind of dtypes; give one of {', '.join(_KINDS)}, or a tuple of them")
