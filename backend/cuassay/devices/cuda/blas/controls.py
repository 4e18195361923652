"""Which library multiplies, and how much workspace it may take: settings of the process, with torch's names.

`generation` counts the changes: what was prepared before a change is not used after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cuassay.core import settings
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.libraries import why_no_cublaslt
from cuassay.errors import ArgumentError

__all__ = [
    "LIBRARIES",
    "adopt",
    "called",
    "generation",
    "is_preferred",
    "library",
    "most_copied_nbytes",
    "most_workspace_nbytes",
    "preferred_blas_library",
    "renew",
    "why_cublas",
    "workspace_nbytes",
]

LIBRARIES = ("default", "cublas", "cublaslt")

#: NVIDIA's recommendations from Hopper on, and for earlier GPUs, in bytes.
_WORKSPACE_HOPPER, _WORKSPACE = 32 * 2**20, 4 * 2**20

#: The limit for a search, which may find that a larger workspace is faster.
_WORKSPACE_TUNED = 64 * 2**20

#: If no limit was set, copies of operands take at most one part in this many of the device's memory. On an H200 that is
#: 2.2 GiB; among the public shapes the largest product that is faster with copies needs 0.16 GiB.
_PARTS_OF_MEMORY = 64

_preferred = "default"
_workspaces: dict[int, int] = {}

#: The number of changes of the controls.
generation = 0


def renew() -> None:
    """Invalidate everything that was prepared so far."""
    global generation  # noqa: PLW0603  one count a process
    generation += 1


def preferred_blas_library(backend: str | None = None) -> str:
    """Prefer a library for matrix products from now on, and return the preferred one; None only returns it.

    Parameters
    ----------
    backend : str, optional
        ``"cublaslt"``, ``"cublas"``, or ``"default"``: the library that the setting names, if cuBLASLt is available.

    Raises
    ------
    ArgumentError
        If it is another name.
    """
    global _preferred  # noqa: PLW0603  one preference a process, as torch has it
    if backend is not None:
        wanted = str(backend).lower()
        if wanted not in LIBRARIES:
            raise ArgumentError(f"{backend!r} is not a BLAS library; give one of {', '.join(LIBRARIES)}")
        _preferred = wanted
        renew()
    return _preferred


def called() -> dict[str, Any]:
    """Return, as JSON data for `adopt`, what calls have set in this process."""
    return {"library": _preferred, "workspaces": {str(device): nbytes for device, nbytes in _workspaces.items()}}


def adopt(data: Mapping[str, Any]) -> None:
    """Set what another process returned from `called`."""
    preferred_blas_library(data["library"])
    for device, nbytes in data["workspaces"].items():
        workspace_nbytes(int(device), nbytes=nbytes)


def is_preferred() -> bool:
    """Whether a library was named: then nothing else multiplies, tuned or not."""
    return _preferred != "default"


def library() -> str:
    """Return the library that multiplies now: ``cublaslt`` or ``cublas``."""
    if _preferred != "default":
        return _preferred
    return "cublaslt" if why_cublas() is None else "cublas"


def why_cublas() -> str | None:
    """Return why products go to cuBLAS although no library was named.

    None if they do not, or if a library was named.
    """
    if is_preferred():
        return None
    if not settings.get("CUASSAY_BLAS_PREFER_CUBLASLT"):
        return "CUASSAY_BLAS_PREFER_CUBLASLT is off"
    return why_no_cublaslt()


def workspace_nbytes(device: int, library: str = "cublaslt", nbytes: int | None = None) -> int:
    """Return the bytes of workspace that a product on `device` may take; `nbytes`, if given, becomes the limit.

    Raises
    ------
    ArgumentError
        If `nbytes` is negative.
    """
    if nbytes is not None:
        if nbytes < 0:
            raise ArgumentError(f"a workspace cannot have {nbytes} bytes; give 0 or more")
        _workspaces[device] = nbytes
        renew()
    if device in _workspaces:
        return _workspaces[device]
    name = "CUASSAY_CUBLASLT_WORKSPACE_SIZE" if library == "cublaslt" else "CUASSAY_CUBLAS_WORKSPACE_CONFIG"
    return int(settings.get(name)) or _recommended(device)


def most_workspace_nbytes(device: int) -> int:
    """Return the bytes that a tuned product on `device` may take: the limit if set, else more than without tuning."""
    return workspace_nbytes(device) if _is_limited(device) else max(_WORKSPACE_TUNED, workspace_nbytes(device))


def most_copied_nbytes(device: int) -> int:
    """Return the same for a tuned product that copies its operands: the copies and the library's workspace together."""
    most = most_workspace_nbytes(device)
    return most if _is_limited(device) else max(most, _memory_nbytes(device) // _PARTS_OF_MEMORY)


def _is_limited(device: int) -> bool:
    """Whether a limit was set, by call or by setting."""
    return device in _workspaces or bool(settings.get("CUASSAY_CUBLASLT_WORKSPACE_SIZE"))


@cache
def _memory_nbytes(device: int) -> int:
    return int(runtime.get_device_properties(device).total_memory)


@cache
def _recommended(device: int) -> int:
    return _WORKSPACE_HOPPER if runtime.get_device_properties(device).major >= 9 else _WORKSPACE
