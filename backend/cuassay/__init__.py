"""Declare an operation once, and it is tested, measured and reported on every device present.

Importing this touches no driver and no CUDA package; device kinds load at first use, and so does NumPy: the pytest
plugin is imported by every project in its environment, and most of them never ask for a device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cuassay.core import settings as _settings
from cuassay.core.capability import Capabilities, parse_requirement
from cuassay.core.determinism import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode,
    use_deterministic_algorithms,
)
from cuassay.core.device import Device
from cuassay.core.precision import (
    current_precision,
    get_float32_matmul_precision,
    precision,
    set_default_precision,
    set_float32_matmul_precision,
)

if TYPE_CHECKING:
    from cuassay import amp, autograd, cuda, devices, jit, linalg, ops, optim, random
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
    from cuassay.observe.profile import profile

__all__ = [
    "Capabilities",
    "Device",
    "amp",
    "are_deterministic_algorithms_enabled",
    "autograd",
    "capabilities",
    "cuda",
    "current_precision",
    "devices",
    "empty",
    "empty_like",
    "from_host",
    "full",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "is_deterministic_algorithms_warn_only_enabled",
    "jit",
    "kinds",
    "linalg",
    "namespace",
    "ops",
    "optim",
    "parse_requirement",
    "precision",
    "profile",
    "random",
    "set_default_precision",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "supported_dtypes",
    "to_host",
    "use_deterministic_algorithms",
    "zeros",
]

_MODULES = ("amp", "autograd", "cuda", "devices", "jit", "linalg", "ops", "optim", "random")

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
    if name in _MODULES:
        return import_module(f"cuassay.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("cuassay")
    if name not in (*_FROM_DEVICES, "profile"):
        raise AttributeError(f"module 'cuassay' has no attribute {name!r}{_advice(name)}")
    home = "cuassay.observe.profile" if name == "profile" else "cuassay.devices"
    found = globals()[name] = getattr(import_module(home), name)
    return found


if _settings.get("CUASSAY_CUDA_SANITIZER"):
    import_module("cuassay.cuda._sanitizer").enable_cuda_sanitizer()


def _advice(name: str) -> str:
    """Return advice on what to write instead of ``cuassay.<name>``."""
    if not name.startswith("_") and import_module("importlib.util").find_spec(f"cuassay.{name}") is not None:
        return f": it is a module; write import cuassay.{name}"
    near = import_module("cuassay.core.nearest").did_you_mean(name, __all__)
    return near or f"; it has {', '.join(__all__)}"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
