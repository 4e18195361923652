"""Memory that the judge and a candidate's process share."""

from __future__ import annotations

import fcntl
import mmap
import os

__all__ = ["create", "mapped"]


def create(name: str, nbytes: int) -> int:
    """The descriptor of zeros that nobody can make smaller: the judge would crash on bytes that are gone."""
    descriptor = os.memfd_create(f"cuassay-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def mapped(descriptor: int) -> memoryview:
    """All of it, to read and to write, for as long as the view is held."""
    return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
