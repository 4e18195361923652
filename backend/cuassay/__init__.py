"""Declare an operation once: it is tested, measured and reported on every device present.

Importing this touches no driver and no CUDA package; a kind of device loads at first use. So does NumPy: the pytest
plugin is imported in every project it is installed beside, and most of them never ask it for a device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cuassay.core.capability import Capabilities, parse_requirement
from cuassay.core.device import Device
from cuassay.core.precision import current_precision, precision, set_default_precision

if TYPE_CHECKING:
    from cuassay import ops, random
    from cuassay.devices import (
        capabilities,
        empty,
        empty_like,
        from_host,
        full,
        kinds,
        namespace,
        supported_dtypes,
        to_host,
        zeros,
    )

__all__ = [
    "Capabilities",
    "Device",
    "capabilities",
    "current_precision",
    "empty",
    "empty_like",
    "from_host",
    "full",
    "kinds",
    "namespace",
    "ops",
    "parse_requirement",
    "precision",
    "random",
    "set_default_precision",
    "supported_dtypes",
    "to_host",
    "zeros",
]

_FROM_DEVICES = (
    "capabilities",
    "empty",
    "empty_like",
    "from_host",
    "full",
    "kinds",
    "namespace",
    "supported_dtypes",
    "to_host",
    "zeros",
)


def __getattr__(name: str) -> Any:
    if name in ("devices", "ops", "random"):
        return import_module(f"cuassay.{name}")
    if name not in _FROM_DEVICES:
        raise AttributeError(f"module 'cuassay' has no attribute {name!r}; it has {', '.join(__all__)}")
    found = globals()[name] = getattr(import_module("cuassay.devices"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
