"""What NumPy computes with here: the BLAS and LAPACK, their threads, and the vector instructions in use."""

from __future__ import annotations

import io
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.core import settings
from cuassay.errors import CapabilityError

__all__ = ["blas", "cpu_model", "limited_threads", "simd", "total_memory"]


@cache
def _controller_of(has_scipy: bool) -> Any:
    del has_scipy  # SciPy's wheels bring a BLAS of their own, loaded with it: who looked before does not know it
    try:
        import threadpoolctl
    except ModuleNotFoundError:
        return None
    return threadpoolctl.ThreadpoolController()


def _controller() -> Any:
    """What knows the loaded BLAS libraries; None without the extra `benchmark`."""
    return _controller_of("scipy.linalg" in sys.modules)


def blas() -> tuple[dict[str, Any], ...]:
    """Each BLAS loaded, its LAPACK with it: ``internal_api``, ``version``, ``num_threads``; none if none is known."""
    controller = _controller()
    return () if controller is None else tuple(pool for pool in controller.info() if pool["user_api"] == "blas")


@contextmanager
def limited_threads() -> Iterator[None]:
    """Inside the block BLAS uses at most `CUASSAY_CPU_THREADS` threads; 0 leaves it alone."""
    threads = settings.get("CUASSAY_CPU_THREADS")
    if not threads:
        yield
        return
    controller = _controller()
    if controller is None:
        raise CapabilityError(
            f"CUASSAY_CPU_THREADS={threads} needs threadpoolctl, which is not installed; "
            "install it with: pip install 'cuassay[benchmark]'"
        )
    with controller.limit(limits=threads, user_api="blas"):
        yield


def simd() -> tuple[str, ...]:
    """Vector instruction sets NumPy uses here: its baseline and what it found at run time."""
    with redirect_stdout(io.StringIO()):
        found: dict[str, Any] = np.show_config(mode="dicts")  # type: ignore[assignment] # NumPy's stub has the printing mode's None
    extensions = found.get("SIMD Extensions", {})
    return (*extensions.get("baseline", ()), *extensions.get("found", ()))


@cache
def cpu_model() -> str:
    """The processor's own name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def total_memory() -> tuple[int, int]:
    """Free and total main memory, bytes; zeros where the system does not tell."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    except (ValueError, OSError):
        return 0, 0
