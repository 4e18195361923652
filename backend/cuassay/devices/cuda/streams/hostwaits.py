"""Waits of the host inside CuPy, made visible to the sync debug mode.

CuPy reports `ndarray.get`, reads of a value (`float`, `bool`, `tolist`) and `Device.synchronize`. It does not report
waits of its own streams and events, and waits of other libraries are not seen either.
"""

from __future__ import annotations

from cuassay.core import syncdebug
from cuassay.devices.cuda.driver.cupy_private import listen_to_waits

__all__ = ["watch"]


def watch(mode: int) -> None:
    """Listen to CuPy in every mode but the default."""
    listen_to_waits("sync debug mode", _report if mode else None)


def _report() -> None:
    syncdebug.waits("a read of a CuPy array by the host, or Device.synchronize")
