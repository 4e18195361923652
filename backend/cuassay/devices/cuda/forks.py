"""Whether this process was forked from one that had initialised the driver, which then serves neither.

Whoever initialised it: cuassay, CuPy or another library. What to refuse is `runtime`'s.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from cuassay.errors import ForkError

__all__ = ["NOT_INITIALIZED", "error", "is_child"]

#: What ``cuDeviceGetCount`` answers while nobody has called ``cuInit``, and ``cuInit`` in a forked child.
NOT_INITIALIZED = 3


@dataclass
class _State:
    used: bool = False
    child: bool = False


_state = _State()


def is_child() -> bool:
    """Whether a parent had initialised the driver before the fork that made this process."""
    return _state.child


def error() -> ForkError:
    """What to raise in such a child."""
    return ForkError(
        f"CUDA was initialised before this process ({os.getpid()}) was forked, and a fork cannot use it; start "
        "workers with multiprocessing's 'spawn' or 'forkserver' method, or touch CUDA only after the fork"
    )


def _before() -> None:
    _state.used = _state.child or _driver_is_up()


def _in_child() -> None:
    _state.child = _state.used


def _driver_is_up() -> bool:
    """Whether the driver is loaded and initialised in this process; this neither loads nor initialises it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALIZED)
    except (OSError, AttributeError):
        return False


os.register_at_fork(before=_before, after_in_child=_in_child)
