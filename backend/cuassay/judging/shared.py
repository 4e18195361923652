"""Memory that the judge and a candidate's process share, and the pipes between them."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import ExitStack

from cuassay.errors import OutOfMemoryError

__all__ = ["create", "mapped", "pipe"]


def create(name: str, nbytes: int, owner: ExitStack) -> int:
    """Return the descriptor of zeroed memory that cannot shrink, because the judge would crash on missing bytes."""
    descriptor = os.memfd_create(f"cuassay-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    owner.callback(os.close, descriptor)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Return the two ends of a new pipe, each of which its owner closes."""
    reads, writes = os.pipe()
    reader.callback(os.close, reads)
    writer.callback(os.close, writes)
    return reads, writes


def mapped(descriptor: int) -> memoryview:
    """Return a writable view of all of it, mapped for as long as the view exists.

    Raises
    ------
    OutOfMemoryError
        If this process has no room for it in its address space.
    """
    nbytes = os.fstat(descriptor).st_size
    try:
        return memoryview(mmap.mmap(descriptor, nbytes))
    except (OSError, OverflowError) as error:
        raise OutOfMemoryError(
            f"memory that is shared with a candidate cannot be mapped: {error}; got {nbytes:,} bytes to map; "
            "raise the limit on address space (ulimit -v), or lower Limits.arena_nbytes"
        ) from error
