"""What NumPy computes with: the BLAS and LAPACK, their threads, and the vector instructions in use."""

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

from cuassay.core import extras, settings
from cuassay.errors import CapabilityError

__all__ = ["blas", "cpu_model", "limited_threads", "simd", "total_memory"]


@cache
def _controller_of(has_scipy: bool) -> Any:
    del has_scipy  # part of the key, because SciPy's wheels load another BLAS
    try:
        import threadpoolctl
    except ModuleNotFoundError:
        return None
    return threadpoolctl.ThreadpoolController()


def _controller() -> Any:
    """Return the controller of the loaded BLAS libraries; None without the extra `benchmark`."""
    return _controller_of("scipy.linalg" in sys.modules)


def blas() -> tuple[dict[str, Any], ...]:
    """Return each loaded BLAS with its LAPACK: ``internal_api``, ``version``, ``num_threads``; empty if unknown."""
    controller = _controller()
    return () if controller is None else tuple(pool for pool in controller.info() if pool["user_api"] == "blas")


@contextmanager
def limited_threads() -> Iterator[None]:
    """Limit BLAS to `CUASSAY_CPU_THREADS` threads inside the block; 0 sets no limit."""
    threads = settings.get("CUASSAY_CPU_THREADS")
    if not threads:
        yield
        return
    controller = _controller()
    if controller is None:
        raise CapabilityError(
            f"CUASSAY_CPU_THREADS={threads} needs threadpoolctl, which is not installed; "
            f"install it with: {extras.pip_install('benchmark')}"
        )
    with controller.limit(limits=threads, user_api="blas"):
        yield


def simd() -> tuple[str, ...]:
    """Return the vector instruction sets that NumPy uses: its baseline and what it found at run time."""
    with redirect_stdout(io.StringIO()):
        found: dict[str, Any] = np.show_config(mode="dicts")  # type: ignore[assignment] # NumPy's stub has the printing mode's None
    extensions = found.get("SIMD Extensions", {})
    return (*extensions.get("baseline", ()), *extensions.get("found", ()))


@cache
def cpu_model() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def total_memory() -> tuple[int, int]:
    """Return the free and the total main memory in bytes; zeros if the system does not report them."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    except (ValueError, OSError):
        return 0, 0
