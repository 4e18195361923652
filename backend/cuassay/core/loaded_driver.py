"""Whether this process uses the CUDA driver, whoever loaded it; asking neither loads nor initialises it."""

from __future__ import annotations

import ctypes
import os

__all__ = ["NOT_INITIALIZED", "driver_is_up", "loaded_driver"]

#: What ``cuDeviceGetCount`` answers while nobody has called ``cuInit``, and ``cuInit`` in a forked child.
NOT_INITIALIZED = 3


def loaded_driver() -> ctypes.CDLL | None:
    """The driver's library, if it is loaded in this process."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except (OSError, AttributeError):
        return None


def driver_is_up() -> bool:
    """Whether the driver is loaded and initialised in this process."""
    driver = loaded_driver()
    return driver is not None and bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALIZED)
