"""What each extra installs, and the command that installs it.

Messages name the packages and not the extra: no package index has cuassay, so ``pip install 'cuassay[report]'`` fails.
CUDA needs six packages, so its message names the extra instead, of a clone or a wheel. The packages of `EXTRAS` are
those of ``pyproject.toml``; a test compares them.
"""

from __future__ import annotations

import shlex

__all__ = ["EXTRAS", "pip_install", "pip_install_cuda"]

_CUDA = ("cuda-core", "nvmath-python")
_TOOLKIT = "cuda-toolkit[cublas,cudart,curand,nvjitlink,nvrtc]"

#: What to give to pip, by extra. A version is given only where the newest one would be wrong.
EXTRAS: dict[str, tuple[str, ...]] = {
    "asv": ("asv",),
    "benchmark": ("pytest-benchmark<6", "threadpoolctl"),
    "cache": ("pyarrow",),
    "completion": ("shtab",),
    "cuda12": ("cupy-cuda12x", *_CUDA, "cuda-bindings==12.*", f"{_TOOLKIT}==12.*"),
    "cuda13": ("cupy-cuda13x", *_CUDA, "cuda-bindings==13.*", f"{_TOOLKIT}==13.*"),
    "cupti": ("cupti-python",),
    "fleet": ("distributed",),
    "jit": ("pycparser",),
    "mutate": ("coverage",),
    "nvtx": ("nvtx",),
    "report": ("jinja2", "pandas"),
}


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of `extra`, such as ``pip install jinja2 pandas``."""
    return f"pip install {shlex.join(EXTRAS[extra])}"


def pip_install_cuda() -> str:
    """Return the command that installs the packages of `cuda13`, and what to change for a driver of CUDA 12."""
    return "pip install 'PATH[cuda13]', where PATH is a clone or a wheel of cuassay (for a CUDA 12 driver: cuda12)"
