"""The CUDA libraries that this process has or would load: name, path, version, or why one is absent."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cuassay.core import extras
from cuassay.core.loaded_driver import driver_is_installed
from cuassay.devices.cuda.driver.check import guarded
from cuassay.errors import LibraryNotFoundError

__all__ = ["cublaslt", "libraries", "other_libraries", "why_no_cublaslt", "why_no_cupy"]

Row = tuple[str, str, str, str]

#: Maps a name to (pathfinder's name, the function that returns the version, the format of that number).
_LIBRARIES: dict[str, tuple[str, str, str]] = {
    "libcuda": ("cuda", "cuDriverGetVersion", "thousands"),
    "cudart": ("cudart", "cudaRuntimeGetVersion", "thousands"),
    "nvrtc": ("nvrtc", "nvrtcVersion", "pair"),
    "cublas": ("cublas", "", "file"),
    "cublasLt": ("cublasLt", "cublasLtGetVersion", "cublas"),
    "nvml": ("nvml", "", "file"),
    "nccl": ("nccl", "ncclGetVersion", "nccl"),
    "cufile": ("cufile", "", "file"),
}

#: Libraries that are loaded only if all of them are requested; they are not part of a fingerprint.
_OTHERS: dict[str, tuple[str, str, str]] = {
    "cusolver": ("cusolver", "cusolverGetVersion", "hundreds"),
    "curand": ("curand", "curandGetVersion", "hundreds"),
    "nvJitLink": ("nvJitLink", "nvJitLinkVersion", "pair"),
    "cudnn": ("cudnn", "cudnnGetVersion", "cublas"),
    "cupti": ("cupti", "", "file"),
}


def libraries() -> list[Row]:
    """Return a row for each library: (name, path, version, why it is absent), with empty fields. Makes no context."""
    return [_row(name, *entry) for name, entry in _LIBRARIES.items()]


def other_libraries() -> list[Row]:
    """Return such rows for libraries that few programs use; this loads them."""
    return [*(_row(name, *entry) for name, entry in _OTHERS.items()), _nvtx()]


def why_no_cupy() -> str | None:
    """Return why CuPy is missing and what to do, or None if it is installed. Makes no context."""
    if find_spec("cupy") is not None:
        return None
    if driver_is_installed():
        return f"CuPy is not installed; install what CUDA needs with: {extras.pip_install_cuda()}"
    return (
        "CuPy is not installed, and there is no NVIDIA driver (libcuda.so.1 cannot be loaded): CUDA needs an NVIDIA "
        "GPU and its driver first (in a container: with --gpus)"
    )


@cache
def cublaslt() -> Any:
    """Load cuBLASLt and return nvmath's bindings of it; makes no context. Raises `LibraryNotFoundError`."""
    with guarded("cublasLt"):
        from nvmath.bindings import cublasLt

        cublasLt.get_version()
        return cublasLt


@cache
def why_no_cublaslt() -> str | None:
    """Return why cuBLASLt computes no product in this process, or None if it is available."""
    try:
        cublaslt()
    except (LibraryNotFoundError, RuntimeError) as error:  # nvmath's own errors are RuntimeErrors
        return str(error)
    return None


def _row(name: str, finder_name: str, function: str, form: str) -> Row:
    try:
        from cuda import pathfinder

        loaded = pathfinder.load_nvidia_dynamic_lib(finder_name)
    except ImportError:
        return (
            name,
            "",
            "",
            f"cuda-pathfinder is not installed; install what CUDA needs with: {extras.pip_install_cuda()}",
        )
    except RuntimeError as error:  # the base of pathfinder's errors
        return name, "", "", str(error).partition("\n")[0]
    path = str(loaded.abs_path or "")
    return name, path, _version(path, function, form), ""


def _nvtx() -> Row:
    """NVTX is header-only, and compiled into its package: there is no library to load."""
    spec = find_spec("nvtx")
    if spec is None:
        return "nvtx", "", "", f"the package nvtx is not installed; install it with: {extras.pip_install('nvtx')}"
    return "nvtx", str(Path(spec.origin).parent) if spec.origin else "", version("nvtx"), ""


def _version(path: str, function: str, form: str) -> str:
    try:
        return _FORMS[form](path, function)
    except (OSError, AttributeError):
        return ""


def _pair(path: str, function: str) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(path, function, ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _thousands(path: str, function: str) -> str:
    number = _number(path, function)
    return f"{number // 1000}.{number % 1000 // 10}"


def _hundreds(path: str, function: str) -> str:
    number = _number(path, function)
    return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"


def _nccl(path: str, function: str) -> str:
    number = _number(path, function)
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _cublas(path: str, function: str) -> str:
    entry = getattr(ctypes.CDLL(path), function)
    entry.restype = ctypes.c_size_t
    number = int(entry())
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _file(path: str, function: str) -> str:
    """Return the version in the name of the file that the path links to; the library's functions need a handle."""
    match = re.search(r"\.so\.([\d.]+)$", Path(path).resolve().name)
    return match[1] if match else ""


def _number(path: str, function: str) -> int:
    number = ctypes.c_int()
    _call(path, function, ctypes.byref(number))
    return number.value


def _call(path: str, function: str, *arguments: Any) -> None:
    getattr(ctypes.CDLL(path), function)(*arguments)


_FORMS: dict[str, Callable[[str, str], str]] = {
    "pair": _pair,
    "thousands": _thousands,
    "hundreds": _hundreds,
    "nccl": _nccl,
    "cublas": _cublas,
    "file": _file,
}
