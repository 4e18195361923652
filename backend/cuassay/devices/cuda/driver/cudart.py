"""The functions of the CUDA runtime that torch exposes under the same name, and the CUDA versions that have them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

from cuassay.devices.cuda.driver.check import guarded

__all__ = ["NAMES", "Cudart", "cudart"]


#: Every name that torch's ``cudart()`` has in some version of CUDA, with the first major version that lacks it.
NAMES: Mapping[str, int | None] = MappingProxyType(
    {
        "cudaError": None,
        "cudaGetErrorString": None,
        "cudaHostRegister": None,
        "cudaHostUnregister": None,
        "cudaMemGetInfo": None,
        "cudaOutputMode": 12,  # an argument of the next one
        "cudaProfilerInitialize": 12,
        "cudaProfilerStart": None,
        "cudaProfilerStop": None,
        "cudaStreamCreate": None,
        "cudaStreamDestroy": None,
    }
)


class Cudart:
    """The names of one CUDA version; each function returns cuda.bindings' tuple, with the status as ``cudaError``.

    Parameters
    ----------
    major : int, optional
        The major version of CUDA; None if the package cuda-bindings is not installed.
    """

    def __init__(self, major: int | None) -> None:
        self._major = major

    def __repr__(self) -> str:
        return f"Cudart(CUDA {self._major or 'not installed'})"

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"cudart() has no {name!r}; it has {', '.join(dir(self))}")
        if not self._has(name):
            until = NAMES[name]
            raise AttributeError(
                f"CUDA {self._major or until} has no {name!r}; only CUDA before {until} has it; torch lacks it as well"
            )
        return getattr(_bindings(), "cudaError_t" if name == "cudaError" else name)

    def __dir__(self) -> list[str]:
        return list(filter(self._has, NAMES))

    def _has(self, name: str) -> bool:
        """Return whether this version has a known name; without a version, only those that all versions have."""
        until = NAMES[name]
        return until is None or (self._major is not None and self._major < until)


def _bindings() -> Any:
    with guarded("cudart"):
        from cuda.bindings import runtime
    return runtime


@cache
def cudart() -> Cudart:
    """Return the names of the CUDA version that cuda-bindings is made for."""
    try:
        return Cudart(int(version("cuda-bindings").partition(".")[0]))
    except PackageNotFoundError:
        return Cudart(None)
