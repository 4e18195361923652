"""Find out whether this process uses the CUDA driver, or could, without initializing it."""

from __future__ import annotations

import ctypes
import os

__all__ = ["NOT_INITIALIZED", "driver_is_installed", "driver_is_up", "loaded_driver"]

#: The error of ``cuDeviceGetCount`` before ``cuInit``, and of ``cuInit`` in a forked child.
NOT_INITIALIZED = 3


def loaded_driver() -> ctypes.CDLL | None:
    """Return the driver's library if it is loaded in this process, else None."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except (OSError, AttributeError):
        return None


def driver_is_installed() -> bool:
    """Return whether the driver's library can be loaded. This loads it, which makes no context and starts no thread."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def driver_is_up() -> bool:
    """Return whether the driver is loaded and initialized in this process."""
    driver = loaded_driver()
    return driver is not None and bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALIZED)
