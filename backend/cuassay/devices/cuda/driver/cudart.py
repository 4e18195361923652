"""The functions of the CUDA runtime that torch exposes under the same name, and the CUDA versions that have them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, NamedTuple

from cuassay.devices.cuda.driver.check import guarded

__all__ = ["NAMES", "Cudart", "Versions", "cudart"]


class Versions(NamedTuple):
    """The major versions of CUDA that have a name: from `since` to the one before `until` (None: no end yet)."""

    since: int = 1
    until: int | None = None


_ALWAYS = Versions()

#: Every name that torch's ``cudart()`` has in some version of CUDA.
NAMES = MappingProxyType(
    {
        "cudaError": _ALWAYS,
        "cudaGetErrorString": _ALWAYS,
        "cudaHostRegister": _ALWAYS,
        "cudaHostUnregister": _ALWAYS,
        "cudaMemGetInfo": _ALWAYS,
        "cudaOutputMode": Versions(until=12),  # of the profiler that the next one starts, which CUDA 12 removed
        "cudaProfilerInitialize": Versions(until=12),
        "cudaProfilerStart": _ALWAYS,
        "cudaProfilerStop": _ALWAYS,
        "cudaStreamCreate": _ALWAYS,
        "cudaStreamDestroy": _ALWAYS,
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
        versions = NAMES.get(name)
        if versions is None:
            raise AttributeError(f"cudart() has no {name!r}; it has {', '.join(dir(self))}")
        if not self._has(versions):
            raise AttributeError(f"CUDA {self._major} has no {name!r}; {_told(versions)}")
        return getattr(_bindings(), "cudaError_t" if name == "cudaError" else name)

    def __dir__(self) -> list[str]:
        return [name for name, versions in NAMES.items() if self._has(versions)]

    def _has(self, versions: Versions) -> bool:
        major = self._major
        if major is None:
            return versions.until is None
        return versions.since <= major and (versions.until is None or major < versions.until)


def _told(versions: Versions) -> str:
    if versions.until is None:
        return f"CUDA {versions.since} and later have it"
    return f"only CUDA before {versions.until} has it; torch lacks it as well"


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
