"""Memory that the judge and a candidate's process share."""

from __future__ import annotations

import fcntl
import mmap
import os

__all__ = ["create", "mapped"]


def create(name: str, nbytes: int) -> int:
    """Return the descriptor of zeroed memory that cannot shrink, because the judge would crash on missing bytes."""
    descriptor = os.memfd_create(f"cuassay-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def mapped(descriptor: int) -> memoryview:
    """Return a writable view of all of it, mapped for as long as the view exists."""
    return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
