"""Which integers can be the address of a stream: the driver dereferences any address, which may end the process."""

from __future__ import annotations

from typing import Any

from cuassay.core.words import shown
from cuassay.errors import ArgumentError

__all__ = ["address_of", "stream_at"]

#: 0 is the default stream, 1 the legacy one, 2 that of each thread; all other values are addresses.
_RESERVED = 2

#: No program on Linux has memory below this address, where non-relocated executables begin.
_LOWEST = 0x40_0000

#: The end of a process's addresses on x86-64 with five-level paging; it is lower on other systems.
_END = 2**56

#: Heap addresses from the driver are multiples of this.
_ALIGNMENT = 8


def address_of(stream: Any) -> int:
    """Return the address of a stream that is not CuPy's: an address, or any object with ``__cuda_stream__``.

    Raises
    ------
    ArgumentError
        If the object is neither; see `stream_at`.
    """
    if hasattr(stream, "__cuda_stream__"):
        described = stream.__cuda_stream__
        _, stream = described() if callable(described) else described
        stream = int(stream)
    return stream_at(stream)


def stream_at(address: Any) -> int:
    """Check that `address` could be a stream's; only the driver knows whether there is a stream.

    Raises
    ------
    ArgumentError
        If it is not an int, or no stream can have this address, such as the number of a device.
    """
    is_number = isinstance(address, int) and not isinstance(address, bool)
    if is_number and (0 <= address <= _RESERVED or (_LOWEST <= address < _END and not address % _ALIGNMENT)):
        return int(address)
    why = ": no stream can have this address" if is_number else ""
    raise ArgumentError(
        f"{shown(address)} is not a CUDA stream{why}; give one of cuassay's or CuPy's, its address, or an object with "
        "__cuda_stream__"
    )
